//! Loose grains that may attract each other, integrated explicitly.

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
    /// Reads and checks a participant's section, and lays its bodies out.
    ///
    /// # Errors
    /// Every fault of the section, each with the path of its key.
    pub fn from_section(section: &str, world: &World) -> Result<Self, Vec<SectionError>> {
        let section::GrainSetup { mut layout, fields, self_collision, gravity, plane, spin } =
            section::read(section, world.seed)?;
        let flat = DVec3::new(1.0, 1.0, if plane.is_some() { 0.0 } else { 1.0 });
        let motion =
            Motion::new(std::mem::take(&mut layout.scripts), &layout.held_until, &mut layout.particles);
        let spin = if spin { layout.spin } else { Vec::new() };
        let mut solver = Self {
            share: Share::whole(&layout.particles),
            particles: layout.particles,
            motion,
            triangles: layout.triangles,
            world_gravity: world.gravity * flat,
            gravity,
            fields,
            self_collision,
            plane,
            turns: !spin.is_empty(),
            spin,
            field: Field::default(),
        };
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
        self.motion.share(ranks, &self.particles.id);
        if self.gravity.constant != 0.0 {
            self.share.keep_masses(&self.particles);
        }
        let own = self.share.begin(ranks);
        self.particles.reorder(&own);
        for column in self.turns.then_some(&mut self.spin).into_iter().chain([&mut self.field.acceleration]) {
            *column = own.iter().map(|&i| column[i as usize]).collect();
        }
        self.motion.follow(&self.particles.id);
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
        self.motion.set_clock(clock, &mut self.particles);
        self.feel();
        if !self.share.ranks.is_alone() {
            self.deal();
        }
        Ok(())
    }
}

/// The beginning of a snapshot. Then follow the number of particles (u64), positions, velocities, spins if
/// grains turn, each in the order of ids, the time and the length of the last step (f64; all little-endian).
const SNAPSHOT_HEADER: &[u8] = b"amalgam grains 1\n";
