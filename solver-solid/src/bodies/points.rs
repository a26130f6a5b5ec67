//! Particles one by one, with springs between them one by one.

use amalgam_particles::DVec3;
use serde::Deserialize;

use super::checks::Checks;
use super::layout::{Body, FoundationSettings, Layout, Node, OneOrMany};
use crate::materials::springs::Spring;

/// Points as they are written. Indices count from 0 inside the body.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Points {
    /// Positions, a list [m].
    positions: Vec<DVec3>,
    /// Velocities, one per point [m/s]. Pinned points keep theirs. Default: 0.
    #[serde(default)]
    velocities: Vec<DVec3>,
    /// Mass, one for all or one per point [kg].
    mass: OneOrMany<f64>,
    /// Collision radius, one for all or one per point [m].
    radius: OneOrMany<f64>,
    /// Indices of the points that no force moves, from 0 in the body.
    #[serde(default)]
    pinned: Vec<usize>,
    /// Time at which pinned points are let go with the velocity that they have, one for all or one per pinned
    /// point, `inf` for never [s]. Default: never.
    release: Option<OneOrMany<f64>>,
    /// Springs between points, a list.
    #[serde(default)]
    springs: Vec<PointSpring>,
    /// A spring under each particle, as in `{ stiffness = 100.0, damping = 0.1 }` [N/m, N s/m].
    foundation: Option<FoundationSettings>,
}

/// A spring as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PointSpring {
    /// Index of the point at one end.
    a: usize,
    /// Index of the point at the other end.
    b: usize,
    /// Stiffness [N/m].
    stiffness: f64,
    /// Damping [N s/m].
    #[serde(default)]
    damping: f64,
    /// Rest length [m]. Default: the initial distance.
    rest_length: Option<f64>,
}

impl Body for Points {
    fn check(&self, _self_collision: bool, checks: &mut Checks) {
        let count = self.positions.len();
        checks
            .that(count > 0, "positions", || "there is no point: write e.g. positions = [[0, 0, 0]]".into());
        let lengths = [
            ("velocities", Some(self.velocities.len()).filter(|&n| n > 0)),
            ("mass", self.mass.count()),
            ("radius", self.radius.count()),
        ];
        for (key, length) in lengths {
            checks.that(length.is_none_or(|n| n == count), key, || {
                format!("has {} values for {count} points: write one a point", length.unwrap_or(0))
            });
        }
        for (key, vectors) in [("positions", &self.positions), ("velocities", &self.velocities)] {
            for (i, &vector) in vectors.iter().enumerate() {
                checks.finite(&format!("{key}[{i}]"), vector);
            }
        }
        for (key, values) in [("mass", &self.mass), ("radius", &self.radius)] {
            for (i, &value) in values.as_slice().iter().enumerate() {
                let key = if values.count().is_some() { format!("{key}[{i}]") } else { key.to_string() };
                checks.positive(&key, value);
            }
        }
        self.check_release(checks);
        for (i, &pinned) in self.pinned.iter().enumerate() {
            checks.that(pinned < count, &format!("pinned[{i}]"), || no_such_point(pinned, count));
        }
        for (i, spring) in self.springs.iter().enumerate() {
            self.check_spring(&format!("springs[{i}]"), spring, checks);
        }
        if let Some(foundation) = &self.foundation {
            foundation.check(checks);
        }
    }

    fn lay_out(&self, layout: &mut Layout) {
        let first = layout.particles.len();
        let mut held_until = vec![0.0; self.positions.len()];
        for (n, &i) in self.pinned.iter().enumerate() {
            held_until[i] = self.release.as_ref().map_or(f64::INFINITY, |release| *release.get(n));
        }
        for (i, &position) in self.positions.iter().enumerate() {
            let node = Node {
                position,
                velocity: self.velocities.get(i).copied().unwrap_or_default(),
                mass: *self.mass.get(i),
                radius: *self.radius.get(i),
                held_until: held_until[i],
            };
            layout.push(&node, self.foundation.as_ref());
        }
        layout.springs.extend(self.springs.iter().map(|spring| Spring {
            ends: [(first + spring.a) as u32, (first + spring.b) as u32],
            stiffness: spring.stiffness,
            damping: spring.damping,
            rest_length: self.rest_length(spring),
        }));
    }
}

impl Points {
    fn check_release(&self, checks: &mut Checks) {
        let Some(release) = &self.release else { return };
        let pinned = self.pinned.len();
        checks.that(pinned > 0, "release", || {
            "lets nothing go, since nothing is pinned: write pinned beside it".into()
        });
        checks.that(release.count().is_none_or(|n| n == pinned), "release", || {
            format!(
                "has {} values for {pinned} pinned points: write one per pinned point",
                release.as_slice().len()
            )
        });
        // Written so that NaN fails.
        let later = release.as_slice().iter().all(|&time| time > 0.0);
        checks.that(later, "release", || "must be later than the start: write e.g. release = 0.5".into());
    }

    fn check_spring(&self, key: &str, spring: &PointSpring, checks: &mut Checks) {
        let count = self.positions.len();
        for (end, index) in [("a", spring.a), ("b", spring.b)] {
            checks.that(index < count, &format!("{key}.{end}"), || no_such_point(index, count));
        }
        checks.not_negative(&format!("{key}.stiffness"), spring.stiffness);
        checks.not_negative(&format!("{key}.damping"), spring.damping);
        if let Some(length) = spring.rest_length {
            checks.not_negative(&format!("{key}.rest_length"), length);
        }
        checks.that(spring.a != spring.b, &format!("{key}.b"), || {
            "is the point that a is: a spring joins two points".into()
        });
        if spring.a < count && spring.b < count && spring.a != spring.b {
            let coincident = self.positions[spring.a] == self.positions[spring.b];
            checks.that(!coincident || self.rest_length(spring) == 0.0, &format!("{key}.rest_length"), || {
                "pushes two points apart that lie at the same place, which gives it no direction: move one of them"
                    .into()
            });
        }
    }

    fn rest_length(&self, spring: &PointSpring) -> f64 {
        spring.rest_length.unwrap_or_else(|| self.positions[spring.a].distance(self.positions[spring.b]))
    }
}

fn no_such_point(index: usize, count: usize) -> String {
    format!("there is no point {index}: the body has {count}, counted from 0")
}
