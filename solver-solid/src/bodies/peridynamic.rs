//! Brittle bodies: particles that fill a shape, bonded to their neighbours within a horizon.

use amalgam_particles::DVec3;
use amalgam_particles::shapes::{self, Rotation, Shape};
use serde::Deserialize;

use super::checks::Checks;
use super::layout::{Body, Layout, Node};
use crate::materials::peridynamics::{BondedBody, Calibration, Lattice, Law, Model, Notch};

/// Spacings that a horizon may reach over: a particle has some 2,000 bonds then.
const HORIZON_MAX: f64 = 8.0;

/// A body as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Peridynamic {
    /// The shape to fill with particles on a simple cubic lattice.
    shape: Shape,
    /// Turns the shape about its middle, as in `{ axis = [0, 0, 1], degrees = 30 }`.
    rotation: Option<Rotation>,
    /// Spacing of the lattice [m].
    spacing: f64,
    /// Density [kg/m^3]. A particle weighs density times its volume.
    density: f64,
    /// Young's modulus [Pa]. Poisson's ratio is that of the `model`, 1/4 for a solid.
    young_modulus: f64,
    /// `"solid"`, or `"plane-stress"`, `"plane-strain"` (one layer), `"bar"` (one row).
    #[serde(default)]
    model: Model,
    /// Thickness of the layer [m], or section of the bar [m^2]. Default: that of the lattice.
    thickness: Option<f64>,
    /// Collision radius [m]. Default: half the spacing; 0.62 spacings for a solid that can neither break
    /// nor collide with itself.
    radius: Option<f64>,
    /// Velocity of all particles that are not held [m/s].
    #[serde(default)]
    velocity: DVec3,
    /// Angular velocity about the middle of the shape [rad/s].
    #[serde(default)]
    angular_velocity: DVec3,
    /// Horizon in spacings, 1 to 8.
    #[serde(default = "default_horizon")]
    horizon: f64,
    /// Energy to break a unit of area [J/m^2]. Without it and `critical_stretch` nothing breaks.
    fracture_energy: Option<f64>,
    /// Stretch at which bonds break, instead of `fracture_energy`.
    critical_stretch: Option<f64>,
    /// Stiffness and threshold of bonds from sums over the `"lattice"`, or from the integrals of the
    /// `"continuum"`.
    #[serde(default)]
    calibration: Calibration,
    /// Rise of the thresholds with compression, alpha of [SillingAskari2005].
    #[serde(default)]
    threshold_rise: f64,
    /// Spread of the thresholds, below 1.
    #[serde(default)]
    strength_scatter: f64,
    /// `true`: neighbours near the horizon count with the part of their volume that lies inside.
    #[serde(default = "yes")]
    volume_correction: bool,
    /// `true`: bonds at surfaces are strengthened, so that plates and beams stretch and bend as they should.
    #[serde(default)]
    surface_correction: bool,
    /// Damping is this time [s] times the stiffness.
    #[serde(default)]
    damping_time: f64,
    /// Boxes whose particles keep a velocity.
    #[serde(default)]
    held: Vec<Held>,
    /// Parallelograms that cut the bonds that cross them.
    #[serde(default)]
    notches: Vec<NotchSettings>,
    /// `"automatic"` takes a lattice where there is one, `"rows"` stores neighbours of each particle.
    #[serde(default)]
    storage: Storage,
}

/// Particles in a box, whose velocity is prescribed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    /// Lowest corner of the box [m].
    min: DVec3,
    /// Highest corner of the box [m].
    max: DVec3,
    /// Velocity of its particles [m/s].
    #[serde(default)]
    velocity: DVec3,
    /// Time at which its particles are let go [s]. Default: never.
    release: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NotchSettings {
    /// A corner [m].
    corner: DVec3,
    /// An edge from the corner [m].
    edge_u: DVec3,
    /// The other edge from the corner [m].
    edge_v: DVec3,
}

/// Storage of bonds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Storage {
    /// By the lattice if there is one.
    #[default]
    Automatic,
    /// A row of bonds per particle, for any arrangement of particles.
    Rows,
}

fn default_horizon() -> f64 {
    3.015
}

fn yes() -> bool {
    true
}

impl Peridynamic {
    /// Collision radius of a particle [m]. Half the spacing, so that spheres touch, where particles of the
    /// body may collide with each other: its pieces do if it breaks. Else the sphere is as large as the cube
    /// that the particle stands for, so that the body displaces about its volume (`docs/theory/solids.md`,
    /// "Collision radii, and where a body ends").
    fn radius(&self, self_collision: bool) -> f64 {
        let breaks = self.fracture_energy.is_some() || self.critical_stretch.is_some();
        let per_spacing = match self.model {
            Model::Solid if !breaks && !self_collision => (0.75 / std::f64::consts::PI).cbrt(),
            _ => 0.5,
        };
        self.radius.unwrap_or(per_spacing * self.spacing)
    }
}

