//! A tower of smooth balls that leans and falls, beside a chain of rods that can only push.

use glam::DVec2;
use glam::DVec3;

use super::{GRAVITY, set, set_body, vectors};
use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/leaning-tower/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "leaning-tower",
    about: "ten smooth balls that lean by 20 degrees fall as a jointed chain whose rods only push: exact equations",
    quick: true,
    compute,
};

const COUNT: usize = 10;
const RADIUS: f64 = 0.1;
const DEGREES: f64 = 20.0;

/// Balls in a vertical plane, x along the floor and y up. Contact 0 is that of the first ball with the floor,
/// contact k that of balls k - 1 and k; a contact that pulls is open from then on.
#[derive(Clone)]
struct Chain {
    position: [DVec2; COUNT],
    velocity: [DVec2; COUNT],
    closed: [bool; COUNT],
}

impl Chain {
    fn leaning() -> Self {
        let lean = DVec2::new(DEGREES.to_radians().sin(), DEGREES.to_radians().cos());
        let position = std::array::from_fn(|k| DVec2::Y * RADIUS + lean * (2.0 * RADIUS * k as f64));
        Self { position, velocity: [DVec2::ZERO; COUNT], closed: [true; COUNT] }
    }

    /// Accelerations, and the force of each contact over the mass of a ball. A closed contact keeps its
    /// length: along its direction n the relative acceleration is -|w|^2/(2 r), with w the relative velocity.
    /// With one unknown per contact the matrix is tridiagonal: neighbours share a ball.
    fn accelerations(&self) -> ([DVec2; COUNT], [f64; COUNT]) {
        let direction: [DVec2; COUNT] = std::array::from_fn(|k| match k {
            0 => DVec2::Y,
            k => (self.position[k] - self.position[k - 1]).normalize(),
        });
        let wanted = |k: usize| match k {
            // Gravity is the same for both balls of the other contacts.
            0 => GRAVITY,
            k => -(self.velocity[k] - self.velocity[k - 1]).length_squared() / (2.0 * RADIUS),
        };
        let beside = |k: usize| match k + 1 < COUNT && self.closed[k] && self.closed[k + 1] {
            true => -direction[k].dot(direction[k + 1]),
            false => 0.0,
        };
        let (mut upper, mut right) = ([0.0; COUNT], [0.0; COUNT]);
        for k in 0..COUNT {
            let (before, sum) = if k > 0 { (beside(k - 1), right[k - 1]) } else { (0.0, 0.0) };
            let pivot = if k > 0 { 2.0 - before * upper[k - 1] } else { 1.0 };
            upper[k] = beside(k) / pivot;
            right[k] = if self.closed[k] { (wanted(k) - before * sum) / pivot } else { 0.0 };
        }
        for k in (0..COUNT - 1).rev() {
            right[k] -= upper[k] * right[k + 1];
        }
        let mut acceleration = [DVec2::NEG_Y * GRAVITY; COUNT];
        for k in 0..COUNT {
            acceleration[k] += direction[k] * right[k];
            if k > 0 {
                acceleration[k - 1] -= direction[k] * right[k];
            }
        }
        (acceleration, right)
    }

    fn moved(&self, dt: f64, velocity: &[DVec2; COUNT], acceleration: &[DVec2; COUNT]) -> Self {
        Self {
            position: std::array::from_fn(|k| self.position[k] + velocity[k] * dt),
            velocity: std::array::from_fn(|k| self.velocity[k] + acceleration[k] * dt),
            closed: self.closed,
        }
    }

    /// Takes a step of the Runge-Kutta method. Before it, contacts that pull are opened.
    fn step(&mut self, dt: f64) {
        let first = loop {
            let (acceleration, force) = self.accelerations();
            let pulls = (0..COUNT).filter(|&k| self.closed[k] && force[k] < 0.0);
            match pulls.min_by(|&i, &j| force[i].total_cmp(&force[j])) {
                Some(k) => self.closed[k] = false,
                None => break acceleration,
            }
        };
        let second = self.moved(0.5 * dt, &self.velocity, &first);
        let a2 = second.accelerations().0;
        let third = self.moved(0.5 * dt, &second.velocity, &a2);
        let a3 = third.accelerations().0;
        let fourth = self.moved(dt, &third.velocity, &a3);
        let a4 = fourth.accelerations().0;
        let mean = |a: DVec2, b: DVec2, c: DVec2, d: DVec2| (a + 2.0 * (b + c) + d) / 6.0;
        let v: [DVec2; COUNT] = std::array::from_fn(|k| {
            mean(self.velocity[k], second.velocity[k], third.velocity[k], fourth.velocity[k])
        });
        let a: [DVec2; COUNT] = std::array::from_fn(|k| mean(first[k], a2[k], a3[k], a4[k]));
        *self = self.moved(dt, &v, &a);
    }

    /// True if the balls of an open contact have met again: the equations do not hold from then on.
    fn has_closed_again(&self) -> bool {
        let gap = |k: usize| match k {
            0 => self.position[0].y - RADIUS,
            k => self.position[k].distance(self.position[k - 1]) - 2.0 * RADIUS,
        };
        (0..COUNT).any(|k| !self.closed[k] && gap(k) < -1e-9)
    }
}

fn compute() -> Result<CaseOutcome, CaseError> {
    let upright = |x: DVec2| DVec3::new(x.x, 0.0, x.y);
    let start = Chain::leaning();
    let mut checks = Vec::new();
    let mut picture = Sketch::default();
    // The third contact opens after 0.097 s.
    for (duration, steps) in [(0.09, 9000), (0.2, 20_000)] {
        let mut chain = start.clone();
        for _ in 0..steps {
            chain.step(duration / f64::from(steps));
            if chain.has_closed_again() {
                return Err(CaseError::Failed("the reference has balls that meet again".into()));
            }
        }
        let settings = [
            set_body("positions", vectors(&start.position.map(upright))),
            set("time.duration", format!("{duration:?}")),
        ];
        let frames = Experiment::start(CASE.name, SCENE, &settings)?.end()?;
        let (after, exact) = (&frames[0].positions, chain.position.map(upright));
        let miss = after.iter().zip(exact).map(|(x, y)| x.distance(y)).fold(0.0, f64::max);
        let moved = exact.iter().zip(start.position).map(|(x, y)| x.distance(upright(y))).fold(0.0, f64::max);
        let opened = chain.closed.iter().filter(|closed| !**closed).count();
        let name = format!("after {duration} s ({opened} open): distance from the chain / largest way");
        // Symplectic Euler is ahead by dt/t of the way: 1e-3.
        checks.push(Check::within(name, 0.0, miss / moved, 5e-3));
        picture = picture.measured(after.iter().copied()).reference(exact);
    }
    Ok(CaseOutcome { checks, picture })
}
