//! Viscosity, implicit and with the full stress [Batty2008].
//!
//! In a sub-step viscosity changes the velocities u_old of faces to the u that minimises
//!
//! ```text
//! 1/2 (u - u_old)^T M (u - u_old) + dt sum V mu (e_xx^2 + e_yy^2 + e_zz^2 + (g_xy^2 + g_yz^2 + g_zx^2) / 2)
//! ```
//!
//! Here M are the masses that particles bring to faces, mu is the dynamic viscosity and V the volume of a
//! cell. The rates of stretch e belong to cells, the rates of shear g to edges of cells. A cell counts if it
//! holds fluid. An edge counts by the fraction of its four cells that hold fluid. So a free surface feels no
//! stress, and a rigid motion loses nothing; a Laplacian of each component of velocity would give neither.
//!
//! Let K u be the gradient of the sum by u: the stresses exert the forces -K u on faces. The minimum
//! satisfies `(M + dt K) u = M u_old`, which conjugate gradients solve. Particles take the impulses
//! `-dt K u`. Each stress acts on both sides with opposite signs, so that momentum is kept whatever the
//! residual.
//!
//! The impulses depend on particles and on the length of the sub-step, not on groups. A member takes its part
//! of the impulses as it does of other forces.
//!
//! A rank has the unknowns of its own slab. A force reads velocities up to a layer away, so that each product
//! needs one layer of the ranks beside. Inner products are sums by layers, added in the order of layers on
//! every rank.

use std::ops::Range;

use amalgam_particles::reduce::CHUNK;
use rayon::prelude::*;

use super::FlipParameters;
use super::cell::Cell;
use super::grid::{Faces, Grid, lay_out};
use super::particle_to_grid::ParticleToGrid;
use super::slab::{Slab, depth};

/// Layers beside the slab whose velocities a force reads.
const BESIDE: usize = 1;

/// Solver for the viscous impulses of a sub-step. Its memory is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Viscosity {
    /// mu V / h^2 of each edge [kg/s], by the axis along it, with V = h^3 times the fraction of the edge's
    /// cells that hold fluid. It is four times as large at a wall where the fluid rests, and 0 where no
    /// stress acts. An edge has the number of the cell above it.
    shear: Faces<f64>,
    /// Velocities to which the system is applied [m/s]; 0 at faces without an unknown.
    operand: Faces<f64>,
    /// The faces of the slab whose velocities are unknown: particles reach them, and they are in no wall.
    faces: [Vec<u32>; 3],
    /// The unknowns of each layer of the slab.
    layers: Vec<[Range<usize>; 3]>,
    /// Mass of each unknown [kg], and its diagonal entry of the system M + dt K [kg].
    mass: Faces<f64>,
    diagonal: Faces<f64>,
}

/// The product K u with a field of velocities u. The stresses exert the forces -K u.
#[derive(Clone, Copy)]
struct Stress<'a> {
    strides: [usize; 3],
    cell: &'a [Cell],
    /// 2 mu V / h^2 of a cell that holds fluid [kg/s].
    normal: f64,
    shear: &'a Faces<f64>,
    velocity: &'a Faces<f64>,
}

impl Stress<'_> {
    /// Force [N] along `axis` from the stretch of a cell, `2 mu V / h^2 (u_upper - u_lower)`.
    fn normal(&self, axis: usize, cell: usize) -> f64 {
        if self.cell[cell] != Cell::Fluid {
            return 0.0;
        }
        self.normal * (self.velocity[axis][cell + self.strides[axis]] - self.velocity[axis][cell])
    }

    /// Force [N] from the shear at an edge along `along`, `mu V / h^2` times the sum of the differences of
    /// both velocities across the edge.
    fn shear(&self, along: usize, edge: usize) -> f64 {
        let coefficient = self.shear[along][edge];
        if coefficient == 0.0 {
            return 0.0;
        }
        let (a, b) = ((along + 1) % 3, (along + 2) % 3);
        let change = |axis: usize, across: usize| {
            self.velocity[axis][edge] - self.velocity[axis][edge - self.strides[across]]
        };
        coefficient * (change(a, b) + change(b, a))
    }

    /// K u at a face [N].
    fn at(&self, axis: usize, face: usize) -> f64 {
        let [b, c] = [(axis + 1) % 3, (axis + 2) % 3];
        let stretch = self.normal(axis, face - self.strides[axis]) - self.normal(axis, face);
        // The edges of the face at both ends of direction b run along c.
        let across = |b: usize, c: usize| self.shear(c, face) - self.shear(c, face + self.strides[b]);
        stretch + across(b, c) + across(c, b)
    }
}

