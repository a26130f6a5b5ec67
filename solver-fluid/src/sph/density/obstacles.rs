//! Density of the space that obstacles fill.
//!
//! Near an obstacle a part of a particle's support holds no particles. The obstacle counts there as fluid at
//! rest, with the integral [KoschierBender2017]
//!
//! ```text
//!   L(x) = integral of W(|x - y|) over all y deeper than d in an obstacle                           (1)
//! ```
//!
//! in addition to the sum of V W over particles. The force of the pressure follows from the energy of
//! compression, whose derivative by the density is m p / rho^2, as the acceleration
//!
//! ```text
//!   a = -(p / rho^2) (rho0 / M) grad L                                                              (2)
//! ```
//!
//! with the first moment M of `kernel.rs`. L does not change with time, so that energy is conserved. The force
//! is a half of the fluid's pressure on the surface; contacts bear the other half, since particles that lie on
//! the surface keep their distance of half a spacing there.
//!
//! **Depth.** An integral is not the sum over a lattice: at H = 2 spacings it gives a third more. The depth d
//! is such that a half space gives a particle half a spacing above it the sum over the lattice's missing half.
//! So a lattice on a plane is at rest density.
//!
//! **Table.** The integral is computed on nodes H / 6 = h apart, in blocks, when a particle first comes near. A
//! node stands for a cell that is filled by a part between 0 and 1, a smooth function of its depth: the step at
//! the surface, averaged with the weights 1 - |t| over depths t h around. Between nodes L is a quadratic
//! B-spline, whose gradient is continuous. Averaging adds h^2 / 12 times the Laplacian of L to its values, and
//! a spline with these values as coefficients adds h^2 / 8. Both are taken away: coefficients are values less
//! 5/24 of the sum of second differences. Values and correction are one sum with a fixed stencil. Above planes in
//! any direction L is right to 0.3 % of the rest density.
//!
//! **Walls.** Beyond a wall of the domain stands the mirror image of the fluid, and so does that of the
//! obstacles.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, RwLock, RwLockReadGuard};

use amalgam_meshes::Obstacles;
use amalgam_particles::{DVec3, Obstacle};
use glam::IVec3;
use rayon::prelude::*;

use crate::sph::kernel::Kernel;
use crate::sph::walls::Walls;

/// Distance of nodes in the support radius.
const NODES_IN_SUPPORT: f64 = 6.0;
/// The part of the second differences that the coefficients lack: 1/8 for the spline, 1/12 for filled parts.
const CORRECTION: f64 = 1.0 / 8.0 + 1.0 / 12.0;
/// Nodes along an edge of a block.
const BLOCK: i32 = 8;
/// Nodes along an edge of a block with a border of one, within which splines find their coefficients.
const BORDERED: i32 = BLOCK + 2;

/// Contribution of obstacles to the density of a particle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::sph) struct Added {
    /// L over V W(0), the unit of kernel sums.
    pub(in crate::sph) sum: f32,
    /// -grad L / M [1/m].
    pub(in crate::sph) push: [f32; 3],
}

/// The integrals over obstacles, computed where they are needed. Clones share them.
#[derive(Clone)]
pub struct ObstacleDensity(Arc<Table>);

struct Table {
    obstacles: Obstacles,
    walls: Option<Walls>,
    /// Distance between nodes [m].
    edge: f64,
    /// Depth d [m].
    depth: f64,
    /// Nodes that a node's integral needs on each side.
    reach: i32,
    /// Weights of the cells around a node in its spline coefficient of L, z outermost.
    stencil: Vec<f32>,
    /// Factors by which L becomes [`Added::sum`], and by which its derivative [1/m] becomes minus
    /// [`Added::push`].
    scales: [f64; 2],
    memory: RwLock<Memory>,
}

#[derive(Default)]
struct Memory {
    /// Filled part of the cell of each node, by block.
    filled: HashMap<IVec3, Filled>,
    /// Coefficients of L of each node of bordered blocks; none where all are zero.
    blocks: HashMap<IVec3, Option<Box<[f32]>>>,
}

/// Filled parts of the cells of a block.
enum Filled {
    None,
    Parts(Box<[f32]>),
}

impl fmt::Debug for ObstacleDensity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObstacleDensity of {} surfaces", self.0.obstacles.len())
    }
}

