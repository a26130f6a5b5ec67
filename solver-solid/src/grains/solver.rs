//! Loose grains that may attract each other, integrated explicitly.

use amalgam_particles::{Body, DVec3, ParticleId, Particles, StepEnd};
use amalgam_solver_kit::{
    Answer, Drag, Field as FrameField, FieldValues, Integration, Report, SectionError, SnapshotReader,
    SnapshotWriter, Solver, SolverError, Stage, World,
};

use crate::bodies::motion::Motion;
use crate::finite::check_finite;
use crate::grains::gravity::{Field, Gravity};
use crate::section;

/// Part of its radius that a grain may fall in a step from rest.
const FALL: f64 = 0.25;

/// Grains without springs. A step is symplectic Euler: velocities by the forces where the grains are, then positions by
/// the new velocities. Forces depend on no group, so the answer has no slope.
pub struct GrainSolver {
    particles: Particles,
    motion: Motion,
    triangles: Vec<[ParticleId; 3]>,
    world_gravity: DVec3,
    gravity: Gravity,
    drag: Drag,
    self_collision: bool,
    /// The z that grains keep [m], if they move in a plane.
    plane: Option<f64>,
    /// Angular velocity of each grain [rad/s]; empty if grains do not turn.
    spin: Vec<DVec3>,
    /// Field at the committed positions.
    field: Field,
}

impl GrainSolver {
    /// Reads and checks a participant's section, and lays its bodies out.
    ///
    /// # Errors
    /// Every fault of the section, each with the path of its key.
    pub fn from_section(section: &str, world: &World) -> Result<Self, Vec<SectionError>> {
        let section::Grains { mut layout, drag, self_collision, gravity, plane, spin } =
            section::read_grains(section, world.seed)?;
        let flat = DVec3::new(1.0, 1.0, if plane.is_some() { 0.0 } else { 1.0 });
        let motion =
            Motion::new(std::mem::take(&mut layout.scripts), &layout.held_until, &mut layout.particles);
        let mut solver = Self {
            particles: layout.particles,
            motion,
            triangles: layout.triangles,
            world_gravity: world.gravity * flat,
            gravity,
            drag,
            self_collision,
            plane,
            spin: if spin { layout.spin } else { Vec::new() },
            field: Field::default(),
        };
        solver.feel();
        Ok(solver)
    }

    fn feel(&mut self) {
        let (particles, gravity, field) = (&self.particles, &self.gravity, &mut self.field);
        rayon::scope(|_| field.update(particles, gravity));
    }

    /// Moment of inertia of a grain about its middle [kg m^2]: that of a ball, or in a plane that of a disc.
    fn inertia(&self, i: usize) -> f64 {
        let part = if self.plane.is_some() { 0.5 } else { 0.4 };
        part * self.particles.mass[i] * self.particles.radius[i] * self.particles.radius[i]
    }

    /// Angular momentum [kg m^2/s] and kinetic energy [J] of the grains' spin.
    fn spin_totals(&self) -> (DVec3, f64) {
        let turning = self.spin.iter().enumerate().filter(|&(i, _)| !self.particles.immovable[i]);
        turning.fold((DVec3::ZERO, 0.0), |(momentum, energy), (i, spin)| {
            let inertia = self.inertia(i);
            (momentum + *spin * inertia, energy + 0.5 * inertia * spin.length_squared())
        })
    }

    fn acceleration(&self, i: usize) -> DVec3 {
        self.field.acceleration[i] + self.world_gravity
    }

    /// Impulse of a grain in a step of `dt` [kg m/s], no drag on what is held.
    fn impulse(&self, i: usize, dt: f64) -> DVec3 {
        let mass = self.particles.mass[i];
        match self.drag.is_empty() || self.particles.immovable[i] {
            true => self.acceleration(i) * (mass * dt),
            false => self.change(i, dt) * mass,
        }
    }

    /// Change of a grain's velocity in a step of `dt` [m/s].
    fn change(&self, i: usize, dt: f64) -> DVec3 {
        let change = self.acceleration(i) * dt;
        if self.drag.is_empty() {
            return change;
        }
        let grain = (self.particles.position[i], self.particles.velocity[i]);
        change + self.drag.change(grain, (self.motion.clock()[0], dt))
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
        (!self.spin.is_empty()).then(|| self.particles.id.clone())
    }

