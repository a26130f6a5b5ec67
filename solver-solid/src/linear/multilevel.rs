//! The coarse part of the preconditioner: additive corrections on ever wider grids [BramblePasciakXu1990].
//!
//! An iteration with the diagonal blocks alone carries a load one bond further. So conjugate gradients take
//! as many iterations as there are bonds along the way that the load travels in a time step. On a grid with
//! cells several bonds wide, the load travels this way in a few iterations. A grid's unknowns are the values
//! at its nodes; the prolongation P interpolates between them trilinearly. Each grid's nodes lie twice as far
//! apart as the nodes of the grid before. The preconditioned residual is
//!
//! ```text
//! z = D^-1 r + w (P_1 D_1^-1 P_1^T r + P_2 D_2^-1 P_2^T r + ...)
//! ```
//!
//! A grid has no operator, only diagonal blocks D_n, computed from the particles' blocks. Let B be the
//! stiffness of a particle's bonds against its motion, and l^2 their mean square length. In a field of
//! displacements with gradient g, bonds in all directions have the energy B l^2 g^2 / 6: the mean of cos^2
//! over all directions is 1/3. For any positive definite blocks, z is a symmetric positive definite function
//! of r: broken bonds, groups and held particles change the number of iterations, never the answer. Cells are
//! laid out once, in the undeformed body.
//!
//! On ranks, the sum over a cell of the finest grid is formed by the rank that has the cell's first particle,
//! which reads the other particles as ghosts. Then all ranks know all sums, and each computes all grids. A
//! grid has far fewer cells than the body has particles: one in some 40.

use std::ops::Range;
use std::sync::Arc;

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{self, LANES, Lanes, Sixteen, Task};
use bytemuck::Pod;
use rayon::prelude::*;

use super::block::{Block, Factor};
use super::partition::Partition;

/// Points or cells per task.
const CHUNK: usize = 1024;

/// Cells per loop inside a task.
const CELLS: usize = 16;

/// Particles whose bonds share one mean square length.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) particles: Range<usize>,
    /// Root of the mean square length of bonds [m], weighted by stiffness.
    pub(crate) bond_length: f64,
}

/// The grids of the preconditioner (see the module).
#[derive(Clone, Debug, Default)]
pub(crate) struct Multilevel {
    /// Transfers from particles to the finest grid, and from each grid to the next.
    levels: Vec<Level>,
    /// Number of levels in use.
    active: usize,
    /// The cells of the finest grid whose sums each rank forms; empty if there is one rank.
    cells: Vec<Vec<u32>>,
    partition: Arc<Partition>,
}

/// A grid, and the places of points in it. The points are particles, or the nodes of the next finer grid.
#[derive(Clone, Debug, Default)]
pub(crate) struct Level {
    /// The cell of each point, one past the last cell if the point is in none, and the point's place in it
    /// [edges].
    cell: Vec<u32>,
    place: Vec<[f32; 3]>,
    /// Points in the order of their cells, and the index of each cell's first point.
    order: Vec<u32>,
    start: Vec<u32>,
    /// Places in that order.
    ordered: Vec<[f32; 3]>,
    /// Nodes at the corners of each cell.
    corners: Vec<[u32; 8]>,
    /// The cells of which each node is the first corner, the second and so on; one past the last cell if
    /// there is none.
    cells: Vec<[u32; 8]>,
    factor: Vec<Factor>,
    residual: Vec<[f32; 3]>,
    value: Vec<Padded>,
    /// Values at the corners of each cell: three components and padding each. The values past the last cell
    /// stay zero.
    around: Vec<[Sixteen; 2]>,
    /// Sums of the residuals of each cell's points at its corners.
    parts: Vec<Parts<3>>,
    /// Sum of residual·value over each chunk of nodes.
    products: Vec<f64>,
}

/// x, y, z and padding, for four lanes.
pub(crate) type Padded = [f32; 4];

/// Sums at the corners of a cell: one row of eight corners per component.
type Parts<const K: usize> = [[f32; 8]; K];