impl ObstacleDensity {
    /// Integrals of a kernel for fluid of a `spacing` [m]; none without obstacles.
    pub fn new(obstacles: &[Obstacle], walls: Option<Walls>, kernel: &Kernel, spacing: f64) -> Option<Self> {
        if obstacles.is_empty() {
            return None;
        }
        let edge = kernel.support_radius / NODES_IN_SUPPORT;
        let value = |offset: IVec3| edge.powi(3) * kernel.value(edge * offset.as_dvec3().length());
        let reach = (kernel.support_radius / edge).ceil() as i32 + 1;
        let along = || -reach..=reach;
        let offsets =
            along().flat_map(move |z| along().flat_map(move |y| along().map(move |x| IVec3::new(x, y, z))));
        let coefficient = |offset: IVec3| {
            let around = IVec3::AXES.map(|axis| value(offset + axis) + value(offset - axis));
            value(offset) - CORRECTION * (around.into_iter().sum::<f64>() - 6.0 * value(offset))
        };
        let sums = kernel.lattice_sums(spacing);
        Some(Self(Arc::new(Table {
            obstacles: Obstacles::new(obstacles),
            walls,
            edge,
            depth: depth(kernel, spacing),
            reach,
            stencil: offsets.map(|offset| coefficient(offset) as f32).collect(),
            scales: [1.0 / (spacing.powi(3) * kernel.value(0.0)), 1.0 / sums.moment],
            memory: RwLock::default(),
        })))
    }

    /// Computes the integrals that [`Reader::at`] needs at these positions [m].
    pub(in crate::sph) fn read(&self, positions: &[DVec3]) -> Reader<'_> {
        let table = &*self.0;
        let lock = || table.memory.read().expect("no thread has panicked here");
        let missing = |known: &Memory| -> Vec<IVec3> {
            let keys = positions.par_iter().map(|x| table.place(*x).0);
            sorted(keys.filter(|key| !known.blocks.contains_key(key)).collect())
        };
        let memory = lock();
        let blocks = missing(&memory);
        if blocks.is_empty() {
            return Reader { table, memory };
        }
        let near = |block: &IVec3| table.distance(table.middle(*block)) < table.far();
        let (near, far): (Vec<IVec3>, Vec<IVec3>) = blocks.into_iter().partition(near);
        let cells = near.iter().flat_map(|&block| table.around(block));
        let cells = sorted(cells.filter(|block| !memory.filled.contains_key(block)).collect());
        drop(memory);
        let filled: Vec<Filled> = cells.par_iter().map(|&block| table.filled(block)).collect();
        let mut memory = table.memory.write().expect("no thread has panicked here");
        memory.filled.extend(cells.into_iter().zip(filled));
        let computed: Vec<_> = near.par_iter().map(|&block| table.coefficients(block, &memory)).collect();
        memory.blocks.extend(near.into_iter().zip(computed));
        memory.blocks.extend(far.into_iter().map(|block| (block, None)));
        drop(memory);
        Reader { table, memory: lock() }
    }
}

/// Ascending, each once.
fn sorted(mut blocks: Vec<IVec3>) -> Vec<IVec3> {
    blocks.sort_unstable_by_key(|block| block.to_array());
    blocks.dedup();
    blocks
}

/// The depth d [m] from which a half space gives a particle at half a spacing the sum over the missing half of
/// its lattice.
fn depth(kernel: &Kernel, spacing: f64) -> f64 {
    let reach = kernel.support_radius;
    let sums = kernel.lattice_sums(spacing);
    // The layer of the particle itself, which is not missing.
    let steps = (reach / spacing).ceil() as i32;
    let along = || (-steps..=steps).map(f64::from);
    let layer: f64 = along()
        .flat_map(|y| along().map(move |x| kernel.value(spacing * x.hypot(y))))
        .map(|value| spacing.powi(3) * value)
        .sum();
    let wanted = 0.5 * (sums.value - layer);
    // The integral over all of space beyond a plane at the distance z is that over shells, of which the plane
    // cuts off the part (1 - z / r) / 2.
    let beyond = |z: f64| {
        let steps = 4000;
        let width = (reach - z.abs()) / f64::from(steps);
        let shells = (0..steps).map(|k| z.abs() + (f64::from(k) + 0.5) * width);
        let part: f64 =
            shells.map(|r| 2.0 * std::f64::consts::PI * r * (r - z.abs()) * kernel.value(r) * width).sum();
        if z < 0.0 { 1.0 - part } else { part }
    };
    let (mut near, mut far) = (-reach, reach);
    for _ in 0..60 {
        let middle = 0.5 * (near + far);
        if beyond(middle) > wanted { near = middle } else { far = middle }
    }
    near - 0.5 * spacing
}

