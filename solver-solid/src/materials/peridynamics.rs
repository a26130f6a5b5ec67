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
mod variants;

use std::ops::Range;
use std::sync::Arc;

use amalgam_particles::lanes::LANES;
use amalgam_particles::{DVec3, MovingSurface, Particles};
use amalgam_solver_kit::{Field, FieldValues, SectionError, SolverError, agreed};
use bytemuck::Pod;
use rayon::prelude::*;

pub(crate) use body::{BondedBody, Notch};
pub(crate) use cubic::Lattice;
pub(crate) use law::{Calibration, Law, Model};

use crate::chunks::{CHUNK, CHUNKS_PER_TASK};
use crate::linear::block::Block;
use crate::linear::fixed::operand_scale;
use crate::linear::multilevel::Region;
use crate::linear::operator::{Operator, OperatorVersion};
use crate::linear::partition::Partition;
use crate::linear::vectors::{Columns, Slice, Vector};
use crate::materials::{Material, Positions, by_place};
use body::{BodyBonds, bond_length, live_bonds};
use table::{QUANTA, vector};

/// All bonds of a solver. Indices of particles are those among all, except for rows and places
/// (`partition.rs`).
///
/// If the solver is cut among ranks, each computes the bonds of its own particles: forces, thresholds and
/// products. All ranks have the layout of all bonds, and are told of all bonds that break.
pub(crate) struct Bonds {
    partition: Arc<Partition>,
    /// Positions by place, if there are several ranks.
    with_ghosts: Vec<DVec3>,
    bodies: Vec<BodyBonds>,
    /// Forces by row.
    force: Vec<DVec3>,
    /// The ends of bonds that broke on any rank at the last positions of an explicit step, and the force of
    /// each on its first end [N].
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
            with_ghosts: Vec::new(),
            bodies: bodies.into_iter().map(|body| BodyBonds::new(body, particles, seed)).collect(),
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
    /// the ends of the bonds that break there on any rank, and the force of each on its first end [N].
    /// Collective.
    fn find_forces(&mut self, breaking: bool) -> Vec<([u32; 2], DVec3)> {
        let ranks = self.partition.ranks().clone();
        let mut limits = vec![f64::INFINITY; self.bodies.len()];
        if breaking {
            // The least is the negative of the largest negative.
            let negative = |body: &BodyBonds| -f64::from(body.least_threshold());
            limits = self.bodies.iter().map(negative).collect();
            ranks.max(&mut limits);
            limits.iter_mut().for_each(|limit| *limit = -*limit);
        }
        let mut broken = Vec::new();
        for (body, limit) in self.bodies.iter_mut().zip(limits) {
            let unit = body.law.unit_stiffness() * body.law.spacing / QUANTA;
            let first = body.first as u32;
            let own = body.find_forces(limit as f32);
            let all = if breaking { body.join_broken(&ranks, own) } else { own };
            broken.extend(all.iter().map(|bond| (bond.ends.map(|i| first + i), vector(bond.force) * unit)));
            let rows = body.own_rows();
            body.table.set_forces(body.share.own.start, unit, &mut self.force[rows]);
        }
        self.bring_thresholds();
        broken
    }

    /// Takes the thresholds of ghosts, where they change. Collective.
    fn bring_thresholds(&mut self) {
        if self.partition.is_alone() || self.bodies.iter().all(|body| body.law.threshold_rise == 0.0) {
            return;
        }
        let first = self.partition.own().start;
        let threshold = |row: usize| {
            let body = self.parts(first + row, 1).next();
            body.map_or(f32::INFINITY, |(body, at)| body.threshold[at.start - body.first])
        };
        let ghosts: Vec<(usize, f32)> = self.partition.ask(threshold).collect();
        for (place, threshold) in ghosts {
            let index = self.partition.index(place as u32);
            let has = |body: &&mut BodyBonds| (body.first..body.first + body.count).contains(&index);
            if let Some(body) = self.bodies.iter_mut().find(has) {
                body.threshold[index - body.first] = threshold;
            }
        }
    }

    /// Adds the forces of bonds that broke at these positions. An explicit step breaks a bond after computing
    /// its force, as [Parks2008] do: the bond still acts in the step in which it is found too long. An
    /// implicit step does not add the force, because its derivative would be missing from the operator.
    fn add_forces_of_just_broken(&mut self) {
        let own = self.partition.own();
        for &([a, b], force) in &self.just_broken {
            for (end, force) in [(a as usize, force), (b as usize, -force)] {
                if own.contains(&end) {
                    self.force[end - own.start] += force;
                }
            }
        }
    }

