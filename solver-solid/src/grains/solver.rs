//! Loose grains that may attract each other, integrated explicitly.

use std::io::{self, Write};

use amalgam_particles::{Body, DVec3, ParticleId, Particles, StepEnd};
use amalgam_solver_kit::{
    Answer, ExactSum, Field as FrameField, FieldValues, Fields, Integration, Moves, Ranks, Report, Request,
    SectionError, SnapshotReader, SnapshotWriter, Solver, SolverError, World, agreed,
};
use rayon::prelude::*;

use crate::bodies::motion::Motion;
use crate::chunks::CHUNK;
use crate::finite::check_finite;
use crate::grains::gravity::{Field, Gravity};
use crate::grains::section;
use crate::grains::share::Share;

/// Part of its radius that a grain may fall in a step from rest.
const FALL: f64 = 0.25;

/// Grains without springs. A step is symplectic Euler: velocities by the forces where the grains are, then
/// positions by the new velocities. Forces depend on no group, so the answer has no slope.
pub struct GrainSolver {
    particles: Particles,
    motion: Motion,
    triangles: Vec<[ParticleId; 3]>,
    world_gravity: DVec3,
    gravity: Gravity,
    fields: Fields,
    self_collision: bool,
    /// The z that grains keep [m], if they move in a plane.
    plane: Option<f64>,
    /// True if grains turn.
    turns: bool,
    /// Angular velocity of each grain [rad/s]; empty if grains do not turn.
    spin: Vec<DVec3>,
    /// Field at the committed positions.
    field: Field,
    /// The grains are those of this rank.
    share: Share,
}

impl GrainSolver {
    /// Reads and checks a participant's section, and lays this rank's part of its bodies out. Collective.
    ///
    /// # Errors
    /// Every fault of the section, each with the path of its key.
    pub fn from_section(section: &str, world: &World) -> Result<Self, Vec<SectionError>> {
        let section::GrainSetup { mut layout, fields, self_collision, gravity, plane, spin: turns } =
            section::read(section, world)?;
        let flat = DVec3::new(1.0, 1.0, if plane.is_some() { 0.0 } else { 1.0 });
        let motion =
            Motion::new(std::mem::take(&mut layout.scripts), &layout.held_until, &mut layout.particles);
        let mut solver = Self {
            share: Share::new(&world.ranks, &layout.particles),
            particles: layout.particles,
            motion,
            triangles: layout.triangles,
            world_gravity: world.gravity * flat,
            gravity,
            fields,
            self_collision,
            plane,
            turns,
            spin: if turns { layout.spin } else { Vec::new() },
            field: Field::default(),
        };
        if solver.gravity.constant != 0.0 {
            solver.share.keep_masses(&solver.particles);
        }
        solver.feel();
        Ok(solver)
    }

    /// Finds the field where the grains are. Collective.
    fn feel(&mut self) {
        let Self { particles, share, gravity, field, .. } = self;
        if gravity.constant == 0.0 {
            field.acceleration.clear();
            field.acceleration.resize(particles.len(), DVec3::ZERO);
            return;
        }
        share.with_all(particles, |all| field.update(&share.ranks, &particles.id, all, gravity));
    }

    /// Moment of inertia of a grain about its middle [kg m^2]: that of a ball, or in a plane that of a disc.
    fn inertia(&self, i: usize) -> f64 {
        let part = if self.plane.is_some() { 0.5 } else { 0.4 };
        part * self.particles.mass[i] * self.particles.radius[i] * self.particles.radius[i]
    }

