//! A whole participant on one page: balls in free fall, explicit, colliding with each other if the scene
//! wants it.
//!
//! `cargo run --release -p amalgam-solver-kit --example balls -- --listen 127.0.0.1:7401` serves it; a scene
//! reaches it with `solver = "balls"` and `address = "127.0.0.1:7401"`.

use amalgam_particles::{DVec3, ParticleId, Particles, StepEnd};
use amalgam_solver_kit::{
    Answer, Description, Integration, Report, Request, SectionError, Solver, SolverError, SolverProgram,
    World, parse_section,
};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// Centres [m].
    positions: Vec<DVec3>,
    /// Velocities at the start [m/s]; at rest if absent.
    #[serde(default)]
    velocities: Vec<DVec3>,
    /// Mass of each ball [kg].
    mass: f64,
    /// Radius of each ball [m].
    radius: f64,
    #[serde(default)]
    self_collision: bool,
}

struct Balls {
    particles: Particles,
    gravity: DVec3,
    self_collision: bool,
}

impl Solver for Balls {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn self_colliding(&self) -> bool {
        self.self_collision
    }

    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        for (group, momentum) in answer.momentum.iter_mut().enumerate() {
            let members = request.groups.members(group).iter();
            *momentum = members.map(|&i| self.gravity * self.particles.mass[i as usize] * request.dt).sum();
        }
        for (after, &before) in answer.velocity.iter_mut().zip(&self.particles.velocity) {
            *after = before + self.gravity * request.dt;
        }
        Ok(())
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        end.advance(&mut self.particles, integrated);
        Ok(Report { stable_dt: f64::INFINITY, energies: vec![("stored", 0.0)], ..Report::default() })
    }
}

/// Serves balls.
pub struct BallsProgram;

impl SolverProgram for BallsProgram {
    fn describe(&self) -> Description {
        Description { name: "balls", version: env!("CARGO_PKG_VERSION"), integration: Integration::Explicit }
    }

    fn create(&self, section: &str, world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        let section: Section = parse_section(section)?;
        if !(section.velocities.is_empty() || section.velocities.len() == section.positions.len()) {
            return Err(vec![SectionError::new(
                "velocities",
                "give one velocity for each position, or none",
            )]);
        }
        let mut particles = Particles::default();
        for (i, &position) in section.positions.iter().enumerate() {
            let velocity = section.velocities.get(i).copied().unwrap_or_default();
            particles.push(ParticleId(i as u64), position, velocity, section.mass, section.radius, false);
        }
        particles.validate().map_err(|error| vec![SectionError::new("", error.to_string())])?;
        Ok(Box::new(Balls { particles, gravity: world.gravity, self_collision: section.self_collision }))
    }
}

#[allow(dead_code, reason = "tests include this file for the solver alone")]
fn main() -> std::process::ExitCode {
    amalgam_solver_kit::main(BallsProgram)
}