impl Viscosity {
    /// Finds the impulses of a sub-step of `dt` [s], and puts them into `impulse` at their faces [kg m/s], in
    /// the slab and where [`depth::FORCES`] says. Collective.
    ///
    /// # Errors
    /// The iteration does not converge. The error is the relative residual, on all ranks.
    pub(super) fn find(
        &mut self,
        (grid, parameters, slab): (&Grid, &FlipParameters, &Slab),
        transferred: &ParticleToGrid,
        dt: f64,
        impulse: &mut Faces<f64>,
    ) -> Result<(), f64> {
        let unknown = self.set_unknowns((grid, parameters, slab), transferred);
        self.set_shear((grid, parameters, slab), &transferred.cell, &unknown);
        let normal = 2.0 * parameters.viscosity * grid.cell_size;
        let (strides, cell) = (grid.strides(), &transferred.cell[..]);
        self.set_diagonal((strides, cell, normal), dt);
        let Self { shear, operand, faces, layers, mass, diagonal } = self;
        let beside = slab.halo(BESIDE);
        let dot = |a: &Faces<f64>, b: &Faces<f64>| slab.sum_of_layers(dot(layers, a, b));
        let mut velocity =
            each(|axis| faces[axis].iter().map(|&face| operand[axis][face as usize]).collect());
        let stress = |velocity: &Faces<f64>| -> Faces<f64> {
            let stress = Stress { strides, cell, normal, shear, velocity };
            each(|axis| {
                let forces = faces[axis].par_iter().with_min_len(CHUNK);
                forces.map(|&face| stress.at(axis, face as usize)).collect()
            })
        };
        let mut residual = stress(operand);
        update(&mut residual, |_, _, force| *force *= -dt);
        let mut step = over(&residual, diagonal);
        let mut square = dot(&residual, &step);
        let target = parameters.tolerance * parameters.tolerance * square;
        let mut iterations = 0;
        while square > target {
            if iterations == parameters.iterations_max {
                return Err((square / target).sqrt() * parameters.tolerance);
            }
            iterations += 1;
            put(faces, &step, operand);
            beside.exchange(&slab.ranks, operand.each_mut().map(Vec::as_mut_slice));
            let mut product = stress(operand);
            update(&mut product, |axis, n, product| *product = mass[axis][n] * step[axis][n] + dt * *product);
            let length = square / dot(&step, &product);
            update(&mut velocity, |axis, n, velocity| *velocity += length * step[axis][n]);
            update(&mut residual, |axis, n, residual| *residual -= length * product[axis][n]);
            let scaled = over(&residual, diagonal);
            let before = std::mem::replace(&mut square, dot(&residual, &scaled));
            let beta = square / before;
            update(&mut step, |axis, n, step| *step = scaled[axis][n] + beta * *step);
        }
        put(faces, &velocity, operand);
        beside.exchange(&slab.ranks, operand.each_mut().map(Vec::as_mut_slice));
        let mut forces = stress(operand);
        update(&mut forces, |_, _, force| *force *= -dt);
        put(faces, &forces, impulse);
        slab.halo(depth::FORCES).exchange(&slab.ranks, impulse.each_mut().map(Vec::as_mut_slice));
        Ok(())
    }