    /// The value that `value` has of one particle of each body, `of(body)`, from the rank that has it.
    /// Collective.
    fn of_bodies<T: Pod>(
        &self,
        of: impl Fn(&BodyBonds) -> usize,
        value: impl Fn(&BodyBonds, usize) -> T,
    ) -> Vec<T> {
        let own = |(k, body): (usize, &BodyBonds)| {
            let i = of(body);
            body.share.own.contains(&i).then(|| (k, value(body, i)))
        };
        self.partition.ranks().shared(self.bodies.len(), self.bodies.iter().enumerate().filter_map(own))
    }

    /// The bodies with particles in `first..first + count`, and the particles of each in it.
    fn parts(&self, first: usize, count: usize) -> impl Iterator<Item = (&BodyBonds, Range<usize>)> {
        self.bodies.iter().filter_map(move |body| {
            let start = first.max(body.first);
            let end = (first + count).min(body.first + body.count);
            (start < end).then_some((body, start..end))
        })
    }

    /// The particle of a row.
    fn index(&self, row: usize) -> usize {
        self.partition.own().start + row
    }

    /// [`Self::parts`] of rows of the bodies whose last product is not zero.
    fn products(&self, first: usize, count: usize) -> impl Iterator<Item = (&BodyBonds, Range<usize>)> {
        self.parts(self.index(first), count).filter(|(body, _)| body.product_unit != 0.0)
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
        let i = self.partition.index(i as u32);
        if let Some((body, _)) = self.parts(i, 1).next() {
            body.table.visit(i - body.first, &mut |bond| {
                if let Some(place) = self.partition.place(body.first + bond.neighbour as usize) {
                    visit(place);
                }
            });
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
        let i = self.index(i);
        let Some((body, _)) = self.parts(i, 1).next() else { return };
        let unit = stiffness_factor(self.version, body) * body.law.unit_stiffness();
        let Some(internal) = internal else {
            block.add_entries(body.table.block(i - body.first).map(|entry| unit * f64::from(entry)));
            return;
        };
        body.table.visit(i - body.first, &mut |bond| {
            let place = self.partition.place(body.first + bond.neighbour as usize);
            if !place.is_some_and(internal) {
                let d = body.followed[bond.neighbour as usize] - body.followed[i - body.first];
                let length = d.length();
                let across = (1.0 - bond.rest * body.law.spacing / length).max(0.0);
                let axis = d.normalize_or_zero() * (unit * bond.stiffness * (1.0 - across)).sqrt();
                block.add(unit * bond.stiffness * across, axis);
            }
        });
    }

    fn set_operand(&mut self, u: Vector<'_>, wanted: Option<&[bool]>) {
        let mut largest = vec![1.0; self.bodies.len()];
        if let Vector::Exact(u) = u {
            largest = self.bodies.iter().map(|body| table::largest(&u[body.own_places()])).collect();
            self.partition.ranks().max(&mut largest);
        }
        for (body, largest) in self.bodies.iter_mut().zip(largest) {
            let factor = stiffness_factor(self.version, body);
            body.product_unit = 0.0;
            if factor != 0.0 {
                let scale = if matches!(u, Vector::Exact(_)) { operand_scale(largest) } else { 1.0 };
                body.table.multiply(u, scale, wanted);
                body.product_unit = 1.0 / scale * factor * body.law.unit_stiffness();
            }
        }
    }

    fn add_rows(&self, first: usize, _u: &[DVec3], image: &mut [DVec3]) {
        let index = self.index(first);
        for (body, own) in self.products(first, image.len()) {
            let image = &mut image[own.start - index..own.end - index];
            let first = own.start - body.first;
            body.table.add_exact_products(first, body.product_unit, image);
        }
    }

    fn add_rounded(&self, first: usize, _u: &Columns, image: &mut [Slice]) {
        let index = self.index(first * LANES);
        let count = (image.len() * LANES).min(self.partition.own().end.saturating_sub(index));
        for (body, own) in self.products(first * LANES, count) {
            let (unit, at) = (body.product_unit as f32, own.start - index);
            body.table.add_products(own.start - body.first..own.end - body.first, unit, image, at);
        }
    }
}

impl Material for Bonds {
    fn mark_read(&self, rows: Range<usize>, read: &mut [bool]) {
        for (body, own) in self.parts(rows.start, rows.len()) {
            let own = own.start - body.first..own.end - body.first;
            body.table.mark_read(own, &mut |particles| {
                if !particles.is_empty() {
                    let slice = |i: usize| (body.first + i) / LANES;
                    read[slice(particles.start)..=slice(particles.end - 1)].fill(true);
                }
            });
        }
    }

    fn share(&mut self, partition: &Arc<Partition>) {
        self.partition = partition.clone();
        self.bodies.iter_mut().for_each(|body| body.share(partition));
        self.force = vec![DVec3::ZERO; partition.own().len()];
        self.forces_at = None;
    }

    fn joined(&self, a: u32, b: u32) -> bool {
        let [a, b] = [a, b].map(|place| self.partition.index(place));
        let body = self.parts(a, 1).next().map(|(body, _)| body);
        body.filter(|body| (body.first..body.first + body.count).contains(&b))
            .is_some_and(|body| body.table.joined(a - body.first, b - body.first))
    }

