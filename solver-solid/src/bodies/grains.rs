//! Loose grains: particles that fill a shape, without springs.

use amalgam_particles::DVec3;
use amalgam_particles::shapes::{self, Rotation, Shape};
use serde::Deserialize;

use super::checks::Checks;
use super::layout::{Body, FoundationSettings, Layout, Node, report_shape};

/// Grains as they are written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grains {
    /// The shape to fill.
    shape: Shape,
    /// Turns the shape about its middle, as in `{ axis = [0, 0, 1], degrees = 30 }`.
    rotation: Option<Rotation>,
    /// Spacing of the simple cubic lattice of grains [m].
    spacing: f64,
    /// Density [kg/m^3]. A grain weighs density x spacing^3.
    density: f64,
    /// Collision radius [m]. Default: half the spacing.
    radius: Option<f64>,
    /// Velocity of the middle [m/s].
    #[serde(default)]
    velocity: DVec3,
    /// Angular velocity about the middle [rad/s].
    #[serde(default)]
    angular_velocity: DVec3,
    /// A spring under each particle, as in `{ stiffness = 100.0, damping = 0.1 }` [N/m, N s/m].
    foundation: Option<FoundationSettings>,
}

impl Body for Grains {
    fn read_files(&mut self, checks: &mut Checks) {
        checks.read_file(&mut self.shape);
    }

    fn check(&self, self_collision: bool, checks: &mut Checks) {
        checks.positive("spacing", self.spacing);
        checks.positive("density", self.density);
        if let Some(radius) = self.radius {
            checks.positive("radius", radius);
            let overlapping = 2.0 * radius > self.spacing;
            checks.that(!self_collision || !overlapping, "radius", || {
                format!(
                    "neighbours at a spacing of {} would overlap from the start: write at most half of it, or \
                     self_collision = false",
                    self.spacing
                )
            });
        }
        if let Some(foundation) = &self.foundation {
            foundation.check(checks);
        }
        if !checks.fits(&self.shape, self.spacing, "grains") {
            return;
        }
        report_shape(self.body().sample_layers(self.spacing, checks.part).err().unwrap_or_default(), checks);
    }

    fn lay_out(&self, layout: &mut Layout) {
        let (body, mass) = (self.body(), self.density * self.spacing.powi(3));
        for position in body.sample_layers(self.spacing, layout.part).into_iter().flatten() {
            let velocity = body.velocity_at(position);
            let node = Node { position, velocity, mass, radius: self.radius(), held_until: 0.0 };
            layout.push(&node, self.foundation.as_ref());
        }
    }

    fn has_parts(&self) -> bool {
        true
    }

    fn angular_velocity(&self) -> DVec3 {
        self.angular_velocity
    }
}

impl Grains {
    fn radius(&self) -> f64 {
        self.radius.unwrap_or(0.5 * self.spacing)
    }

    fn body(&self) -> shapes::MovingShape {
        shapes::MovingShape {
            shape: self.shape.clone(),
            rotation: self.rotation,
            velocity: self.velocity,
            angular_velocity: self.angular_velocity,
        }
    }
}