/// Region of a point, and the point's distance from the region's first corner in cells.
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
        Self { levels, ..Self::default() }
    }

    /// The cells whose first particle is among these rows.
    fn cells_of(&self, rows: &Range<usize>) -> Vec<u32> {
        let Some(Level { corners, order, start, .. }) = self.levels.first() else { return Vec::new() };
        let is_own = |&cell: &u32| rows.contains(&(order[start[cell as usize] as usize] as usize));
        (0..corners.len() as u32).filter(is_own).collect()
    }

    /// Marks the slices of sixteen particles whose values the sums of these rows' cells read. Asked before
    /// [`Self::share`].
    pub(crate) fn mark_read(&self, rows: Range<usize>, read: &mut [bool]) {
        for cell in self.cells_of(&rows) {
            let Level { order, start, .. } = &self.levels[0];
            let points = start[cell as usize] as usize..start[cell as usize + 1] as usize;
            order[points].iter().for_each(|&i| read[i as usize / LANES] = true);
        }
    }

    /// Keeps the part of this rank. From here on sums index particles by place, and the grids are read by row.
    pub(crate) fn share(&mut self, partition: &Arc<Partition>) {
        self.cells = partition.rows_of_all().iter().map(|rows| self.cells_of(rows)).collect();
        self.partition = partition.clone();
        let Some(Level { cell, place, order, .. }) = self.levels.first_mut() else { return };
        (*cell, *place) = (cell[partition.own()].to_vec(), place[partition.own()].to_vec());
        // Particles of other ranks' cells are not read.
        order.iter_mut().for_each(|i| *i = partition.place(*i as usize).unwrap_or(u32::MAX));
    }

    /// Values at places, for sums over the finest grid's cells: own ones by row, and ghosts. Collective.
    fn by_place<T: Pod + Sync>(&self, value: impl Fn(usize) -> T + Sync) -> impl Fn(usize) -> T + Sync {
        let (first, own) = (self.partition.first_place(), self.partition.own().len());
        // Ghosts stand before the own values and behind them.
        let at = move |place: usize| if place < first { place } else { place - own };
        let mut ghosts = vec![T::zeroed(); self.partition.places() - own];
        self.partition.ask(&value).for_each(|(place, value)| ghosts[at(place)] = value);
        move |place| {
            if (first..first + own).contains(&place) { value(place - first) } else { ghosts[at(place)] }
        }
    }

    /// The sums at the corners of the finest grid's cells, of values by row. Collective.
    fn restrict_finest<const K: usize, const SLOPES: bool>(
        &self,
        value: impl Fn(usize) -> [f32; K] + Sync,
        parts: &mut Vec<Parts<K>>,
    ) where
        Parts<K>: Pod,
        [f32; K]: Pod,
    {
        let (level, ranks) = (&self.levels[0], self.partition.ranks());
        let Some(own) = self.cells.get(ranks.rank()) else {
            level.restrict::<K, SLOPES>(value, parts);
            return;
        };
        let value = self.by_place(value);
        let sum = |&cell: &u32| {
            let mut parts = [[[0.0; 8]; K]];
            let (first, value, parts_of) = (cell as usize, &value, &mut parts);
            lanes::run(Restriction::<_, K, SLOPES> { level, first, value, parts: parts_of });
            parts[0]
        };
        let sums: Vec<Parts<K>> = own.par_iter().with_min_len(CELLS).map(sum).collect();
        parts.resize(level.corners.len() + 1, [[0.0; 8]; K]);
        for (cells, sums) in self.cells.iter().zip(ranks.all_to_all(vec![sums; ranks.size()])) {
            cells.iter().zip(sums).for_each(|(&cell, sum)| parts[cell as usize] = sum);
        }
    }

    /// Computes the grids' blocks from the particles'. Each row of `diagonal` is a particle's inertia [kg],
    /// the entries xx, yy, zz, yz, xz, xy of its block with the inertia [kg], and padding; it is all 0 for a
    /// held particle. Collective.
    pub(crate) fn prepare(&mut self, diagonal: &[[f32; 8]]) {
        self.active = 0;
        let mut finer: Vec<[f32; 8]> = Vec::new();
        let mut part = 1.0 / (6.0 * EDGE * EDGE);
        let mut parts = Vec::new();
        for l in 0..self.levels.len() {
            let mut restricted = |slopes: bool| {
                match (l, slopes) {
                    (0, true) => self.restrict_finest::<8, true>(|i| diagonal[i], &mut parts),
                    (0, false) => self.restrict_finest::<8, false>(|i| diagonal[i], &mut parts),
                    (_, true) => self.levels[l].restrict::<8, true>(|i| finer[i], &mut parts),
                    (_, false) => self.levels[l].restrict::<8, false>(|i| finer[i], &mut parts),
                }
                self.levels[l].nodes(&parts)
            };
            let (slopes, nodes) = (restricted(true), restricted(false));
            let level = &mut self.levels[l];
            let (mut inertia, mut stiffness) = (0.0, 0.0);
            level.factor.clear();
            level.factor.extend(nodes.iter().zip(&slopes).map(|(node, slopes)| {
                let mass = f64::from(node[0]);
                if mass <= 0.0 {
                    return Factor::default();
                }
                let [own, entries @ .., _] = slopes.map(|slope| part * f64::from(slope));
                let [xx, yy, zz] = [0, 1, 2].map(|axis| (entries[axis] - own).max(0.0));
                inertia += mass;
                stiffness += (xx + yy + zz) / 3.0;
                let mut block = Block::default();
                block.add_entries([xx, yy, zz, entries[3], entries[4], entries[5]]);
                Factor::new(mass, &block)
            }));
            finer = nodes;
            self.active += 1;
            if stiffness < WIDEST * inertia {
                break;
            }
            part *= 0.25;
        }
    }

    /// Computes the coarse part of z for the residual r, and returns its product with r. The residual of a
    /// held particle must be zero. Collective.
    pub(crate) fn correct(&mut self, residual: impl Fn(usize) -> [f32; 3] + Sync) -> f64 {
        let mut product = 0.0;
        for l in 0..self.active {
            let mut parts = std::mem::take(&mut self.levels[l].parts);
            if l == 0 {
                self.restrict_finest::<3, false>(&residual, &mut parts);
            } else {
                let finer = &self.levels[l - 1];
                self.levels[l].restrict::<3, false>(|i| finer.residual[i], &mut parts);
            }
            let level = &mut self.levels[l];
            level.parts = parts;
            product += level.solve();
        }
        for l in (0..self.active).rev() {
            let (finer, level) = self.levels.split_at_mut(l);
            level[0].spread();
            if let Some(finer) = finer.last_mut() {
                finer.value.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, values)| {
                    lanes::run(Prolongation { level: &level[0], first: chunk * CHUNK, values });
                });
            }
        }
        product
    }

    /// The grid from which the coarse part of z is interpolated to particles, if there is one.
    pub(crate) fn finest(&self) -> Option<&Level> {
        self.levels.first().filter(|_| self.active > 0)
    }
}

