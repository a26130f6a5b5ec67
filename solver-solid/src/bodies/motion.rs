//! Particles that move by a script, independent of forces.

use std::collections::{HashMap, HashSet};

use amalgam_particles::{DVec3, ParticleId, Particles};
use amalgam_solver_kit::{ExactSum, Ranks};
use glam::DQuat;

/// Prescribed motion of particles from one time to another: a velocity, and a rotation about a centre that
/// moves with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Script {
    /// Velocity [m/s].
    pub(crate) velocity: DVec3,
    /// Angular velocity [rad/s].
    pub(crate) angular_velocity: DVec3,
    /// Centre of the rotation before `from` [m].
    pub(crate) center: DVec3,
    /// Start [s].
    pub(crate) from: f64,
    /// End [s].
    pub(crate) until: f64,
    /// Time at which it lets its particles go [s].
    pub(crate) release: f64,
}

/// Times that differ by less than this part of a step are equal.
const ROUNDING: f64 = 1e-6;

impl Script {
    /// Part of the time from `start` to `end` in which the script is in force [s].
    fn in_force(&self, start: f64, end: f64) -> f64 {
        (end.min(self.until) - start.max(self.from)).max(0.0)
    }

    /// Velocity [m/s] of a particle at `position` that takes it in a step of length `dt` from `time` to where
    /// the script wants it. With no length it is the velocity at that moment.
    fn velocity(&self, position: DVec3, time: f64, dt: f64) -> DVec3 {
        if dt == 0.0 {
            let arm = position - self.center;
            let in_force = self.from <= time && time < self.until;
            return if in_force { self.velocity + self.angular_velocity.cross(arm) } else { DVec3::ZERO };
        }
        let in_force = self.in_force(time, time + dt);
        let arm = position - self.center - self.velocity * self.in_force(0.0, time);
        let turn = DQuat::from_scaled_axis(self.angular_velocity * in_force);
        (self.velocity * in_force + (turn * arm - arm)) / dt
    }

    /// Velocity [m/s] with which it leaves a particle at `position` that it lets go at the end of a step of
    /// length `dt`, at `time` [s].
    fn release_velocity(&self, position: DVec3, time: f64, dt: f64) -> DVec3 {
        let time = time.min(self.release);
        if self.in_force(time - ROUNDING * dt, time) == 0.0 {
            return DVec3::ZERO;
        }
        let arm = position - self.center - self.velocity * self.in_force(0.0, time);
        self.velocity + self.angular_velocity.cross(arm)
    }
}

/// All scripts of a solver, and the time.
///
/// A particle's velocity in a step must be known when the step begins, since contacts are found with it, but
/// how long the step will be is decided later. So it is the velocity that takes the particle to its place if
/// the step is as long as the last one: exact while steps are equal. A step of another length leaves a
/// particle that turns off its circle by a part of (angle of the step)^2, and one that starts or stops by a
/// part of a step's way.
///
/// A particle is let go at the end of the first step that reaches its time, with the velocity that its
/// scripts have at that moment.
///
/// If ranks share a solver's particles, each rank knows all scripts and applies them to its own particles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Motion {
    scripts: Vec<(Script, Vec<u32>)>,
    /// The particles of all scripts and those that are held at a velocity, each once.
    all: Vec<u32>,
    /// Particles that are let go, and when [s], ascending by time.
    releases: Vec<(f64, u32)>,
    time: f64,
    dt: f64,
    ranks: Ranks,
    /// The particles of all ranks that are named above, if there are several ranks.
    named: Named,
}

/// Particles by id, in the order of the places that stand in [`Motion`].
#[derive(Clone, Debug, Default)]
struct Named {
    scripts: Vec<Vec<ParticleId>>,
    all: Vec<ParticleId>,
    releases: Vec<(f64, ParticleId)>,
}

impl Motion {
    /// Scripts with their particles, which get their first velocities. Other immovable particles keep theirs.
    /// `held_until` is the time until which each particle is held [s], infinite for one that is never let go.
    pub(crate) fn new(
        scripts: Vec<(Script, Vec<u32>)>,
        held_until: &[f64],
        particles: &mut Particles,
    ) -> Self {
        let mut all: Vec<u32> = scripts.iter().flat_map(|(_, scripted)| scripted).copied().collect();
        all.extend(
            (0..particles.len())
                .filter(|&i| particles.immovable[i] && particles.velocity[i] != DVec3::ZERO)
                .map(|i| i as u32),
        );
        all.sort_unstable();
        all.dedup();
        let held = (0..particles.len()).filter(|&i| particles.immovable[i] && held_until[i].is_finite());
        let mut releases: Vec<(f64, u32)> = held.map(|i| (held_until[i], i as u32)).collect();
        releases.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let motion = Self { scripts, all, releases, ..Self::default() };
        motion.set_velocities(particles);
        motion
    }

