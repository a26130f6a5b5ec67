//! The coarse part of the preconditioner: additive corrections on grids ever wider [BramblePasciakXu1990].
//!
//! Conjugate gradients with the diagonal alone take as many iterations as a load takes steps, from bond to bond, to get
//! as far as it does in a time step. On a grid of cells as wide as several bonds it gets there at once. A grid's unknowns
//! are the values at its nodes, trilinear in between (P), the next grid's nodes lie twice as far apart, and
//!
//! ```text
//! z = D^-1 r + w (P_1 D_1^-1 P_1^T r + P_2 D_2^-1 P_2^T r + ...)
//! ```
//!
//! No grid has an operator, only diagonal blocks, which follow from those of the particles: of the stiffness B against one
//! particle's motion, its bonds, of mean square length l^2 in all directions, meet a field of gradient g with B l^2 g^2 / 6.
//! Whatever the blocks, z is a symmetric positive definite function of r, so that broken bonds, groups and held particles only
//! decide how much it helps. Cells lie in the body as it was laid out.

use std::ops::Range;

use amalgam_particles::DVec3;
use rayon::prelude::*;

use crate::block::{Block, Factor};

/// Points or cells that one task works on.
const CHUNK: usize = 1024;

/// Nothing there.
const NONE: u32 = u32::MAX;

/// Particles whose bonds have one mean square length.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) particles: Range<usize>,
    /// Root of the mean square length of bonds, by stiffness [m].
    pub(crate) bond_length: f64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Multilevel {
    /// From particles to the finest grid, and from each grid to the next.
    levels: Vec<Level>,
    /// Levels in use.
    active: usize,
    /// What the finest grid adds at the corners of its cells, a component after the other.
    correction: Vec<[[f32; 8]; 3]>,
}

/// A grid, and how points lie in it: particles, or the nodes of a finer one.
#[derive(Clone, Debug, Default)]
struct Level {
    /// Of each point: its cell, and the share of it that each corner has.
    cell: Vec<u32>,
    share: Vec<[f32; 8]>,
    /// Points in the order of their cells, and where each cell's begin.
    order: Vec<u32>,
    start: Vec<u32>,
    /// Nodes at the corners of each cell.
    corners: Vec<[u32; 8]>,
    /// Cells that have each node as their first corner, their second and so on.
    cells: Vec<[u32; 8]>,
    factor: Vec<Factor>,
    residual: Vec<[f32; 3]>,
    value: Vec<[f32; 3]>,
}

/// Where a point is: in which region, and how many cells from the region's first corner.
type Place = Option<(u32, DVec3)>;

impl Multilevel {
    /// Grids for particles at `position` [m].
    pub(crate) fn new(position: &[DVec3], regions: &[Region]) -> Self {
        let mut places: Vec<Place> = vec![None; position.len()];
        for (index, region) in (0..).zip(regions) {
            let own = &position[region.particles.clone()];
            let least = own.iter().fold(DVec3::INFINITY, |least, x| least.min(*x));
            let edge = EDGE * region.bond_length;
            if !(edge > 0.0 && edge.is_finite()) {
                continue;
            }
            for (place, x) in places[region.particles.clone()].iter_mut().zip(own) {
                *place = Some((index, (*x - least) / edge));
            }
        }
        let mut levels = Vec::new();
        while places.iter().any(Option::is_some) && levels.len() < LEVELS_MAX {
            let (level, nodes) = Level::new(&places);
            let last = level.corners.len() <= regions.len();
            levels.push(level);
            if last {
                break;
            }
            places = nodes.into_iter().map(|(region, node)| Some((region, 0.5 * node.as_dvec3()))).collect();
        }
        Self { active: 0, correction: Vec::new(), levels }
    }