impl Table {
    /// The block of a position, the node nearest to it in the block, and the way from there to the position in
    /// units of nodes.
    fn place(&self, position: DVec3) -> (IVec3, IVec3, DVec3) {
        let folded = self.walls.map_or(position, |walls| walls.fold(position));
        let at = folded / self.edge;
        // Halves are rounded up, whatever the sign.
        let nearest = (at + 0.5).floor();
        let node = nearest.as_ivec3();
        (node.div_euclid(IVec3::splat(BLOCK)), node.rem_euclid(IVec3::splat(BLOCK)), at - nearest)
    }

    /// The middle of a block [m].
    fn middle(&self, block: IVec3) -> DVec3 {
        ((block * BLOCK).as_dvec3() + 0.5 * f64::from(BLOCK - 1)) * self.edge
    }

    /// Distance of a block's middle from obstacles beyond which no coefficient of the block is above zero [m].
    fn far(&self) -> f64 {
        let nodes = (f64::from(self.reach + 1) + 0.5 * f64::from(BLOCK + 1)) * 3f64.sqrt();
        self.edge * (nodes + 1.0) - self.depth
    }

    /// Distance from the nearest obstacle, or from its mirror image [m]. An obstacle that ends at a wall has
    /// no surface there: distances are those of places at least two nodes away from walls.
    fn distance(&self, position: DVec3) -> f64 {
        let folded = self.walls.map_or(position, |walls| {
            let (low, high) = (walls.min + 2.0 * self.edge, walls.max - 2.0 * self.edge);
            walls.fold(position).max(low).min(high)
        });
        let surfaces = 0..self.obstacles.len();
        surfaces.map(|surface| self.obstacles.beside(surface, folded).distance).fold(f64::INFINITY, f64::min)
    }

    /// The blocks whose cells the coefficients of a block depend on.
    fn around(&self, block: IVec3) -> impl Iterator<Item = IVec3> + use<> {
        let border = self.reach + 1;
        let low = (block * BLOCK - border).div_euclid(IVec3::splat(BLOCK));
        let high = (block * BLOCK + BLOCK - 1 + border).div_euclid(IVec3::splat(BLOCK));
        let along = move |axis: usize| low[axis]..=high[axis];
        along(2).flat_map(move |z| along(1).flat_map(move |y| along(0).map(move |x| IVec3::new(x, y, z))))
    }

    fn filled(&self, block: IVec3) -> Filled {
        let half = (0.5 * f64::from(BLOCK) * 3f64.sqrt() + 1.0) * self.edge;
        if self.distance(self.middle(block)) + self.depth > half {
            return Filled::None;
        }
        let part = |node: IVec3| {
            let distance = self.distance((block * BLOCK + node).as_dvec3() * self.edge) + self.depth;
            filled_part(-distance / self.edge) as f32
        };
        Filled::Parts(nodes(BLOCK).map(part).collect())
    }

    /// Spline coefficients of L at the nodes of a bordered block.
    fn coefficients(&self, block: IVec3, memory: &Memory) -> Option<Box<[f32]>> {
        // The filled parts of all cells around, in one array.
        let border = self.reach + 1;
        let wide = BLOCK + 2 * border;
        let mut parts = vec![0.0f32; (wide * wide * wide) as usize];
        let mut is_empty = true;
        for other in self.around(block) {
            let Filled::Parts(all) = &memory.filled[&other] else { continue };
            for (node, &part) in nodes(BLOCK).zip(all) {
                let at = (other - block) * BLOCK + node + border;
                if part > 0.0 && at.cmpge(IVec3::ZERO).all() && at.cmplt(IVec3::splat(wide)).all() {
                    parts[(at.x + wide * (at.y + wide * at.z)) as usize] = part;
                    is_empty = false;
                }
            }
        }
        if is_empty {
            return None;
        }
        const ROW: usize = BORDERED as usize;
        let (span, wide) = ((2 * self.reach + 1) as usize, wide as usize);
        let mut coefficients = vec![0.0; ROW * ROW * ROW].into_boxed_slice();
        let (rows, _) = coefficients.as_chunks_mut::<ROW>();
        for (row, sums) in rows.iter_mut().enumerate() {
            for (n, &weight) in self.stencil.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
                let [z, y] = [row / ROW + n / (span * span), row % ROW + n / span % span];
                let first = n % span + wide * (y + wide * z);
                for (sum, part) in sums.iter_mut().zip(&parts[first..first + ROW]) {
                    *sum += weight * part;
                }
            }
        }
        Some(coefficients)
    }
}