    /// The ranks share the solver's particles from here on; `ids` are those that this rank has laid out.
    /// [`Self::follow`] then says whom this rank has.
    pub(crate) fn share(&mut self, ranks: &Ranks, ids: &[ParticleId]) {
        let id = |&i: &u32| ids[i as usize];
        self.ranks = ranks.clone();
        self.named = Named {
            scripts: self.scripts.iter().map(|(_, scripted)| scripted.iter().map(id).collect()).collect(),
            all: self.all.iter().map(id).collect(),
            releases: self.releases.iter().map(|(time, i)| (*time, id(i))).collect(),
        };
    }

    /// Takes over what other ranks know of particles that they have laid out. No scripts move these. Collective.
    pub(crate) fn join_parts(&mut self) {
        let Named { all, releases, .. } = &mut self.named;
        let own: Vec<u64> = all.iter().map(|id| id.0).collect();
        let joined = self.ranks.gather(own).map(|ids| ids.concat()).unwrap_or_default();
        *all = self.ranks.broadcast(joined).into_iter().map(ParticleId).collect();
        all.sort_unstable();
        let own: Vec<[u64; 2]> = releases.iter().map(|(time, id)| [time.to_bits(), id.0]).collect();
        let joined = self.ranks.gather(own).map(|releases| releases.concat()).unwrap_or_default();
        let joined = self.ranks.broadcast(joined).into_iter();
        *releases = joined.map(|[time, id]| (f64::from_bits(time), ParticleId(id))).collect();
        releases.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }

    /// Takes over that this rank, one of several, has the particles of these `ids` now.
    pub(crate) fn follow(&mut self, ids: &[ParticleId]) {
        let Named { scripts, all, releases } = &self.named;
        if all.is_empty() && releases.is_empty() {
            return;
        }
        let places: HashMap<ParticleId, u32> = ids.iter().copied().zip(0..).collect();
        let here = |ids: &[ParticleId]| -> Vec<u32> {
            ids.iter().filter_map(|id| places.get(id)).copied().collect()
        };
        for ((_, scripted), ids) in self.scripts.iter_mut().zip(scripts) {
            *scripted = here(ids);
        }
        self.all = here(all);
        let release = |&(time, id): &(f64, ParticleId)| Some((time, *places.get(&id)?));
        self.releases = releases.iter().filter_map(release).collect();
    }

    /// A step of length `dt` is over: gives scripted particles their velocities for the next one. Returns the
    /// work of the scripts on their particles [J], against inertia and against `gravity` [m/s^2]; of all
    /// ranks. Collective.
    pub(crate) fn advance(&mut self, dt: f64, gravity: DVec3, particles: &mut Particles) -> f64 {
        self.time += dt;
        self.dt = dt;
        let lifted =
            |particles: &Particles, i: usize| particles.mass[i] * gravity.dot(particles.velocity[i]) * dt;
        let kinetic = |particles: &Particles, i: usize| {
            0.5 * particles.mass[i] * particles.velocity[i].length_squared()
        };
        let mut sums = [ExactSum::new(), ExactSum::new(), ExactSum::new()];
        sums[0].extend(self.scripted(particles).map(|i| lifted(particles, i)));
        sums[1].extend(self.scripted(particles).map(|i| kinetic(particles, i)));
        self.set_velocities(particles);
        sums[2].extend(self.scripted(particles).map(|i| kinetic(particles, i)));
        let sums = self.ranks.exact_sums(&sums);
        sums[2] - sums[1] - sums[0]
    }

    /// Lets particles go whose time has come. Returns who they are.
    pub(crate) fn release(&self, particles: &mut Particles) -> Vec<ParticleId> {
        let mut released = Vec::new();
        for i in self.due().iter().map(|&(_, i)| i as usize) {
            if std::mem::take(&mut particles.immovable[i]) {
                released.push(particles.id[i]);
            }
        }
        released
    }

    /// Releases whose time has come, now or earlier.
    fn due(&self) -> &[(f64, u32)] {
        &self.releases[..self.releases.partition_point(|&(time, _)| self.has_come(time))]
    }

    fn has_come(&self, time: f64) -> bool {
        time <= self.time + ROUNDING * self.dt
    }