    /// Takes the diagonal blocks of a system: inertia [kg] and the entries xx, yy, zz, yz, xz, xy of each particle's, all 0 of
    /// what is held.
    pub(crate) fn prepare(&mut self, diagonal: &[[f32; 7]]) {
        self.active = 0;
        let mut sums = diagonal.to_vec();
        let mut part = 1.0 / (6.0 * EDGE * EDGE);
        for level in &mut self.levels {
            let (mut nodes, mut slopes) = (Vec::new(), Vec::new());
            level.restrict(|i| level.share[i], |i| sums[i], &mut nodes);
            level.restrict(|i| squared_slopes(&level.share[i]), |i| sums[i], &mut slopes);
            let (mut inertia, mut stiffness) = (0.0, 0.0);
            level.factor.clear();
            level.factor.extend(nodes.iter().zip(&slopes).map(|(node, slopes)| {
                let mass = f64::from(node[0]);
                if mass <= 0.0 {
                    return Factor::default();
                }
                let [own, entries @ ..] = slopes.map(|slope| part * f64::from(slope));
                let [xx, yy, zz] = [0, 1, 2].map(|axis| (entries[axis] - own).max(0.0));
                inertia += mass;
                stiffness += (xx + yy + zz) / 3.0;
                let mut block = Block::default();
                block.add_entries([xx, yy, zz, entries[3], entries[4], entries[5]]);
                Factor::new(mass, &block)
            }));
            sums = nodes;
            self.active += 1;
            if stiffness < WIDEST * inertia {
                break;
            }
            part *= 0.25;
        }
    }

    /// The coarse part of z for this residual, and its product with the residual. What is held has no residual.
    pub(crate) fn correct(&mut self, residual: impl Fn(usize) -> [f32; 3] + Sync) -> f64 {
        let mut product = 0.0;
        for l in 0..self.active {
            let (finer, level) = self.levels.split_at_mut(l);
            let level = &mut level[0];
            let mut sums = std::mem::take(&mut level.residual);
            match finer.last() {
                None => level.restrict(|i| level.share[i], &residual, &mut sums),
                Some(finer) => level.restrict(|i| level.share[i], |i| finer.residual[i], &mut sums),
            }
            level.residual = sums;
            level.value.clear();
            for (r, factor) in level.residual.iter().zip(&level.factor) {
                let r = DVec3::from_array(r.map(f64::from));
                let z = factor.solve(r) * WEIGHT;
                product += r.dot(z);
                level.value.push(z.as_vec3().to_array());
            }
        }
        for l in (1..self.active).rev() {
            let (finer, level) = self.levels.split_at_mut(l);
            let corners = level[0].at_corners();
            if let Some(finer) = finer.last_mut() {
                for (i, value) in finer.value.iter_mut().enumerate() {
                    let more = level[0].interpolate(&corners, i);
                    *value = std::array::from_fn(|axis| value[axis] + more[axis]);
                }
            }
        }
        if self.active > 0 {
            self.correction = self.levels[0].at_corners();
        }
        product
    }

    /// What the coarse part of z is at particle `i`.
    #[inline(always)]
    pub(crate) fn at(&self, i: usize) -> [f32; 3] {
        match self.levels.first() {
            Some(level) if self.active > 0 => level.interpolate(&self.correction, i),
            _ => [0.0; 3],
        }
    }

    /// Whether there is a coarse part.
    pub(crate) fn is_active(&self) -> bool {
        self.active > 0
    }
}

/// Edge of the finest grid's cells, in root mean square lengths of bonds.
const EDGE: f64 = 1.5;

/// Ratio of stiffness to inertia below which a grid needs no wider one: such a system is well conditioned as it is, and each
/// grid more counts what wide motions have in common once more.
const WIDEST: f64 = 4.0;

/// w, as in damped Jacobi iterations. Neighbouring nodes' corrections overlap, and so do the grids': thin bodies, in which cells
/// are cut, suffer most. With 1 a plate four particles thick takes 18 iterations where it takes 12 without grids, and 14 with
/// this; bulky bodies hardly notice.
const WEIGHT: f64 = 0.5;

/// Grids at most: the widest has cells of 2^20 times the finest's.
const LEVELS_MAX: usize = 20;