/// Edge of the finest grid's cells, in root mean square lengths of bonds.
const EDGE: f64 = 1.5;

/// Ratio of stiffness to inertia below which no wider grid follows. Such a system is well conditioned, and
/// each further grid would add the correction of wide motions once more.
const WIDEST: f64 = 4.0;

/// Weight w of the coarse part, as in damped Jacobi iterations: the corrections of neighbouring nodes
/// overlap, and so do the corrections of the grids. Thin bodies need the damping most, because they cut
/// through cells. A plate four particles thick takes 12 iterations without grids, 18 with w = 1, and 14 with
/// this w; bulky bodies hardly differ.
const WEIGHT: f64 = 0.5;

/// Largest number of grids: the cells of the widest are 2^20 times as wide as the finest's.
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
            cell: Vec::new(),
            place: places.iter().map(|place| place.map_or([0.0; 3], |(_, x)| within(x))).collect(),
            ..Self::default()
        };
        let (mut keys, mut cell) = (Vec::new(), vec![u32::MAX; places.len()]);
        for (at, &i) in (0..).zip(&order) {
            if let Some(key) = of(i)
                && keys.last() != Some(&key)
            {
                keys.push(key);
                this.start.push(at);
            }
            cell[i as usize] = keys.len() as u32 - 1;
        }
        cell.iter_mut().for_each(|cell| *cell = keys.len().min(*cell as usize) as u32);
        this.cell = cell;
        this.start.push(order.len() as u32);
        this.ordered = order.iter().map(|&i| this.place[i as usize]).collect();
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
        this.cells = vec![[keys.len() as u32; 8]; nodes.len()];
        this.residual = vec![[0.0; 3]; nodes.len()];
        this.value = vec![[0.0; 4]; nodes.len()];
        this.around = vec![[[0.0; LANES]; 2]; keys.len() + 1];
        for (cell, corners) in (0..).zip(&this.corners) {
            for (c, &node) in corners.iter().enumerate() {
                this.cells[node as usize][c] = cell;
            }
        }
        let nodes = nodes.into_iter().map(|(region, z, y, x)| (region, glam::IVec3::new(x, y, z)));
        (this, nodes.collect())
    }

    /// Restriction P^T, its first half: sums the weighted values of each cell's points at its corners, in the order
    /// of points, whatever the threads. The sums past the last cell are zero.
    fn restrict<const K: usize, const SLOPES: bool>(
        &self,
        value: impl Fn(usize) -> [f32; K] + Sync,
        parts: &mut Vec<Parts<K>>,
    ) {
        let cells = self.corners.len();
        parts.resize(cells + 1, [[0.0; 8]; K]);
        parts[..cells].par_chunks_mut(CELLS).enumerate().for_each(|(chunk, parts)| {
            let (first, value) = (chunk * CELLS, &value);
            lanes::run(Restriction::<_, K, SLOPES> { level: self, first, value, parts });
        });
    }

    /// Restriction P^T, its second half: the sum at node `n` over the cells around it.
    #[inline(always)]
    fn node<const K: usize>(&self, parts: &[Parts<K>], n: usize) -> [f32; K] {
        let mut sum = [0.0; K];
        for (c, &cell) in self.cells[n].iter().enumerate() {
            let part = &parts[cell as usize];
            for k in 0..K {
                sum[k] += part[k][c];
            }
        }
        sum
    }

    fn nodes<const K: usize>(&self, parts: &[Parts<K>]) -> Vec<[f32; K]> {
        let nodes = (0..self.cells.len()).into_par_iter().with_min_len(CHUNK);
        nodes.map(|n| self.node(parts, n)).collect()
    }

    /// Computes w D^-1 P^T r from the sums at cells; returns its product with P^T r.
    fn solve(&mut self) -> f64 {
        let Self { residual, value, products, .. } = &mut *self;
        let (mut residual, mut value) = (std::mem::take(residual), std::mem::take(value));
        let mut products = std::mem::take(products);
        let chunks = residual.par_chunks_mut(CHUNK).zip(value.par_chunks_mut(CHUNK)).enumerate();
        chunks
            .map(|(chunk, (residual, value))| {
                let mut product = 0.0;
                for (n, (residual, value)) in (chunk * CHUNK..).zip(residual.iter_mut().zip(value)) {
                    *residual = self.node(&self.parts, n);
                    let [x, y, z] = residual.map(f64::from);
                    let r = DVec3::new(x, y, z);
                    let z = self.factor[n].solve(r) * WEIGHT;
                    product += r.dot(z);
                    *value = [z.x as f32, z.y as f32, z.z as f32, 0.0];
                }
                product
            })
            .collect_into_vec(&mut products);
        (self.residual, self.value, self.products) = (residual, value, products);
        self.products.iter().sum()
    }

    /// Copies the nodes' values to the cells around them.
    fn spread(&mut self) {
        let cells = self.around.par_iter_mut().zip(&self.corners).with_min_len(CHUNK / 4);
        cells.for_each(|(around, corners)| {
            for (around, &node) in around.as_flattened_mut().as_chunks_mut().0.iter_mut().zip(corners) {
                *around = self.value[node as usize];
            }
        });
    }

    /// Number of points, of this rank on the finest grid.
    pub(crate) fn points(&self) -> usize {
        self.cell.len()
    }

    /// P: the value at a point.
    #[inline(always)]
    pub(crate) fn interpolate<L: Lanes>(&self, i: usize) -> [f32; 3] {
        let ([lower, upper], [x, y, z]) = (&self.around[self.cell[i] as usize], self.place[i]);
        let (lower, mut face) = (L::load(lower), [0.0; LANES]);
        L::splat(z).mul_add(L::load(upper) - lower, lower).store(&mut face);
        std::array::from_fn(|axis| {
            let [a, b, c, d] = [0, 4, 8, 12].map(|corner| face[corner + axis]);
            let (a, b) = (y.mul_add(c - a, a), y.mul_add(d - b, b));
            x.mul_add(b - a, a)
        })
    }
}