    /// The particles that scripts move or that are held at a velocity, each once.
    fn scripted<'a>(&'a self, particles: &'a Particles) -> impl Iterator<Item = usize> + 'a {
        self.all.iter().map(|&i| i as usize).filter(|&i| particles.immovable[i])
    }

    /// Work [J] that scripts do on their particles in a step, summed over ranks. `impulse(i)` is the impulse of
    /// all other forces on particle i in the step [kg m/s]. Collective.
    pub(crate) fn work_against(&self, particles: &Particles, impulse: impl Fn(usize) -> DVec3) -> f64 {
        let works = self.scripted(particles).map(|i| impulse(i).dot(particles.velocity[i]));
        -self.ranks.exact_sum(&works.collect())
    }

    /// True if a scripted particle moves now.
    pub(crate) fn is_moving(&self, particles: &Particles) -> bool {
        self.scripted(particles).any(|i| particles.velocity[i] != DVec3::ZERO)
    }

    /// Sets the velocities of scripted particles for the next step, and the last velocities of particles that
    /// scripts let go now.
    fn set_velocities(&self, particles: &mut Particles) {
        let Particles { position, velocity, immovable, .. } = particles;
        let held = |scripted: &[u32]| -> Vec<usize> {
            scripted.iter().map(|&i| i as usize).filter(|&i| immovable[i]).collect()
        };
        for i in self.scripts.iter().flat_map(|(_, scripted)| held(scripted)) {
            velocity[i] = DVec3::ZERO;
        }
        let leaves: HashSet<u32> = self.due().iter().map(|&(_, i)| i).collect();
        // A script that has let go in an earlier step says nothing to whom others hold.
        let gone = |script: &Script| script.release <= self.time - (1.0 - ROUNDING) * self.dt;
        for (script, scripted) in self.scripts.iter().filter(|(script, _)| !gone(script)) {
            for i in held(scripted) {
                if leaves.contains(&(i as u32)) {
                    velocity[i] += script.release_velocity(position[i], self.time, self.dt);
                } else if !self.has_come(script.release) {
                    velocity[i] += script.velocity(position[i], self.time, self.dt);
                }
            }
        }
    }

    /// Values that a snapshot keeps: the time and the length of the last step [s].
    pub(crate) fn clock(&self) -> [f64; 2] {
        [self.time, self.dt]
    }