    /// Sets the unknowns, with their masses and the velocities that particles brought, and the velocities in the
    /// layers beside the slab. Returns flags of the faces whose velocities are unknown to any rank.
    fn set_unknowns(
        &mut self,
        (grid, parameters, slab): (&Grid, &FlipParameters, &Slab),
        transferred: &ParticleToGrid,
    ) -> Faces<bool> {
        let Self { operand, faces, layers, mass, .. } = self;
        let (own, seen) = (slab.entries(0), slab.entries(BESIDE));
        let inside = grid.index([0; 3])..grid.index(grid.cells);
        let inside = seen.start.max(inside.start)..seen.end.min(inside.end);
        let mut unknown = each(|_| vec![false; grid.len()]);
        for axis in 0..3 {
            let stride = grid.strides()[axis];
            lay_out(grid, &mut operand[axis]);
            operand[axis][seen.clone()].fill(0.0);
            // Velocities of faces without fluid beside them are extrapolated later.
            let is_between = |face: usize| {
                let sides = [face, face - stride].map(|n| transferred.cell[n]);
                !sides.contains(&Cell::Wall)
                    && sides.iter().any(|side| matches!(side, Cell::Fluid | Cell::Spray))
            };
            let reached = inside.clone().into_par_iter().with_min_len(CHUNK).filter_map(|face| {
                let [weight, moved] = transferred.at(axis, face).map(f64::from);
                (weight > 0.0 && is_between(face)).then_some((face, weight, moved / weight))
            });
            let reached: Vec<(usize, f64, f64)> = reached.collect();
            for &(face, _, velocity) in &reached {
                (operand[axis][face], unknown[axis][face]) = (velocity, true);
            }
            let before = |entry: usize| reached.partition_point(|of| of.0 < entry);
            let reached = &reached[before(own.start)..before(own.end)];
            faces[axis].clear();
            faces[axis].extend(reached.iter().map(|of| of.0 as u32));
            mass[axis].clear();
            mass[axis].extend(reached.iter().map(|of| of.1 * parameters.particle_mass));
        }
        let of_layer = |layer: usize| {
            let [start, end] = [layer, layer + 1].map(|layer| grid.begin_of_layer(layer) as u32);
            each(|axis| {
                let before = |entry: u32| faces[axis].partition_point(|&face| face < entry);
                before(start)..before(end)
            })
        };
        layers.clear();
        layers.extend(slab.layers().map(of_layer));
        unknown
    }

    /// Sets the coefficients of the edges of the slab and of the layer above it, from flags of the unknown faces.
    fn set_shear(
        &mut self,
        (grid, parameters, slab): (&Grid, &FlipParameters, &Slab),
        cell: &[Cell],
        unknown: &Faces<bool>,
    ) {
        let [i, j, k] = grid.cells;
        let own = slab.layers();
        let inside = grid.index([0; 3])..grid.index([i, j, k]) + 1;
        let inside = inside.start.max(grid.begin_of_layer(own.start))
            ..inside.end.min(grid.begin_of_layer(own.end + 1));
        for along in 0..3 {
            let (a, b) = ((along + 1) % 3, (along + 2) % 3);
            let [s, t] = [a, b].map(|axis| grid.strides()[axis]);
            let of = |edge: usize| {
                // The cell above the edge, the cells below it along a, along b, and along both.
                let around = [edge, edge - s, edge - t, edge - s - t].map(|n| cell[n]);
                let part = 0.25 * around.iter().filter(|&&cell| cell == Cell::Fluid).count() as f64;
                let full = parameters.viscosity * grid.cell_size * part;
                let no_slip = parameters.no_slip;
                match around.map(|cell| cell == Cell::Wall) {
                    [false, false, false, false] => {
                        let known = unknown[a][edge]
                            && unknown[a][edge - t]
                            && unknown[b][edge]
                            && unknown[b][edge - s];
                        if known { full } else { 0.0 }
                    }
                    // A wall, at which the fluid rests. A face is half a cell from it, so that the rate of
                    // shear is twice the difference of velocities over h, and its square 4 times as large.
                    [true, false, true, false] if no_slip[a][1] && unknown[b][edge - s] => 4.0 * full,
                    [false, true, false, true] if no_slip[a][0] && unknown[b][edge] => 4.0 * full,
                    [true, true, false, false] if no_slip[b][1] && unknown[a][edge - t] => 4.0 * full,
                    [false, false, true, true] if no_slip[b][0] && unknown[a][edge] => 4.0 * full,
                    _ => 0.0,
                }
            };
            let shear = &mut self.shear[along];
            lay_out(grid, shear);
            let first = inside.start;
            let edges = shear[inside.clone()].par_iter_mut().enumerate().with_min_len(CHUNK);
            edges.for_each(|(n, shear)| *shear = of(first + n));
        }
    }