/// The nodes of a cube of `edge` nodes, x first.
fn nodes(edge: i32) -> impl Iterator<Item = IVec3> {
    let along = move || 0..edge;
    along().flat_map(move |z| along().flat_map(move |y| along().map(move |x| IVec3::new(x, y, z))))
}

/// Access to integrals that have been computed.
pub(in crate::sph) struct Reader<'a> {
    table: &'a Table,
    memory: RwLockReadGuard<'a, Memory>,
}

impl Reader<'_> {
    /// Contribution of obstacles at a position [m] for which this reader was made.
    pub(in crate::sph) fn at(&self, position: DVec3) -> Added {
        let Table { edge, scales, walls, .. } = self.table;
        let (block, nearest, offset) = self.table.place(position);
        let Some(Some(coefficients)) = self.memory.blocks.get(&block) else { return Added::default() };
        let [weights, slopes] = spline(offset);
        // Nodes before the nearest one, in the bordered block.
        let [x, y, z] = nearest.to_array().map(|node| node as usize);
        let wide = BORDERED as usize;
        let (mut value, mut slope) = (0.0, DVec3::ZERO);
        for k in 0..3 {
            for j in 0..3 {
                let first = x + wide * (y + j + wide * (z + k));
                let row = &coefficients[first..first + 3];
                for (i, &coefficient) in row.iter().enumerate() {
                    let c = f64::from(coefficient);
                    let [wx, wy, wz] = [weights[i].x, weights[j].y, weights[k].z];
                    value += c * wx * wy * wz;
                    slope +=
                        c * DVec3::new(slopes[i].x * wy * wz, wx * slopes[j].y * wz, wx * wy * slopes[k].z);
                }
            }
        }
        // The image of a position beyond a wall is pushed the other way.
        let side = walls.map_or(DVec3::ONE, |walls| {
            let is_inside = position.cmpge(walls.min) & position.cmple(walls.max);
            DVec3::select(is_inside, DVec3::ONE, DVec3::NEG_ONE)
        });
        let push = -slope * side * (scales[1] / edge);
        Added { sum: (value * scales[0]) as f32, push: push.as_vec3().to_array() }
    }
}

/// The filled part of a cell at a depth [nodes] in an obstacle.
fn filled_part(depth: f64) -> f64 {
    let depth = depth.clamp(-1.0, 1.0);
    let from_outside = 0.5 * (1.0 - depth.abs()).powi(2);
    if depth < 0.0 { from_outside } else { 1.0 - from_outside }
}

/// Weights of the quadratic B-spline and their derivatives, at the nodes before, at and after the nearest one.
fn spline(offset: DVec3) -> [[DVec3; 3]; 2] {
    let (before, after) = (0.5 - offset, 0.5 + offset);
    [[0.5 * before * before, 0.75 - offset * offset, 0.5 * after * after], [-before, -2.0 * offset, after]]
}

#[cfg(test)]
mod tests {
    use amalgam_particles::{DQuat, ObstacleForm};

    use super::*;
    use crate::sph::kernel::Shape;

    const SPACING: f64 = 0.1;

    fn density(form: ObstacleForm, walls: Option<Walls>, shape: Shape, ratio: f64) -> ObstacleDensity {
        let kernel = Kernel { shape, support_radius: ratio * SPACING };
        let obstacle = Obstacle { form, rotation: DQuat::IDENTITY, is_hollow: false };
        ObstacleDensity::new(&[obstacle], walls, &kernel, SPACING).expect("an obstacle")
    }

    fn plane(normal: DVec3) -> ObstacleForm {
        ObstacleForm::Plane { point: DVec3::new(0.3, 0.2, 0.013), normal: normal.normalize() }
    }

    /// The part of the rest density that a lattice on a plane lacks, for kernels and directions of the plane.
    #[test]
    fn a_lattice_on_a_plane_is_at_rest_density() {
        for (shape, ratio) in [(Shape::Wendland, 2.0), (Shape::Wendland, 3.0), (Shape::Poly6, 2.0)] {
            let kernel = Kernel { shape, support_radius: ratio * SPACING };
            for normal in [DVec3::Z, DVec3::NEG_X, DVec3::new(1.0, 2.0, 3.0)] {
                let density = density(plane(normal), None, shape, ratio);
                let at = DVec3::new(0.3, 0.2, 0.013) + 0.5 * SPACING * normal.normalize();
                let added = density.read(&[at]).at(at);
                let full = kernel.lattice_sums(SPACING).value / (SPACING.powi(3) * kernel.value(0.0));
                let along = || (-4..=4).map(|k| SPACING * f64::from(k));
                let layer: f64 = along()
                    .flat_map(|x| along().map(move |y| x.hypot(y)))
                    .map(|r| kernel.value(r) / kernel.value(0.0))
                    .sum();
                let missing = 0.5 * (full - layer);
                let error = (f64::from(added.sum) - missing) / full;
                assert!(error.abs() < 4e-3, "{shape:?} {ratio} {normal}: {error}");
                let push = DVec3::from_array(added.push.map(f64::from));
                assert!(push.normalize().distance(normal.normalize()) < 0.02, "{push}");
            }
        }
    }