impl Level {
    /// A grid for points; its nodes, by region and number along each axis.
    fn new(places: &[Place]) -> (Self, Vec<(u32, glam::IVec3)>) {
        let key = |&(region, x): &(u32, DVec3)| {
            let cell = x.floor().as_ivec3();
            (region, cell.z, cell.y, cell.x)
        };
        let mut order: Vec<u32> =
            (0..places.len() as u32).filter(|&i| places[i as usize].is_some()).collect();
        let of = |i: u32| places[i as usize].as_ref().map(key);
        order.par_sort_by_key(|&i| (of(i), i));
        let mut this = Self {
            cell: vec![NONE; places.len()],
            share: places.iter().map(|place| place.map_or([0.0; 8], |(_, x)| shares(x))).collect(),
            ..Self::default()
        };
        let mut keys = Vec::new();
        for (at, &i) in (0..).zip(&order) {
            if let Some(key) = of(i)
                && keys.last() != Some(&key)
            {
                keys.push(key);
                this.start.push(at);
            }
            this.cell[i as usize] = keys.len() as u32 - 1;
        }
        this.start.push(order.len() as u32);
        this.order = order;
        let corner = |&(region, z, y, x): &(u32, i32, i32, i32), c: usize| {
            let c = c as i32;
            (region, z + (c >> 2), y + (c >> 1 & 1), x + (c & 1))
        };
        let mut nodes: Vec<_> = keys.iter().flat_map(|key| (0..8).map(move |c| corner(key, c))).collect();
        nodes.par_sort_unstable();
        nodes.dedup();
        let number = |node| nodes.partition_point(|other| *other < node) as u32;
        this.corners = keys.iter().map(|key| std::array::from_fn(|c| number(corner(key, c)))).collect();
        this.cells = vec![[NONE; 8]; nodes.len()];
        for (cell, corners) in (0..).zip(&this.corners) {
            for (c, &node) in corners.iter().enumerate() {
                this.cells[node as usize][c] = cell;
            }
        }
        let nodes = nodes.into_iter().map(|(region, z, y, x)| (region, glam::IVec3::new(x, y, z)));
        (this, nodes.collect())
    }

    /// P^T: what points hold, summed at nodes; in the order of cells and points, whatever the threads.
    fn restrict<const K: usize>(
        &self,
        weight: impl Fn(usize) -> [f32; 8] + Sync,
        value: impl Fn(usize) -> [f32; K] + Sync,
        nodes: &mut Vec<[f32; K]>,
    ) {
        let cells: Vec<[[f32; 8]; K]> = (0..self.corners.len())
            .into_par_iter()
            .with_min_len(CHUNK / 64)
            .map(|cell| {
                let mut sum = [[0.0f32; 8]; K];
                for &i in &self.order[self.start[cell] as usize..self.start[cell + 1] as usize] {
                    let (value, weight) = (value(i as usize), weight(i as usize));
                    for (sum, value) in sum.iter_mut().zip(value) {
                        for c in 0..8 {
                            sum[c] += weight[c] * value;
                        }
                    }
                }
                sum
            })
            .collect();
        self.cells
            .par_iter()
            .with_min_len(CHUNK)
            .map(|of| {
                let mut sum = [0.0; K];
                for (c, &cell) in of.iter().enumerate().filter(|(_, cell)| **cell != NONE) {
                    for (sum, cell) in sum.iter_mut().zip(&cells[cell as usize]) {
                        *sum += cell[c];
                    }
                }
                sum
            })
            .collect_into_vec(nodes);
    }

    /// The values of nodes at the corners of each cell.
    fn at_corners(&self) -> Vec<[[f32; 8]; 3]> {
        let of = |corners: &[u32; 8]| {
            let mut values = [[0.0; 8]; 3];
            for (c, &node) in corners.iter().enumerate() {
                let value = self.value[node as usize];
                (0..3).for_each(|axis| values[axis][c] = value[axis]);
            }
            values
        };
        self.corners.par_iter().with_min_len(CHUNK).map(of).collect()
    }

    /// P: the value at a point.
    #[inline(always)]
    fn interpolate(&self, corners: &[[[f32; 8]; 3]], i: usize) -> [f32; 3] {
        let cell = self.cell[i];
        if cell == NONE {
            return [0.0; 3];
        }
        let (corners, share) = (&corners[cell as usize], &self.share[i]);
        let mut value = [0.0; 3];
        for (value, corners) in value.iter_mut().zip(corners) {
            let mut sum = [0.0f32; 8];
            for c in 0..8 {
                sum[c] = share[c] * corners[c];
            }
            let four = [sum[0] + sum[4], sum[1] + sum[5], sum[2] + sum[6], sum[3] + sum[7]];
            *value = (four[0] + four[2]) + (four[1] + four[3]);
        }
        value
    }
}

/// The squares of the slopes of a cell's hat functions, an edge being 1, where they have these values.
fn squared_slopes(share: &[f32; 8]) -> [f32; 8] {
    let upper = [1, 2, 4].map(|bit| (0..8).filter(|c| c & bit != 0).map(|c| share[c]).sum::<f32>());
    std::array::from_fn(|c| {
        let [x, y, z] = [0, 1, 2].map(|axis| {
            let value = if c >> axis & 1 == 1 { upper[axis] } else { 1.0 - upper[axis] };
            value * value
        });
        y * z + x * z + x * y
    })
}

