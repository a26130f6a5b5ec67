//! Bond-based peridynamics [SillingAskari2005]: every particle is joined to all others within its horizon by
//! bonds that pull like springs and break, for good, when stretched too far.
//!
//! The force of a bond of rest length L at length l is `k (l - L) n` with `k = c w V V / L` (`law.rs`,
//! `stretch.rs`): a spring, in the view of [Levine2014], and linearised like one (`springs.rs`). Two layouts
//! (`table.rs`) hold them: words of a lattice (`lattice.rs`) and compressed rows of four particles each
//! (`rows.rs`). Hot loops are f32 on exact differences, what is added up over them f64.

mod body;
mod cubic;
mod lattice;
mod law;
mod plates;
mod rows;
mod stretch;
mod surface;
mod table;

use std::ops::Range;
use std::sync::Arc;

use amalgam_particles::lanes::LANES;
use amalgam_particles::{DVec3, MovingSurface, Particles};
use amalgam_solver_kit::{Field, FieldValues, SectionError, SolverError};
use rayon::prelude::*;

pub(crate) use body::{BondedBody, Notch};
pub(crate) use cubic::Lattice;
pub(crate) use law::{Calibration, Law, Model};

use crate::chunks::CHUNK;
use crate::linear::block::Block;
use crate::linear::multilevel::Region;
use crate::linear::operator::{Operator, OperatorVersion};
use crate::linear::partition::Partition;
use crate::linear::vectors::{Columns, Slice, Vector, copy};
use crate::materials::{Material, Positions};
use body::{BodyBonds, bond_length, live_bonds};
use table::{QUANTA, vector};

/// All bonds of a solver.
pub(crate) struct Bonds {
    partition: Arc<Partition>,
    bodies: Vec<BodyBonds>,
    particles: usize,
    force: Vec<DVec3>,
    /// The ends of bonds that broke at the last positions of an explicit step, and the force of each on its
    /// first end [N].
    just_broken: Vec<([u32; 2], DVec3)>,
    /// Version of the particles' positions that forces were computed at.
    forces_at: Option<u64>,
    version: OperatorVersion,
    /// Longest step of an explicit integrator [s], found once: a body only grows softer as its bonds break.
    stable_dt: f64,
}

impl Bonds {
    /// Bonds all bodies.
    ///
    /// # Errors
    /// A body with more bonds than there is room for.
    pub(crate) fn new(
        bodies: Vec<BondedBody>,
        particles: &Particles,
        seed: u64,
    ) -> Result<Self, Vec<SectionError>> {
        let mut this = Self {
            partition: Arc::new(Partition::alone(particles.len())),
            bodies: bodies.into_iter().map(|body| BodyBonds::new(body, particles, seed)).collect(),
            particles: particles.len(),
            force: vec![DVec3::ZERO; particles.len()],
            just_broken: Vec::new(),
            forces_at: None,
            version: OperatorVersion::default(),
            stable_dt: f64::INFINITY,
        };
        this.stable_dt =
            this.bodies.iter().fold(f64::INFINITY, |least, body| least.min(body.stable_dt(particles)));
        this.find_forces(false);
        Ok(this)
    }

