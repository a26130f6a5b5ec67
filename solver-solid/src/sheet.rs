//! Sheets: rectangular or skewed lattices of springs, for cloth and membranes.

use amalgam_particles::{DVec3, ParticleId};
use serde::Deserialize;

use crate::bodies::{Body, FoundationSettings, Layout, Node, OneOrMany};
use crate::section::{Checks, PARTICLES_MAX};
use crate::springs::Spring;

/// A sheet as it is written.
///
/// Structural springs join neighbours along the edges, shear springs along both diagonals of a cell, bending springs
/// across two cells [Provot1995]. With shear = structural / 2, the default, the square lattice is isotropic in its
/// plane: its moduli [N/m] are C11 = k1 + k2, C12 = C44 = k2 and isotropy is C11 - C12 = 2 C44. Poisson's ratio is
/// then 1/3 and Young's modulus times thickness 4/3 k1. Bending springs add 4 k3 to C11 and resist sharp folds; they
/// give a flat sheet no stiffness against small deflections.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sheet {
    /// A corner [m]: u = v = 0.
    corner: DVec3,
    /// From the corner along u [m].
    edge_u: DVec3,
    /// From the corner along v [m].
    edge_v: DVec3,
    /// Distance of particles along an edge [m], rounded so that a whole number fits each edge.
    spacing: f64,
    /// Mass per area [kg/m^2]. A particle has its share of the cells around it: a quarter at a corner.
    area_density: f64,
    /// Collision radius [m]; .75 of the (larger rounded) spacing if not given. The sheet holds particles of radius r
    /// back as long as radius + r exceeds .71 x spacing x (1 + largest strain), which the default does alone up to a
    /// strain of 5 %.
    radius: Option<f64>,
    /// Stiffness of a spring [N/m].
    structural_stiffness: f64,
    /// [N/m]; half the structural one if not given.
    shear_stiffness: Option<f64>,
    /// [N/m]; a hundredth of the structural one if not given.
    bending_stiffness: Option<f64>,
    /// Damping of every spring as a fraction of the critical damping of its two particles; 0 if not given.
    damping_ratio: Option<f64>,
    /// Damping of every spring [N s/m], instead of `damping_ratio`.
    damping: Option<f64>,
    /// "none", "corners", "edges", "edge_u0" (where u = 0), "edge_u1", "edge_v0", "edge_v1", or a list of these.
    #[serde(default = "nowhere")]
    pinned: OneOrMany<String>,
    /// Of the particles that are not pinned [m/s].
    #[serde(default)]
    velocity: DVec3,
    /// Of the particles that are pinned [m/s], for all time.
    #[serde(default)]
    pinned_velocity: DVec3,
    foundation: Option<FoundationSettings>,
}

fn nowhere() -> OneOrMany<String> {
    OneOrMany::Many(Vec::new())
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
        checks.finite("pinned_velocity", self.pinned_velocity);
        checks.that(self.edge_u.length() > 0.0, "edge_u", || {
            "must not be zero: write the edge as a vector [m]".into()
        });
        checks.that(self.edge_u.cross(self.edge_v).length() > 0.0, "edge_v", || {
            "must not be zero or parallel to edge_u: write the other edge of the sheet [m]".into()
        });
        checks.positive("spacing", self.spacing);
        checks.positive("area_density", self.area_density);
        checks.not_negative("structural_stiffness", self.structural_stiffness);
        let optional = [
            ("shear_stiffness", self.shear_stiffness),
            ("bending_stiffness", self.bending_stiffness),
            ("damping_ratio", self.damping_ratio),
            ("damping", self.damping),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                checks.not_negative(key, value);
            }
        }
        checks.that(self.damping.is_none() || self.damping_ratio.is_none(), "damping_ratio", || {
            "stands beside damping: write one of the two".into()
        });
        for name in self.pinned.as_slice() {
            checks.that(is_pinned(name, (0, 0), (1, 1)).is_some(), "pinned", || {
                format!(
                    "\"{name}\" is unknown: write \"none\", \"corners\", \"edges\", \"edge_u0\", \"edge_u1\", \
                     \"edge_v0\", \"edge_v1\" or a list of these"
                )
            });
        }
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
        let cell_mass = self.area_density * self.edge_u.cross(self.edge_v).length() / (columns * rows) as f64;
        for row in 0..=rows {
            for column in 0..=columns {
                let at = (column, row);
                let share = |at: usize, cells: usize| if at == 0 || at == cells { 0.5 } else { 1.0 };
                let (u, v) = (column as f64 / columns as f64, row as f64 / rows as f64);
                let names = self.pinned.as_slice();
                let pinned = names.iter().any(|name| is_pinned(name, at, (columns, rows)) == Some(true));
                let node = Node {
                    position: self.corner + self.edge_u * u + self.edge_v * v,
                    velocity: if pinned { self.pinned_velocity } else { self.velocity },
                    mass: cell_mass * share(column, columns) * share(row, rows),
                    radius: self.radius(),
                    pinned,
                };
                layout.push(&node, self.foundation.as_ref());
            }
        }
        for row in 0..=rows {
            for column in 0..=columns {
                for (across, along, kind) in JOINED {
                    let end = (column + across, row.wrapping_add_signed(along));
                    if end.0 <= columns && end.1 <= rows {
                        let spring = self.spring(layout, [index(column, row), index(end.0, end.1)], kind);
                        layout.springs.push(spring);
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

    fn spring(&self, layout: &Layout, ends: [usize; 2], kind: Kind) -> Spring {
        let stiffness = match kind {
            Kind::Structural => self.structural_stiffness,
            Kind::Shear => self.shear_stiffness.unwrap_or(0.5 * self.structural_stiffness),
            Kind::Bending => self.bending_stiffness.unwrap_or(0.01 * self.structural_stiffness),
        };
        let particles = &layout.particles;
        // Reciprocals, so that a pinned end counts as infinitely heavy.
        let mobility = ends.map(|i| if particles.immovable[i] { 0.0 } else { 1.0 / particles.mass[i] });
        let reduced_mass = match mobility[0] + mobility[1] {
            0.0 => 0.0,
            sum => 1.0 / sum,
        };
        let critical = 2.0 * (stiffness * reduced_mass).sqrt();
        Spring {
            ends: ends.map(|i| i as u32),
            stiffness,
            damping: self.damping.unwrap_or(self.damping_ratio.unwrap_or(0.0) * critical),
            rest_length: particles.position[ends[0]].distance(particles.position[ends[1]]),
        }
    }
}

/// Whether the particle in column and row `at` of a sheet of so many cells is in the part called `name`; nothing if
/// there is no such part.
fn is_pinned(name: &str, at: (usize, usize), cells: (usize, usize)) -> Option<bool> {
    let (u0, u1, v0, v1) = (at.0 == 0, at.0 == cells.0, at.1 == 0, at.1 == cells.1);
    Some(match name {
        "none" => false,
        "corners" => (u0 || u1) && (v0 || v1),
        "edges" => u0 || u1 || v0 || v1,
        "edge_u0" => u0,
        "edge_u1" => u1,
        "edge_v0" => v0,
        "edge_v1" => v1,
        _ => return None,
    })
}