    /// Restores the time and step length of [`Self::clock`], and the particles that are held at that time.
    pub(crate) fn set_clock(&mut self, [time, dt]: [f64; 2], particles: &mut Particles) {
        (self.time, self.dt) = (time, dt);
        self.releases.iter().for_each(|&(_, i)| particles.immovable[i as usize] = true);
        self.release(particles);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(position: DVec3) -> Particles {
        let mut particles = Particles::default();
        particles.push(ParticleId(0), position, DVec3::ZERO, 1.0, 0.1, true);
        particles
    }

    fn go(script: Script, dt: f64, steps: usize) -> DVec3 {
        let mut particles = one(DVec3::X);
        let mut motion = Motion::new(vec![(script, vec![0])], &[script.release], &mut particles);
        for _ in 0..steps {
            let velocity = particles.velocity[0];
            particles.position[0] += velocity * dt;
            motion.advance(dt, DVec3::ZERO, &mut particles);
            motion.release(&mut particles);
        }
        particles.position[0]
    }

    const STILL: Script = Script {
        velocity: DVec3::ZERO,
        angular_velocity: DVec3::ZERO,
        center: DVec3::ZERO,
        from: 0.0,
        until: f64::INFINITY,
        release: f64::INFINITY,
    };

    #[test]
    fn a_velocity_lasts_as_long_as_it_should() {
        // Neither end falls on a step.
        let script = Script { velocity: DVec3::Y, from: 0.25, until: 0.85, ..STILL };
        assert!(go(script, 0.1, 20).distance(DVec3::new(1.0, 0.6, 0.0)) < 1e-14);
    }

    #[test]
    fn a_rotation_stays_on_its_circle() {
        let script = Script { angular_velocity: 3.0 * DVec3::Z, center: DVec3::Y, ..STILL };
        // The first step has no length to go by: it leaves the circle by half of its angle squared.
        let end = go(script, 0.01, 1000);
        assert!((end.distance(DVec3::Y) / 2f64.sqrt() - 1.0).abs() < 0.5e-3, "{end}");
        let angle = 30.0 - 0.25 * std::f64::consts::PI - (end - DVec3::Y).y.atan2(end.x);
        assert!(
            (angle / std::f64::consts::TAU - (angle / std::f64::consts::TAU).round()).abs() < 1e-4,
            "{angle}"
        );
        let moving = Script { velocity: 2.0 * DVec3::Z, center: DVec3::ZERO, ..script };
        let end = go(moving, 0.01, 1000);
        assert!((end.truncate().length() - 1.0).abs() < 1e-3 && (end.z - 20.0).abs() < 1e-12, "{end}");
    }

    /// The work of a step, and of each particle its id, its position and velocity, and whether it is held.
    type Told = (f64, Vec<(u64, [f64; 6], bool)>);

    /// Twelve particles under two scripts, one of which lets go, with one that is held at a velocity: as they
    /// are after each of some steps, by id, and the work of each step. After every step, particles change
    /// ranks.
    fn shared(ranks: &Ranks) -> Vec<Told> {
        let mut all = Particles::default();
        for i in 0..12u64 {
            let x = DVec3::new(0.1 * i as f64, 0.3, 0.07 * i as f64);
            let velocity = if i == 7 { DVec3::Z } else { DVec3::ZERO };
            all.push(ParticleId(i), x, velocity, 0.3 + i as f64, 0.1, i < 10);
        }
        let turning = Script { angular_velocity: 3.0 * DVec3::Z, release: 0.55, ..STILL };
        let moving = Script { velocity: DVec3::new(0.1, 0.2, 0.3), from: 0.3, ..STILL };
        let scripts = vec![(turning, vec![0, 2, 4]), (moving, vec![1, 2, 3, 4, 5])];
        let held: Vec<f64> =
            (0..12).map(|i| if [0, 2, 4].contains(&i) { 0.55 } else { f64::INFINITY }).collect();
        let mut motion = Motion::new(scripts, &held, &mut all);
        motion.share(ranks, &all.id);
        let mut particles = all.clone();
        let owner = |id: u64, step: u64| ((id + step) % ranks.size() as u64) as usize;
        let mut told = Vec::new();
        for step in 0..10u64 {
            // All ranks' particles by id, of which this rank takes its part.
            let states = |particles: &Particles| -> Vec<[f64; 8]> {
                let of = |i: usize| {
                    let ([x, y, z], [u, v, w]) =
                        (particles.position[i].to_array(), particles.velocity[i].to_array());
                    [particles.id[i].0 as f64, x, y, z, u, v, w, f64::from(u8::from(particles.immovable[i]))]
                };
                (0..particles.len()).map(of).collect()
            };
            let mut now: Vec<[f64; 8]> = if step == 0 {
                states(&particles)
            } else {
                ranks.broadcast(ranks.gather(states(&particles)).unwrap_or_default().concat())
            };
            now.sort_by(|a, b| a[0].total_cmp(&b[0]));
            for (i, &[_, x, y, z, u, v, w, held]) in now.iter().enumerate() {
                (all.position[i], all.velocity[i]) = (DVec3::new(x, y, z), DVec3::new(u, v, w));
                all.immovable[i] = held != 0.0;
            }
            particles = all.clone();
            let own: Vec<u32> = (0..12).filter(|&i| owner(u64::from(i), step) == ranks.rank()).collect();
            particles.reorder(&own);
            motion.follow(&particles.id);
            let Particles { position, velocity, .. } = &mut particles;
            position.iter_mut().zip(velocity).for_each(|(x, v)| *x += *v * 0.1);
            let work = motion.advance(0.1, DVec3::NEG_Z, &mut particles);
            motion.release(&mut particles);
            let bits =
                now.iter().map(|&[id, x, y, z, u, v, w, held]| (id as u64, [x, y, z, u, v, w], held != 0.0));
            told.push((work, bits.collect()));
        }
        told
    }

    #[test]
    fn scripts_follow_particles_from_rank_to_rank() {
        let alone = shared(&Ranks::alone());
        let (_, last) = alone.last().expect("ten steps");
        assert!(!last[0].2 && last[1].2 && last[4].1[3] != 0.0 && last[7].1[5] == 1.0, "{last:?}");
        for size in [2, 3, 5] {
            std::thread::scope(|scope| {
                let ranks: Vec<_> = Ranks::threads(size)
                    .into_iter()
                    .map(|ranks| scope.spawn(move || shared(&ranks)))
                    .collect();
                for rank in ranks {
                    assert_eq!(rank.join().expect("a rank"), alone, "{size} ranks");
                }
            });
        }
    }
}