    /// Bytes held, and live bonds, counted from both of their ends.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.bodies.iter().fold((24 * self.force.len(), 0), |(bytes, bonds), body| {
            let live: u32 = live_bonds(body.table.as_ref(), body.count).iter().sum();
            (bytes + body.table.bytes() + 36 * body.count, bonds + live as usize)
        })
    }

    /// Computes the forces at the positions that the bodies followed, of all bonds that hold there. Returns
    /// the ends of the bonds that break there, and the force of each on its first end [N].
    fn find_forces(&mut self, breaking: bool) -> Vec<([u32; 2], DVec3)> {
        let mut broken = Vec::new();
        for body in &mut self.bodies {
            let unit = body.law.unit_stiffness() * body.law.spacing / QUANTA;
            let first = body.first as u32;
            broken.extend(
                body.find_forces(breaking)
                    .iter()
                    .map(|bond| (bond.ends.map(|i| first + i), vector(bond.force) * unit)),
            );
            let own = &mut self.force[body.first..body.first + body.count];
            body.table.set_forces(unit, own);
        }
        broken
    }

    /// Adds the forces of bonds that broke at these positions. An explicit step breaks a bond after computing
    /// its force, as [Parks2008] do: the bond still acts in the step in which it is found too long. An
    /// implicit step does not add the force, because its derivative would be missing from the operator.
    fn add_forces_of_just_broken(&mut self) {
        for &([a, b], force) in &self.just_broken {
            self.force[a as usize] += force;
            self.force[b as usize] -= force;
        }
    }

    /// The bodies with rows in `first..first + count`, and the rows of each in it.
    fn parts(&self, first: usize, count: usize) -> impl Iterator<Item = (&BodyBonds, Range<usize>)> {
        self.bodies.iter().filter_map(move |body| {
            let start = first.max(body.first);
            let end = (first + count).min(body.first + body.count);
            (start < end).then_some((body, start..end))
        })
    }

    /// [`Self::parts`] of the bodies whose last product is not zero.
    fn products(&self, first: usize, count: usize) -> impl Iterator<Item = (&BodyBonds, Range<usize>)> {
        self.parts(first, count).filter(|(body, _)| body.product_unit != 0.0)
    }
}

/// The factor of a body's K in the operator [s^2]: damping is C = `damping_time` K, so that
/// dt C + square K is this times K.
fn stiffness_factor(OperatorVersion { dt, square, .. }: OperatorVersion, body: &BodyBonds) -> f64 {
    square + dt * body.law.damping_time
}

/// Bytes of a just broken bond in a snapshot.
const BROKEN_BYTES: usize = 2 * 4 + 3 * 8;

fn read_broken(bytes: &[u8; BROKEN_BYTES]) -> ([u32; 2], DVec3) {
    let (ends, force) = bytes.split_at(8);
    let (ends, force) = (ends.as_chunks().0, force.as_chunks().0);
    (
        std::array::from_fn(|end| u32::from_le_bytes(ends[end])),
        DVec3::from_array(std::array::from_fn(|axis| f64::from_le_bytes(force[axis]))),
    )
}

impl Operator for Bonds {
    fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    fn version(&self) -> OperatorVersion {
        self.version
    }

    fn visit_neighbours(&self, i: usize, visit: &mut dyn FnMut(u32)) {
        if let Some((body, _)) = self.parts(i, 1).next() {
            body.table.visit(i - body.first, &mut |bond| visit(body.first as u32 + bond.neighbour));
        }
    }

    fn regions(&self) -> Vec<Region> {
        let of = |body: &BodyBonds| Region {
            particles: body.first..body.first + body.count,
            bond_length: bond_length(body.table.as_ref(), body.count) * body.law.spacing,
        };
        self.bodies.iter().map(of).collect()
    }

    fn force(&self, i: usize) -> DVec3 {
        self.force[i]
    }

    fn prepare(&mut self, dt: f64, square: f64) {
        self.version = OperatorVersion { dt, square, ..self.version };
    }

    fn add_diagonal(&self, i: usize, internal: Option<&dyn Fn(u32) -> bool>, block: &mut Block) {
        let Some((body, _)) = self.parts(i, 1).next() else { return };
        let unit = stiffness_factor(self.version, body) * body.law.unit_stiffness();
        let Some(internal) = internal else {
            block.add_entries(body.table.block(i - body.first).map(|entry| unit * f64::from(entry)));
            return;
        };
        body.table.visit(i - body.first, &mut |bond| {
            if !internal(bond.neighbour + body.first as u32) {
                let d = body.followed[bond.neighbour as usize] - body.followed[i - body.first];
                let length = d.length();
                let across = (1.0 - bond.rest * body.law.spacing / length).max(0.0);
                let axis = d.normalize_or_zero() * (unit * bond.stiffness * (1.0 - across)).sqrt();
                block.add(unit * bond.stiffness * across, axis);
            }
        });
    }

