//! The contract of a material with the integrators: its stored energy and fields, breaking, and its snapshot.

pub(crate) mod peridynamics;
pub(crate) mod springs;

use amalgam_particles::{DVec3, MovingSurface, Particles};
use amalgam_solver_kit::{Field, SolverError};

use crate::linear::block::Block;
use crate::linear::multilevel::Region;
use crate::linear::operator::Operator;
use crate::linear::vectors::{Columns, Slice, Vector};

/// The materials of a solver, springs beside bonds. As an operator they are their sum.
#[derive(Default)]
pub(crate) struct Materials(Vec<Box<dyn Material>>);

impl Materials {
    pub(crate) fn push(&mut self, material: impl Material + 'static) {
        self.0.push(Box::new(material));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Material> {
        self.0.iter().map(|material| &**material)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Material>> {
        self.0.iter_mut()
    }

    /// Linearises all of them, see [`Material::linearise`].
    pub(crate) fn linearise(&mut self, position: &[DVec3], implicit: bool) {
        self.iter_mut().for_each(|material| material.linearise(position, implicit));
    }
}

impl Operator for Materials {
    fn force(&self, i: usize) -> DVec3 {
        self.iter().map(|material| material.force(i)).sum()
    }

    fn prepare(&mut self, dt: f64, square: f64) {
        self.iter_mut().for_each(|material| material.prepare(dt, square));
    }

    fn visit_neighbours(&self, i: usize, visit: &mut dyn FnMut(u32)) {
        self.iter().for_each(|material| material.visit_neighbours(i, visit));
    }

    fn regions(&self) -> Vec<Region> {
        self.iter().flat_map(|material| material.regions()).collect()
    }

    fn add_diagonal(&self, i: usize, internal: Option<&dyn Fn(u32) -> bool>, block: &mut Block) {
        self.iter().for_each(|material| material.add_diagonal(i, internal, block));
    }

    fn set_operand(&mut self, u: Vector<'_>, wanted: Option<&[bool]>) {
        self.iter_mut().for_each(|material| material.set_operand(u, wanted));
    }

    fn add_rows(&self, first: usize, u: &[DVec3], image: &mut [DVec3]) {
        self.iter().for_each(|material| material.add_rows(first, u, image));
    }

    fn add_rounded(&self, first: usize, u: &Columns, image: &mut [Slice]) {
        self.iter().for_each(|material| material.add_rounded(first, u, image));
    }
}

/// A material, which holds particles together.
pub(crate) trait Material: Operator {
    /// True if two particles are joined, by index.
    fn joined(&self, a: u32, b: u32) -> bool;

    /// Takes forces at these positions and, for an implicit step, everything of the operator that does not
    /// depend on its length.
    fn linearise(&mut self, position: &[DVec3], implicit: bool);

    /// Called when particles have moved: what breaks there; the pairs that are no longer joined.
    fn update(&mut self, _particles: &Particles, _implicit: bool) -> Result<Vec<[u32; 2]>, SolverError> {
        Ok(Vec::new())
    }

    /// Potential energies by name [J].
    fn energies(&self, position: &[DVec3]) -> Vec<(&'static str, f64)>;

    /// Fields for frames.
    fn fields(&self, position: &[DVec3]) -> Vec<Field>;

    /// Adds the surface of bodies that tear.
    fn add_surface(&self, _particles: &Particles, _surface: &mut MovingSurface) {}

    /// Longest step of an explicit integrator [s].
    fn stable_dt(&self, particles: &Particles) -> f64;

    /// The state beside positions and velocities, for a snapshot.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Restores a snapshot of [`Self::save`]; false if that is not its own.
    fn restore(&mut self, snapshot: &[u8]) -> bool {
        snapshot.is_empty()
    }
}
