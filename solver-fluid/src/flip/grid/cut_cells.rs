//! The parts of cells and faces that obstacles leave open.
//!
//! Fluid flows through the open part of a face's area, as in [Batty2007] and [Ng2009]. So the surface of an
//! obstacle may cut cells anywhere, and the fluid still fills them up to the surface. Parts follow from
//! distances to obstacles at nodes half a cell apart. The area is right for planes. What is thinner than half a
//! cell may be missed, and so may a wall between two parts of one cell.
//!
//! Obstacles do not move, so that all of this is computed once.

mod keep_off;

use std::ops::Range;

use amalgam_meshes::Obstacles;
use amalgam_particles::{DVec3, Obstacle};
use rayon::prelude::*;

use super::{Faces, Grid};

/// Cells along an edge of the blocks that are tested at once for obstacles near them.
const BLOCK: usize = 8;

/// Obstacles count as thicker by this part of a cell, so that rounding does not open faces that lie in a
/// surface.
const SKIN: f64 = 1e-6;

/// Faces of which less is open are closed, so that no pressure hangs on a slit.
const SLIT: f64 = 0.01;

/// Integrals of the weight 1 - |t| over the half cells from the second last to the second next one of a face.
const WEIGHTS: [f64; 4] = [0.125, 0.375, 0.375, 0.125];

/// Parts of cells and faces that obstacles leave open.
pub(in crate::flip) struct CutCells {
    surfaces: Obstacles,
    /// True for cells in which a particle may be that has met an obstacle in the sub-step.
    near: Vec<bool>,
    /// Open part of the area of each face.
    pub(in crate::flip) area: Faces<f32>,
    /// Weight that each face gets from particles at rest density, over its weight without obstacles.
    weight: Faces<f32>,
    /// Open part of the volume of each cell.
    pub(in crate::flip) volume: Vec<f32>,
    /// Faces with an area or a weight below 1, in ascending order.
    faces: Faces<usize>,
    /// Cells that have a part or a face which is not wholly open, in ascending order.
    cells: Vec<usize>,
    /// Number of the chamber that each cell belongs to: no open face joins two chambers. Empty if there is one.
    chamber: Vec<u32>,
    chambers: usize,
}

/// The open parts of a cell's eight octants, x innermost, and of its lower faces.
#[derive(Clone, Copy)]
struct Parts {
    octants: [f64; 8],
    faces: [f64; 3],
}

impl Parts {
    const OPEN: Self = Self { octants: [1.0; 8], faces: [1.0; 3] };
    const CLOSED: Self = Self { octants: [0.0; 8], faces: [0.0; 3] };
}

impl CutCells {
    /// The open parts; none without obstacles in the grid. A particle crosses up to `cfl` cells in a sub-step.
    pub(in crate::flip) fn new(grid: &Grid, obstacles: &[Obstacle], cfl: f64) -> Option<Self> {
        if obstacles.is_empty() {
            return None;
        }
        let surfaces = Obstacles::new(obstacles);
        let Found { parts: found, number, near } = find(grid, &surfaces, cfl);
        if found.len() == 1 {
            return None;
        }
        let parts = |at: usize| &found[number[at] as usize];
        let one = || [0, 1, 2].map(|_| vec![1.0f32; grid.len()]);
        let (mut area, mut weight, mut volume) = (one(), one(), vec![1.0f32; grid.len()]);
        for (at, _) in number.iter().enumerate().filter(|(_, number)| **number != 0) {
            let Parts { octants, faces } = parts(at);
            volume[at] = (octants.iter().sum::<f64>() / 8.0) as f32;
            (0..3).for_each(|axis| area[axis][at] = faces[axis] as f32);
        }
        let octant = |half: [isize; 3]| {
            let inside: [usize; 3] = std::array::from_fn(|d| mirrored(half[d], 2 * grid.cells[d]));
            let [x, y, z] = inside.map(|half| half % 2);
            parts(grid.index(inside.map(|half| half / 2))).octants[x + 2 * y + 4 * z]
        };
        for (axis, weight) in weight.iter_mut().enumerate() {
            let layers = weight[grid.first()..].par_chunks_mut(grid.layer()).enumerate();
            layers.skip(1).take(grid.cells[2] + 1).for_each(|(layer, weight)| {
                let begin = grid.begin_of_layer(layer - 1);
                for (j, i) in (0..=grid.cells[1]).flat_map(|j| (0..=grid.cells[0]).map(move |i| (j, i))) {
                    let cell = [i, j, layer - 1];
                    let at = grid.index(cell);
                    if is_near(grid, cell, &number) {
                        weight[at - begin] = open_weight(axis, cell, octant).max(SLIT) as f32;
                    }
                }
            });
        }
        let below_one = |axis: usize| {
            let some = |&at: &usize| area[axis][at] < 1.0 || weight[axis][at] < 1.0;
            (0..grid.len()).filter(some).collect()
        };
        let faces = [0, 1, 2].map(below_one);
        let strides = grid.strides();
        let is_cut = |&at: &usize| {
            volume[at] < 1.0
                || (0..3).any(|axis| area[axis][at] < 1.0 || area[axis][at + strides[axis]] < 1.0)
        };
        let cells = inner_cells(grid).filter(is_cut).collect();
        let (chamber, chambers) = chambers(grid, &area);
        Some(Self { surfaces, near, area, weight, volume, faces, cells, chamber, chambers })
    }

