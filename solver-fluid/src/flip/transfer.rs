//! Between particles and grid.

use amalgam_particles::{DVec3, GroupMap, NO_GROUP, Particles};
use amalgam_solver_kit::Stage;
use rayon::prelude::*;

use super::grid::{Grid, Place};

/// Inertia of a group that holds an immovable particle, relative to its members' own mass: heavy enough that the grid
/// takes over the group's velocity.
const IMMOVABLE: f64 = 1e6;

/// What a particle brings to the grid in a stage.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    place: Place,
    /// Inertia [kg]: a member's share of its group's.
    mass: f64,
    /// [kg m/s]
    momentum: DVec3,
    /// Impulse besides gravity [kg m/s].
    impulse: DVec3,
}

/// Particles in the order of their layers.
#[derive(Clone, Debug, Default)]
pub(super) struct Sorted {
    /// Indices of particles, layer after layer of the grid.
    order: Vec<u32>,
    /// Where each layer begins, and the end.
    start: Vec<usize>,
    loads: Vec<Load>,
}

/// Columns of faces, one for each axis.
pub(super) type Faces = [Vec<f64>; 3];

/// What particles bring to the faces.
#[derive(Clone, Debug)]
pub(super) struct Deposit {
    /// [kg]
    pub(super) mass: Faces,
    /// Momentum, then velocity [kg m/s, m/s].
    pub(super) velocity: Faces,
    /// Impulse besides gravity, then the change of velocity that it makes [kg m/s, m/s].
    pub(super) kick: Faces,
}

pub(super) fn zero_faces(grid: &Grid) -> Faces {
    [0, 1, 2].map(|_| vec![0.0; grid.len()])
}

/// The inertia that a group has here, and each member's share for a kilogram of its own mass.
pub(super) fn inertia(stage: &Stage<'_>, own: f64, group: usize) -> f64 {
    let inertia = stage.inertia[group];
    if inertia.is_finite() { inertia } else { IMMOVABLE * own }
}

/// Mass of each group's members [kg].
pub(super) fn group_masses(groups: &GroupMap, particles: &Particles) -> Vec<f64> {
    let mass = |group| groups.members(group).iter().map(|&i| particles.mass[i as usize]).sum();
    (0..groups.len()).map(mass).collect()
}

impl Sorted {
    /// Sorts particles by layer, those of a layer by index.
    pub(super) fn sort(&mut self, grid: &Grid, positions: &[DVec3]) {
        let layers = grid.cells[2];
        let layer_of: Vec<u32> =
            positions.par_iter().with_min_len(4096).map(|&x| grid.cell(x)[2] as u32).collect();
        self.start.clear();
        self.start.resize(layers + 1, 0);
        for &layer in &layer_of {
            self.start[layer as usize + 1] += 1;
        }
        for layer in 0..layers {
            self.start[layer + 1] += self.start[layer];
        }
        let mut next = self.start.clone();
        self.order.clear();
        self.order.resize(positions.len(), 0);
        for (i, &layer) in layer_of.iter().enumerate() {
            self.order[next[layer as usize]] = i as u32;
            next[layer as usize] += 1;
        }
    }

    /// Sets what each particle brings in a stage. The grid's gravity acts on a group's whole inertia, its true weight is
    /// that of its members alone: the impulse makes up for the difference.
    pub(super) fn load(&mut self, grid: &Grid, particles: &Particles, stage: &Stage<'_>, gravity: DVec3) {
        let own = group_masses(stage.groups, particles);
        let group_of = stage.groups.group_of();
        let load = |&i: &u32| {
            let i = i as usize;
            let (place, mass) = (grid.place(particles.position[i]), particles.mass[i]);
            let group = group_of[i];
            if group == NO_GROUP {
                let momentum = mass * particles.velocity[i];
                return Load { place, mass, momentum, impulse: DVec3::ZERO };
            }
            let group = group as usize;
            let part = mass / own[group];
            let inertia = part * inertia(stage, own[group], group);
            let impulse = stage.impulse[group] * part - gravity * stage.dt * (inertia - mass);
            Load { place, mass: inertia, momentum: inertia * stage.velocity[group], impulse }
        };
        self.order.par_iter().with_min_len(4096).map(load).collect_into_vec(&mut self.loads);
    }

    /// Sums what particles bring to the faces. Every layer gathers from the particles around it in their order, so that
    /// no sum depends on threads.
    pub(super) fn deposit(&self, grid: &Grid, deposit: &mut Deposit) {
        let Deposit { mass, velocity, kick } = deposit;
        let columns = (layers(grid, mass), layers(grid, velocity), layers(grid, kick));
        columns.into_par_iter().enumerate().for_each(|(k, (mut mass, mut momentum, mut kick))| {
            for column in mass.iter_mut().chain(&mut momentum).chain(&mut kick) {
                column.fill(0.0);
            }
            let near = k.saturating_sub(1)..(k + 2).min(grid.cells[2]);
            for load in &self.loads[self.start[near.start]..self.start[near.end]] {
                for axis in 0..3 {
                    for (n, weight) in load.place.faces_in_layer(grid, axis, k) {
                        // A face that does not exist has no weight.
                        if n < mass[axis].len() {
                            mass[axis][n] += weight * load.mass;
                            momentum[axis][n] += weight * load.momentum[axis];
                            kick[axis][n] += weight * load.impulse[axis];
                        }
                    }
                }
            }
            for axis in 0..3 {
                let rest = momentum[axis].iter_mut().zip(kick[axis].iter_mut());
                for ((momentum, kick), &mass) in rest.zip(mass[axis].iter()) {
                    if mass > 0.0 {
                        *momentum /= mass;
                        *kick /= mass;
                    }
                }
            }
        });
    }
}

/// The layers of three columns, side by side.
fn layers<'a>(grid: &Grid, faces: &'a mut Faces) -> Vec<[&'a mut [f64]; 3]> {
    let [x, y, z] = faces.each_mut().map(|column| column.chunks_mut(grid.layer()));
    x.zip(y).zip(z).map(|((x, y), z)| [x, y, z]).collect()
}

impl Deposit {
    pub(super) fn new(grid: &Grid) -> Self {
        Self { mass: zero_faces(grid), velocity: zero_faces(grid), kick: zero_faces(grid) }
    }
}