    fn set_diagonal(&mut self, (strides, cell, normal): ([usize; 3], &[Cell], f64), dt: f64) {
        let Self { shear, faces, mass, diagonal, .. } = self;
        for axis in 0..3 {
            let [b, c] = [(axis + 1) % 3, (axis + 2) % 3];
            let of = |(&face, &mass): (&u32, &f64)| {
                let face = face as usize;
                let cells = [face, face - strides[axis]].into_iter().filter(|&n| cell[n] == Cell::Fluid);
                let around = |b: usize, c: usize| shear[c][face] + shear[c][face + strides[b]];
                mass + dt * (normal * cells.count() as f64 + around(b, c) + around(c, b))
            };
            faces[axis]
                .par_iter()
                .zip(&mass[axis])
                .with_min_len(CHUNK)
                .map(of)
                .collect_into_vec(&mut diagonal[axis]);
        }
    }
}

/// A value for each axis.
fn each<T>(of: impl FnMut(usize) -> T) -> [T; 3] {
    [0, 1, 2].map(of)
}

/// Changes each value. `change` gets its axis and its index.
fn update(columns: &mut Faces<f64>, change: impl Fn(usize, usize, &mut f64) + Sync) {
    for (axis, column) in columns.iter_mut().enumerate() {
        let values = column.par_iter_mut().enumerate().with_min_len(CHUNK);
        values.for_each(|(n, value)| change(axis, n, value));
    }
}

/// Divides values by the diagonal: Jacobi's preconditioner.
fn over(values: &Faces<f64>, diagonal: &Faces<f64>) -> Faces<f64> {
    each(|axis| {
        let both = values[axis].par_iter().zip(&diagonal[axis]).with_min_len(CHUNK);
        both.map(|(value, diagonal)| value / diagonal).collect()
    })
}

/// The inner product of the unknowns of each layer.
fn dot(layers: &[[Range<usize>; 3]], a: &Faces<f64>, b: &Faces<f64>) -> Vec<f64> {
    let of_axis = |(axis, unknowns): (usize, &Range<usize>)| -> f64 {
        a[axis][unknowns.clone()].iter().zip(&b[axis][unknowns.clone()]).map(|(a, b)| a * b).sum()
    };
    let of_layer = |layer: &[Range<usize>; 3]| layer.iter().enumerate().map(of_axis).sum();
    layers.par_iter().map(of_layer).collect()
}

