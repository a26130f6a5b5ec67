//! A solver without a coordinator, whose part the case takes. Every particle is a group of its own, so that
//! the case can add forces that no participant gives, or prescribe motion.

use super::case::CaseError;
use crate::scene::Scene;
use amalgam_particles::Particles;
use amalgam_solver_kit::{
    AloneGroups, FieldValues, Report, SectionError, Solver, SolverError, SolverProgram, World,
};
use amalgam_solver_solid::SolidProgram;
use glam::DVec3;

/// The solid solver of a scene's first participant.
pub(super) struct Alone {
    solver: Box<dyn Solver>,
    groups: AloneGroups,
    driver: amalgam_solver_kit::Alone,
    /// Length of the scene [s].
    pub(super) duration: f64,
    /// Length of a step [s]: the scene's longest, or what the solver can take.
    pub(super) dt: f64,
}

impl Alone {
    /// Starts the scene `text` of the case `name`, with values replaced as by `--set KEY=VALUE`.
    pub(super) fn start(name: &str, text: &str, set: &[String]) -> Result<Self, CaseError> {
        let (scene, world) = parse(name, text, set)?;
        let solver = SolidProgram.create(&scene.participants[0].section, &world).map_err(faults)?;
        let dt = scene.time.dt_max.min(solver.stable_dt());
        let groups = AloneGroups::each(solver.particles());
        Ok(Self {
            solver,
            groups,
            driver: amalgam_solver_kit::Alone::default(),
            duration: scene.time.duration,
            dt,
        })
    }

    /// The state at the start of the step.
    pub(super) fn particles(&self) -> &Particles {
        self.solver.particles()
    }

    /// Force of the material on each particle at the start of the step [N], for explicit solvers.
    pub(super) fn forces(&mut self) -> Result<Vec<DVec3>, CaseError> {
        self.solver.begin()?;
        self.groups.velocity.clone_from(&self.solver.particles().velocity);
        let answer = self.driver.integrate(self.solver.as_mut(), (&self.groups, 0.0), self.dt)?;
        Ok(answer.momentum.iter().map(|momentum| *momentum / self.dt).collect())
    }

    /// Ends the step; particles move with these velocities [m/s]. [`Self::forces`] must be called first.
    pub(super) fn commit(&mut self, velocity: &[DVec3]) -> Result<Report, CaseError> {
        Ok(self.driver.commit(self.solver.as_mut(), (&self.groups, velocity), self.dt)?)
    }

    /// Takes a step of velocity Verlet in its leapfrog form, with `external` forces [N] beside those of the
    /// material.
    pub(super) fn advance(
        &mut self,
        external: impl FnOnce(&Particles) -> Vec<DVec3>,
    ) -> Result<Report, CaseError> {
        let mut velocity = self.forces()?;
        let external = external(self.solver.particles());
        velocity.iter_mut().zip(external).for_each(|(force, external)| *force += external);
        self.kick(&mut velocity);
        self.commit(&velocity)
    }

    /// Turns forces [N] into the velocities [m/s] that particles have after the step.
    pub(super) fn kick(&self, forces: &mut [DVec3]) {
        let particles = self.solver.particles();
        for (i, force) in forces.iter_mut().enumerate() {
            let kick = *force * (self.dt / particles.mass[i]);
            *force = particles.velocity[i] + if particles.immovable[i] { DVec3::ZERO } else { kick };
        }
    }

    /// A field of the solver, a number per particle.
    pub(super) fn field(&mut self, name: &str) -> Result<Vec<f32>, CaseError> {
        field(self.solver.as_mut(), name)
    }
}

/// The scene `text` of the case `name`, and the world of its first participant.
pub(super) fn parse(name: &str, text: &str, set: &[String]) -> Result<(Scene, World), CaseError> {
    let scene = Scene::parse(&format!("validation/{name}/scene.toml"), text, set)?;
    let world = World {
        participant: scene.participants[0].name.clone(),
        domain: (scene.domain.min, scene.domain.max),
        gravity: scene.domain.gravity,
        seed: scene.header.seed,
        obstacles: Vec::new(),
        ranks: amalgam_solver_kit::Ranks::alone(),
    };
    Ok((scene, world))
}

/// The faults of a section as an error of the case.
pub(super) fn faults(faults: Vec<SectionError>) -> CaseError {
    let faults: Vec<String> = faults.iter().map(|f| format!("{}: {}", f.key, f.message)).collect();
    CaseError::Failed(faults.join("\n"))
}

/// A field of a solver, a number per particle.
pub(super) fn field(solver: &mut dyn Solver, name: &str) -> Result<Vec<f32>, CaseError> {
    match solver.fields().into_iter().find(|field| field.name == name).map(|field| field.values) {
        Some(FieldValues::Scalar(values)) => Ok(values),
        _ => Err(CaseError::Failed(format!("the solver has no field `{name}` of numbers"))),
    }
}

impl From<SolverError> for CaseError {
    fn from(error: SolverError) -> Self {
        Self::Failed(error.0)
    }
}
