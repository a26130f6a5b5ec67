//! Velocities of faces before the projection: the velocities that particles brought, changed by gravity, by
//! the impulses of groups, and by viscosity, drags and fields of force.

use std::ops::Range;

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{LANES, Lanes, Task};
use amalgam_particles::reduce::CHUNK;
use rayon::prelude::*;

use super::FlipParameters;
use super::arithmetic::{larger, sixteen, sixteen_mut};
use super::cell::{Cell, Sides, WALL};
use super::grid::{CutCells, Faces, Grid};
use super::group_members::FaceContribution;
use super::particle_to_grid::ParticleToGrid;

/// Least density of a face, relative to the rest density, so that each face has some inertia
/// (`docs/theory/flip.md`, "A step").
const DENSITY_MIN: f64 = 1e-3;

/// Version of the velocities before the projection, apart from the contributions of group members: velocities
/// of equal versions are equal. Whatever is computed from them keeps the version beside it, and is computed
/// again when the versions differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ForcesVersion {
    /// Number of the transfer from particles to the grid.
    pub(super) transfer: u64,
    /// Number of changes of cells so far.
    pub(super) cells: u64,
    /// Length of the sub-step [s].
    pub(super) dt: f64,
}

/// The sources of velocities at faces.
#[derive(Clone, Copy)]
pub(super) struct FaceForces<'a> {
    pub(super) grid: &'a Grid,
    pub(super) cut: Option<&'a CutCells>,
    pub(super) parameters: &'a FlipParameters,
    pub(super) transferred: &'a ParticleToGrid,
    pub(super) cell: &'a [Cell],
    /// Impulses by viscosity, drags and fields of force at each face [kg m/s], if there are any.
    pub(super) outside: Option<&'a Faces<f64>>,
    pub(super) version: ForcesVersion,
}

/// State of a face: its velocity before the projection and before the sub-step [m/s], true if they are known,
/// and its conductance [m s/kg].
pub(super) type FaceState = (f64, f64, bool, f32);

impl FaceForces<'_> {
    /// The state of a face to which members add `contribution`, if they touch it. A face that an obstacle closes has
    /// no velocity of its own.
    pub(super) fn at(&self, axis: usize, face: usize, contribution: Option<FaceContribution>) -> FaceState {
        let lower = face.checked_sub(self.grid.strides()[axis]);
        let cells = [self.cell[face], lower.map_or(Cell::Wall, |lower| self.cell[lower])];
        let outside = self.outside.map(|impulse| impulse[axis][face]);
        let gravity = self.parameters.gravity[axis];
        let room = match self.cut {
            Some(cut) if cut.is_closed(axis, face) => return FaceState::default(),
            Some(cut) => cut.weight(axis, face),
            None => 1.0,
        };
        let sums = (self.transferred.at(axis, face), outside);
        self.face((gravity, room), sums, contribution, Sides::new(cells))
    }

    /// The magnitude of the velocity that particles take before the projection, beside `flip_ratio` times
    /// their old velocity [m/s].
    #[inline(always)]
    pub(super) fn update(&self, velocity: f64, old: f64) -> f64 {
        (velocity - self.parameters.flip_ratio * old).abs()
    }

    /// Conductance of a face inside of the fluid: `dt / (h^2 rho0)`.
    pub(super) fn conductance_inside(&self) -> f32 {
        let h = self.grid.cell_size;
        (self.version.dt / (h * h * self.parameters.rest_density)) as f32
    }

    /// The states of sixteen faces without members. `OUTSIDE` says whether the impulses `outside` count.
    #[inline(always)]
    fn sixteen<const OUTSIDE: bool>(
        &self,
        gravity: f64,
        [weight, moved]: [&[f32; LANES]; 2],
        outside: &[f64; LANES],
        [own, lower]: [&[Cell; LANES]; 2],
    ) -> ([f64; LANES], [f64; LANES], [bool; LANES], [f32; LANES]) {
        let mut states = ([0.0; LANES], [0.0; LANES], [false; LANES], [0.0; LANES]);
        for l in 0..LANES {
            let outside = if OUTSIDE { Some(outside[l]) } else { None };
            let sums = ([weight[l], moved[l]], outside);
            (states.0[l], states.1[l], states.2[l], states.3[l]) =
                self.face((gravity, 1.0), sums, None, Sides::new([own[l], lower[l]]));
        }
        states
    }

    /// The state of a face, from the gravity along its axis [m/s^2], the part of its volume that obstacles leave
    /// open, its sums over particles, the impulse by viscosity, drags and fields of force, the contribution of
    /// members, and the cells beside it.
    #[inline(always)]
    fn face(
        &self,
        (gravity, room): (f64, f64),
        (sums, outside): ([f32; 2], Option<f64>),
        contribution: Option<FaceContribution>,
        sides: Sides,
    ) -> FaceState {
        let FlipParameters { rest_density: rest, particle_mass: mass, .. } = *self.parameters;
        let (h, dt) = (self.grid.cell_size, self.version.dt);
        let [weight, moved] = sums.map(|sum| mass * f64::from(sum));
        let FaceContribution { mass, momentum, impulse } = contribution.unwrap_or_default();
        let total = weight + mass;
        let known = total > 0.0;
        let old = (moved + momentum) / total;
        let mut change = gravity * dt;
        if contribution.is_some() {
            change += impulse / total;
        }
        if let Some(outside) = outside {
            change += outside / total;
        }
        let velocity = if sides.contain(WALL) { 0.0 } else { old + change };
        let least = DENSITY_MIN * rest;
        let density = total / (h * h * h * room);
        let density = if density > least { density } else { least };
        let density = if sides.are_fluid() && contribution.is_none() { rest } else { density };
        // Between two unknowns it must not be rounded to zero, however heavy the face is.
        let conductance = f64::max(dt / (h * h * density), f64::from(f32::MIN_POSITIVE));
        let conductance = if sides.feel_pressure() { conductance } else { 0.0 };
        (if known { velocity } else { 0.0 }, if known { old } else { 0.0 }, known, conductance as f32)
    }
}