    /// The faces of an axis in a range with an area or a weight below 1.
    pub(in crate::flip) fn faces(&self, axis: usize, range: &Range<usize>) -> &[usize] {
        within(&self.faces[axis], range)
    }

    /// The cells in a range that have a part or a face which is not wholly open.
    pub(in crate::flip) fn cells(&self, range: &Range<usize>) -> &[usize] {
        within(&self.cells, range)
    }

    /// True if nothing flows through a face.
    #[inline]
    pub(in crate::flip) fn is_closed(&self, axis: usize, face: usize) -> bool {
        self.area[axis][face] == 0.0
    }

    /// True if nothing flows through any face of a cell.
    pub(in crate::flip) fn is_closed_cell(&self, grid: &Grid, at: usize) -> bool {
        let strides = grid.strides();
        (0..3).all(|axis| self.is_closed(axis, at) && self.is_closed(axis, at + strides[axis]))
    }

    /// Weight that a face gets from particles at rest density, over its weight without obstacles.
    #[inline]
    pub(in crate::flip) fn weight(&self, axis: usize, face: usize) -> f64 {
        f64::from(self.weight[axis][face])
    }

    /// A vector out of the obstacles beside a cell: the difference of the open parts of its faces.
    pub(in crate::flip) fn outwards(&self, grid: &Grid, at: usize) -> DVec3 {
        let strides = grid.strides();
        let along = |axis: usize| f64::from(self.area[axis][at + strides[axis]] - self.area[axis][at]);
        DVec3::new(along(0), along(1), along(2))
    }

    /// Number of chambers.
    pub(in crate::flip) fn chambers(&self) -> usize {
        self.chambers
    }

    /// The chamber of a cell.
    pub(in crate::flip) fn chamber(&self, at: usize) -> usize {
        let chamber = self.chamber.get(at).copied().unwrap_or(0) as usize;
        chamber.min(self.chambers.saturating_sub(1))
    }
}

fn within<'a>(sorted: &'a [usize], range: &Range<usize>) -> &'a [usize] {
    let place = |end: usize| sorted.partition_point(|&at| at < end);
    &sorted[place(range.start)..place(range.end)]
}

fn inner_cells(grid: &Grid) -> impl Iterator<Item = usize> + '_ {
    let rows = (0..grid.cells[2]).flat_map(|k| (0..grid.cells[1]).map(move |j| (j, k)));
    rows.flat_map(|(j, k)| grid.row(j, k))
}

/// The number of a half cell, or of its mirror image beyond the walls at 0 and `end`.
fn mirrored(half: isize, end: usize) -> usize {
    let end = end.cast_signed();
    let inside = if half < 0 { -1 - half } else { half };
    (if inside >= end { 2 * end - 1 - inside } else { inside }).clamp(0, end - 1).cast_unsigned()
}

/// True if a cell, or a cell beside it, is not wholly open.
fn is_near(grid: &Grid, cell: [usize; 3], number: &[u32]) -> bool {
    let along = |d: usize| cell[d].saturating_sub(1)..(cell[d] + 2).min(grid.cells[d]);
    along(2).any(|k| {
        along(1).any(|j| {
            let row = grid.index([0, j, k]);
            number[row + along(0).start..row + along(0).end].iter().any(|&number| number != 0)
        })
    })
}