impl Body for Peridynamic {
    fn read_files(&mut self, checks: &mut Checks) {
        checks.read_file(&mut self.shape);
    }

    fn check(&self, self_collision: bool, checks: &mut Checks) {
        for (key, value) in [
            ("spacing", self.spacing),
            ("density", self.density),
            ("young_modulus", self.young_modulus),
            ("horizon", self.horizon),
        ] {
            checks.positive(key, value);
        }
        checks.that((1.0..=HORIZON_MAX).contains(&self.horizon), "horizon", || {
            format!("must be from 1 to {HORIZON_MAX} spacings: write e.g. horizon = 3.015")
        });
        for (key, value) in [
            ("thickness", self.thickness),
            ("radius", self.radius),
            ("fracture_energy", self.fracture_energy),
            ("critical_stretch", self.critical_stretch),
        ] {
            if let Some(value) = value {
                checks.positive(key, value);
            }
        }
        checks.that(
            self.fracture_energy.is_none() || self.critical_stretch.is_none(),
            "critical_stretch",
            || "stands beside fracture_energy: write one of the two".into(),
        );
        checks.that(self.thickness.is_none() || self.model != Model::Solid, "thickness", || {
            "has no meaning for a solid: write model = \"plane-stress\", \"plane-strain\" or \"bar\" beside it".into()
        });
        checks.not_negative("threshold_rise", self.threshold_rise);
        checks.not_negative("damping_time", self.damping_time);
        checks.that((0.0..1.0).contains(&self.strength_scatter), "strength_scatter", || {
            "must be 0 or more and below 1: write e.g. strength_scatter = 0.1".into()
        });
        self.check_parts(checks);
        if let Some(radius) = self.radius {
            checks.that(!self_collision || radius < 10.0 * self.spacing, "radius", || {
                format!("is more than ten spacings of {}: write at most a few", self.spacing)
            });
        }
        if !checks.fits(&self.shape, self.spacing, "particles") {
            return;
        }
        match self.sample() {
            Ok(points) => self.check_points(&points, checks),
            Err(faults) => faults.into_iter().for_each(|fault| match fault.key.split('.').next() {
                // Reported above.
                Some("spacing") => {}
                Some("velocity" | "angular_velocity" | "rotation") => checks.fault(&fault.key, fault.message),
                _ => checks.fault(&fault.path("shape"), fault.message),
            }),
        }
    }

    fn lay_out(&self, layout: &mut Layout) {
        let mut points = self.sample().unwrap_or_default();
        let lattice = Lattice::find(&points, self.spacing);
        let stored_by_lattice = lattice.is_some() && self.storage != Storage::Rows;
        let mut order: Vec<u32> = (0..points.len() as u32).collect();
        match &lattice {
            Some(lattice) if stored_by_lattice => order.sort_by_key(|&i| lattice.key(i as usize)),
            _ => order.sort_by_key(|&i| self.cell(points[i as usize])),
        }
        let lattice = lattice.map(|lattice| lattice.reordered(&order));
        points = order.iter().map(|&i| points[i as usize]).collect();
        let (law, body) = (self.law(), self.body());
        let first = layout.particles.len();
        for &position in &points {
            let held = self.held.iter().find(|held| held.contains(position));
            let node = Node {
                position,
                velocity: held.map_or_else(|| body.velocity_at(position), |held| held.velocity),
                mass: self.density * law.volume,
                radius: self.radius(layout.self_collision),
                held_until: held.map_or(0.0, |held| held.release.unwrap_or(f64::INFINITY)),
            };
            layout.push(&node, None);
        }
        layout.bonded.push(BondedBody {
            first,
            count: points.len(),
            law,
            lattice,
            stored_by_lattice,
            moment: match self.calibration {
                Calibration::Lattice => law.lattice_moment(),
                Calibration::Continuum => self.model.moment(law.horizon, self.thickness()),
            },
            notches: self
                .notches
                .iter()
                .map(|notch| Notch { corner: notch.corner, edges: [notch.edge_u, notch.edge_v] })
                .collect(),
        });
    }
}

impl Peridynamic {
    fn thickness(&self) -> f64 {
        self.thickness.unwrap_or(if self.model == Model::Bar {
            self.spacing * self.spacing
        } else {
            self.spacing
        })
    }

