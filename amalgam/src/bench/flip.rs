//! FLIP: the collapse of a column that fills three quarters of its box, everything included that a solver does in a step.

use std::time::Instant;

use amalgam_particles::{DVec3, GroupMap, StepEnd};
use amalgam_solver_fluid::flip::{Flip, section};
use amalgam_solver_kit::{Answer, Solver, Stage, World};

use super::{Bound, Figure, Peer, fluids::resident_bytes};
use crate::command::CommandError;

const WARM_UP: u64 = 2;
const STEPS: u64 = 8;
/// Jet, multigrid, on its own 2-core machine.
const PEER: Peer = Peer { name: "Jet FLIP", ns: 729.0 };
const PEER_PER_CELL: Peer = Peer { name: "Jet FLIP, a liquid cell", ns: 11_900.0 };

/// Wall time of every step [s].
#[derive(Default)]
struct Times {
    begin: Vec<f64>,
    integrate: Vec<f64>,
    again: Vec<f64>,
    commit: Vec<f64>,
}

/// Figures of a box with `edge` cells along an edge.
///
/// # Errors
/// If the solver fails.
pub fn measure(edge: u32) -> Result<Vec<Figure>, CommandError> {
    column(edge).map_err(CommandError::Failed)
}

fn column(edge: u32) -> Result<Vec<Figure>, String> {
    let world = World {
        participant: "water".into(),
        domain: (DVec3::ZERO, DVec3::ONE),
        gravity: DVec3::new(0.0, 0.0, -9.81),
        seed: 1,
    };
    let cell = 1.0 / f64::from(edge);
    let width = f64::from(edge * 3 / 4) * cell;
    let section = format!(
        "method = \"flip\"\nspacing = {}\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [{width}, 1, 1]",
        0.5 * cell
    );
    let resident = resident_bytes();
    let (parameters, particles) = section::read(&section, &world).map_err(|faults| format!("{faults:?}"))?;
    let mut solver = Flip::new(parameters, particles);
    let n = solver.particles().len();
    // Every hundredth particle is in a group of ten that is twice as heavy as its fluid.
    let members: Vec<u32> = (0..n as u32).step_by(100).collect();
    let mut offsets: Vec<u32> = (0..members.len() as u32).step_by(10).collect();
    offsets.push(members.len() as u32);
    let mut groups = GroupMap::default();
    groups.set(n, &offsets, &members);
    let (mut times, mut answer, mut iterations) = (Times::default(), Answer::default(), 0.0);
    for step in 0..STEPS + WARM_UP {
        if step == WARM_UP {
            times = Times::default();
        }
        iterations = advance(&mut solver, &groups, step, (&mut times, &mut answer))?;
    }
    let held =
        resident_bytes().zip(resident).map(|(now, before)| now.saturating_sub(before) as f64 / n as f64);
    Ok(figures(&times, (edge, n), held, (solver.liquid_cells(), iterations)))
}