/// Puts the values of unknowns into columns of all faces.
fn put(faces: &[Vec<u32>; 3], values: &Faces<f64>, columns: &mut Faces<f64>) {
    for axis in 0..3 {
        let column = &mut columns[axis];
        faces[axis].iter().zip(&values[axis]).for_each(|(&face, &value)| column[face as usize] = value);
    }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::lanes::Width;
    use amalgam_particles::{DVec3, ParticleId, random};

    use super::*;
    use crate::sources::Sources;

    /// A fluid of 10 Pa s and 1000 kg/m^3 in a box of cells of 0.1 m.
    fn parameters(cells: DVec3) -> FlipParameters {
        FlipParameters {
            cell_size: 0.1,
            rest_density: 1000.0,
            spacing: 0.05,
            particle_mass: 0.125,
            radius: 0.025,
            sources: Sources::default(),
            fields: Default::default(),
            jitter: 0.0,
            seed: 1,
            flip_ratio: 1.0,
            viscosity: 10.0,
            no_slip: [[false; 2], [false; 2], [true, true]],
            tolerance: 1e-9,
            iterations_max: 2000,
            cfl: 1.0,
            substeps_max: 1,
            occupancy: false,
            obstacles: Vec::new(),
            gravity: DVec3::ZERO,
            domain: (DVec3::ZERO, 0.1 * cells),
        }
    }

    /// The transfer of particles on a lattice where `is_there` says so.
    fn transfer(
        parameters: &FlipParameters,
        is_there: impl Fn(DVec3) -> bool,
        velocity: impl Fn(DVec3) -> DVec3,
    ) -> (Grid, ParticleToGrid) {
        let cells = parameters.cells();
        let grid = Grid::new(DVec3::ZERO, parameters.cell_size, cells);
        let [nx, ny, nz] = cells.map(|n| 2 * n);
        let place = |n: usize| DVec3::new((n % nx) as f64, (n / nx % ny) as f64, (n / nx / ny) as f64);
        let places = (0..nx * ny * nz).map(|n| parameters.spacing * (place(n) + 0.5));
        let position: Vec<DVec3> = places.filter(|&x| is_there(x)).collect();
        let velocity: Vec<DVec3> = position.iter().map(|&x| velocity(x)).collect();
        let ids: Vec<ParticleId> = (0..position.len() as u64).map(ParticleId).collect();
        let mut transferred = ParticleToGrid::default();
        transferred.transfer(&Slab::whole(grid), (&grid, Width::of_machine()), &ids, (&position, &velocity));
        (grid, transferred)
    }

    fn none(grid: &Grid) -> Faces<f64> {
        each(|_| vec![0.0; grid.len()])
    }

    /// A uniform body acceleration G acts for a time much longer than momentum takes to reach the walls.
    /// Between two walls it gives the velocity of Poiseuille, `G z (H - z) / 2 nu`, and in a film on one wall
    /// `G z (2 D - z) / 2 nu`.
    #[test]
    fn channels_and_films_have_parabolic_profiles() {
        let cells = DVec3::new(80.0, 2.0, 16.0);
        let parameters = parameters(cells);
        let (nu, acceleration, dt) = (0.01, 1.0, 1e5);
        // Faces in the air above a film bear an eighth of a cell's mass, on which no stress acts. This is a
        // part of 1/64 of the mass of 8 cells, and changes the velocity at the surface by twice this part.
        for (depth, is_film, part) in [(1.6, false, 0.01), (0.8, true, 0.032)] {
            let (grid, transferred) =
                transfer(&parameters, |x| x.z < depth, |_| DVec3::X * acceleration * dt);
            let mut viscosity = Viscosity::default();
            viscosity
                .find((&grid, &parameters, &Slab::whole(grid)), &transferred, dt, &mut none(&grid))
                .expect("it converges");
            let across = if is_film { 2.0 * depth } else { depth };
            let top = acceleration * across * across / (8.0 * nu);
            for k in 0..(depth / 0.1).round() as usize {
                let face = grid.index([40, 1, k]);
                let z = 0.1 * (k as f64 + 0.5);
                let (u, expected) = (viscosity.operand[0][face], 0.5 * acceleration / nu * z * (across - z));
                assert!((u - expected).abs() < part * top, "z = {z}: {u}, not {expected} m/s");
            }
        }
    }

    #[test]
    fn a_rigid_motion_feels_nothing_and_stresses_keep_momentum() {
        let parameters = parameters(DVec3::splat(12.0));
        let is_there = |x: DVec3| x.distance(DVec3::splat(0.6)) < 0.38;
        let noise = |x: DVec3| {
            let key = |axis| [x.x.to_bits(), x.y.to_bits(), x.z.to_bits(), axis];
            DVec3::from_array([0, 1, 2].map(|axis| random::uniform_f64(&key(axis)) - 0.5))
        };
        let (grid, transferred) = transfer(&parameters, is_there, noise);
        let mut viscosity = Viscosity::default();
        let mut impulses = none(&grid);
        let settings = (&grid, &parameters, &Slab::whole(grid));
        viscosity.find(settings, &transferred, 0.01, &mut impulses).expect("it converges");
        // Impulses of the noise, and forces of a motion that is rigid at all faces.
        let (mut momentum, mut spin, mut largest) = (DVec3::ZERO, DVec3::ZERO, 0.0f64);
        let turning = DVec3::new(1.0, -2.0, 0.5);
        let mut rigid = each(|_| vec![0.0; grid.len()]);
        for axis in 0..3 {
            for &face in &viscosity.faces[axis] {
                let (face, x) = (face as usize, grid.middle(axis, face as usize));
                let impulse = impulses[axis][face] * DVec3::AXES[axis];
                momentum += impulse;
                spin += x.cross(impulse);
                largest = largest.max(impulse.length());
                rigid[axis][face] = (DVec3::ONE + turning.cross(x))[axis];
            }
        }
        assert!(largest > 1e-3, "{largest}");
        assert!(momentum.length() < 1e-13 * largest * 1e3 && spin.length() < 1e-13 * largest * 1e3);
        let normal = 2.0 * parameters.viscosity * grid.cell_size;
        let stress = Stress {
            strides: grid.strides(),
            cell: &transferred.cell,
            normal,
            shear: &viscosity.shear,
            velocity: &rigid,
        };
        for axis in 0..3 {
            for &face in &viscosity.faces[axis] {
                let force = stress.at(axis, face as usize);
                assert!(force.abs() < 1e-12 * normal, "{force}");
            }
        }
    }
}
