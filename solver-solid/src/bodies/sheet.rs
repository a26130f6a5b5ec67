//! Sheets: rectangular or skewed lattices of springs, for cloth and membranes.

use amalgam_particles::{DVec3, ParticleId};
use serde::Deserialize;

use super::checks::{Checks, PARTICLES_MAX};
use super::layout::{
    AttachedMass, Body, Constraints, Damping, FoundationSettings, Layout, Node, OneOrMany, Part, Scripted,
    nowhere,
};

/// A sheet as it is written.
///
/// Structural springs join neighbours along the edges, shear springs along both diagonals of a cell, bending
/// springs across two cells [Provot1995]. Their stiffness is given in the terms of a material, or directly:
/// [`Sheet::springs`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sheet {
    /// A corner, u = v = 0 [m].
    corner: DVec3,
    /// Edge from the corner along u [m].
    edge_u: DVec3,
    /// Edge from the corner along v [m]. Not parallel to `edge_u`, and at right angles to it for a
    /// material.
    edge_v: DVec3,
    /// Distance of particles along an edge [m], rounded so that a whole number fits each edge.
    spacing: f64,
    /// Young's modulus of the material [Pa], with `thickness` and `density`. Poisson's ratio in the plane is
    /// 1/3.
    young_modulus: Option<f64>,
    /// Thickness [m].
    thickness: Option<f64>,
    /// Mass per volume [kg/m^3].
    density: Option<f64>,
    /// Mass per area [kg/m^2], with `structural_stiffness`. A particle has its share of the cells around
    /// it.
    area_density: Option<f64>,
    /// Stiffness of a spring between neighbours [N/m], instead of a material.
    structural_stiffness: Option<f64>,
    /// Stiffness of a spring along a diagonal [N/m]; not for a material. Default: half the structural
    /// one.
    shear_stiffness: Option<f64>,
    /// Stiffness of a spring across two cells [N/m]. Default: a hundredth of the structural one; 0 for a
    /// material.
    bending_stiffness: Option<f64>,
    /// Collision radius [m]. Default: 0.75 spacings.
    radius: Option<f64>,
    /// Damping of each spring as a part of the critical damping of its two particles. Default: 0.
    damping_ratio: Option<f64>,
    /// Damping of each spring [N s/m], instead of `damping_ratio`.
    damping: Option<f64>,
    /// Parts that no force moves: one or a list of `"none"`, `"all"`, `"corners"`, `"edges"`,
    /// `"edge_u0"` (where u = 0), `"edge_u1"`, `"edge_v0"`, `"edge_v1"` and shapes.
    #[serde(default = "nowhere")]
    pinned: OneOrMany<Part>,
    /// Velocity of the particles that are not pinned [m/s].
    #[serde(default)]
    velocity: DVec3,
    /// Velocity of the pinned particles [m/s].
    #[serde(default)]
    pinned_velocity: DVec3,
    /// Time at which the pinned particles are let go with the velocity that they have [s]. Default: never.
    release: Option<f64>,
    /// Motions of parts, as in `{ part = "edge_u1", velocity = [0, 0, 1], until = 2.0 }`.
    #[serde(default)]
    scripted: Vec<Scripted>,
    /// Mass [kg] beyond the body's own, as in `{ part = "edge_u1", mass = 0.5 }`, spread evenly over the
    /// part.
    #[serde(default)]
    attached_mass: Vec<AttachedMass>,
    /// A spring under each particle, as in `{ stiffness = 100.0, damping = 0.1 }` [N/m, N s/m].
    foundation: Option<FoundationSettings>,
}

/// Names of parts: `edge_u0` is where u = 0.
const PARTS: [&str; 8] = ["none", "all", "corners", "edges", "edge_u0", "edge_u1", "edge_v0", "edge_v1"];

/// Stiffness [N/m] of each kind of spring.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stiffness {
    structural_u: f64,
    structural_v: f64,
    shear: f64,
    bending: f64,
    /// Stiffness of a structural spring on the rim relative to one inside.
    rim: f64,
}