/// Sums over the points of cells at their corners, by shares or, if `SLOPES`, by the squares of slopes.
struct Restriction<'a, V, const K: usize, const SLOPES: bool> {
    level: &'a Level,
    /// First cell.
    first: usize,
    value: &'a V,
    parts: &'a mut [Parts<K>],
}

impl<V: Fn(usize) -> [f32; K], const K: usize, const SLOPES: bool> Task for Restriction<'_, V, K, SLOPES> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { level: Level { start, order, ordered, .. }, first, value, parts } = self;
        for (cell, parts) in (first..).zip(parts) {
            let mut sum = [[0.0; 8]; K];
            let points = start[cell] as usize..start[cell + 1] as usize;
            for (&i, &place) in order[points.clone()].iter().zip(&ordered[points]) {
                let value = value(i as usize);
                let weight = if SLOPES { squared_slopes(place) } else { shares(place) };
                for k in 0..K {
                    for c in 0..8 {
                        sum[k][c] = weight[c].mul_add(value[k], sum[k][c]);
                    }
                }
            }
            *parts = sum;
        }
    }
}

/// Adds P of a grid's values to those of points.
struct Prolongation<'a> {
    level: &'a Level,
    /// First point.
    first: usize,
    values: &'a mut [Padded],
}

impl Task for Prolongation<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (i, value) in (self.first..).zip(self.values) {
            let more = self.level.interpolate::<L>(i);
            (0..3).for_each(|axis| value[axis] += more[axis]);
        }
    }
}