    #[test]
    fn the_push_is_the_gradient_of_the_sum() {
        let kernel = Kernel { shape: Shape::Wendland, support_radius: 2.0 * SPACING };
        let ball = ObstacleForm::Ball { center: DVec3::splat(0.5), radius: 0.17 };
        let density = density(ball, None, Shape::Wendland, 2.0);
        let moment = kernel.lattice_sums(SPACING).moment;
        let unit = SPACING.powi(3) * kernel.value(0.0);
        for n in 0..50u32 {
            let direction = DVec3::new((f64::from(n) * 1.3).sin(), (f64::from(n) * 2.7).cos(), 0.3);
            let at = 0.5 + direction.normalize() * (0.2 + 0.003 * f64::from(n));
            let step = 1e-5;
            let slope = DVec3::from_array(DVec3::AXES.map(|axis| {
                let sum = |sign: f64| {
                    let x = at + axis * sign * step;
                    f64::from(density.read(&[x]).at(x).sum) * unit
                };
                (sum(1.0) - sum(-1.0)) / (2.0 * step)
            }));
            let push = DVec3::from_array(density.read(&[at]).at(at).push.map(f64::from));
            assert!(push.distance(-slope / moment) < 2e-2, "{n}: {push} {slope}");
        }
    }

    /// Far from a surface there is nothing, and thin plates count as what they fill.
    #[test]
    fn integrals_are_those_of_the_filled_space() {
        let thin = ObstacleForm::Box { min: DVec3::new(-2.0, -2.0, 0.0), max: DVec3::new(2.0, 2.0, 0.05) };
        let thick = ObstacleForm::Box { min: DVec3::new(-2.0, -2.0, -2.0), max: DVec3::new(2.0, 2.0, 0.05) };
        let at = DVec3::new(0.01, 0.02, 0.1);
        let sum = |form: &ObstacleForm, x: DVec3| {
            density(form.clone(), None, Shape::Wendland, 3.0).read(&[x]).at(x).sum
        };
        let part = sum(&thin, at) / sum(&thick, at);
        assert!(part > 0.4 && part < 0.8, "{part}");
        assert_eq!(sum(&thick, DVec3::new(0.0, 0.0, 0.6)), 0.0);
        // Inside, everything is filled.
        let kernel = Kernel { shape: Shape::Wendland, support_radius: 3.0 * SPACING };
        let all = 1.0 / (SPACING.powi(3) * kernel.value(0.0));
        assert!((f64::from(sum(&thick, DVec3::new(0.0, 0.0, -1.0))) / all - 1.0).abs() < 0.01);
    }

    /// Positions exactly between two nodes, on both sides of the origin, have a place.
    #[test]
    fn places_between_nodes_are_found() {
        let form = ObstacleForm::Plane { point: DVec3::ZERO, normal: DVec3::Z };
        let density = density(form, None, Shape::Wendland, 2.0);
        let edge = density.0.edge;
        for n in -40..40 {
            let at = DVec3::new(0.5 * f64::from(n) * edge, -0.5 * f64::from(n) * edge, 0.5 * edge);
            assert!(density.read(&[at]).at(at).sum > 0.0);
        }
    }

    /// An obstacle that ends at a wall goes on beyond it.
    #[test]
    fn walls_mirror_obstacles() {
        let walls = Walls::new((DVec3::ZERO, DVec3::splat(4.0)), 0.3);
        let floor = ObstacleForm::Box { min: DVec3::new(0.0, 0.0, 0.0), max: DVec3::new(4.0, 4.0, 1.0) };
        let at = |walls, x| {
            let reader = density(floor.clone(), walls, Shape::Wendland, 3.0);
            reader.read(&[x]).at(x)
        };
        let [corner, middle] = [DVec3::new(0.05, 0.05, 1.05), DVec3::new(2.05, 2.05, 1.05)];
        assert!((at(Some(walls), corner).sum - at(Some(walls), middle).sum).abs() < 1e-6);
        assert!(at(None, corner).sum < 0.8 * at(None, middle).sum);
    }
}