/// Columns and rows between joined particles, and which stiffness they have.
const JOINED: [(usize, isize, Kind); 6] = [
    (1, 0, Kind::Structural),
    (0, 1, Kind::Structural),
    (1, 1, Kind::Shear),
    (1, -1, Kind::Shear),
    (2, 0, Kind::Bending),
    (0, 2, Kind::Bending),
];

#[derive(Clone, Copy)]
enum Kind {
    Structural,
    Shear,
    Bending,
}

impl Body for Sheet {
    fn check(&self, self_collision: bool, checks: &mut Checks) {
        checks.finite("corner", self.corner);
        checks.finite("edge_u", self.edge_u);
        checks.finite("edge_v", self.edge_v);
        checks.finite("velocity", self.velocity);
        checks.that(self.edge_u.length() > 0.0, "edge_u", || {
            "must not be zero: write the edge as a vector [m]".into()
        });
        checks.that(self.edge_u.cross(self.edge_v).length() > 0.0, "edge_v", || {
            "must not be zero or parallel to edge_u: write the other edge of the sheet [m]".into()
        });
        checks.positive("spacing", self.spacing);
        self.check_stiffness(checks);
        Damping::read(self.damping, self.damping_ratio, checks);
        self.held().check(&PARTS, checks);
        if let Some(foundation) = &self.foundation {
            foundation.check(checks);
        }
        let (columns, rows) = self.cells();
        if (columns + 1) * (rows + 1) > PARTICLES_MAX {
            checks.fault(
                "spacing",
                format!("makes more than {PARTICLES_MAX} particles: write a larger spacing"),
            );
        } else if self.edge_u.cross(self.edge_v).length() > 0.0 {
            self.check_radius(self_collision, checks);
        }
    }

    fn lay_out(&self, layout: &mut Layout) {
        let (columns, rows) = self.cells();
        let first = layout.particles.len();
        let index = |column: usize, row: usize| first + row * (columns + 1) + column;
        let cell_mass =
            self.area_density() * self.edge_u.cross(self.edge_v).length() / (columns * rows) as f64;
        for row in 0..=rows {
            for column in 0..=columns {
                let share = |at: usize, cells: usize| if at == 0 || at == cells { 0.5 } else { 1.0 };
                let (u, v) = (column as f64 / columns as f64, row as f64 / rows as f64);
                let node = Node {
                    position: self.corner + self.edge_u * u + self.edge_v * v,
                    velocity: self.velocity,
                    mass: cell_mass * share(column, columns) * share(row, rows),
                    radius: self.radius(),
                    held_until: 0.0,
                };
                layout.push(&node, self.foundation.as_ref());
            }
        }
        layout.hold(first, &self.held(), |name, i| {
            let place = ((i - first) % (columns + 1), (i - first) / (columns + 1));
            is_in(name, place, (columns, rows))
        });
        let stiffness = self.springs();
        let damping = Damping::of(self.damping, self.damping_ratio);
        for row in 0..=rows {
            for column in 0..=columns {
                for (across, along, kind) in JOINED {
                    let end = (column + across, row.wrapping_add_signed(along));
                    if end.0 <= columns && end.1 <= rows {
                        let on_rim = if along == 0 {
                            row == 0 || row == rows
                        } else {
                            column == 0 || column == columns
                        };
                        let structural =
                            if along == 0 { stiffness.structural_u } else { stiffness.structural_v };
                        let stiffness = match kind {
                            Kind::Structural if on_rim => structural * stiffness.rim,
                            Kind::Structural => structural,
                            Kind::Shear => stiffness.shear,
                            Kind::Bending => stiffness.bending,
                        };
                        layout.join([index(column, row), index(end.0, end.1)], stiffness, damping);
                    }
                }
            }
        }
        let id = |column, row| ParticleId(index(column, row) as u64);
        for row in 0..rows {
            for column in 0..columns {
                let (a, b) = (id(column, row), id(column + 1, row));
                let (c, d) = (id(column, row + 1), id(column + 1, row + 1));
                layout.triangles.extend([[a, b, d], [a, d, c]]);
            }
        }
    }
}