/// The values of a cell's hat functions along each axis, at this place in it.
#[inline(always)]
fn hats(place: [f32; 3]) -> [[f32; 8]; 3] {
    const UPPER: [[f32; 8]; 3] = [
        [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0],
        [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0],
        [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0],
    ];
    let mut hats = [[0.0; 8]; 3];
    for axis in 0..3 {
        for c in 0..8 {
            let upper = UPPER[axis][c];
            hats[axis][c] = place[axis].mul_add(2.0 * upper - 1.0, 1.0 - upper);
        }
    }
    hats
}

/// The squares of the slopes of a cell's hat functions, an edge being 1.
#[inline(always)]
fn squared_slopes(place: [f32; 3]) -> [f32; 8] {
    let [x, y, z] = hats(place).map(|hat| hat.map(|value| value * value));
    std::array::from_fn(|c| y[c] * z[c] + x[c] * z[c] + x[c] * y[c])
}

/// The share that each corner of its cell has of a point, trilinear.
#[inline(always)]
fn shares(place: [f32; 3]) -> [f32; 8] {
    let [x, y, z] = hats(place);
    std::array::from_fn(|c| x[c] * y[c] * z[c])
}

/// Position of a point within its cell.
fn within(x: DVec3) -> [f32; 3] {
    (x - x.floor()).to_array().map(|part| part as f32)
}

#[cfg(test)]
mod tests {
    use amalgam_particles::random::uniform_f64;

    use super::*;

    const COUNT: usize = 600;

    fn random(what: u64) -> Vec<Padded> {
        let number = |i: usize, axis: u64| 2.0 * uniform_f64(&[i as u64, axis, what]) as f32 - 1.0;
        (0..COUNT).map(|i| [number(i, 0), number(i, 1), number(i, 2), 0.0]).collect()
    }

    /// Two bodies, one particle in ten of which is held.
    fn grids() -> (Multilevel, Vec<DVec3>, Vec<bool>) {
        let place = |i: usize| DVec3::from_array([0, 1, 2].map(|axis| 9.0 * uniform_f64(&[i as u64, axis])));
        let position: Vec<DVec3> = (0..COUNT).map(place).collect();
        let regions = [0..COUNT / 3, COUNT / 3..COUNT];
        let regions = regions.map(|particles| Region { particles, bond_length: 1.0 });
        let mut grids = Multilevel::new(&position, &regions);
        let held: Vec<bool> = (0..COUNT).map(|i| i % 10 == 0).collect();
        let diagonal: Vec<[f32; 8]> = (0..COUNT)
            .map(|i| if held[i] { [0.0; 8] } else { [0.1, 9.0, 8.0, 7.0, 1.0, -2.0, 3.0, 0.0] })
            .collect();
        grids.prepare(&diagonal);
        (grids, position, held)
    }

    fn dot(a: &[Padded], b: &[Padded]) -> f64 {
        a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    }

    #[test]
    fn the_coarse_part_is_symmetric_and_positive() {
        let (mut grids, _, held) = grids();
        assert!(grids.active > 1, "{}", grids.active);
        let of = |mut r: Vec<Padded>, grids: &mut Multilevel| {
            r.iter_mut().zip(&held).filter(|(_, held)| **held).for_each(|(r, _)| *r = [0.0; 4]);
            let product = grids.correct(|i| [r[i][0], r[i][1], r[i][2]]);
            let mut z = vec![[0.0; 4]; COUNT];
            lanes::run(Prolongation { level: &grids.levels[0], first: 0, values: &mut z });
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
                let own = level.place[i].map(f64::from);
                let other = level.place[points[0] as usize];
                let first = position[points[0] as usize] / EDGE - position[i] / EDGE;
                for axis in 0..3 {
                    let moved = f64::from(other[axis]) - own[axis];
                    assert!((moved - first[axis]).abs() < 1e-5, "cell {cell}, particle {i}");
                }
                assert!((shares(level.place[i]).iter().sum::<f32>() - 1.0).abs() < 1e-6);
            }
        }
    }
}