    fn law(&self) -> Law {
        let (model, horizon, thickness) = (self.model, self.horizon * self.spacing, self.thickness());
        let critical_stretch = self
            .critical_stretch
            .or(self
                .fracture_energy
                .map(|energy| model.critical_stretch(energy, self.young_modulus, horizon)))
            .unwrap_or(f64::INFINITY);
        let mut law = Law {
            spacing: self.spacing,
            horizon,
            volume: model.volume(self.spacing, thickness),
            micromodulus: model.micromodulus(self.young_modulus, horizon, thickness),
            critical_stretch,
            threshold_rise: self.threshold_rise,
            strength_scatter: self.strength_scatter,
            volume_correction: self.volume_correction,
            surface_correction: self.surface_correction,
            damping_time: self.damping_time,
            model,
        };
        if self.calibration == Calibration::Lattice {
            law.calibrate(model.moment(horizon, thickness), self.fracture_energy);
        }
        law
    }

    fn body(&self) -> shapes::MovingShape {
        shapes::MovingShape {
            shape: self.shape.clone(),
            rotation: self.rotation,
            velocity: self.velocity,
            angular_velocity: self.angular_velocity,
        }
    }

    fn sample(&self) -> Result<Vec<DVec3>, Vec<shapes::ShapeError>> {
        self.body().sample(self.spacing)
    }

    /// Cell as wide as the horizon, by which particles that lie on no lattice are ordered: neighbours come to
    /// lie near each other in memory.
    fn cell(&self, x: DVec3) -> [i64; 3] {
        let cell = (x / (self.horizon * self.spacing)).floor();
        [cell.z as i64, cell.y as i64, cell.x as i64]
    }

    fn check_parts(&self, checks: &mut Checks) {
        for (i, held) in self.held.iter().enumerate() {
            checks.finite(&format!("held[{i}].velocity"), held.velocity);
            checks.positive(&format!("held[{i}].release"), held.release.unwrap_or(1.0));
            checks.that(held.max.cmpge(held.min).all(), &format!("held[{i}].max"), || {
                "must not be below min along any axis".into()
            });
        }
        for (i, notch) in self.notches.iter().enumerate() {
            checks.finite(&format!("notches[{i}].corner"), notch.corner);
            let area = notch.edge_u.cross(notch.edge_v).length();
            checks.that(area > 0.0 && area.is_finite(), &format!("notches[{i}].edge_v"), || {
                "must not be zero or parallel to edge_u: write the other edge of the notch [m]".into()
            });
        }
    }

    /// Checks that need the particles: layers, coincident points, and parts that hold no particle.
    fn check_points(&self, points: &[DVec3], checks: &mut Checks) {
        let unit = self.law().unit_stiffness();
        let usable = self.horizon < 1.0 || unit.is_finite() && unit > 0.0;
        checks.that(usable, "young_modulus", || {
            format!("makes bonds of a stiffness of {unit} N/m: write a value in Pa and lengths in m")
        });
        for (i, held) in self.held.iter().enumerate() {
            checks.that(points.iter().any(|&point| held.contains(point)), &format!("held[{i}]"), || {
                "holds no particle of the body: move or enlarge the box".into()
            });
        }
        let dimensions = self.model.dimensions();
        let layered = dimensions == 3 || is_flat(points, dimensions, 0.1 * self.spacing);
        checks.that(layered, "model", || {
            "is for one layer of particles (a bar: one row), but the shape holds more: write a thinner shape, or \
             model = \"solid\""
                .into()
        });
    }
}

impl Held {
    fn contains(&self, x: DVec3) -> bool {
        x.cmpge(self.min).all() && x.cmple(self.max).all()
    }
}

/// True if all points lie in a plane (2 dimensions) or on a line (1).
fn is_flat(points: &[DVec3], dimensions: usize, tolerance: f64) -> bool {
    let Some(&origin) = points.first() else { return true };
    let furthest = |from: &dyn Fn(DVec3) -> DVec3| {
        points
            .iter()
            .map(|&p| from(p - origin))
            .fold(DVec3::ZERO, |most, d| if d.length_squared() > most.length_squared() { d } else { most })
    };
    let first = furthest(&|d| d).normalize_or_zero();
    let second = furthest(&|d| d - first * d.dot(first));
    if dimensions == 1 {
        return second.length() <= tolerance;
    }
    let second = second.normalize_or_zero();
    furthest(&|d| d - first * d.dot(first) - second * d.dot(second)).length() <= tolerance
}
