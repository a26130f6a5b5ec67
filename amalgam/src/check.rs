//! `amalgam check`: says whether a scene can run, without running it.

use crate::{
    cli::CheckArgs,
    console::{Console, say},
    error::CommandError,
    run::local::{Locals, Transport},
    scene::Scene,
};
use amalgam_coordinator::{Cancel, Simulation};

/// Checks a scene, its solvers' sections included, and prints what is in it.
///
/// # Errors
/// A wrong scene, or a solver that cannot be reached.
pub fn check(args: &CheckArgs) -> Result<(), CommandError> {
    let scene = Scene::read(&args.scene, &args.set)?;
    let console = Console::new(true);
    let (_locals, participants) = Locals::start(&scene, Transport::InProcess, None, &console)?;
    let simulation = Simulation::connect(scene.plan(), participants, &Cancel::new());
    let mut simulation = simulation.map_err(|error| CommandError::at_start(&scene, error))?;
    say(format_args!("{} is right", scene.file()))?;
    say(format_args!(
        "  {}: {} s, a frame every {:.4} s",
        scene.header.name, scene.time.duration, scene.time.frame_interval
    ))?;
    for participant in simulation.participants() {
        say(format_args!(
            "  {}: {} {}, {} particles",
            participant.name, participant.solver, participant.version, participant.particles
        ))?;
    }
    simulation.finish().map_err(|error| CommandError::Failed(error.to_string()))
}