/// The weight of the lower face of a cell along an axis at rest density. `octant` are the open parts of half
/// cells.
fn open_weight(axis: usize, cell: [usize; 3], octant: impl Fn([isize; 3]) -> f64) -> f64 {
    // The face lies on the walls of half cells, or in the middle of a cell.
    let first: [isize; 3] = std::array::from_fn(|d| {
        let middle = if d == axis { 0 } else { 1 };
        2 * cell[d].cast_signed() + middle - 2
    });
    let term = |n: usize| {
        let n = [n & 3, n >> 2 & 3, n >> 4];
        let weight: f64 = n.iter().map(|&along| WEIGHTS[along]).product();
        weight * octant(std::array::from_fn(|d| first[d] + n[d].cast_signed()))
    };
    (0..64).map(term).sum()
}

/// Findings in all cells.
struct Found {
    /// Different parts, the first for open cells.
    parts: Vec<Parts>,
    /// The number of each cell's parts.
    number: Vec<u32>,
    near: Vec<bool>,
}

/// Findings in one block of cells.
#[derive(Default)]
struct FoundInBlock {
    parts: Vec<(usize, Parts)>,
    near: Vec<usize>,
}

/// Finds the parts of all cells, and cells within `cfl` cells of an obstacle.
fn find(grid: &Grid, obstacles: &Obstacles, cfl: f64) -> Found {
    let h = grid.cell_size;
    let distance = |at: DVec3| {
        let point = grid.origin + h * at;
        let nearest =
            (0..obstacles.len()).map(|n| obstacles.beside(n, point).distance).fold(f64::INFINITY, f64::min);
        nearest / h - SKIN
    };
    let blocks = grid.cells.map(|cells| cells.div_ceil(BLOCK));
    let of_block = |n: usize| {
        let block = [n % blocks[0], n / blocks[0] % blocks[1], n / blocks[0] / blocks[1]];
        let low = block.map(|block| BLOCK * block);
        let mut found = FoundInBlock::default();
        let [to_corner, reach] = [0.5 * BLOCK as f64, 0.5].map(|half| half * 3f64.sqrt());
        let to_middle = distance(DVec3::from_array(low.map(|low| low as f64 + 0.5 * BLOCK as f64)));
        if to_middle > to_corner + reach + cfl {
            return found;
        }
        let high: [usize; 3] = std::array::from_fn(|d| (low[d] + BLOCK).min(grid.cells[d]));
        for k in low[2]..high[2] {
            for j in low[1]..high[1] {
                for i in low[0]..high[0] {
                    let corner = DVec3::new(i as f64, j as f64, k as f64);
                    let at = grid.index([i, j, k]);
                    let middle = if to_middle < -to_corner { to_middle } else { distance(corner + 0.5) };
                    if middle < -reach {
                        found.parts.push((at, Parts::CLOSED));
                    } else if middle <= reach {
                        found.parts.push((at, parts(|node| distance(corner + 0.5 * node))));
                    }
                    if middle <= reach + cfl {
                        found.near.push(at);
                    }
                }
            }
        }
        found
    };
    let found: Vec<FoundInBlock> = (0..blocks.iter().product()).into_par_iter().map(of_block).collect();
    let (mut all, mut number) = (vec![Parts::OPEN, Parts::CLOSED], vec![0; grid.len()]);
    let mut near = vec![false; grid.len()];
    found.iter().flat_map(|block| &block.near).for_each(|&at| near[at] = true);
    for (at, parts) in found.into_iter().flat_map(|block| block.parts) {
        number[at] = if parts.octants == [0.0; 8] && parts.faces == [0.0; 3] {
            1
        } else if parts.octants == [1.0; 8] && parts.faces == [1.0; 3] {
            0
        } else {
            all.push(parts);
            all.len() as u32 - 1
        };
    }
    if number.iter().all(|&number| number == 0) {
        all.truncate(1);
    }
    Found { parts: all, number, near }
}