/// One step of two stages; members end with the velocity of their group. Iterations of the first projection.
fn advance(
    solver: &mut Flip,
    groups: &GroupMap,
    step: u64,
    (times, answer): (&mut Times, &mut Answer),
) -> Result<f64, String> {
    let particles = solver.particles();
    let own = |g: usize| -> f64 { groups.members(g).iter().map(|&i| particles.mass[i as usize]).sum() };
    let mean = |g: usize| {
        let members = groups.members(g);
        members.iter().map(|&i| particles.velocity[i as usize]).sum::<DVec3>() / members.len() as f64
    };
    let velocity: Vec<DVec3> = (0..groups.len()).map(mean).collect();
    let inertia: Vec<f64> = (0..groups.len()).map(|g| 2.0 * own(g)).collect();
    let impulse = vec![DVec3::ZERO; groups.len()];
    answer.velocity.clear();
    answer.velocity.resize(particles.len(), DVec3::ZERO);
    let dt = solver.stable_dt();
    let mut clock = Instant::now();
    let mut lap = |times: &mut Vec<f64>| {
        times.push(clock.elapsed().as_secs_f64());
        clock = Instant::now();
    };
    solver.begin().map_err(|error| error.to_string())?;
    lap(&mut times.begin);
    let mut iterations = 0;
    for (stage, times) in [(1, &mut times.integrate), (2, &mut times.again)] {
        answer.momentum = vec![DVec3::ZERO; groups.len()];
        answer.slope = vec![0.0; groups.len()];
        let stage = Stage {
            step,
            stage,
            repetition: 0,
            dt,
            groups,
            inertia: &inertia,
            velocity: &velocity,
            impulse: &impulse,
            occupied: None,
        };
        solver.integrate(&stage, answer).map_err(|error| error.to_string())?;
        iterations = iterations.max(solver.iterations());
        lap(times);
    }
    let end: Vec<DVec3> = (0..groups.len()).map(|g| velocity[g] + answer.momentum[g] / inertia[g]).collect();
    let members: Vec<DVec3> = (0..groups.len()).flat_map(|g| vec![end[g]; groups.members(g).len()]).collect();
    let end = StepEnd { dt, groups, group_velocity: &end, member_velocity: &members };
    solver.commit(&end, &answer.velocity).map_err(|error| error.to_string())?;
    lap(&mut times.commit);
    Ok(f64::from(iterations))
}

/// `counts` are the edge in cells and the particles; `work` the liquid cells and iterations of a projection.
fn figures(times: &Times, counts: (u32, usize), held: Option<f64>, work: (usize, f64)) -> Vec<Figure> {
    let ((edge, n), (cells, iterations)) = (counts, work);
    let sum = |parts: &[&Vec<f64>]| -> Vec<f64> {
        (0..times.begin.len()).map(|k| parts.iter().map(|part| part[k]).sum()).collect()
    };
    let name = |part: &str| format!("FLIP {edge}^3, {part}");
    let whole = sum(&[&times.begin, &times.integrate, &times.commit]);
    let mut step = Figure::new(name("step"), n, whole.clone()).beside(PEER);
    step.bytes_per_particle = held;
    let liquid = Figure::new(name("step, by liquid cell"), cells, whole).beside(PEER_PER_CELL);
    let of_grid = f64::from(edge).powi(3) / n as f64;
    // To the grid: 12 rows of two pairs of f32, each a product and a sum, and 60 operations for the place; position,
    // velocity, order. Sums stay in the cache.
    let mut begin = Figure::new(name("to the grid"), n, times.begin.clone());
    begin.bound = Some(Bound { operations: 12.0 * 8.0 + 60.0, bytes: 24.0 + 24.0 + 3.0 * 4.0 });
    // Per iteration and cell: seven half passes of the cycle and a residual at 13 operations and 40 bytes each, a
    // seventh more for coarse levels; A p, the steps along it and their products in f64, 40 operations and 110 bytes.
    let cycle = iterations * (0.5 * 8.0 * 8.0 / 7.0) * 13.0 + iterations * 40.0;
    let traffic = iterations * (0.5 * 8.0 * 8.0 / 7.0) * 40.0 + iterations * 110.0;
    let mut integrate = Figure::new(name("stage 1"), n, times.integrate.clone());
    // Back: again 12 rows. Velocities and their changes on faces: some twelve passes over three columns of f64.
    integrate.bound = Some(Bound {
        operations: 12.0 * 8.0 + 70.0 + of_grid * (cycle + 100.0),
        bytes: 24.0 * 3.0 + 12.0 + 4.0 + of_grid * (traffic + 12.0 * 3.0 * 8.0),
    });
    let again = Figure::new(name("stage 2"), n, times.again.clone());
    let mut commit = Figure::new(name("commit"), n, times.commit.clone());
    commit.bound = Some(Bound { operations: 12.0 * 8.0 + 70.0, bytes: 24.0 * 5.0 + 12.0 + 4.0 });
    vec![step, liquid, begin, integrate, again, commit]
}