    /// Angular momentum [kg m^2/s] and kinetic energy [J] of the grains' spin, on all ranks. Collective.
    fn spin_totals(&self) -> (DVec3, f64) {
        if !self.turns {
            return (DVec3::ZERO, 0.0);
        }
        let zero = || std::array::from_fn(|_| ExactSum::new());
        let add = |mut sums: [ExactSum; 4], i: usize| {
            if !self.particles.immovable[i] {
                let (spin, inertia) = (self.spin[i], self.inertia(i));
                let [x, y, z] = (spin * inertia).to_array();
                let terms = [x, y, z, 0.5 * inertia * spin.length_squared()];
                sums.iter_mut().zip(terms).for_each(|(sum, term)| sum.add(term));
            }
            sums
        };
        let merge = |mut sums: [ExactSum; 4], others: [ExactSum; 4]| {
            sums.iter_mut().zip(&others).for_each(|(sum, other)| sum.merge(other));
            sums
        };
        let grains = (0..self.spin.len()).into_par_iter().with_min_len(CHUNK);
        let sums = grains.fold(zero, add).reduce(zero, merge);
        let sums = self.share.ranks.exact_sums(&sums);
        (DVec3::from_slice(&sums[..3]), sums[3])
    }

    /// Goes on from restored grains, at the time and with the step of [`Motion::clock`]. Collective.
    fn go_on(&mut self, clock: [f64; 2]) {
        self.motion.set_clock(clock, &mut self.particles);
        self.feel();
        if !self.share.ranks.is_alone() {
            self.deal();
        }
    }

    /// Gives grains to other ranks by a new cut of space. Collective.
    fn deal(&mut self) -> Option<Moves> {
        let moves = self.share.moves(&self.particles);
        if moves.is_empty() {
            return None;
        }
        let others = self.turns.then_some(&mut self.spin).into_iter().chain([&mut self.field.acceleration]);
        self.share.apply(&moves, &mut self.particles, others);
        self.motion.follow(&self.particles.id);
        Some(moves)
    }

    fn acceleration(&self, i: usize) -> DVec3 {
        self.field.acceleration[i] + self.world_gravity
    }

    /// Impulse of a grain in a step of `dt` [kg m/s], no drag or field on what is held.
    fn impulse(&self, i: usize, dt: f64) -> DVec3 {
        let mass = self.particles.mass[i];
        match self.fields.is_empty() || self.particles.immovable[i] {
            true => self.acceleration(i) * (mass * dt),
            false => self.change(i, dt) * mass,
        }
    }

    /// Change of a grain's velocity in a step of `dt` [m/s].
    fn change(&self, i: usize, dt: f64) -> DVec3 {
        let change = self.acceleration(i) * dt;
        if self.fields.is_empty() {
            return change;
        }
        let grain = (self.particles.position[i], self.particles.velocity[i]);
        change + self.fields.change(grain, (self.motion.clock()[0], dt))
    }

    fn check_acceleration(&self) -> Result<(), SolverError> {
        check_finite(&self.particles, &self.field.acceleration, "acceleration").map_err(
            |SolverError(message)| {
                SolverError(format!(
                    "{message}: another grain is at the same place; a softening would keep it finite"
                ))
            },
        )
    }
}

impl Solver for GrainSolver {
    fn integration(&self) -> Option<Integration> {
        Some(Integration::Explicit)
    }

    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn bodies(&self) -> Option<Vec<ParticleId>> {
        self.turns.then(|| self.particles.id.clone())
    }

    fn fields(&mut self) -> Vec<FrameField> {
        let components = |spin: &DVec3| spin.as_vec3().to_array();
        let values = || FieldValues::Vector(self.spin.iter().map(components).collect());
        self.turns.then(|| FrameField { name: "spin", values: values() }).into_iter().collect()
    }

    fn self_colliding(&self) -> bool {
        self.self_collision
    }

    fn triangles(&self) -> Vec<[ParticleId; 3]> {
        self.triangles.clone()
    }

    fn stable_dt(&self) -> f64 {
        let rate = |i: usize| self.field.acceleration[i].length() / (FALL * self.particles.radius[i]);
        let mut fastest = [(0..self.particles.len()).map(rate).fold(0.0, f64::max)];
        self.share.ranks.max(&mut fastest);
        let falling = if fastest[0] > 0.0 { 1.0 / fastest[0].sqrt() } else { f64::INFINITY };
        falling.min(self.fields.stable_dt())
    }