impl Sheet {
    /// Cells along u and along v; more than any sheet may have if spacing or edges are faulty.
    fn cells(&self) -> (usize, usize) {
        let fitting = |edge: DVec3| ((edge.length() / self.spacing).round() as usize).clamp(1, PARTICLES_MAX);
        (fitting(self.edge_u), fitting(self.edge_v))
    }

    /// Vectors from a particle to its neighbours along u and v [m].
    fn steps(&self) -> (DVec3, DVec3) {
        let (columns, rows) = self.cells();
        (self.edge_u / columns as f64, self.edge_v / rows as f64)
    }

    fn radius(&self) -> f64 {
        let (u, v) = self.steps();
        self.radius.unwrap_or(0.75 * u.length().max(v.length()))
    }

    /// Particles that no spring joins must not touch in the sheet's initial state, if they could collide.
    fn check_radius(&self, self_collision: bool, checks: &mut Checks) {
        checks.positive("radius", self.radius());
        let ((columns, rows), (u, v)) = (self.cells(), self.steps());
        let mut nearest = f64::INFINITY;
        for across in 0..=columns.min(3) {
            for along in -(rows.min(3) as isize)..=rows.min(3) as isize {
                let joined =
                    JOINED.iter().any(|&(c, r, _)| (across, along) == (c, r) || (across, along) == (c, -r));
                if !joined && (across, along) != (0, 0) {
                    nearest = nearest.min((u * across as f64 + v * along as f64).length());
                }
            }
        }
        checks.that(!self_collision || 2.0 * self.radius() <= nearest || nearest.is_nan(), "radius", || {
            format!(
                "particles of radius {} that no spring joins would touch from the start: write at most {:.3e}, or \
                 self_collision = false",
                self.radius(),
                0.5 * nearest
            )
        });
    }

