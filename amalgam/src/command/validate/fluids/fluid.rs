//! The common parts of the cases of fluids: the method, and a fluid without a coordinator.

use amalgam_particles::Particles;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_kit::{Alone, Report, Solver, SolverProgram, World};
use glam::DVec3;

use crate::command::validate::alone::{faults, field, parse};
use crate::command::validate::case::CaseError;

/// Method by which a fluid is simulated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Method {
    /// Name in tables.
    pub(super) name: &'static str,
    /// Keys of the participant's section beside the scene's: `"method=\"flip\""`.
    pub(super) keys: &'static [&'static str],
}

impl Method {
    /// Arguments of `--set` that select the method.
    pub(super) fn set(self) -> Vec<String> {
        self.keys.iter().map(|key| format!("participants.water.settings.{key}")).collect()
    }
}

/// A fluid without a coordinator: none of its particles is in a group.
pub(super) struct Fluid {
    pub(super) solver: Box<dyn Solver>,
    pub(super) world: World,
    /// Length of the scene [s].
    pub(super) duration: f64,
    pub(super) dt_max: f64,
}

impl Fluid {
    /// Starts the scene `text` of the case `name`, with values replaced as by `--set KEY=VALUE`.
    pub(super) fn start(name: &str, text: &str, set: &[String]) -> Result<Self, CaseError> {
        let (scene, world) = parse(name, text, set)?;
        let solver = FluidProgram.create(&scene.participants[0].section, &world).map_err(faults)?;
        Ok(Self { solver, world, duration: scene.time.duration, dt_max: scene.time.dt_max })
    }

    /// The state at the start of the step.
    pub(super) fn particles(&self) -> &Particles {
        self.solver.particles()
    }

    /// Goes on to the end of the scene; calls `each` after every step with the time [s] and the solver's
    /// report.
    pub(super) fn run(
        &mut self,
        mut each: impl FnMut(&mut Self, f64, &Report) -> Result<(), CaseError>,
    ) -> Result<(), CaseError> {
        let (mut time, mut longest) = (0.0, self.solver.stable_dt());
        let mut alone = Alone::default();
        while time < self.duration {
            let rest = self.duration - time;
            let dt = longest.min(self.dt_max).min(rest);
            let report = alone.step_free(self.solver.as_mut(), dt)?;
            time = if dt < rest { time + dt } else { self.duration };
            longest = report.stable_dt;
            each(self, time, &report)?;
        }
        Ok(())
    }

    /// A field of the solver, a number per particle.
    pub(super) fn field(&mut self, name: &str) -> Result<Vec<f32>, CaseError> {
        field(self.solver.as_mut(), name)
    }

    /// Mass of all particles [kg].
    pub(super) fn mass(&self) -> f64 {
        self.particles().mass.iter().sum()
    }

    /// Momentum of all particles [kg m/s].
    pub(super) fn momentum(&self) -> DVec3 {
        let particles = self.particles();
        particles.velocity.iter().zip(&particles.mass).map(|(&v, &m)| m * v).sum()
    }

    /// Kinetic energy [J].
    pub(super) fn kinetic_energy(&self) -> f64 {
        let particles = self.particles();
        particles.velocity.iter().zip(&particles.mass).map(|(v, m)| 0.5 * m * v.length_squared()).sum()
    }

    /// Height of the centre of mass [m]; all particles weigh the same.
    pub(super) fn height(&self) -> f64 {
        let positions = &self.particles().position;
        positions.iter().map(|x| x.z).sum::<f64>() / positions.len() as f64
    }
}
