//! SPH: a dam break, with everything that a solver does in a step (sorting, walls, groups, time step limits).

use amalgam_particles::{DVec3, GroupMap};
use amalgam_solver_fluid::sph::{Sph, section};
use amalgam_solver_kit::{Alone, AloneGroups, Ranks, Solver, World};

use super::measurement::{Bound, Idle, Measurement, Peer};
use super::steps::{StepTimes, world};
use crate::error::CommandError;

/// Edge of the cube of water [m], in a tank twice as long.
const EDGE: f64 = 0.5;
const WARM_UP: u64 = 3;

struct BlockOfWater {
    name: &'static str,
    /// Particles along an edge.
    edge: u32,
    steps: u64,
    peer: Peer,
}

// Figures of the peers on their own 2-core machine (AVX-512).
const SMALL: BlockOfWater = BlockOfWater {
    name: "SPH 100k",
    edge: 46,
    steps: 100,
    peer: Peer { name: "SPlisHSPlasH WCSPH", ns: 800.0 },
};
const MIDDLE: BlockOfWater = BlockOfWater {
    name: "SPH 1M",
    edge: 100,
    steps: 20,
    peer: Peer { name: "SPlisHSPlasH WCSPH", ns: 953.0 },
};
const LARGE: BlockOfWater = BlockOfWater {
    name: "SPH 6.5M",
    edge: 187,
    steps: 5,
    peer: Peer { name: "Truong et al. 2021, stage 1", ns: 1985.0 },
};

/// All figures of fluids, or only quick ones. Cases grow: the next one uses memory that the allocator keeps
/// of the last.
///
/// # Errors
/// If the solver fails.
pub fn measure(quick: bool, idle: Idle) -> Result<Vec<Measurement>, CommandError> {
    let cases: &[BlockOfWater] = if quick { &[SMALL] } else { &[SMALL, MIDDLE, LARGE] };
    let mut figures = Vec::new();
    for case in cases {
        figures.extend(dam_break(case, idle).map_err(CommandError::Failed)?);
    }
    Ok(figures)
}

/// This rank's part of a cube of water that is about to fall apart, with `edge` particles along an edge.
pub(super) fn cube(edge: u32, ranks: &Ranks) -> Result<Sph, String> {
    let section = format!(
        "spacing = {}\n[[shapes]]\ntype = \"box\"\nmin = [0, 0, 0]\nmax = [{EDGE}, {EDGE}, {EDGE}]",
        EDGE / f64::from(edge)
    );
    let world = World { ranks: ranks.clone(), ..world(DVec3::new(2.0 * EDGE, EDGE, 2.0 * EDGE)) };
    let (parameters, particles) = section::read(&section, &world).map_err(|faults| format!("{faults:?}"))?;
    Ok(Sph::new(parameters, particles))
}

fn dam_break(case: &BlockOfWater, idle: Idle) -> Result<Vec<Measurement>, String> {
    let mut solver = cube(case.edge, &Ranks::alone())?;
    let n = solver.particles().len();
    // Every hundredth particle is in a group of ten that moves with its fluid.
    let members: Vec<u32> = (0..n as u32).step_by(100).collect();
    let mut offsets: Vec<u32> = (0..members.len() as u32).step_by(10).collect();
    offsets.push(members.len() as u32);
    let mut groups = GroupMap::default();
    groups.set(n, &offsets, &members);
    let mut alone = Alone::default();
    let times = StepTimes::measure((WARM_UP, case.steps), |times| {
        let groups = moving_with_fluid(&solver.particles().velocity, &groups);
        times.step(&mut solver, &mut alone, [&groups, &groups], |_| ())
    })?;
    let held = idle.held_for_each(n);
    Ok(figures(case, &times, n, held, solver.pairs_per_particle()))
}

/// Groups of ten particles that move with their fluid and keep their velocity: their inertia is infinite.
fn moving_with_fluid(velocity: &[DVec3], map: &GroupMap) -> AloneGroups {
    let mean = |g: usize| map.members(g).iter().map(|&i| velocity[i as usize]).sum::<DVec3>() / 10.0;
    let velocity = (0..map.len()).map(mean).collect();
    AloneGroups::new(map.clone(), vec![f64::INFINITY; map.len()], velocity)
}

fn figures(
    case: &BlockOfWater,
    times: &StepTimes,
    n: usize,
    held: Option<f64>,
    pairs: [f64; 2],
) -> Vec<Measurement> {
    let name = |part: &str| format!("{}, {part}", case.name);
    let mut step = Measurement::new(name("step"), n, times.of_steps()).beside(case.peer);
    step.bytes_per_particle = held;
    let mut begin = Measurement::new(name("densities and forces"), n, times.begin.clone());
    // Per candidate neighbour 17 operations for density and 32 for force, square roots included; one pass
    // over all columns that are read and written.
    let [densities, forces] = pairs;
    begin.bound = Some(Bound { operations: 17.0 * densities + 32.0 * forces, bytes: 330.0 });
    let again = Measurement::new(name("stage 2"), n, times.second_stage.clone());
    let mut commit = Measurement::new(name("commit"), n, times.commit.clone());
    // Bytes: place in the order, acceleration and group; position and velocity, read and written.
    commit.bound = Some(Bound { operations: 35.0, bytes: 4.0 + 12.0 + 4.0 + 2.0 * 48.0 });
    vec![step, begin, again, commit]
}