    fn begin(&mut self) -> Result<(), SolverError> {
        match self.gravity.constant == 0.0 {
            true => Ok(()),
            false => agreed(&self.share.ranks, self.check_acceleration()),
        }
    }

    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        for (i, velocity) in answer.velocity.iter_mut().enumerate() {
            let change = if self.particles.immovable[i] { DVec3::ZERO } else { self.change(i, request.dt) };
            *velocity = self.particles.velocity[i] + change;
        }
        let Answer { momentum, bodies, .. } = answer;
        let impulse = |i: u32| self.impulse(i as usize, request.dt);
        request.members.for_each(request.groups, impulse, |group, impulse| momentum[group] += impulse);
        if self.turns {
            let body = |i: u32| {
                let i = i as usize;
                let (mass, centre) = (self.particles.mass[i], self.particles.position[i]);
                let velocity = self.particles.velocity[i] + self.change(i, request.dt);
                Body::round(mass, self.inertia(i), centre, velocity, self.spin[i])
            };
            // A group is one grain.
            request.members.for_each(request.groups, body, |_, body| bodies.push(body));
        }
        check_finite(&self.particles, &answer.velocity, "velocity")
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        let step = (self.motion.clock()[0], end.dt);
        let before = (!self.fields.is_empty())
            .then(|| (self.particles.position.clone(), self.particles.velocity.clone()));
        end.advance(&mut self.particles, integrated);
        let pushed =
            before.map_or(0.0, |(x, v)| self.fields.work(&self.share.ranks, (&x, &v), &self.particles, step));
        for (group, spin) in end.group_spin.iter().enumerate() {
            if let Some(&grain) = end.groups.members(group).first() {
                self.spin[grain as usize] = *spin;
            }
        }
        let impulse = |i: usize| self.field.acceleration[i] * (self.particles.mass[i] * end.dt);
        let against = self.motion.work_against(&self.particles, impulse);
        let given = against + pushed + self.motion.advance(end.dt, self.world_gravity, &mut self.particles);
        let released = self.motion.release(&mut self.particles);
        if let Some(z) = self.plane {
            self.particles.position.iter_mut().for_each(|x| x.z = z);
            self.particles.velocity.iter_mut().for_each(|v| v.z = 0.0);
        }
        let Particles { position, velocity, .. } = &self.particles;
        let checked = check_finite(&self.particles, position, "position")
            .and_then(|()| check_finite(&self.particles, velocity, "velocity"));
        agreed(&self.share.ranks, checked)?;
        self.feel();
        let stored =
            if self.gravity.constant != 0.0 { ("gravitational", self.field.energy) } else { ("stored", 0.0) };
        Ok(Report {
            stable_dt: self.stable_dt(),
            energies: vec![stored],
            given,
            spin: self.spin_totals(),
            released,
            ..Report::default()
        })
    }

    fn share(&mut self, ranks: &Ranks) -> Result<(), SolverError> {
        if ranks.size() != self.share.ranks.size() {
            return Err(SolverError("the grains are not laid out for these ranks".into()));
        }
        self.motion.share(ranks, &self.particles.id);
        self.motion.join_parts();
        self.deal();
        Ok(())
    }

    fn migrate(&mut self) -> Option<Moves> {
        if self.share.is_due() { self.deal() } else { None }
    }

    fn save(&self) -> Result<Vec<u8>, SolverError> {
        let mut writer = SnapshotWriter::new(SNAPSHOT_HEADER);
        writer.integer(self.share.count() as u64);
        let Particles { id, position, velocity, .. } = &self.particles;
        for column in [position, velocity].into_iter().chain(self.turns.then_some(&self.spin)) {
            writer.vectors(&self.share.whole_column(id, column));
        }
        writer.numbers(self.motion.clock());
        Ok(writer.finish())
    }

    fn saves_parts(&self) -> bool {
        true
    }

    fn save_part(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut writer = SnapshotWriter::onto(PART_HEADER, to);
        let Particles { id, position, velocity, mass, radius, immovable } = &self.particles;
        writer.integer(id.len() as u64);
        id.iter().zip(immovable).for_each(|(id, &held)| writer.integer(2 * id.0 + u64::from(held)));
        for column in [position, velocity].into_iter().chain(self.turns.then_some(&self.spin)) {
            writer.vectors(column);
        }
        [mass, radius].into_iter().for_each(|column| writer.numbers(column.iter().copied()));
        writer.numbers(self.motion.clock());
        writer.end().map(drop)
    }

    fn restore_parts(&mut self, parts: &[Vec<u8>]) -> Result<(), SolverError> {
        let ranks = self.share.ranks.clone();
        let read: Result<Vec<GrainPart>, SolverError> =
            parts.iter().map(|bytes| GrainPart::read(bytes, self.turns)).collect();
        let parts = agreed(&ranks, read)?;
        // The first rank has a part.
        let clock = parts.first().map_or([0.0; 2], |part| part.clock).map(f64::to_bits);
        let clock = ranks.broadcast(clock.to_vec());
        let (mut particles, mut spin) = (Particles::default(), Vec::new());
        for mut part in parts {
            particles.append(part.particles);
            spin.append(&mut part.spin);
        }
        // One rank alone has its grains in the order of ids.
        let mut order: Vec<u32> = (0..particles.len() as u32).collect();
        order.sort_unstable_by_key(|&i| particles.id[i as usize]);
        particles.reorder(&order);
        if self.turns {
            spin = order.iter().map(|&i| spin[i as usize]).collect();
        }
        let mut count = [particles.len() as i64];
        ranks.sum(&mut count);
        let known = particles.id.last().is_none_or(|id| id.0 < self.share.count() as u64);
        let unique = particles.id.is_sorted_by(|a, b| a < b);
        let fits = known && unique && count[0] as usize == self.share.count();
        let other = || SolverError("the snapshot is not one of these grains: their ids differ".into());
        agreed(&ranks, if fits { Ok(()) } else { Err(other()) })?;
        (self.particles, self.spin) = (particles, spin);
        self.motion.follow(&self.particles.id);
        self.go_on([clock[0], clock[1]].map(f64::from_bits));
        Ok(())
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SolverError> {
        let mut reader = SnapshotReader::new(SNAPSHOT_HEADER, "the grain solver", snapshot)?;
        reader.expect(self.share.count(), "grains")?;
        let Particles { id, position, velocity, .. } = &mut self.particles;
        for column in [position, velocity].into_iter().chain(self.turns.then_some(&mut self.spin)) {
            let whole = reader.vectors(self.share.count() as u64)?;
            *column = id.iter().map(|id| whole[id.0 as usize]).collect();
        }
        let clock = reader.array()?;
        reader.finish()?;
        self.go_on(clock);
        Ok(())
    }
}

