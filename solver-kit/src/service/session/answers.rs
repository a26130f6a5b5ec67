//! The answers of a session: what a solver said is checked, and joined over ranks.

use amalgam_particles::text::vector;
use amalgam_particles::{DMat3, DVec3, MOMENTUM_LIMIT, NO_GROUP, ParticleId, Particles, SPEED_LIMIT, reduce};
use amalgam_proto::columns::WireError;
use amalgam_proto::contract::{Brief, Committed, SLOPE_LIMIT};
use amalgam_ranks::Ranks;
use bytemuck::Pod;
use rayon::prelude::*;

use super::run::Run;
use super::{Refusal, agreed};
use crate::error::SolverError;
use crate::joined::{by_number, concatenated};
use crate::solver::Report;
use crate::sums::state_hash;

/// The particles of all ranks at the first rank, ascending by id unless it is alone, with the body of each if there are
/// bodies. Collective.
pub(super) fn whole_table(
    ranks: &Ranks,
    own: &Particles,
    bodies: Option<Vec<ParticleId>>,
) -> (Particles, Option<Vec<ParticleId>>) {
    if ranks.is_alone() {
        return (own.clone(), bodies);
    }
    let order = ascending(&concatenated(ranks, &own.id));
    let by_id = InOrder { ranks, order: &order };
    let immovable: Vec<u8> = own.immovable.iter().copied().map(u8::from).collect();
    let particles = Particles {
        id: by_id.column(&own.id),
        position: by_id.column(&own.position),
        velocity: by_id.column(&own.velocity),
        mass: by_id.column(&own.mass),
        radius: by_id.column(&own.radius),
        immovable: by_id.column(&immovable).into_iter().map(|flag| flag != 0).collect(),
    };
    (particles, bodies.map(|bodies| by_id.column(&bodies)))
}

/// A brief account of the particles, if they are alike, with the nearest particle to each of some points [m]. The
/// particles are neither corners of triangles nor parts of bodies with others. Collective.
pub(super) fn brief(ranks: &Ranks, own: &Particles, nearest_to: &[DVec3]) -> Option<Brief> {
    let Particles { id, position, velocity, mass, radius, immovable } = own;
    let extremes = |values: &[f64]| {
        let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        [largest, values.iter().map(|value| -value).fold(f64::NEG_INFINITY, f64::max)]
    };
    let ([mass, lightest], [radius, smallest]) = (extremes(mass), extremes(radius));
    // Ids are below 2^48, so that f64 holds them.
    let last = id.iter().map(|id| id.0 as f64).fold(-1.0, f64::max);
    let held = f64::from(u8::from(immovable.contains(&true)));
    let speed = velocity.iter().map(|v| v.length()).fold(0.0, f64::max);
    let mut largest = [mass, lightest, radius, smallest, last, held, speed];
    ranks.max(&mut largest);
    let [mass, lightest, radius, smallest, last, held, speed_max] = largest;
    let mut count = [id.len() as i64];
    ranks.sum(&mut count);
    let are_alike = count[0] > 0 && mass == -lightest && radius == -smallest && held == 0.0;
    if !are_alike || last != (count[0] - 1) as f64 {
        return None;
    }
    // Of each rank the nearest particle to each point: its distance, as bits, which have the order of the numbers,
    // its id and its place.
    let nearest = |&point: &DVec3| {
        let near = |i: usize| (position[i].distance(point).to_bits(), id[i].0, i);
        let (distance, id, i) = (0..id.len()).into_par_iter().with_min_len(reduce::CHUNK).map(near).min()?;
        let [x, y, z] = position[i].to_array().map(f64::to_bits);
        Some([1, distance, id, x, y, z])
    };
    let (size, rank) = (ranks.size(), ranks.rank());
    let of_rank =
        nearest_to.iter().enumerate().filter_map(|(k, point)| Some((k * size + rank, nearest(point)?)));
    let of_ranks = ranks.shared::<[u64; 6]>(nearest_to.len() * size, of_rank);
    let nearest = of_ranks.chunks(size).filter_map(|of_ranks| {
        let found = of_ranks.iter().filter(|found| found[0] == 1).min();
        found.map(|&[_, _, id, x, y, z]| (ParticleId(id), DVec3::from_array([x, y, z].map(f64::from_bits))))
    });
    let (count, nearest) = (count[0] as u64, nearest.collect());
    Some(Brief { count, mass, radius, speed_max, state_hash: state_hash(ranks, own), nearest })
}

/// The places of ids, in ascending order of id.
pub(super) fn ascending(ids: &[ParticleId]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..ids.len() as u32).collect();
    order.sort_unstable_by_key(|&i| ids[i as usize]);
    order
}