    fn linearise(&mut self, positions: Positions<'_>, implicit: bool) {
        self.version.linearisation += 1;
        if positions.version.is_none() || self.forces_at != positions.version {
            self.forces_at = positions.version;
            self.bodies.iter_mut().for_each(|body| body.take_positions(positions.values));
            self.find_forces(false);
            self.add_forces_of_just_broken();
        }
        if implicit {
            let origins = self.of_bodies(|body| body.table.origin(), |body, i| body.followed[i]);
            for (body, origin) in self.bodies.iter_mut().zip(origins) {
                body.table.round_positions(&body.followed, origin);
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
        let (partition, own) = (self.partition.clone(), self.partition.own());
        let mut with_ghosts = std::mem::take(&mut self.with_ghosts);
        let position = by_place(&partition, &particles.position, &mut with_ghosts);
        let moved = |body: &BodyBonds, i: usize| {
            particles.position[body.own_rows().start + i - body.share.own.start] - body.followed[i]
        };
        let origins = self.of_bodies(|_| 0, moved);
        let mut bodies = self.bodies.iter_mut().zip(origins);
        let followed = bodies.try_for_each(|(body, origin)| body.follow(position, origin));
        self.with_ghosts = with_ghosts;
        agreed(partition.ranks(), followed)?;
        let broken = self.find_forces(true);
        // A pair is named by the rank that has its first end.
        let is_own = |ends: &[u32; 2]| own.contains(&(ends[0] as usize));
        let ends = broken.iter().map(|&(ends, _)| ends).filter(is_own).collect();
        self.just_broken = if implicit { Vec::new() } else { broken };
        self.add_forces_of_just_broken();
        self.forces_at = Some(version);
        Ok(ends)
    }

    fn energies(&self, _position: &[DVec3]) -> Vec<(&'static str, f64)> {
        let rows = self.partition.own().len();
        let energy = |row: usize| {
            let index = self.index(row);
            self.parts(index, 1).next().map_or(0.0, |(body, _)| body.energy(index - body.first))
        };
        let chunks = (0..rows.div_ceil(CHUNK)).into_par_iter().with_min_len(CHUNKS_PER_TASK);
        let chunk = |chunk: usize| (chunk * CHUNK..rows.min((chunk + 1) * CHUNK)).map(energy).sum();
        vec![("elastic", self.partition.sum(&chunks.map(chunk).collect::<Vec<f64>>()))]
    }

    /// `stretch`: the largest stretch of a particle's bonds. `strain`: its equivalent (von Mises) strain,
    /// from the variance of their stretches. `damage`: the part of its bonds that is broken or cut.
    /// `fragment`: which piece it belongs to, counted from 0 in the order of the lowest particle. Without
    /// unit; particles without bonds have 0 and the fragment -1.
    fn fields(&self, _position: &[DVec3]) -> Vec<Field> {
        let mut columns = [(); 3].map(|()| vec![0.0f32; self.partition.own().len()]);
        for body in &self.bodies {
            let own = body.share.own.clone().into_par_iter().with_min_len(CHUNK);
            let measures: Vec<[f32; 3]> = own.map(|i| body.measures(i)).collect();
            for (row, measure) in body.own_rows().zip(measures) {
                for (column, value) in columns.iter_mut().zip(measure) {
                    column[row] = value;
                }
            }
        }
        let [stretch, strain, damage] = columns;
        let fragment = self.fragments()[self.partition.own()].to_vec();
        let columns = [("stretch", stretch), ("strain", strain), ("damage", damage), ("fragment", fragment)];
        columns.map(|(name, values)| Field { name, values: FieldValues::Scalar(values) }).into()
    }

    fn add_surface(&self, particles: &Particles, surface: &mut MovingSurface) {
        let ranks = self.partition.ranks();
        for body in &self.bodies {
            let Some(lattice) = &body.lattice else { continue };
            let whole = |column: &[DVec3]| ranks.gather(column[body.own_rows()].to_vec());
            let whole = whole(&particles.position).zip(whole(&particles.velocity));
            let Some((position, velocity)) = whole else { continue };
            let (position, velocity) = (&position.concat(), &velocity.concat());
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
            let own = body.threshold[body.share.own.clone()].to_vec();
            let thresholds = self.partition.ranks().gather(own).unwrap_or_default();
            bytes.extend(thresholds.iter().flatten().flat_map(|threshold| threshold.to_le_bytes()));
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
        if self
            .just_broken
            .iter()
            .any(|(ends, _)| ends.iter().any(|&end| end as usize >= self.partition.total()))
        {
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
    /// The number of each particle's fragment, of all particles; -1 without bonds.
    fn fragments(&self) -> Vec<f32> {
        let mut fragment = vec![-1.0; self.partition.total()];
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
