//! Rigid bodies: particles that fill a shape and never move against each other.

use amalgam_particles::DVec3;
use amalgam_particles::shapes::{self, Rotation, Shape};
use serde::Deserialize;

use super::checks::Checks;
use super::layout::{Body, Constraints, Layout, Node, OneOrMany, Part, Scripted, nowhere, report_shape};

/// A rigid body as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RigidShape {
    /// The shape to fill with particles on a simple cubic lattice.
    shape: Shape,
    /// Turns the shape about its middle, as in `{ axis = [0, 0, 1], degrees = 30 }`.
    rotation: Option<Rotation>,
    /// Spacing of the lattice [m].
    spacing: f64,
    /// Density [kg/m^3]. A particle weighs density x spacing^3.
    density: f64,
    /// Collision radius of a particle [m]. Default: half the spacing.
    radius: Option<f64>,
    /// Velocity of the middle [m/s].
    #[serde(default)]
    velocity: DVec3,
    /// Angular velocity about the middle [rad/s].
    #[serde(default)]
    angular_velocity: DVec3,
    /// `"all"` for a body that nothing moves.
    #[serde(default = "nowhere")]
    pinned: OneOrMany<Part>,
    /// Motions of the body as a whole, as in `{ part = "all", velocity = [0, 0, 1], until = 2.0 }`.
    #[serde(default)]
    scripted: Vec<Scripted>,
}

impl RigidShape {
    fn body(&self) -> shapes::MovingShape {
        shapes::MovingShape {
            shape: self.shape.clone(),
            rotation: self.rotation,
            velocity: self.velocity,
            angular_velocity: self.angular_velocity,
        }
    }

    fn held(&self) -> Constraints<'_> {
        Constraints {
            pinned: self.pinned.as_slice(),
            pinned_velocity: DVec3::ZERO,
            release: None,
            scripted: &self.scripted,
            attached_mass: &[],
        }
    }
}

impl Body for RigidShape {
    fn read_files(&mut self, checks: &mut Checks) {
        checks.read_file(&mut self.shape);
    }

    fn check(&self, _self_collision: bool, checks: &mut Checks) {
        checks.positive("spacing", self.spacing);
        checks.positive("density", self.density);
        if let Some(radius) = self.radius {
            checks.positive("radius", radius);
        }
        self.held().check(&["none", "all"], checks);
        let is_whole = |part: &Part| matches!(part, Part::Named(_));
        for (key, parts) in [
            ("pinned", self.pinned.as_slice().iter().all(is_whole)),
            ("scripted", self.scripted.iter().all(|scripted| is_whole(&scripted.part))),
        ] {
            checks.that(parts, key, || "holds a rigid body as a whole: write the part \"all\"".into());
        }
        for (n, _) in self.scripted.iter().enumerate().filter(|(_, scripted)| scripted.release.is_some()) {
            checks.fault(
                &format!("scripted[{n}].release"),
                "is for springs and bonds: a rigid body is held for all time or not at all",
            );
        }
        let is_held =
            self.pinned.as_slice().iter().any(|part| part.is_named("all")) || !self.scripted.is_empty();
        let moves = self.velocity != DVec3::ZERO || self.angular_velocity != DVec3::ZERO;
        checks.that(!(is_held && moves), "velocity", || {
            "of a held body means nothing: write scripted = [{ part = \"all\", velocity = ... }]".into()
        });
        if !checks.fits(&self.shape, self.spacing, "particles") {
            return;
        }
        report_shape(self.body().sample(self.spacing).err().unwrap_or_default(), checks);
    }

    fn lay_out(&self, layout: &mut Layout) {
        let (body, mass) = (self.body(), self.density * self.spacing.powi(3));
        let first = layout.particles.len();
        let radius = self.radius.unwrap_or(0.5 * self.spacing);
        for position in body.sample(self.spacing).into_iter().flatten() {
            let velocity = body.velocity_at(position);
            layout.push(&Node { position, velocity, mass, radius, held_until: 0.0 }, None);
        }
        layout.hold(first, &self.held(), |name, _| name == "all");
    }

    fn angular_velocity(&self) -> DVec3 {
        self.angular_velocity
    }

    /// Each particle stands for a cube of the lattice, whose moment of inertia about its middle is m a^2 / 6.
    fn lever(&self) -> f64 {
        self.spacing / 6f64.sqrt()
    }
}
