//! Grains of random size at random places.

use std::cell::OnceCell;
use std::collections::HashMap;

use amalgam_particles::shapes::{self, Rotation, Shape};
use amalgam_particles::{DVec3, random};
use serde::Deserialize;

use super::checks::{Checks, PARTICLES_MAX};
use super::layout::{Body, Layout, Node, report_shape};

/// Places that are tried for a grain before there is no room for it.
const TRIES: u64 = 10_000;

/// Grains as they are written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scatter {
    /// The shape in which the centres lie.
    shape: Shape,
    /// Turns the shape about its middle, as in `{ axis = [0, 0, 1], degrees = 30 }`.
    rotation: Option<Rotation>,
    /// Number of grains. None touches another at the start.
    count: usize,
    /// Collision radius [m]: a number, or `[least, greatest]`.
    radius: Range,
    /// Mass [kg]: a number, or `[least, greatest]`.
    mass: Option<Range>,
    /// Density [kg/m^3], in two dimensions per area [kg/m^2], instead of `mass`.
    density: Option<f64>,
    /// Velocity of the middle [m/s].
    #[serde(default)]
    velocity: DVec3,
    /// Angular velocity about the middle [rad/s].
    #[serde(default)]
    angular_velocity: DVec3,
    /// The grains, once they have been placed.
    #[serde(skip)]
    nodes: OnceCell<Vec<Node>>,
}

/// A number, or any between two.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number, or the least and the greatest such as [0.5, 2.0]")]
enum Range {
    One(f64),
    Between([f64; 2]),
}

impl Range {
    fn ends(self) -> [f64; 2] {
        match self {
            Self::One(value) => [value, value],
            Self::Between(ends) => ends,
        }
    }

    fn check(self, key: &str, checks: &mut Checks) {
        let [least, greatest] = self.ends();
        checks.positive(key, least);
        checks.positive(key, greatest);
        checks.that(least <= greatest, key, || {
            "must be [least, greatest]: write the smaller number first".into()
        });
    }

    fn pick(self, share: f64) -> f64 {
        let [least, greatest] = self.ends();
        least + share * (greatest - least)
    }
}

/// Purpose of a random number: the last word of its key.
#[derive(Clone, Copy)]
enum Purpose {
    Radius,
    Mass,
    Place,
}

impl Body for Scatter {
    fn read_files(&mut self, checks: &mut Checks) {
        checks.read_file(&mut self.shape);
    }

    fn check(&self, _self_collision: bool, checks: &mut Checks) {
        checks.that((1..=PARTICLES_MAX).contains(&self.count), "count", || {
            format!("must be from 1 to {PARTICLES_MAX}: write e.g. count = 500")
        });
        self.radius.check("radius", checks);
        if let Some(mass) = self.mass {
            mass.check("mass", checks);
        }
        checks.positive("density", self.density.unwrap_or(1.0));
        checks.that(self.mass.is_some() != self.density.is_some(), "density", || {
            "or mass, one of the two: write e.g. density = 1000.0".into()
        });
        let faults = self.body().faults();
        let good_shape = faults.is_empty();
        report_shape(faults, checks);
        // Other parts have none of them.
        if good_shape && self.count <= PARTICLES_MAX && checks.part.part == 0 {
            match self.place(checks) {
                Ok(nodes) => drop(self.nodes.set(nodes)),
                Err(placed) => checks.fault(
                    "count",
                    format!("is too large: after {placed} grains there is no room: write fewer, smaller or a larger shape"),
                ),
            }
        }
    }

    fn lay_out(&self, layout: &mut Layout) {
        for node in self.nodes.get().into_iter().flatten() {
            layout.push(node, None);
        }
    }
}

impl Scatter {
    fn body(&self) -> shapes::MovingShape {
        shapes::MovingShape {
            shape: self.shape.clone(),
            rotation: self.rotation,
            velocity: self.velocity,
            angular_velocity: self.angular_velocity,
        }
    }

    /// Places one grain after the other at random so that it touches no earlier one. If that fails, the error
    /// is the number of grains placed.
    fn place(&self, checks: &Checks) -> Result<Vec<Node>, usize> {
        let body = self.body();
        let [_, greatest] = self.radius.ends();
        let cell = 2.0 * greatest;
        let cell_of = |x: DVec3| (x / cell).floor().to_array().map(|c| c as i64);
        // Looked up by cell only, never walked through.
        let mut occupied: HashMap<[i64; 3], Vec<u32>> = HashMap::new();
        let mut nodes: Vec<Node> = Vec::with_capacity(self.count);
        for n in 0..self.count {
            let uniform = |purpose: Purpose, words: [u64; 2]| {
                random::uniform_f64(&[checks.seed, n as u64, purpose as u64, words[0], words[1]])
            };
            let radius = self.radius.pick(uniform(Purpose::Radius, [0; 2]));
            let is_free = |x: DVec3| {
                let [i, j, k] = cell_of(x);
                let near =
                    (0..27).flat_map(|c| occupied.get(&[i + c % 3 - 1, j + c / 3 % 3 - 1, k + c / 9 - 1]));
                near.flatten().all(|&other| {
                    let other = &nodes[other as usize];
                    other.position.distance(x) >= other.radius + radius
                })
            };
            let tries = (0..TRIES).filter_map(|attempt| {
                let share = [0, 1, 2].map(|axis| uniform(Purpose::Place, [attempt, axis]));
                body.point_in(DVec3::from_array(share), checks.flat)
            });
            let position = tries.into_iter().find(|&x| is_free(x)).ok_or(nodes.len())?;
            let mass = match (self.mass, self.density.unwrap_or(1.0)) {
                (Some(mass), _) => mass.pick(uniform(Purpose::Mass, [0; 2])),
                (None, density) if checks.flat => density * std::f64::consts::PI * radius.powi(2),
                (None, density) => density * 4.0 / 3.0 * std::f64::consts::PI * radius.powi(3),
            };
            occupied.entry(cell_of(position)).or_default().push(n as u32);
            nodes.push(Node {
                position,
                velocity: body.velocity_at(position),
                mass,
                radius,
                held_until: 0.0,
            });
        }
        Ok(nodes)
    }
}
