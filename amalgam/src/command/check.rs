//! `amalgam check`: says whether a scene can run, without running it.

mod loads;
mod warnings;

use std::time::{Duration, Instant};

use crate::{
    cli::{CheckArgs, Reach, Transport},
    console::{Console, say},
    error::CommandError,
    run::{
        Options, check_colours,
        local::{Locals, Means},
    },
    scene::Scene,
};
use amalgam_coordinator::{Cancel, FrameField, ParticipantFrame, Simulation};

/// Steps that a check takes to see how long one takes, and that it can be taken.
const STEPS_TRIED: u32 = 3;

/// Time [s] after which a check takes no further step.
const TRY_SECONDS: u64 = 5;

/// Checks a scene, its solvers' sections included, and prints what is in it.
///
/// # Errors
/// A wrong scene, or a solver that cannot be reached.
pub fn check(args: &CheckArgs) -> Result<(), CommandError> {
    let scene = Scene::read(&args.scene, &args.set)?;
    let console = Console::new(true);
    let (_locals, mut simulation) = start(&scene, &args.reach, &console)?;
    check_colours(&scene, &mut simulation)?;
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
    let (method, reason) = simulation.method();
    say(format_args!("  contacts: {method} ({reason})"))?;
    let frames = simulation.frames().map_err(|error| CommandError::at_start(&scene, error))?;
    say(format_args!("  {}", extent(&scene, simulation.next_dt(), &frames)))?;
    let sections: Vec<(&str, &str)> =
        scene.participants.iter().map(|part| (part.name.as_str(), part.section.as_str())).collect();
    let plan = scene.plan();
    let participants: Vec<(&str, &str)> =
        scene.participants.iter().map(|part| (part.solver.as_str(), part.section.as_str())).collect();
    let masses: Vec<Vec<f64>> =
        frames.iter().enumerate().map(|(k, frame)| simulation.masses(k, &frame.id)).collect();
    let loads = loads::loads(&plan, &loads::fluids(&plan, &participants), &frames, &masses);
    for warning in warnings::warnings(&plan, &sections, &frames).iter().chain(&loads) {
        console.line(&format!("warning: {warning}"));
    }
    say(format_args!("  {}", try_steps(&scene, &mut simulation)?))?;
    simulation.finish().map_err(|error| CommandError::Failed(error.to_string()))
}

/// Starts a scene in this process. Solvers at addresses are used where they are.
///
/// # Errors
/// A wrong section, or a solver that cannot be reached.
pub(crate) fn start(
    scene: &Scene,
    reach: &Reach,
    console: &Console,
) -> Result<(Locals, Simulation), CommandError> {
    let options = Options { transport: Transport::InProcess, reach: reach.clone(), ..Options::default() };
    let (locals, participants) = Locals::start(scene, Means::new(scene, &options)?, console)?;
    let simulation = Simulation::connect(scene.plan(), participants, &Cancel::new());
    Ok((locals, simulation.map_err(|error| CommandError::at_start(scene, error))?))
}

/// Takes some steps, so that a scene that cannot begin is found here. Returns a line on how long the run will
/// take.
fn try_steps(scene: &Scene, simulation: &mut Simulation) -> Result<String, CommandError> {
    let start = Instant::now();
    let mut taken = 0;
    while taken < STEPS_TRIED
        && !simulation.is_finished()
        && start.elapsed() < Duration::from_secs(TRY_SECONDS)
    {
        let step = simulation.step();
        step.map_err(|error| {
            CommandError::Usage(format!("{}: the run would end at once: {error}", scene.file()))
        })?;
        taken += 1;
    }
    let each = start.elapsed().as_secs_f64() / f64::from(taken.max(1));
    let steps = f64::from(taken) + ((scene.time.duration - simulation.time()) / simulation.next_dt()).ceil();
    Ok(format!(
        "about {} on this machine without frames: {taken} steps took {} each",
        span(each * steps),
        span(each)
    ))
}

/// A length of time for people.
fn span(seconds: f64) -> String {
    match seconds {
        0.0..1.0 => format!("{:.1} ms", 1e3 * seconds),
        1.0..120.0 => format!("{seconds:.0} s"),
        120.0..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// Number of steps and size of the frames of a run, extrapolated from its first steps.
fn extent(scene: &Scene, dt: f64, frames: &[ParticipantFrame]) -> String {
    let steps = (scene.time.duration / dt).ceil();
    let mut text = format!("steps of {dt:.1e} s at the start, {steps:.0} of them to the end");
    if scene.output.vtk {
        // The start is written as a frame, too.
        let written = 1 + scene.time.frames() / u64::from(scene.output.every);
        let bytes = written as f64 * frames.iter().map(frame_bytes).sum::<u64>() as f64;
        text += &format!("; {written} frames of {} in all", size(bytes));
    }
    text
}

/// Bytes of a `.vtu` file without compression, less its header.
fn frame_bytes(frame: &ParticipantFrame) -> u64 {
    // Position, id, velocity and group; corner, end and type of a cell.
    let particle = 24 + 8 + 12 + 4 + (4 + 4 + 1);
    let field = |field: &FrameField| match field {
        FrameField::Scalar(values) => 4 * values.len(),
        FrameField::Vector(values) => 12 * values.len(),
    };
    let fields: usize = frame.fields.iter().map(|(_, values)| field(values)).sum();
    (frame.id.len() * particle + frame.triangles.len() * (12 + 4 + 1) + fields) as u64
}

/// A number of bytes for people.
pub(crate) fn size(bytes: f64) -> String {
    match bytes {
        0.0..1e6 => format!("{:.0} kB", bytes / 1e3),
        1e6..1e9 => format!("{:.0} MB", bytes / 1e6),
        _ => format!("{:.1} GB", bytes / 1e9),
    }
}