/// Adds the impulses by drags and fields of force at the `seen` faces [kg m/s]. `step` are the start and the length of
/// the sub-step [s].
pub(super) fn add_fields(
    (grid, parameters): (&Grid, &FlipParameters),
    transferred: &ParticleToGrid,
    step: (f64, f64),
    seen: Range<usize>,
    impulse: &mut Faces<f64>,
) {
    if parameters.fields.is_empty() {
        return;
    }
    for (axis, impulse) in impulse.iter_mut().enumerate() {
        let faces = impulse[seen.clone()].par_iter_mut().enumerate().with_min_len(CHUNK);
        faces.for_each(|(n, impulse)| {
            let face = seen.start + n;
            let [weight, moved] = transferred.at(axis, face).map(f64::from);
            if weight > 0.0 {
                // A drag acts on each direction by itself and on all directions alike.
                let velocity = DVec3::splat(moved / weight);
                let change = parameters.fields.change((grid.middle(axis, face), velocity), step);
                *impulse += parameters.particle_mass * weight * change[axis];
            }
        });
    }
}

/// Sets the states of a block of faces without members. Faces before the column's first `stride` are in the
/// domain's walls. Returns the largest [`FaceForces::update`] of the block [m/s].
pub(super) struct ApplyForces<'a> {
    pub(super) forces: &'a FaceForces<'a>,
    pub(super) axis: usize,
    /// The first face.
    pub(super) begin: usize,
    pub(super) columns: (&'a mut [f64], &'a mut [f64], &'a mut [bool], &'a mut [f32]),
}

impl Task for ApplyForces<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let Self { forces, axis, begin, columns: (velocity, old, known, conductance) } = self;
        let mut largest = [0.0; LANES];
        let (stride, gravity) = (forces.grid.strides()[axis], forces.parameters.gravity[axis]);
        for n in (0..velocity.len()).step_by(LANES) {
            let first = begin + n;
            let velocity: &mut [f64; LANES] = sixteen_mut(&mut velocity[n..]);
            let old: &mut [f64; LANES] = sixteen_mut(&mut old[n..]);
            let known: &mut [bool; LANES] = sixteen_mut(&mut known[n..]);
            let conductance: &mut [f32; LANES] = sixteen_mut(&mut conductance[n..]);
            if first < stride {
                (*velocity, *old, *known, *conductance) = Default::default();
                continue;
            }
            let [weight, moved] = &forces.transferred.sixteen(axis, first);
            let cells = [sixteen(&forces.cell[first..]), sixteen(&forces.cell[first - stride..])];
            let states = match forces.outside {
                Some(impulse) => {
                    forces.sixteen::<true>(gravity, [weight, moved], sixteen(&impulse[axis][first..]), cells)
                }
                None => forces.sixteen::<false>(gravity, [weight, moved], &[0.0; LANES], cells),
            };
            for (largest, (velocity, old)) in largest.iter_mut().zip(states.0.into_iter().zip(states.1)) {
                *largest = larger(*largest, forces.update(velocity, old));
            }
            (*velocity, *old, *known, *conductance) = states;
        }
        largest.into_iter().fold(0.0, larger)
    }
}
