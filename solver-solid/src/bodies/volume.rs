//! Volumes: cubic lattices of springs that fill a shape, for soft bodies.

use std::cell::OnceCell;

use amalgam_particles::shapes::{self, CellSample, Rotation, Shape};
use amalgam_particles::{DVec3, ParticleId};
use serde::Deserialize;

use super::checks::Checks;
use super::layout::{
    AttachedMass, Body, Constraints, Damping, FoundationSettings, Layout, Node, OneOrMany, Part, Scripted,
    nowhere, report_shape,
};

/// Collision radius of a wall, in spacings: above the 0.71 at which spheres at the corners of a square leave
/// no hole.
const WALL_RADIUS: f64 = 0.75;

/// A volume as it is written.
///
/// The cubic cells whose centres are in the shape are the body; particles are their corners. Springs run
/// along the edges and the diagonals of the faces of every cell: [`Volume::stiffness`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Volume {
    /// The shape to fill, meshes included.
    shape: Shape,
    /// Turns the shape about its middle, as in `{ axis = [0, 0, 1], degrees = 30 }`.
    rotation: Option<Rotation>,
    /// Edge of a cell [m].
    spacing: f64,
    /// Mass per volume [kg/m^3]. A particle has an eighth of each cell around it.
    density: f64,
    /// Young's modulus of the material [Pa]. Poisson's ratio is 1/4.
    young_modulus: Option<f64>,
    /// Stiffness of a spring inside [N/m], instead of `young_modulus`.
    stiffness: Option<f64>,
    /// Collision radius [m], more than the default only without `self_collision`. Default: half the
    /// spacing; 0.75 spacings of a box, sphere, cylinder or ellipsoid with `pinned = "all"`.
    radius: Option<f64>,
    /// Damping of each spring as a part of the critical damping of its two particles. Default: 0.
    damping_ratio: Option<f64>,
    /// Damping of each spring [N s/m], instead of `damping_ratio`.
    damping: Option<f64>,
    /// Parts that no force moves: one or a list of `"none"`, `"all"` and shapes.
    #[serde(default = "nowhere")]
    pinned: OneOrMany<Part>,
    /// Velocity of the middle [m/s].
    #[serde(default)]
    velocity: DVec3,
    /// Angular velocity about the middle [rad/s].
    #[serde(default)]
    angular_velocity: DVec3,
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
    /// The cells, once they have been needed.
    #[serde(skip)]
    cells: OnceCell<CellSample>,
}

const PARTS: [&str; 2] = ["none", "all"];

/// Corners of a cell.
const CORNERS: [[u32; 3]; 8] =
    [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]];

/// Faces of a cell, by their corners counter-clockwise from outside.
const FACES: [[usize; 4]; 6] =
    [[0, 4, 6, 2], [1, 3, 7, 5], [0, 1, 5, 4], [2, 6, 7, 3], [0, 2, 3, 1], [4, 5, 7, 6]];

impl Body for Volume {
    fn read_files(&mut self, checks: &mut Checks) {
        checks.read_file(&mut self.shape);
    }

    fn check(&self, self_collision: bool, checks: &mut Checks) {
        checks.positive("spacing", self.spacing);
        checks.positive("density", self.density);
        checks.positive("young_modulus", self.young_modulus.unwrap_or(1.0));
        checks.not_negative("stiffness", self.stiffness.unwrap_or(0.0));
        match (self.young_modulus, self.stiffness) {
            (None, None) => {
                checks.fault("", "has no young_modulus: write e.g. young_modulus = 1e6, or stiffness")
            }
            (Some(_), Some(_)) => {
                checks.fault("stiffness", "stands beside young_modulus: write one of the two")
            }
            _ => {}
        }
        Damping::read(self.damping, self.damping_ratio, checks);
        checks.positive("radius", self.radius());
        // Corners a spacing apart need not be joined: the edge between them may belong to no cell of a hollow
        // shape.
        let may_touch = self_collision && self.radius.is_some();
        checks.that(!may_touch || 2.0 * self.radius() <= self.spacing * (1.0 + 1e-12), "radius", || {
            format!(
                "particles that no spring joins could touch from the start: write at most {}, half the spacing, or \
                 self_collision = false",
                0.5 * self.spacing
            )
        });
        self.held().check(&PARTS, checks);
        if let Some(foundation) = &self.foundation {
            foundation.check(checks);
        }
        if !checks.fits(&self.shape, self.spacing, "particles") {
            return;
        }
        match self.body().cells(self.spacing) {
            Ok(cells) => drop(self.cells.set(cells)),
            Err(faults) => report_shape(faults, checks),
        }
    }