    fn set_operand(&mut self, u: Vector<'_>, wanted: Option<&[bool]>) {
        for body in &mut self.bodies {
            let factor = stiffness_factor(self.version, body);
            body.product_unit = match factor {
                0.0 => 0.0,
                _ => body.table.multiply(u, body.first, wanted) * factor * body.law.unit_stiffness(),
            };
        }
    }

    fn add_rows(&self, first: usize, _u: &[DVec3], image: &mut [DVec3]) {
        for (body, rows) in self.products(first, image.len()) {
            let image = &mut image[rows.start - first..rows.end - first];
            let first = rows.start - body.first;
            body.table.add_exact_products(first, body.product_unit, image);
        }
    }

    fn add_rounded(&self, first: usize, _u: &Columns, image: &mut [Slice]) {
        let first = first * LANES;
        for (body, rows) in self.products(first, image.len() * LANES) {
            let (unit, at) = (body.product_unit as f32, rows.start - first);
            body.table.add_products(rows.start - body.first..rows.end - body.first, unit, image, at);
        }
    }
}

impl Material for Bonds {
    fn mark_read(&self, _rows: Range<usize>, _read: &mut [bool]) {}

    fn share(&mut self, _partition: &Arc<Partition>) {}

    fn joined(&self, a: u32, b: u32) -> bool {
        let body = self.parts(a as usize, 1).next().map(|(body, _)| body);
        body.filter(|body| (body.first..body.first + body.count).contains(&(b as usize)))
            .is_some_and(|body| body.table.joined(a as usize - body.first, b as usize - body.first))
    }

    fn linearise(&mut self, positions: Positions<'_>, implicit: bool) {
        self.version.linearisation += 1;
        if positions.version.is_none() || self.forces_at != positions.version {
            self.forces_at = positions.version;
            for body in &mut self.bodies {
                copy(&positions.values[body.first..body.first + body.count], &mut body.followed);
            }
            self.find_forces(false);
            self.add_forces_of_just_broken();
        }
        if implicit {
            for body in &mut self.bodies {
                body.table.round_positions(&body.followed);
                body.table.update_diagonal();
            }
        }
    }

    fn update(
        &mut self,
        particles: &Particles,
        version: u64,
        implicit: bool,
    ) -> Result<Vec<[u32; 2]>, SolverError> {
        self.bodies.iter_mut().try_for_each(|body| body.follow(particles))?;
        let broken = self.find_forces(true);
        let ends = broken.iter().map(|&(ends, _)| ends).collect();
        self.just_broken = if implicit { Vec::new() } else { broken };
        self.add_forces_of_just_broken();
        self.forces_at = Some(version);
        Ok(ends)
    }

    fn energies(&self, _position: &[DVec3]) -> Vec<(&'static str, f64)> {
        vec![("elastic", self.bodies.iter().map(|body| body.energy).sum())]
    }

    /// `stretch`: the largest stretch of a particle's bonds. `strain`: its equivalent (von Mises) strain,
    /// from the variance of their stretches. `damage`: the part of its bonds that is broken or cut.
    /// `fragment`: which piece it belongs to, counted from 0 in the order of the lowest particle. Without
    /// unit; particles without bonds have 0 and the fragment -1.
    fn fields(&self, _position: &[DVec3]) -> Vec<Field> {
        let mut columns = [(); 3].map(|()| vec![0.0f32; self.particles]);
        for body in &self.bodies {
            let measures: Vec<[f32; 3]> =
                (0..body.count).into_par_iter().with_min_len(CHUNK).map(|i| body.measures(i)).collect();
            for (i, measure) in measures.into_iter().enumerate() {
                for (column, value) in columns.iter_mut().zip(measure) {
                    column[body.first + i] = value;
                }
            }
        }
        let [stretch, strain, damage] = columns;
        let columns =
            [("stretch", stretch), ("strain", strain), ("damage", damage), ("fragment", self.fragments())];
        columns.map(|(name, values)| Field { name, values: FieldValues::Scalar(values) }).into()
    }

