//! FLIP: the collapse of a column that fills three quarters of its box, with everything that a solver does in
//! a step.

use amalgam_particles::{DVec3, GroupMap, Particles};
use amalgam_solver_fluid::flip::{Flip, section};
use amalgam_solver_kit::{Alone, AloneGroups, Solver};

use super::measurement::{Bound, Idle, Measurement, Peer};
use super::steps::{StepTimes, world};
use crate::error::CommandError;

const WARM_UP: u64 = 2;
const STEPS: u64 = 8;
/// Jet, multigrid, on its own 2-core machine.
const PEER: Peer = Peer { name: "Jet FLIP", ns: 729.0 };
const PEER_PER_CELL: Peer = Peer { name: "Jet FLIP, a liquid cell", ns: 11_900.0 };

/// Figures of a box with `edge` cells along an edge.
///
/// # Errors
/// If the solver fails.
pub fn measure(edge: u32, idle: Idle) -> Result<Vec<Measurement>, CommandError> {
    column(edge, idle).map_err(CommandError::Failed)
}

fn column(edge: u32, idle: Idle) -> Result<Vec<Measurement>, String> {
    let cell = 1.0 / f64::from(edge);
    let width = f64::from(edge * 3 / 4) * cell;
    let section = format!(
        "method = \"flip\"\nspacing = {}\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [{width}, 1, 1]",
        0.5 * cell
    );
    let (parameters, particles) =
        section::read(&section, &world(DVec3::ONE)).map_err(|faults| format!("{faults:?}"))?;
    let mut solver = Flip::new(parameters, particles);
    let n = solver.particles().len();
    let (mut alone, mut iterations) = (Alone::default(), 0);
    let times = StepTimes::measure((WARM_UP, STEPS), |times| {
        // A tenth of the groups is found in the second stage only.
        let [first, second] = [9, 10].map(|tenths| {
            let particles = solver.particles();
            moving_with_fluid(particles, on_floor(particles, 0.5 * cell, tenths))
        });
        iterations = 0;
        let most = |flip: &Flip| iterations = iterations.max(flip.iterations());
        times.step(&mut solver, &mut alone, [&first, &second], most)
    })?;
    let held = idle.held_for_each(n);
    Ok(figures(&times, (edge, n), held, (solver.liquid_cells(), f64::from(iterations))))
}

/// Groups that are twice as heavy as their fluid and move with it.
fn moving_with_fluid(particles: &Particles, map: GroupMap) -> AloneGroups {
    let members = |g: usize| map.members(g).iter().map(|&i| i as usize);
    let own = |g: usize| -> f64 { members(g).map(|i| particles.mass[i]).sum() };
    let mean =
        |g: usize| members(g).map(|i| particles.velocity[i]).sum::<DVec3>() / members(g).count() as f64;
    let inertia = (0..map.len()).map(|g| 2.0 * own(g)).collect();
    let velocity = (0..map.len()).map(mean).collect();
    AloneGroups::new(map, inertia, velocity)
}

/// Particles on the floor in groups of ten neighbours, as if the floor were particles of another participant.
/// `tenths` of every ten groups are taken.
fn on_floor(particles: &Particles, spacing: f64, tenths: usize) -> GroupMap {
    let position = &particles.position;
    let count = particles.len();
    let mut floor: Vec<u32> = (0..count as u32).filter(|&i| position[i as usize].z < spacing).collect();
    floor.sort_by_key(|&i| (position[i as usize] / (2.0 * spacing)).to_array().map(|x| x as u32));
    let tens = floor.chunks_exact(10).enumerate().filter(|(n, _)| n % 10 < tenths);
    let members: Vec<u32> = tens.flat_map(|(_, ten)| ten).copied().collect();
    let mut groups = GroupMap::default();
    groups.set(count, &(0..=members.len() as u32).step_by(10).collect::<Vec<_>>(), &members);
    groups
}

/// `counts` are the cells along an edge and the particles; `work` is the number of liquid cells and the
/// iterations of a projection.
fn figures(
    times: &StepTimes,
    counts: (u32, usize),
    held: Option<f64>,
    work: (usize, f64),
) -> Vec<Measurement> {
    let ((edge, n), (cells, iterations)) = (counts, work);
    let name = |part: &str| format!("FLIP {edge}^3, {part}");
    let whole = times.of_steps();
    let mut step = Measurement::new(name("step"), n, whole.clone()).beside(PEER);
    step.bytes_per_particle = held;
    let liquid = Measurement::new(name("step, by liquid cell"), cells, whole).beside(PEER_PER_CELL);
    let of_grid = f64::from(edge).powi(3) / n as f64;
    // To the grid, per particle: 12 rows of four f32, each with a product and a sum, and 60 operations for
    // the place. Bytes: position, velocity and order. Sums stay in the cache.
    let mut begin = Measurement::new(name("to the grid"), n, times.begin.clone());
    begin.bound = Some(Bound { operations: 12.0 * 8.0 + 60.0, bytes: 24.0 + 24.0 + 3.0 * 4.0 });
    // Conjugate gradients with a multigrid cycle, per iteration and cell. The cycle has seven half passes and
    // a residual that counts as one more half pass. A full pass takes 13 operations and 40 bytes. Coarser
    // levels make this 8/7 as much (1 + 1/8 + 1/64 + ...). A p, the steps along p and the dot products in f64
    // take 40 operations and 110 bytes.
    let cycle = iterations * (0.5 * 8.0 * 8.0 / 7.0) * 13.0 + iterations * 40.0;
    let traffic = iterations * (0.5 * 8.0 * 8.0 / 7.0) * 40.0 + iterations * 110.0;
    let mut integrate = Measurement::new(name("stage 1"), n, times.first_stage.clone());
    // Velocities before the projection and coefficients, on faces: as much as eight passes over three columns
    // of f64.
    integrate.bound =
        Some(Bound { operations: of_grid * (cycle + 100.0), bytes: of_grid * (traffic + 8.0 * 3.0 * 8.0) });
    let again = Measurement::new(name("stage 2"), n, times.second_stage.clone());
    let mut commit = Measurement::new(name("commit"), n, times.commit.clone());
    // Two transfers back to particles, each with 12 rows and 70 operations for the place. Bytes: position and
    // velocity, read and written, and the group.
    commit.bound = Some(Bound { operations: 2.0 * (12.0 * 8.0 + 70.0), bytes: 24.0 * 4.0 + 4.0 });
    vec![step, liquid, begin, integrate, again, commit]
}