    fn lay_out(&self, layout: &mut Layout) {
        let Some(cells) = self.cells.get() else { return };
        let (body, first) = (self.body(), layout.particles.len());
        let corners =
            |cell: &[u32; 3]| CORNERS.map(|corner| [0, 1, 2].map(|axis| (cell[axis] + corner[axis]) as u64));
        // Ordered as the cells are: x fastest, then y, then z.
        let key = |[x, y, z]: [u64; 3]| z << 42 | y << 21 | x;
        let mut nodes: Vec<u64> = cells.cells.iter().flat_map(corners).map(key).collect();
        nodes.sort_unstable();
        let shares: Vec<(u64, usize)> =
            nodes.chunk_by(|a, b| a == b).map(|same| (same[0], same.len())).collect();
        let eighth = 0.125 * self.density * self.spacing.powi(3);
        for &(node, share) in &shares {
            let part = |shift: u32| (node >> shift & 0x1f_ffff) as f64;
            let position = cells.point(DVec3::new(part(0), part(21), part(42)));
            let (velocity, mass) = (body.velocity_at(position), eighth * share as f64);
            let node = Node { position, velocity, mass, radius: self.radius(), held_until: 0.0 };
            layout.push(&node, self.foundation.as_ref());
        }
        layout.hold(first, &self.held(), |name, _| name == "all");
        let index = |place: [u64; 3]| {
            let at = shares.binary_search_by_key(&key(place), |(node, _)| *node);
            first + at.expect("a corner of a cell is a node")
        };
        let by_index: Vec<[usize; 8]> = cells.cells.iter().map(|cell| corners(cell).map(index)).collect();
        self.join(cells, &by_index, layout);
        layout.triangles.extend(skin(&by_index));
    }
}

impl Volume {
    fn body(&self) -> shapes::MovingShape {
        shapes::MovingShape {
            shape: self.shape.clone(),
            rotation: self.rotation,
            velocity: self.velocity,
            angular_velocity: self.angular_velocity,
        }
    }

    fn radius(&self) -> f64 {
        self.radius.unwrap_or(if self.is_wall() { WALL_RADIUS } else { 0.5 } * self.spacing)
    }

    /// True if the body is a wall: nothing moves its particles, and any two that are a spacing apart are
    /// joined.
    fn is_wall(&self) -> bool {
        let convex = matches!(
            self.shape,
            Shape::Box { .. } | Shape::Sphere { .. } | Shape::Cylinder { .. } | Shape::Ellipsoid { .. }
        );
        convex && self.pinned.as_slice().iter().any(|part| part.is_named("all")) && self.release.is_none()
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

    /// Stiffness k of every spring inside [N/m].
    ///
    /// Springs of stiffness k along the edges h of cubes and along the diagonals of their faces have,
    /// strained evenly, the energy of a solid with C11 = 3 k/h and C12 = C44 = k/h: each spring adds k l^2 n
    /// n n n / h^3. C11 - C12 = 2 C44, so the solid is isotropic, with Young's modulus E = 2.5 k/h and
    /// Poisson's ratio 1/4 (the only one that springs can have). An edge is shared by four cells and a face
    /// by two, and each cell brings its share of the spring: so the energy is right up to the surface,
    /// whatever the shape.
    fn stiffness(&self) -> f64 {
        self.young_modulus.map_or(self.stiffness.unwrap_or(0.0), |modulus| 0.4 * modulus * self.spacing)
    }

    /// Joins the corners of cells by springs. Each cell brings its share of every spring, more of those
    /// inside a body than of those at its surface: [`Sides`].
    fn join(&self, sample: &CellSample, cells: &[[usize; 8]], layout: &mut Layout) {
        // A pair of corners is an edge if they differ along one axis, and the diagonal of a face if along
        // two.
        let mut pairs = Vec::new();
        for a in 0..8usize {
            for b in a + 1..8 {
                let parts = match (a ^ b).count_ones() {
                    1 => 4,
                    2 => 2,
                    _ => continue,
                };
                pairs.push((a, b, parts));
            }
        }
        let sides = Sides::of_all(&sample.cells);
        let mut springs = Vec::with_capacity(pairs.len() * cells.len());
        for (k, cell) in cells.iter().enumerate() {
            for &(a, b, parts) in &pairs {
                let share: f64 =
                    (0..3).map(|axis| sides[axis][k].share([a >> axis & 1, b >> axis & 1], parts)).product();
                springs.push(([cell[a].min(cell[b]), cell[a].max(cell[b])], share / f64::from(parts)));
            }
        }
        // Stable, so that shares are added in the order of cells.
        springs.sort_by_key(|(ends, _)| *ends);
        let damping = Damping::of(self.damping, self.damping_ratio);
        for same in springs.chunk_by(|a, b| a.0 == b.0) {
            let share: f64 = same.iter().map(|(_, share)| share).sum();
            layout.join(same[0].0, self.stiffness() * share, damping);
        }
    }
}

/// Place of a cell in its row of cells along an axis, as its parts of the springs in its lower and its upper
/// face.
///
/// With equal parts a plate of n cells would bend too stiffly, by 1.22 with two cells and 1.06 with four.
/// Bent with curvature c, springs in layers of corners have the energy A c^2 z^2/4 at their heights z, those
/// across layers B c^2 z^2/2 at the middle of cells, both per k and cell, with A = 13/8 and B = 7/8 for
/// Poisson's ratio 1/4. The sum over layers is that of the trapezoid rule, too large by n h^2/3 of n^3 h^2/6;
/// over the middles of cells it is too small by n h^2/12 of n^3 h^2/12. As in Gregory's rule, cells at a
/// surface move a part of what they bring to its layer to the next one inwards: s of the edges, and s/3 of
/// the diagonals of faces. Both together take 2 s (n - 1) h^2 (17 + 3)/16 from A times the first sum, and the
/// energy is that of a plate if this is n (A/3 - B/6) h^2. An even strain has the same energy as before. With
/// a third for diagonals it also leaves no force in a body that is pulled along the layer: across, the pull
/// of edges, diagonals within the layer and diagonals to other layers is as -1 : 3 : -2.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sides {
    /// Part that is moved to the upper face, or from it if negative.
    moved: f64,
}