    fn add_surface(&self, particles: &Particles, surface: &mut MovingSurface) {
        for body in &self.bodies {
            let Some(lattice) = &body.lattice else { continue };
            let own = body.first..body.first + body.count;
            let (position, velocity) = (&particles.position[own.clone()], &particles.velocity[own]);
            surface::Cubes { lattice, table: body.table.as_ref(), position, velocity }.add_surface(surface);
        }
    }

    fn stable_dt(&self, _particles: &Particles) -> f64 {
        self.stable_dt
    }

    /// Saves the bonds that broke last, and for each body the bits of live bonds and the thresholds of
    /// breaking.
    fn save(&self) -> Vec<u8> {
        let mut bytes = (self.just_broken.len() as u64).to_le_bytes().to_vec();
        for (ends, force) in &self.just_broken {
            bytes.extend(ends.iter().flat_map(|end| end.to_le_bytes()));
            bytes.extend(force.to_array().iter().flat_map(|force| force.to_le_bytes()));
        }
        for body in &self.bodies {
            bytes.extend(body.table.live().iter().flat_map(|word| word.to_le_bytes()));
            bytes.extend(body.threshold.iter().flat_map(|threshold| threshold.to_le_bytes()));
        }
        bytes
    }

    fn restore(&mut self, snapshot: &[u8]) -> bool {
        let Some((count, rest)) = snapshot.split_first_chunk() else { return false };
        let bytes = u64::from_le_bytes(*count).checked_mul(BROKEN_BYTES as u64);
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let Some((broken, mut snapshot)) = bytes.and_then(|bytes| rest.split_at_checked(bytes)) else {
            return false;
        };
        self.just_broken = broken.as_chunks().0.iter().map(read_broken).collect();
        if self.just_broken.iter().any(|(ends, _)| ends.iter().any(|&end| end as usize >= self.particles)) {
            return false;
        }
        for body in &mut self.bodies {
            let words = body.table.live().len();
            let Some((live, rest)) = snapshot.split_at_checked(2 * words) else { return false };
            let Some((thresholds, rest)) = rest.split_at_checked(4 * body.count) else { return false };
            let live: Vec<u16> = live.as_chunks().0.iter().map(|&word| u16::from_le_bytes(word)).collect();
            body.table.set_live(&live);
            for (threshold, bytes) in body.threshold.iter_mut().zip(thresholds.as_chunks().0) {
                *threshold = f32::from_le_bytes(*bytes);
            }
            snapshot = rest;
        }
        snapshot.is_empty()
    }
}

impl Bonds {
    /// The number of each particle's fragment; -1 without bonds.
    fn fragments(&self) -> Vec<f32> {
        let mut fragment = vec![-1.0; self.particles];
        let mut next = 0.0;
        for body in &self.bodies {
            // Union by lowest index, with path halving: roots are lowest members.
            let mut parent: Vec<u32> = (0..body.count as u32).collect();
            let find = |parent: &mut Vec<u32>, mut i: u32| {
                while parent[i as usize] != i {
                    parent[i as usize] = parent[parent[i as usize] as usize];
                    i = parent[i as usize];
                }
                i
            };
            for i in 0..body.count {
                body.table.visit(i, &mut |bond| {
                    if bond.neighbour < i as u32 {
                        let (a, b) = (find(&mut parent, i as u32), find(&mut parent, bond.neighbour));
                        parent[a.max(b) as usize] = a.min(b);
                    }
                });
            }
            for i in 0..body.count {
                let root = find(&mut parent, i as u32) as usize;
                fragment[body.first + i] = if root == i {
                    next += 1.0;
                    next - 1.0
                } else {
                    fragment[body.first + root]
                };
            }
        }
        fragment
    }
}