    fn held(&self) -> Constraints<'_> {
        Constraints {
            pinned: self.pinned.as_slice(),
            pinned_velocity: self.pinned_velocity,
            release: self.release,
            scripted: &self.scripted,
            attached_mass: &self.attached_mass,
        }
    }

    /// Young's modulus times thickness [N/m], if the sheet is given as a material.
    fn membrane_modulus(&self) -> Option<f64> {
        Some(self.young_modulus? * self.thickness?)
    }

    fn area_density(&self) -> f64 {
        let material = self.density.zip(self.thickness).map(|(density, thickness)| density * thickness);
        material.or(self.area_density).unwrap_or(f64::NAN)
    }

    /// Stiffness of the springs that make an isotropic membrane of a material.
    ///
    /// Let a cell of a x b have springs ku along a, kv along b, and ks along both diagonals of length d. Under an
    /// even strain its energy is the one of a membrane with the moduli [N/m]
    /// C11 = (ku a^2 + 2 ks a^4/d^2) / (a b), C22 = (kv b^2 + 2 ks b^4/d^2) / (a b), C12 = C66 = 2 ks a b / d^2.
    /// Let Y be Young's modulus times thickness. The membrane is isotropic, with Poisson's ratio 1/3, if
    /// C12 = 3/8 Y and C11 = C22 = 9/8 Y. Hence ks = 3/16 Y d^2/(a b) and ku = 3/8 Y (3 b/a - a/b). Springs can have
    /// no other ratio. A spring on the rim belongs to one cell in place of two and has half of the stiffness, so
    /// that the energy is right up to the rim.
    ///
    /// Directly: structural springs k1 everywhere, shear springs k1/2 and bending springs k1/100 unless
    /// given. With square cells this is isotropic too, with Y = 4/3 k1; the rim counts double.
    fn springs(&self) -> Stiffness {
        let direct = self.structural_stiffness.unwrap_or(0.0);
        match self.membrane_modulus() {
            None => Stiffness {
                structural_u: direct,
                structural_v: direct,
                shear: self.shear_stiffness.unwrap_or(0.5 * direct),
                bending: self.bending_stiffness.unwrap_or(0.01 * direct),
                rim: 1.0,
            },
            Some(modulus) => {
                let (u, v) = self.steps();
                let (a, b) = (u.length(), v.length());
                let structural = |a: f64, b: f64| 0.375 * modulus * (3.0 * b / a - a / b);
                Stiffness {
                    structural_u: structural(a, b),
                    structural_v: structural(b, a),
                    shear: 0.1875 * modulus * (a * a + b * b) / (a * b),
                    bending: self.bending_stiffness.unwrap_or(0.0),
                    rim: 0.5,
                }
            }
        }
    }

    /// Either a material or springs.
    fn check_stiffness(&self, checks: &mut Checks) {
        let material =
            [("young_modulus", self.young_modulus), ("thickness", self.thickness), ("density", self.density)];
        let springs = [
            ("structural_stiffness", self.structural_stiffness),
            ("area_density", self.area_density),
            ("shear_stiffness", self.shear_stiffness),
        ];
        for (key, value) in material {
            checks.positive(key, value.unwrap_or(1.0));
        }
        checks.positive("area_density", self.area_density.unwrap_or(1.0));
        for (key, value) in [springs[0], springs[2], ("bending_stiffness", self.bending_stiffness)] {
            checks.not_negative(key, value.unwrap_or(0.0));
        }
        let given = |keys: &[(&str, Option<f64>)]| keys.iter().any(|(_, value)| value.is_some());
        let both = given(&material) && given(&springs);
        let wanted = if given(&material) { &material[..] } else { &springs[..2] };
        if both {
            let key = springs.iter().find(|(_, value)| value.is_some()).map_or("", |(key, _)| key);
            checks.fault(
                key,
                "stands beside a material: write young_modulus, thickness and density, or springs",
            );
        } else if let Some((missing, _)) = wanted.iter().find(|(_, value)| value.is_none()) {
            checks.fault(
                "",
                format!(
                    "has no {missing}: write young_modulus, thickness and density, or structural_stiffness and \
                     area_density"
                ),
            );
        } else if given(&material) {
            self.check_cells_of_material(checks);
        }
    }

    /// Central springs make an isotropic membrane only of cells that are rectangles, and not too long ones.
    fn check_cells_of_material(&self, checks: &mut Checks) {
        let (u, v) = self.steps();
        let (a, b) = (u.length(), v.length());
        checks.that(u.dot(v).abs() <= 1e-9 * a * b || u.cross(v).length() == 0.0, "edge_v", || {
            "is not at right angles to edge_u, which a sheet with young_modulus needs: write springs instead".into()
        });
        let Stiffness { structural_u, structural_v, .. } = self.springs();
        checks.that(structural_u.min(structural_v) > 0.0 || (a * b).is_nan(), "spacing", || {
            format!(
                "makes cells of {a} m x {b} m, too long for springs of a material: write a smaller spacing"
            )
        });
    }
}

/// True if the particle in column and row `at` of a sheet of so many cells is in the part called `name`, one
/// of [`PARTS`].
fn is_in(name: &str, at: (usize, usize), cells: (usize, usize)) -> bool {
    let (u0, u1, v0, v1) = (at.0 == 0, at.0 == cells.0, at.1 == 0, at.1 == cells.1);
    match name {
        "all" => true,
        "corners" => (u0 || u1) && (v0 || v1),
        "edges" => u0 || u1 || v0 || v1,
        "edge_u0" => u0,
        "edge_u1" => u1,
        "edge_v0" => v0,
        "edge_v1" => v1,
        _ => false,
    }
}