impl Sides {
    /// The place `at` in a row of `count` cells.
    fn new(at: usize, count: usize) -> Self {
        if count < 2 {
            return Self { moved: 0.0 };
        }
        let part = f64::from(u8::from(at == 0)) - f64::from(u8::from(at + 1 == count));
        Self { moved: part * 19.0 / 120.0 * count as f64 / (count - 1) as f64 }
    }

    /// Along each axis, for each cell.
    fn of_all(cells: &[[u32; 3]]) -> [Vec<Self>; 3] {
        [0, 1, 2].map(|axis| {
            let row = |k: usize| [cells[k][(axis + 1) % 3], cells[k][(axis + 2) % 3]];
            let mut order: Vec<usize> = (0..cells.len()).collect();
            order.sort_by_key(|&k| (row(k), cells[k][axis]));
            let mut sides = vec![Self { moved: 0.0 }; cells.len()];
            let next = |a: &usize, b: &usize| row(*a) == row(*b) && cells[*a][axis] + 1 == cells[*b][axis];
            for run in order.chunk_by(next) {
                run.iter().enumerate().for_each(|(at, &k)| sides[k] = Self::new(at, run.len()));
            }
            sides
        })
    }

    /// Part of the cell in a spring between these sides (0 or 1), over its equal part. Springs are edges,
    /// which belong to four cells inside a body, or diagonals, which belong to two.
    fn share(self, [from, to]: [usize; 2], cells: u32) -> f64 {
        let moved = if cells == 4 { self.moved } else { self.moved / 3.0 };
        match (from, to) {
            (0, 0) => 1.0 - moved,
            (1, 1) => 1.0 + moved,
            _ => 1.0,
        }
    }
}

/// Faces that belong to one cell only, as triangles that look outwards.
fn skin(cells: &[[usize; 8]]) -> Vec<[ParticleId; 3]> {
    let mut faces: Vec<([usize; 4], [usize; 4])> = Vec::with_capacity(6 * cells.len());
    for cell in cells {
        faces.extend(FACES.map(|face| {
            let face = face.map(|corner| cell[corner]);
            let mut sorted = face;
            sorted.sort_unstable();
            (sorted, face)
        }));
    }
    faces.sort_unstable();
    let outer = faces.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() == 1).map(|same| same[0].1);
    outer.flat_map(|[a, b, c, d]| [[a, b, c], [a, c, d]].map(|t| t.map(|i| ParticleId(i as u64)))).collect()
}