/// Columns of all ranks in the order of a frame.
pub(super) struct InOrder<'a> {
    pub(super) ranks: &'a Ranks,
    pub(super) order: &'a [u32],
}

impl InOrder<'_> {
    pub(super) fn column<T: Pod>(&self, own: &[T]) -> Vec<T> {
        let all = concatenated(self.ranks, own);
        self.order.iter().map(|&i| all[i as usize]).collect()
    }
}

impl Run {
    /// The longest path of a free particle relative to its radius, or an upper bound of it below 1. An answer
    /// beyond the limits is stopped here, before it spoils others.
    pub(super) fn check_answer(&self) -> Result<f64, Refusal> {
        let (answer, particles, groups) = (&self.answer, self.solver.particles(), self.groups.len());
        assert_eq!(answer.momentum.len(), groups, "lengths of the solver's answer");
        let has_slopes = !answer.slope.is_empty() && self.ranks.is_first();
        assert!(!has_slopes || answer.slope.len() == groups, "slopes of the solver's answer");
        let bodies = if self.has_bodies && self.ranks.is_first() { groups } else { 0 };
        assert_eq!(answer.bodies.len(), bodies, "bodies of the solver's answer");
        let travel = match self.solver.deferred() {
            None => self.check_velocities(&answer.velocity),
            Some(deferred) => match deferred.travel_bound(self.dt) {
                bound if bound < 1.0 => Ok(bound),
                _ => self.check_velocities(&deferred.velocity(&Vec::from_iter(0..particles.len() as u32))),
            },
        };
        let mut travel_max = [agreed(&self.ranks, travel)?];
        self.ranks.max(&mut travel_max);
        agreed(&self.ranks, self.check_momenta())?;
        Ok(travel_max[0])
    }

    /// Refuses momenta of groups that are not finite or beyond the limit.
    fn check_momenta(&self) -> Result<(), Refusal> {
        if !self.ranks.is_first() {
            return Ok(());
        }
        let answer = &self.answer;
        for group in 0..self.groups.len() {
            let momentum = answer.momentum[group];
            let is_slope = answer.slope.get(group).is_none_or(|z| z.abs_diff_eq(DMat3::ZERO, SLOPE_LIMIT));
            if !(momentum.abs().cmplt(DVec3::splat(MOMENTUM_LIMIT)).all() && is_slope) {
                let id = self.member_ids[self.offsets[group] as usize];
                let momentum = vector(momentum);
                return Err(SolverError(format!(
                    "the group of particle {id} got momentum {momentum}: the solver is unstable"
                ))
                .into());
            }
        }
        Ok(())
    }

    /// The farthest that a free particle travels with these velocities [m/s], relative to its radius.
    fn check_velocities(&self, velocity: &[DVec3]) -> Result<f64, Refusal> {
        let (particles, group_of, dt) = (self.solver.particles(), self.groups.group_of(), self.dt);
        let is_travel =
            |v: DVec3, travel: f64| travel.is_finite() && v.abs().cmplt(DVec3::splat(SPEED_LIMIT)).all();
        assert_eq!(velocity.len(), particles.len(), "lengths of the solver's answer");
        let travel_max = reduce::max(particles.len(), 0.0, |i| {
            if group_of[i] != NO_GROUP {
                return 0.0;
            }
            let travel = velocity[i].length() * dt / particles.radius[i];
            match (is_travel(velocity[i], travel), particles.immovable[i]) {
                (false, _) => f64::INFINITY,
                (true, true) => 0.0,
                (true, false) => travel,
            }
        });
        if travel_max == f64::INFINITY {
            let wrong = |i: usize| group_of[i] == NO_GROUP && !is_travel(velocity[i], 0.0);
            let wrong = (0..particles.len()).find(|&i| wrong(i)).map(|i| (particles.id[i], velocity[i]));
            return Err(SolverError(match wrong {
                Some((id, v)) => format!("particle {id} got velocity {}: the solver is unstable", vector(v)),
                None => "a particle travels beyond all numbers in a step: the solver is unstable".into(),
            })
            .into());
        }
        Ok(travel_max)
    }