/// The beginning of a snapshot. Then follow the number of particles (u64), positions, velocities, spins if
/// grains turn, each in the order of ids, the time and the length of the last step (f64; all little-endian).
const SNAPSHOT_HEADER: &[u8] = b"amalgam grains 1\n";

/// The beginning of a rank's part of a snapshot. Then follow the number of its particles (u64), their ids, doubled and
/// with 1 added for one that is held (u64), positions, velocities, spins if grains turn, masses and radii in this
/// order, and time and length of the last step (f64; all little-endian).
const PART_HEADER: &[u8] = b"amalgam part of grains 1\n";

/// A rank's part of a snapshot.
struct GrainPart {
    particles: Particles,
    spin: Vec<DVec3>,
    clock: [f64; 2],
}

impl GrainPart {
    fn read(bytes: &[u8], turns: bool) -> Result<Self, SolverError> {
        let mut reader = SnapshotReader::new(PART_HEADER, "the grain solver", bytes)?;
        let count = reader.integer()?;
        let (mut id, mut immovable) = (Vec::new(), Vec::new());
        // One by one, so that a count that is too large ends here before memory is taken for it.
        for _ in 0..count {
            let named = reader.integer()?;
            id.push(ParticleId(named / 2));
            immovable.push(named % 2 == 1);
        }
        let (position, velocity) = (reader.vectors(count)?, reader.vectors(count)?);
        let spin = if turns { reader.vectors(count)? } else { Vec::new() };
        let (mass, radius) = (reader.numbers(count)?, reader.numbers(count)?);
        let clock = reader.array()?;
        reader.finish()?;
        Ok(Self { particles: Particles { id, position, velocity, mass, radius, immovable }, spin, clock })
    }
}
