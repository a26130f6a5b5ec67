//! The surface of a body on a lattice, which tears where bonds break.
//!
//! Each particle is the cube of the lattice around it. A face of a cube belongs to the surface if the
//! neighbour behind it is absent or no longer bonded. At a corner, cubes that are joined through intact faces
//! share one vertex, the mean of their positions of the corner. Other cubes have vertices of their own. So a
//! crack opens as a slit between two sides, no part of the body is lost, and the surface is closed at any time.

use std::collections::HashMap;

use amalgam_particles::{DVec3, MovingSurface};
use rayon::prelude::*;

use super::cubic::Lattice;
use super::table::BondTable;
use crate::chunks::CHUNK;

/// A body as its surface needs it.
pub(super) struct Cubes<'a> {
    /// Its cells ascend by [`Lattice::key`].
    pub(super) lattice: &'a Lattice,
    pub(super) table: &'a dyn BondTable,
    /// Positions of its particles [m].
    pub(super) position: &'a [DVec3],
    /// Velocities of its particles [m/s].
    pub(super) velocity: &'a [DVec3],
}

/// A vertex before it has a number: a corner of the lattice and the lowest particle that has it.
type Corner = ([i32; 3], u32);

impl Cubes<'_> {
    /// Adds the surface of the body.
    pub(super) fn add_surface(&self, surface: &mut MovingSurface) {
        let MovingSurface { vertices, velocities, triangles } = surface;
        let keys: Vec<u64> = (0..self.position.len()).map(|i| self.lattice.key(i)).collect();
        let faces = |i: usize| self.faces(&keys, i);
        let faces: Vec<Vec<[Corner; 4]>> =
            (0..self.position.len()).into_par_iter().with_min_len(CHUNK).map(faces).collect();
        let mut numbers: HashMap<Corner, u32> = HashMap::new();
        for face in faces.iter().flatten() {
            let [a, b, c, d] = face.map(|corner| {
                *numbers.entry(corner).or_insert_with(|| {
                    let (place, velocity) = self.place(&keys, corner);
                    vertices.push(place);
                    velocities.push(velocity);
                    vertices.len() as u32 - 1
                })
            });
            triangles.extend([[a, b, c], [a, c, d]]);
        }
    }

    /// The faces of a particle's cube that belong to the surface.
    fn faces(&self, keys: &[u64], i: usize) -> Vec<[Corner; 4]> {
        let [a, b, c] = self.lattice.steps;
        let mirrored = a.cross(b).dot(c) < 0.0;
        let cell = self.lattice.cells[i];
        let mut found = Vec::new();
        for (axis, side) in (0..3).flat_map(|axis| [(axis, 0), (axis, 1)]) {
            let behind = self.neighbour(keys, i, axis, side);
            if behind.is_some_and(|j| self.table.joined(i, j)) {
                continue;
            }
            // Anticlockwise seen from the upper side.
            let mut around = [[0, 0], [1, 0], [1, 1], [0, 1]].map(|[u, v]| {
                let mut corner = cell;
                corner[axis] += side;
                corner[(axis + 1) % 3] += u;
                corner[(axis + 2) % 3] += v;
                corner
            });
            if (side == 0) != mirrored {
                around.reverse();
            }
            let sharers = around.map(|corner| self.sharers(keys, corner, i));
            // A broken bond whose ends still share all corners has not opened anything.
            let open = |j: usize| sharers.iter().any(|sharers| !sharers.contains(&(j as u32)));
            if behind.is_none_or(open) {
                found.push(std::array::from_fn(|k| (around[k], sharers[k][0])));
            }
        }
        found
    }

    /// The particle of the next cell along an axis, downwards (0) or upwards (1).
    fn neighbour(&self, keys: &[u64], i: usize, axis: usize, side: i32) -> Option<usize> {
        let mut cell = self.lattice.cells[i];
        cell[axis] += 2 * side - 1;
        self.at(keys, cell)
    }

    fn at(&self, keys: &[u64], cell: [i32; 3]) -> Option<usize> {
        let extent = self.lattice.extent;
        let inside = (0..3).all(|axis| (0..extent[axis]).contains(&cell[axis]));
        inside.then(|| keys.binary_search(&self.lattice.key_of(cell)).ok()).flatten()
    }

    /// The particles around the lowest corner of `corner`'s cell that share it with particle `i`, ascending:
    /// those that live bonds through faces lead to without leaving the corner.
    fn sharers(&self, keys: &[u64], corner: [i32; 3], i: usize) -> Vec<u32> {
        let around: [Option<usize>; 8] = std::array::from_fn(|n| {
            self.at(keys, std::array::from_fn(|axis| corner[axis] - 1 + (n as i32 >> axis & 1)))
        });
        let mut reached: u8 = around.iter().position(|&j| j == Some(i)).map_or(0, |n| 1 << n);
        let mut waiting = reached;
        while waiting != 0 {
            let n = waiting.trailing_zeros() as usize;
            waiting &= waiting - 1;
            for other in [n ^ 1, n ^ 2, n ^ 4] {
                let joined = around[n].zip(around[other]).is_some_and(|(a, b)| self.table.joined(a, b));
                if joined && reached >> other & 1 == 0 {
                    reached |= 1 << other;
                    waiting |= 1 << other;
                }
            }
        }
        let mut sharers: Vec<u32> =
            (0..8).filter(|n| reached >> n & 1 == 1).filter_map(|n| around[n]).map(|j| j as u32).collect();
        sharers.sort_unstable();
        sharers
    }

    /// Position of a vertex [m], and its velocity [m/s]: means over the particles that share it.
    fn place(&self, keys: &[u64], (corner, lowest): Corner) -> (DVec3, DVec3) {
        let sharers = self.sharers(keys, corner, lowest as usize);
        let of = |&j: &u32| {
            let (cell, steps) = (self.lattice.cells[j as usize], self.steps(keys, j as usize));
            let offset = |axis: usize| steps[axis] * (f64::from(corner[axis] - cell[axis]) - 0.5);
            self.position[j as usize] + offset(0) + offset(1) + offset(2)
        };
        let velocity = sharers.iter().map(|&j| self.velocity[j as usize]).sum::<DVec3>();
        let count = sharers.len() as f64;
        (sharers.iter().map(of).sum::<DVec3>() / count, velocity / count)
    }

    /// The edges of a particle's cube [m], as its neighbours along the axes have turned and stretched it.
    /// Edges without a neighbour stand at right angles to the others.
    fn steps(&self, keys: &[u64], i: usize) -> [DVec3; 3] {
        let rest = self.lattice.steps;
        let along = |axis: usize| {
            let step = |side: i32| {
                let j = self.neighbour(keys, i, axis, side).filter(|&j| self.table.joined(i, j))?;
                Some((self.position[j] - self.position[i]) * f64::from(2 * side - 1))
            };
            match (step(0), step(1)) {
                (Some(a), Some(b)) => Some((a + b) * 0.5),
                (one, other) => one.or(other),
            }
        };
        let mut steps: [Option<DVec3>; 3] = std::array::from_fn(along);
        // With one edge or none the rest is free: as near to where it was as can be.
        for axis in 0..3 {
            let known: Vec<DVec3> = steps.iter().flatten().copied().collect();
            if steps[axis].is_none() && known.len() < 2 {
                let across = known.first().map_or(rest[axis], |known| {
                    rest[axis] - known.normalize_or_zero() * rest[axis].dot(known.normalize_or_zero())
                });
                let across = if across.length() > 0.1 * rest[axis].length() {
                    across
                } else {
                    known[0].any_orthogonal_vector()
                };
                steps[axis] = Some(across.normalize_or_zero() * rest[axis].length());
            }
        }
        std::array::from_fn(|axis| {
            steps[axis].unwrap_or_else(|| {
                let [b, c] = [(axis + 1) % 3, (axis + 2) % 3];
                let hand = rest[b].cross(rest[c]).dot(rest[axis]).signum();
                let [b, c] = [b, c].map(|k| steps[k].unwrap_or(rest[k]));
                b.cross(c).normalize_or_zero() * (hand * rest[axis].length())
            })
        })
    }
}