    fn fields(&self) -> Vec<FrameField> {
        let components = |spin: &DVec3| spin.as_vec3().to_array();
        let values = || FieldValues::Vector(self.spin.iter().map(components).collect());
        (!self.spin.is_empty()).then(|| FrameField { name: "spin", values: values() }).into_iter().collect()
    }

    fn self_colliding(&self) -> bool {
        self.self_collision
    }

    fn triangles(&self) -> Vec<[ParticleId; 3]> {
        self.triangles.clone()
    }

    fn stable_dt(&self) -> f64 {
        let rate = |i: usize| self.field.acceleration[i].length() / (FALL * self.particles.radius[i]);
        let fastest = (0..self.particles.len()).map(rate).fold(0.0, f64::max);
        if fastest > 0.0 { 1.0 / fastest.sqrt() } else { f64::INFINITY }
    }

    fn begin(&mut self) -> Result<(), SolverError> {
        self.check_acceleration()
    }

    fn integrate(&mut self, stage: &Stage<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        for (i, velocity) in answer.velocity.iter_mut().enumerate() {
            let change = if self.particles.immovable[i] { DVec3::ZERO } else { self.change(i, stage.dt) };
            *velocity = self.particles.velocity[i] + change;
        }
        for (group, momentum) in answer.momentum.iter_mut().enumerate() {
            let members = stage.groups.members(group).iter().map(|&i| i as usize);
            *momentum = members.map(|i| self.impulse(i, stage.dt)).sum();
        }
        if !self.spin.is_empty() {
            for group in 0..stage.groups.len() {
                let i = stage.groups.members(group)[0] as usize;
                let (mass, centre) = (self.particles.mass[i], self.particles.position[i]);
                let velocity = self.particles.velocity[i] + self.change(i, stage.dt);
                answer.bodies.push(Body::round(mass, self.inertia(i), centre, velocity, self.spin[i]));
            }
        }
        check_finite(&self.particles, &answer.velocity, "velocity")
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        let step = (self.motion.clock()[0], end.dt);
        let before = (!self.drag.is_empty())
            .then(|| (self.particles.position.clone(), self.particles.velocity.clone()));
        end.advance(&mut self.particles, integrated);
        let dragged = before.map_or(0.0, |(x, v)| self.drag.work((&x, &v), &self.particles, step));
        for (group, spin) in end.group_spin.iter().enumerate() {
            self.spin[end.groups.members(group)[0] as usize] = *spin;
        }
        let pull = |i: usize| self.field.acceleration[i] * (self.particles.mass[i] * end.dt);
        let against = self.motion.work_against(&self.particles, pull);
        let given = against + dragged + self.motion.advance(end.dt, self.world_gravity, &mut self.particles);
        let released = self.motion.release(&mut self.particles);
        if let Some(z) = self.plane {
            self.particles.position.iter_mut().for_each(|x| x.z = z);
            self.particles.velocity.iter_mut().for_each(|v| v.z = 0.0);
        }
        check_finite(&self.particles, &self.particles.position, "position")?;
        check_finite(&self.particles, &self.particles.velocity, "velocity")?;
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

    fn save(&self) -> Result<Vec<u8>, SolverError> {
        let mut writer = SnapshotWriter::new(SNAPSHOT_HEADER);
        writer.integer(self.particles.len() as u64);
        let columns = [&self.particles.position, &self.particles.velocity, &self.spin];
        columns.into_iter().for_each(|column| writer.vectors(column));
        writer.numbers(self.motion.clock());
        Ok(writer.finish())
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SolverError> {
        let mut reader = SnapshotReader::new(SNAPSHOT_HEADER, "the grain solver", snapshot)?;
        reader.expect(self.particles.len(), "grains")?;
        for column in [&mut self.particles.position, &mut self.particles.velocity, &mut self.spin] {
            *column = reader.vectors(column.len() as u64)?;
        }
        self.motion.set_clock(reader.array()?, &mut self.particles);
        reader.finish()?;
        self.feel();
        Ok(())
    }
}

/// The beginning of a snapshot. Then follow the number of particles (u64), positions, velocities, spins if grains turn, the time and the
/// length of the last step (f64; all little-endian).
const SNAPSHOT_HEADER: &[u8] = b"amalgam grains 1\n";
