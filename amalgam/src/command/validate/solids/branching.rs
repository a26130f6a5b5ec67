//! A crack that branches: a notched plate of glass under a sudden stress.

use glam::DVec3;

use crate::command::validate::alone::Alone;
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/branching/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "branching",
    about: "branches of a crack in a notched plate that is pulled apart: published computations, experiment",
    quick: false,
    compute,
};

/// Values of the scene: half the width, spacing, horizon, end of the notch [m].
const HALF_WIDTH: f64 = 0.02;
const SPACING: f64 = 0.00025;
const HORIZON: f64 = 0.001;
const TIP: f64 = 0.05;

/// Stress on the long edges [Pa].
const STRESS: f64 = 12e6;

/// Speed of Rayleigh waves [m/s], which no opening crack can exceed. With nu = 1/3 it is about (0.862 + 1.14
/// nu) / (1 + nu) of the speed of shear waves, sqrt(E / (2 (1 + nu) rho)).
const RAYLEIGH: f64 = 3098.0;

/// Share of broken bonds above which a particle counts as beside a crack. A particle beside a straight crack
/// has lost somewhat more.
const CRACKED: f32 = 0.3;

/// Length over which a number of branches must be seen to count [m].
const LENGTH_MIN: f64 = 0.01;

/// Seeds of the plates: which bonds are weaker than others differs.
const SEEDS: [u64; 3] = [1, 2, 3];

fn compute() -> Result<CaseOutcome, CaseError> {
    let plates = SEEDS.into_iter().map(Plate::tear).collect::<Result<Vec<_>, _>>()?;
    let branches = || plates.iter().map(|plate| plate.branches as f64);
    let fastest = plates.iter().map(|plate| plate.speed).fold(0.0, f64::max);
    let checks = vec![
        Check::within(
            "branches longer than 10 mm, fewest",
            2.0,
            branches().fold(f64::INFINITY, f64::min),
            0.0,
        ),
        Check::within("branches longer than 10 mm, most", 2.0, branches().fold(0.0, f64::max), 0.0),
        Check::within("speed before the fork / Rayleigh speed", 0.5, fastest / RAYLEIGH, 0.5),
    ];
    let [first, ..] = plates.as_slice() else { unreachable!("there is a seed") };
    let chart = first.rest.iter().map(|x| DVec3::new(x.x, 0.0, x.y));
    let picture = Sketch::default().coloured(chart, first.damage.clone(), [0.0, 1.0], 0.5 * SPACING);
    Ok(CaseOutcome { checks, picture })
}

/// A plate at the end.
struct Plate {
    /// Positions at the start [m].
    rest: Vec<DVec3>,
    damage: Vec<f32>,
    branches: usize,
    /// Speed of the crack before it forks [m/s]; NaN if it does not.
    speed: f64,
}

impl Plate {
    fn tear(seed: u64) -> Result<Self, CaseError> {
        let mut plate = Alone::start(CASE.name, SCENE, &[format!("scene.seed={seed}")])?;
        let rest = plate.particles().position.clone();
        // The outermost rows carry the stress on the edges: force per area times the part of the edge that
        // belongs to a particle.
        let pull = STRESS * SPACING * SPACING;
        let load: Vec<DVec3> = rest
            .iter()
            .map(|x| {
                if x.y.abs() > HALF_WIDTH - 0.6 * SPACING {
                    DVec3::Y * (pull * x.y.signum())
                } else {
                    DVec3::ZERO
                }
            })
            .collect();
        let steps = (plate.duration / plate.dt).ceil() as u64;
        let mut front = Vec::new();
        for step in 0..steps {
            plate.advance(|_| load.clone())?;
            if step % 20 == 0 {
                let ahead = clusters(&rest, &plate.field("damage")?).last().map_or(TIP, |&(x, _)| x);
                front.push((step as f64 * plate.dt, ahead));
            }
        }
        let damage = plate.field("damage")?;
        let counts = clusters(&rest, &damage);
        let reach = |n: usize| counts.iter().filter(|&&(_, count)| count >= n).count() as f64 * SPACING;
        let branches = (1..).take_while(|&n| reach(n) >= LENGTH_MIN).count();
        let fork = counts.iter().find(|&&(_, count)| count >= 2).map_or(f64::NAN, |&(x, _)| x);
        let reached = |x: f64| front.iter().find(|&&(_, ahead)| ahead >= x).copied();
        let speed = match (reached(TIP + 2.0 * HORIZON), reached(fork)) {
            (Some((start, from)), Some((end, to))) => (to - from) / (end - start),
            _ => f64::NAN,
        };
        Ok(Self { rest, damage, branches, speed })
    }
}

/// For each column of particles beyond the notch, from left to right: its x, and the number of cracks across
/// it.
///
/// Cracks of a column are runs of cracked particles that lie at most a horizon apart. Broken bonds at the
/// loaded edges are no crack.
fn clusters(rest: &[DVec3], damage: &[f32]) -> Vec<(f64, usize)> {
    let mut cracked: Vec<(i64, f64, f64)> = rest
        .iter()
        .zip(damage)
        .filter(|(x, damage)| x.x > TIP && x.y.abs() < HALF_WIDTH - 2.0 * HORIZON && **damage > CRACKED)
        .map(|(x, _)| ((x.x / SPACING).floor() as i64, x.x, x.y))
        .collect();
    cracked.sort_by(|a, b| a.0.cmp(&b.0).then(a.2.total_cmp(&b.2)));
    let columns = cracked.chunk_by(|a, b| a.0 == b.0);
    columns
        .map(|column| (column[0].1, 1 + column.windows(2).filter(|w| w[1].2 - w[0].2 > HORIZON).count()))
        .collect()
}
