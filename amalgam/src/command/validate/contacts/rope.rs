//! Ropes over a peg: Euler's formula of the capstan, and a smooth rope that slips off.

use glam::DVec3;

use super::{GRAVITY, set, vectors};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/capstan/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "capstan",
    about: "a rope over a peg holds exp(mu pi) times the weight, slides above, and slips off if smooth: closed forms",
    quick: false,
    compute,
};

/// Radii of the peg and of the rope, distance of its points [m].
const PEG: f64 = 0.2;
const ROPE: f64 = 0.005;
const SPACING: f64 = 0.01;
const FRICTION: f64 = 0.3;

/// A rope over the peg.
struct Rope {
    /// Lengths that hang down on the left and on the right [m].
    hanging: [f64; 2],
    /// Weights at the ends [kg].
    weights: [f64; 2],
    /// Mass per length [kg/m].
    density: f64,
    /// Stiffness of a piece as long as the spacing [N/m].
    stiffness: f64,
    friction: f64,
    duration: f64,
    dt: f64,
}

/// Places and velocities.
struct RopeState {
    position: Vec<DVec3>,
    velocity: Vec<DVec3>,
}

impl Rope {
    /// Points at equal distances, over the peg from left to right.
    fn points(&self) -> Vec<DVec3> {
        let around = std::f64::consts::PI * (PEG + ROPE);
        let length = self.hanging[0] + around + self.hanging[1];
        let count = (length / SPACING).round() as usize;
        let place = |k: usize| {
            let s = length * k as f64 / count as f64 - self.hanging[0];
            let radius = PEG + ROPE;
            if s < 0.0 {
                DVec3::new(-radius, 0.0, s)
            } else if s > around {
                DVec3::new(radius, 0.0, around - s)
            } else {
                let (sin, cos) = (s / radius).sin_cos();
                DVec3::new(-radius * cos, 0.0, radius * sin)
            }
        };
        (0..=count).map(place).collect()
    }

    fn run(&self) -> Result<[RopeState; 2], CaseError> {
        let before = self.points();
        let last = before.len() - 1;
        let mut mass = vec![self.density * SPACING; before.len()];
        mass[0] = 0.5 * mass[0] + self.weights[0];
        mass[last] = 0.5 * mass[last] + self.weights[1];
        let spring = |k: usize| format!("{{ a = {k}, b = {}, stiffness = {:?} }}", k + 1, self.stiffness);
        let springs: Vec<String> = (0..last).map(spring).collect();
        let body = format!(
            "[{{ type = \"points\", positions = {}, mass = {mass:?}, radius = {ROPE}, springs = [{}] }}]",
            vectors(&before),
            springs.join(", ")
        );
        let settings = [
            set("participants[0].settings.bodies", body),
            set("coupling.contact[0].friction", format!("{:?}", self.friction)),
            set("time.duration", format!("{:?}", self.duration)),
            set("time.dt_max", format!("{:?}", self.dt)),
        ];
        let frame = Experiment::start(CASE.name, SCENE, &settings)?.end()?.swap_remove(0);
        let start = RopeState { velocity: vec![DVec3::ZERO; before.len()], position: before };
        Ok([start, RopeState { position: frame.positions, velocity: frame.velocities }])
    }
}

fn last(all: &[DVec3]) -> DVec3 {
    all[all.len() - 1]
}

fn compute() -> Result<CaseOutcome, CaseError> {
    let hold = (FRICTION * std::f64::consts::PI).exp();
    // The rope has 2 g/m, a thousandth of the weights.
    let loaded = |ratio: f64, duration: f64| Rope {
        hanging: [0.6, 0.3],
        weights: [1.0, ratio],
        density: 2e-3,
        stiffness: 1e6,
        friction: FRICTION,
        duration,
        dt: 1e-3,
    };
    let mut checks = Vec::new();
    let [_, held] = loaded(0.95 * hold, 1.0).run()?;
    let speed = last(&held.velocity).z.abs();
    checks.push(Check::within("0.95 exp(mu pi) times the weight: speed after 1 s [m/s]", 0.0, speed, 1e-4));
    for ratio in [1.05 * hold, 4.0] {
        let acceleration = GRAVITY * (ratio - hold) / (ratio + hold);
        let duration = f64::min(0.6, (0.4 / acceleration).sqrt());
        let [_, slid] = loaded(ratio, duration).run()?;
        // The ratio of tensions that the rope holds follows from the acceleration a of both weights: T2/T1 =
        // ratio (g - a)/(g + a).
        let found = -last(&slid.velocity).z / duration;
        let measured = ratio * (GRAVITY - found) / (GRAVITY + found);
        checks.push(Check::relative(
            format!("{ratio:.3} times the weight: ratio of tensions"),
            hold,
            measured,
            0.05,
        ));
    }
    // With the lengths l1 and l2 > l1 on both sides, x = (l2 - l1)/2 grows as cosh(sqrt(2 g/L) t): the part
    // of the rope on the peg does not pull.
    let smooth = Rope {
        hanging: [0.7, 0.9],
        weights: [0.0, 0.0],
        density: 0.1,
        stiffness: 1e6,
        friction: 0.0,
        duration: 0.8,
        dt: 5e-4,
    };
    let [before, after] = smooth.run()?;
    let length = 1.6 + std::f64::consts::PI * (PEG + ROPE);
    let fallen = 0.1 * ((2.0 * GRAVITY / length).sqrt() * smooth.duration).cosh() - 0.1;
    let measured = last(&before.position).z - last(&after.position).z;
    checks.push(Check::relative(
        "smooth, 0.2 m longer on one side: fallen after 0.8 s [m]",
        fallen,
        measured,
        0.02,
    ));
    let picture = Sketch::default()
        .measured(after.position.iter().copied().chain(held.position.iter().map(|x| *x + DVec3::X)))
        .reference([last(&before.position) - DVec3::Z * fallen])
        .reference(before.position);
    Ok(CaseOutcome { checks, picture })
}