/// The parts of a cell, with the distances at 3 x 3 x 3 nodes [cells].
fn parts(distance: impl Fn(DVec3) -> f64) -> Parts {
    let nodes: [f64; 27] =
        std::array::from_fn(|n| distance(DVec3::new((n % 3) as f64, (n / 3 % 3) as f64, (n / 9) as f64)));
    let at = |[i, j, k]: [usize; 3]| nodes[i + 3 * j + 9 * k];
    let octant = |n: usize| {
        let low = [n & 1, n >> 1 & 1, n >> 2];
        let corners = (0..8).map(|c| at([low[0] + (c & 1), low[1] + (c >> 1 & 1), low[2] + (c >> 2)]));
        // Right for planes along the axes.
        let (open, all) = corners.fold((0.0, 0.0), |(open, all), d: f64| (open + d.max(0.0), all + d.abs()));
        if open > 0.0 { open / all } else { 0.0 }
    };
    let face = |axis: usize| {
        let node = |a: usize, b: usize| {
            let mut node = [0; 3];
            (node[(axis + 1) % 3], node[(axis + 2) % 3]) = (a, b);
            at(node)
        };
        let quarter = |a, b| open_square([node(a, b), node(a + 1, b), node(a + 1, b + 1), node(a, b + 1)]);
        let open = (quarter(0, 0) + quarter(1, 0) + quarter(0, 1) + quarter(1, 1)) / 4.0;
        if open < SLIT { 0.0 } else { open }
    };
    Parts { octants: std::array::from_fn(octant), faces: std::array::from_fn(face) }
}

/// The part of a square where a distance is positive. It has these values at the corners, in their order around
/// the square, and is linear along its edges.
fn open_square(corner: [f64; 4]) -> f64 {
    const PLACES: [[f64; 2]; 4] = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]];
    let mut outline = Vec::with_capacity(8);
    for n in 0..4 {
        let next = (n + 1) % 4;
        let (here, there) = (corner[n], corner[next]);
        if here > 0.0 {
            outline.push(PLACES[n]);
        }
        if (here > 0.0) != (there > 0.0) {
            let part = here / (here - there);
            outline.push(std::array::from_fn(|d| PLACES[n][d] + part * (PLACES[next][d] - PLACES[n][d])));
        }
    }
    let turned = outline.iter().zip(outline.iter().cycle().skip(1));
    (0.5 * turned.map(|(a, b)| a[0] * b[1] - a[1] * b[0]).sum::<f64>()).clamp(0.0, 1.0)
}

/// The chamber of each cell with an open face, and the number of chambers. There is no list for one chamber.
fn chambers(grid: &Grid, area: &Faces<f32>) -> (Vec<u32>, usize) {
    const NONE: u32 = u32::MAX;
    let strides = grid.strides();
    let mut is_cell = vec![false; grid.len()];
    inner_cells(grid).for_each(|at| is_cell[at] = true);
    let beside = |at: usize| {
        let sides = (0..3).flat_map(move |axis| {
            let stride = strides[axis];
            [(axis, at, at - stride), (axis, at + stride, at + stride)]
        });
        sides.filter(|&(axis, face, _)| area[axis][face] > 0.0).map(|(.., next)| next)
    };
    let (mut chamber, mut count, mut open) = (vec![NONE; grid.len()], 0, Vec::new());
    for first in inner_cells(grid) {
        if chamber[first] != NONE || !beside(first).any(|next| is_cell[next]) {
            continue;
        }
        chamber[first] = count;
        open.push(first);
        while let Some(at) = open.pop() {
            for next in beside(at).filter(|&next| is_cell[next]) {
                if chamber[next] == NONE {
                    chamber[next] = count;
                    open.push(next);
                }
            }
        }
        count += 1;
    }
    (if count <= 1 { Vec::new() } else { chamber }, count as usize)
}

#[cfg(test)]
mod tests {
    use amalgam_particles::{DQuat, ObstacleForm};

    use super::*;

    fn obstacle(form: ObstacleForm) -> Obstacle {
        Obstacle { form, rotation: DQuat::IDENTITY, is_hollow: false }
    }

    fn plane(point: DVec3, normal: DVec3) -> Obstacle {
        obstacle(ObstacleForm::Plane { point, normal: normal.normalize() })
    }

    fn grid() -> Grid {
        Grid::new(DVec3::new(-0.2, 0.1, 0.3), 0.1, [8, 7, 6])
    }

