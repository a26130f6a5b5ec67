//! Materials: forces between particles, their linearisation, stored energies and fields, breaking, and
//! snapshots.

pub(crate) mod peridynamics;
pub(crate) mod springs;

use std::ops::Range;
use std::sync::Arc;

use amalgam_particles::lanes::LANES;
use amalgam_particles::{DVec3, MovingSurface, Particles};
use amalgam_solver_kit::{Field, Ranks, SolverError};

use crate::linear::block::Block;
use crate::linear::multilevel::{Multilevel, Region};
use crate::linear::operator::{Operator, OperatorVersion};
use crate::linear::partition::Partition;
use crate::linear::vectors::{Columns, Slice, Vector};

/// Positions at which materials are linearised.
#[derive(Clone, Copy)]
pub(crate) struct Positions<'a> {
    /// One position per row [m]; at a material, one per place.
    pub(crate) values: &'a [DVec3],
    /// Version of the particles' positions; `None` for positions that particles do not have, as in an
    /// iteration.
    pub(crate) version: Option<u64>,
}

impl<'a> Positions<'a> {
    /// Positions that particles do not have.
    pub(crate) fn tentative(values: &'a [DVec3]) -> Self {
        Self { values, version: None }
    }
}

/// The materials of a solver: springs and bonds. As an operator they are their sum. They bring the ghosts of a
/// rank into the vectors that materials read.
#[derive(Default)]
pub(crate) struct Materials {
    partition: Arc<Partition>,
    /// A vector with ghosts, if there are several ranks.
    with_ghosts: Vec<DVec3>,
    materials: Vec<Box<dyn Material>>,
    version: OperatorVersion,
    /// Version of the positions linearised at.
    linearised_at: Option<u64>,
}

impl Materials {
    /// No materials yet, of so many particles.
    pub(crate) fn new(particles: usize) -> Self {
        Self { partition: Arc::new(Partition::alone(particles)), ..Self::default() }
    }

    /// Keeps this rank's part of all rows, and of the preconditioner's grids. Collective.
    pub(crate) fn share(&mut self, ranks: &Ranks, grids: &mut Multilevel) {
        let total = self.partition.total();
        let own = Partition::rows_of(ranks, ranks.rank(), total);
        let mut read = vec![false; total.div_ceil(LANES)];
        self.iter().for_each(|material| material.mark_read(own.clone(), &mut read));
        grids.mark_read(own, &mut read);
        self.partition = Arc::new(Partition::new(ranks, total, &read));
        let partition = &self.partition;
        grids.share(partition);
        self.materials.iter_mut().for_each(|material| material.share(partition));
        self.linearised_at = None;
    }

    pub(crate) fn push(&mut self, material: impl Material + 'static) {
        self.materials.push(Box::new(material));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Material> {
        self.materials.iter().map(|material| &**material)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Material>> {
        self.materials.iter_mut()
    }

    /// Linearises all materials, see [`Material::linearise`]. Collective.
    pub(crate) fn linearise(&mut self, positions: Positions<'_>, implicit: bool) {
        self.version.linearisation += 1;
        self.linearised_at = positions.version;
        let Self { partition, with_ghosts, materials, .. } = self;
        let values = by_place(partition, positions.values, with_ghosts);
        let positions = Positions { values, ..positions };
        materials.iter_mut().for_each(|material| material.linearise(positions, implicit));
    }

    /// Fields for frames, of all materials. Collective.
    pub(crate) fn fields(&self, position: &[DVec3]) -> Vec<Field> {
        let mut with_ghosts = Vec::new();
        let position = by_place(&self.partition, position, &mut with_ghosts);
        self.iter().flat_map(|material| material.fields(position)).collect()
    }

    /// Potential energies of all materials [J], in their order. Collective.
    pub(crate) fn energies(&mut self, position: &[DVec3]) -> Vec<(&'static str, f64)> {
        let Self { partition, with_ghosts, materials, .. } = self;
        let position = by_place(partition, position, with_ghosts);
        materials.iter().flat_map(|material| material.energies(position)).collect()
    }

    /// True if the last linearisation was at particles' positions of this version.
    pub(crate) fn are_linearised_at(&self, version: u64) -> bool {
        self.linearised_at == Some(version)
    }
}

/// A vector by place, from its values by row. Collective.
pub(crate) fn by_place<'a>(
    partition: &Partition,
    own: &'a [DVec3],
    with_ghosts: &'a mut Vec<DVec3>,
) -> &'a [DVec3] {
    if partition.is_alone() {
        return own;
    }
    partition.with_ghosts(own, with_ghosts);
    with_ghosts
}

impl Operator for Materials {
    fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    fn version(&self) -> OperatorVersion {
        self.version
    }

    fn force(&self, i: usize) -> DVec3 {
        self.iter().map(|material| material.force(i)).sum()
    }

    fn prepare(&mut self, dt: f64, square: f64) {
        self.version = OperatorVersion { dt, square, ..self.version };
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
        let Self { partition, with_ghosts, materials, .. } = self;
        let u = match u {
            Vector::Exact(u) => Vector::Exact(by_place(partition, u, with_ghosts)),
            rounded @ Vector::Rounded(_) => rounded,
        };
        materials.iter_mut().for_each(|material| material.set_operand(u, wanted));
    }

    fn add_rows(&self, first: usize, u: &[DVec3], image: &mut [DVec3]) {
        self.iter().for_each(|material| material.add_rows(first, u, image));
    }

    fn add_rounded(&self, first: usize, u: &Columns, image: &mut [Slice]) {
        self.iter().for_each(|material| material.add_rounded(first, u, image));
    }
}

/// A material: forces that hold particles together.
pub(crate) trait Material: Operator {
    /// Marks the slices of sixteen particles whose values products with these rows read. Asked before
    /// [`Self::share`].
    fn mark_read(&self, rows: Range<usize>, read: &mut [bool]);

    /// Keeps the part of this rank. Collective.
    fn share(&mut self, partition: &Arc<Partition>);

    /// True if two particles are joined, by place. One of them is this rank's own.
    fn joined(&self, a: u32, b: u32) -> bool;

    /// Computes forces at these positions and, for an implicit step, the terms of the operator that do not
    /// depend on the step's length.
    fn linearise(&mut self, positions: Positions<'_>, implicit: bool);

    /// Breaks the bonds that are too long at the particles' new positions, and returns the pairs that are no
    /// longer joined, by index among all particles: a pair on one rank only. `version` is the version of these
    /// positions. Collective.
    ///
    /// # Errors
    /// Particles that have moved further than the material can follow.
    fn update(
        &mut self,
        _particles: &Particles,
        _version: u64,
        _implicit: bool,
    ) -> Result<Vec<[u32; 2]>, SolverError> {
        Ok(Vec::new())
    }

    /// Potential energies by name [J], at positions by place. Collective.
    fn energies(&self, position: &[DVec3]) -> Vec<(&'static str, f64)>;

    /// Fields for frames, at positions by place. Collective.
    fn fields(&self, position: &[DVec3]) -> Vec<Field>;

    /// Adds the surfaces of bodies that can tear.
    fn add_surface(&self, _particles: &Particles, _surface: &mut MovingSurface) {}

    /// Longest step of an explicit integrator for this rank's part [s].
    fn stable_dt(&self, particles: &Particles) -> f64;

    /// Saves the state that is in neither positions nor velocities.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Restores the state from a snapshot of [`Self::save`]; false if it was saved by another material.
    fn restore(&mut self, snapshot: &[u8]) -> bool {
        snapshot.is_empty()
    }
}