/// The share that each corner of its cell has of a point, trilinear.
fn shares(x: DVec3) -> [f32; 8] {
    let part = x - x.floor();
    std::array::from_fn(|c| {
        let along = |axis: usize| if c >> axis & 1 == 1 { part[axis] } else { 1.0 - part[axis] };
        (along(0) * along(1) * along(2)) as f32
    })
}

#[cfg(test)]
mod tests {
    use amalgam_particles::random::uniform_f64;

    use super::*;

    const COUNT: usize = 600;

    fn random(what: u64) -> Vec<[f32; 3]> {
        let number = |i: usize, axis: u64| 2.0 * uniform_f64(&[i as u64, axis, what]) as f32 - 1.0;
        (0..COUNT).map(|i| [0, 1, 2].map(|axis| number(i, axis))).collect()
    }

    /// Two bodies, one particle in ten of which is held.
    fn grids() -> (Multilevel, Vec<DVec3>, Vec<bool>) {
        let place = |i: usize| DVec3::from_array([0, 1, 2].map(|axis| 9.0 * uniform_f64(&[i as u64, axis])));
        let position: Vec<DVec3> = (0..COUNT).map(place).collect();
        let regions = [0..COUNT / 3, COUNT / 3..COUNT];
        let regions = regions.map(|particles| Region { particles, bond_length: 1.0 });
        let mut grids = Multilevel::new(&position, &regions);
        let held: Vec<bool> = (0..COUNT).map(|i| i % 10 == 0).collect();
        let diagonal: Vec<[f32; 7]> = (0..COUNT)
            .map(|i| if held[i] { [0.0; 7] } else { [0.1, 9.0, 8.0, 7.0, 1.0, -2.0, 3.0] })
            .collect();
        grids.prepare(&diagonal);
        (grids, position, held)
    }

    fn dot(a: &[[f32; 3]], b: &[[f32; 3]]) -> f64 {
        a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    }

    #[test]
    fn the_coarse_part_is_symmetric_and_positive() {
        let (mut grids, _, held) = grids();
        assert!(grids.active > 1, "{}", grids.active);
        let of = |mut r: Vec<[f32; 3]>, grids: &mut Multilevel| {
            r.iter_mut().zip(&held).filter(|(_, held)| **held).for_each(|(r, _)| *r = [0.0; 3]);
            let product = grids.correct(|i| r[i]);
            let z: Vec<[f32; 3]> = (0..COUNT).map(|i| grids.at(i)).collect();
            (r, z, product)
        };
        let (r, z, product) = of(random(7), &mut grids);
        let (s, y, _) = of(random(8), &mut grids);
        let scale = (dot(&r, &z) * dot(&s, &y)).sqrt();
        assert!((dot(&r, &z) - product).abs() < 1e-5 * product && product > 0.0, "{product}");
        assert!((dot(&r, &y) - dot(&s, &z)).abs() < 1e-5 * scale, "{} {}", dot(&r, &y), dot(&s, &z));
    }

    #[test]
    fn a_linear_field_is_met_everywhere() {
        let (grids, position, _) = grids();
        let level = &grids.levels[0];
        // Values at nodes from those at particles: each cell by itself.
        for (cell, points) in level.start.windows(2).enumerate() {
            let points = &level.order[points[0] as usize..points[1] as usize];
            for &i in points {
                let i = i as usize;
                let part: [f32; 3] = std::array::from_fn(|axis| {
                    (0..8).filter(|c| c >> axis & 1 == 1).map(|c| level.share[i][c]).sum()
                });
                let own: [f64; 3] = part.map(f64::from);
                let first = position[points[0] as usize] / EDGE - position[i] / EDGE;
                let other: [f32; 3] = std::array::from_fn(|axis| {
                    let share = &level.share[points[0] as usize];
                    (0..8).filter(|c| c >> axis & 1 == 1).map(|c| share[c]).sum()
                });
                for axis in 0..3 {
                    let moved = f64::from(other[axis]) - own[axis];
                    assert!((moved - first[axis]).abs() < 1e-5, "cell {cell}, particle {i}");
                }
                assert!((level.share[i].iter().sum::<f32>() - 1.0).abs() < 1e-6);
            }
        }
    }
}