    #[test]
    fn a_level_floor_cuts_areas_weights_and_volumes_at_its_height() {
        let grid = grid();
        let floor = plane(DVec3::Z * (0.3 + 0.1 * 2.3), DVec3::Z);
        let cut = CutCells::new(&grid, &[floor], 1.0).expect("the plane cuts cells");
        for (k, [volume, side, lower]) in
            [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.7, 0.7, 0.0], [1.0, 1.0, 1.0]].into_iter().enumerate()
        {
            let at = grid.index([3, 2, k]);
            let found = [cut.volume[at], cut.area[0][at], cut.area[2][at]].map(f64::from);
            for (found, wanted) in found.into_iter().zip([volume, side, lower]) {
                assert!((found - wanted).abs() < 1e-5, "{k}: {found} for {wanted}");
            }
        }
        // The integral of 1 - |t| over what lies above the floor, from the middle of layer 2 or its upper end on.
        let at = |k| grid.index([3, 2, k]);
        let tail =
            |t: f64| if t > 0.0 { 0.5 * (1.0 - t) * (1.0 - t) } else { 1.0 - 0.5 * (1.0 + t) * (1.0 + t) };
        for (found, exact) in [(cut.weight(0, at(2)), tail(-0.2)), (cut.weight(2, at(3)), tail(-0.7))] {
            assert!((found - exact).abs() < 0.04, "{found} for {exact}");
        }
        assert_eq!(cut.outwards(&grid, at(2)), DVec3::Z);
    }

    #[test]
    fn a_floor_on_faces_of_cells_closes_these_faces_and_cuts_nothing_above() {
        let grid = grid();
        for normal in [DVec3::Z, -DVec3::Z] {
            let height = 0.3 + 0.1 * 3.0;
            let cut =
                CutCells::new(&grid, &[plane(DVec3::Z * height, normal)], 1.0).expect("the plane cuts cells");
            let open = if normal.z > 0.0 { 3 } else { 2 };
            let at = grid.index([1, 1, open]);
            assert!((cut.volume[at] - 1.0).abs() < 1e-5);
            assert!(cut.is_closed(2, grid.index([1, 1, 3])));
            assert!(cut.cells(&(0..grid.len())).contains(&at), "it is beside a closed face");
            assert!(cut.volume[grid.index([1, 1, 5 - open])] < 1e-5);
        }
    }

    /// Flow along a plane enters a cell as much as it leaves it.
    #[test]
    fn what_flows_along_a_plane_flows_out_of_no_cell() {
        let grid = grid();
        let normal = DVec3::new(0.3, -0.5, 0.8).normalize();
        let cut =
            CutCells::new(&grid, &[plane(DVec3::new(0.2, 0.4, 0.6), normal)], 1.0).expect("it cuts cells");
        let along = normal.cross(DVec3::X).normalize().to_array();
        let strides = grid.strides();
        let mut partly = 0;
        for at in inner_cells(&grid) {
            let flow: f64 = (0..3)
                .map(|axis| along[axis] * f64::from(cut.area[axis][at + strides[axis]] - cut.area[axis][at]))
                .sum();
            let on_border = (0..3).any(|axis| !inner_cells(&grid).any(|cell| cell == at + strides[axis]));
            // The far faces of the domain belong to walls, and are not cut.
            if !on_border {
                assert!(flow.abs() < 0.011, "{flow}");
            }
            partly += usize::from(cut.volume[at] > 0.01 && cut.volume[at] < 0.99);
        }
        assert!(partly > 30, "{partly}");
    }

    #[test]
    fn volumes_of_a_ball_add_up() {
        let grid = Grid::new(DVec3::ZERO, 0.1, [10, 10, 10]);
        let ball = obstacle(ObstacleForm::Ball { center: DVec3::splat(0.51), radius: 0.33 });
        let cut = CutCells::new(&grid, &[ball], 1.0).expect("it cuts cells");
        let closed: f64 = inner_cells(&grid).map(|at| 1.0 - f64::from(cut.volume[at])).sum::<f64>() * 1e-3;
        let exact = 4.0 / 3.0 * std::f64::consts::PI * 0.33f64.powi(3);
        assert!((closed / exact - 1.0).abs() < 0.02, "{closed} for {exact}");
        assert_eq!(cut.chambers(), 1);
    }

    #[test]
    fn a_wall_makes_two_chambers() {
        let grid = Grid::new(DVec3::ZERO, 0.1, [10, 10, 10]);
        let wall = obstacle(ObstacleForm::Box {
            min: DVec3::new(0.42, -1.0, -1.0),
            max: DVec3::new(0.57, 2.0, 2.0),
        });
        let cut = CutCells::new(&grid, &[wall], 1.0).expect("it cuts cells");
        assert_eq!(cut.chambers(), 2);
        let [left, right] = [2, 8].map(|i| cut.chamber(grid.index([i, 5, 5])));
        assert_ne!(left, right);
        assert!(CutCells::new(&grid, &[], 1.0).is_none());
    }
}