    /// Reports the end of a step. Tracked particles are where they are now; one that died is where it was
    /// `before`. Of the list `track`, this rank has the particles with these numbers.
    pub(super) fn report(
        &self,
        report: &Report,
        (track, number): (&[ParticleId], &[u32]),
        before: Vec<[DVec3; 2]>,
    ) -> Result<Committed, Refusal> {
        let particles = self.solver.particles();
        let now = |i: u32| [particles.position[i as usize], particles.velocity[i as usize]];
        let tracked = number.iter().zip(before).map(|(&number, before)| {
            let id = track[number as usize];
            self.ids.find(id).map_or(before, now)
        });
        let tracked = by_number(&self.ranks, number, tracked.collect()).unwrap_or_default();
        let (track_position, track_velocity) = tracked.into_iter().map(|[x, v]| (x, v)).unzip();
        let place = |id: &ParticleId| {
            let named = self.ids.find(*id).map(|i| i as usize);
            named.ok_or(WireError::UnknownId { column: "born or released", id: *id, who: "this solver" })
        };
        let own = |ids: &[ParticleId]| ids.iter().map(place).collect::<Result<Vec<usize>, WireError>>();
        let (born, released) = agreed(
            &self.ranks,
            own(&report.born).and_then(|born| Ok((born, own(&report.released)?))).map_err(Refusal::from),
        )?;
        let is_immovable = |&i: &usize| f64::from(u8::from(particles.immovable[i]));
        let born = born
            .iter()
            .map(|i| (particles.id[*i], [particles.mass[*i], particles.radius[*i], is_immovable(i)]));
        let (ids, values): (Vec<ParticleId>, Vec<[f64; 3]>) = born.unzip();
        let (ids, values) = (concatenated(&self.ranks, ids), concatenated(&self.ranks, values));
        let born = ids.iter().zip(values.iter());
        let born = born.map(|(&id, &[mass, radius, immovable])| (id, mass, radius, immovable != 0.0));
        let (ids, masses): (Vec<ParticleId>, Vec<f64>) =
            released.iter().map(|&i| (particles.id[i], particles.mass[i])).unzip();
        let (ids, masses) = (concatenated(&self.ranks, ids), concatenated(&self.ranks, masses));
        let mut released: Vec<(ParticleId, f64)> = ids.iter().copied().zip(masses.iter().copied()).collect();
        released.sort_unstable_by_key(|&(id, _)| id);
        let mut dead = concatenated(&self.ranks, &report.dead).into_owned();
        dead.sort_unstable();
        let mut counts = [particles.len() as i64, report.broken.len() as i64];
        self.ranks.sum(&mut counts);
        Ok(Committed {
            particles: counts[0] as u64,
            stable_dt: report.stable_dt,
            potential_energies: report
                .energies
                .iter()
                .map(|&(name, joule)| (name.to_string(), joule))
                .collect(),
            given: report.given,
            broken: counts[1] as u64,
            born: born.collect(),
            dead,
            released,
            track_position,
            track_velocity,
            ..Committed::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::random;

    use super::*;

    /// Particles `from` to below `to`, all alike.
    fn alike(from: u64, to: u64) -> Particles {
        let mut particles = Particles::default();
        for id in from..to {
            let place = |axis| random::uniform_f64(&[id, axis]);
            let position = DVec3::new(place(0), place(1), place(2));
            particles.push(ParticleId(id), position, position - 0.5, 2.0, 0.1, false);
        }
        particles
    }

    #[test]
    fn ranks_are_as_brief_as_one() {
        let points = [DVec3::ZERO, DVec3::splat(0.7), DVec3::new(0.2, 0.9, 5.0)];
        let one = brief(&Ranks::alone(), &alike(0, 100), &points).expect("they are alike");
        assert_eq!((one.count, one.mass, one.radius, one.nearest.len()), (100, 2.0, 0.1, 3));
        for (point, (id, place)) in points.iter().zip(&one.nearest) {
            let all = alike(0, 100);
            assert_eq!(all.position[id.0 as usize], *place);
            assert!(all.position.iter().all(|x| x.distance(*point) >= place.distance(*point)));
        }
        // One rank has no particle.
        let bounds = [0, 10, 10, 100];
        let part = |ranks: Ranks| {
            let rank = ranks.rank();
            brief(&ranks, &alike(bounds[rank], bounds[rank + 1]), &points)
        };
        let parts: Vec<Option<Brief>> = std::thread::scope(|scope| {
            let ranks: Vec<_> =
                Ranks::threads(3).into_iter().map(|ranks| scope.spawn(|| part(ranks))).collect();
            ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
        });
        assert!(parts.iter().all(|part| part.as_ref() == Some(&one)), "{parts:?}");
    }

    #[test]
    fn nothing_stands_for_particles_that_differ() {
        let brief = |particles: &Particles| brief(&Ranks::alone(), particles, &[]);
        assert!(brief(&alike(0, 5)).is_some());
        assert!(brief(&alike(1, 5)).is_none() && brief(&Particles::default()).is_none());
        let mut heavy = alike(0, 5);
        heavy.mass[3] = 2.5;
        let mut held = alike(0, 5);
        held.immovable[0] = true;
        let mut small = alike(0, 5);
        small.radius[4] = 0.05;
        for unlike in [heavy, held, small] {
            assert!(brief(&unlike).is_none(), "{unlike:?}");
        }
    }
}
