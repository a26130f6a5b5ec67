//! Bond-based peridynamics [SillingAskari2005]: every particle is joined to all others within its horizon by bonds that
//! pull like springs and break, for good, when stretched too far.
//!
//! The force of a bond of rest length L at length l is `k (l - L) n` with `k = c w V V / L` (`law.rs`, `stretch.rs`): a spring,
//! in the view of [Levine2014], and linearised like one (`springs.rs`). Two layouts (`table.rs`) hold them: words of a lattice
//! (`lattice.rs`) and compressed rows of four particles each (`rows.rs`). Hot loops are f32 on exact differences, what is added up over them f64.

mod cubic;
mod lattice;
mod law;
mod plates;
mod rows;
mod stretch;
mod surface;
mod table;

use std::ops::Range;

use amalgam_particles::lanes::LANES;
use amalgam_particles::random::uniform_f64;
use amalgam_particles::{DVec3, MovingSurface, ParticleId, Particles};
use amalgam_solver_kit::{Field, FieldValues, SectionError, SolverError};
use rayon::prelude::*;

pub(crate) use cubic::Lattice;
pub(crate) use law::{Calibration, Law, Model};
use plates::{Plate, Strain};

use crate::chunks::{CHUNK, CHUNKS_PER_TASK};
use crate::linear::block::Block;
use crate::linear::multilevel::Region;
use crate::linear::operator::Operator;
use crate::linear::vectors::{Columns, Slice, Vector, copy, least};
use crate::materials::Material;
use stretch::{excess_of, stretch_of};
use table::{BondTable, Broken, QUANTA, vector};

/// A parallelogram that cuts the bonds that cross it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notch {
    /// A corner [m].
    pub(crate) corner: DVec3,
    /// Edges from it [m].
    pub(crate) edges: [DVec3; 2],
}

/// A body whose particles are to be bonded.
#[derive(Clone, Debug)]
pub(crate) struct BondedBody {
    /// Index of its first particle.
    pub(crate) first: usize,
    /// Number of particles.
    pub(crate) count: usize,
    pub(crate) law: Law,
    /// The lattice that its particles lie on.
    pub(crate) lattice: Option<Lattice>,
    /// True if bonds are stored by this lattice. Particles are in the order of [`Lattice::key`] then.
    pub(crate) stored_by_lattice: bool,
    /// The value that the sum of L w V over the bonds of a particle far from surfaces is to have [m^4].
    pub(crate) moment: f64,
    pub(crate) notches: Vec<Notch>,
}

/// The bonds of one body.
struct Body {
    first: usize,
    count: usize,
    law: Law,
    table: Box<dyn BondTable>,
    /// The lattice on which the particles lie, for the surface.
    lattice: Option<Lattice>,
    /// Bonds of each particle before any was cut or broke.
    intact: Vec<u32>,
    /// Stretch at which bonds of each particle break without the influence of compression.
    strength: Vec<f32>,
    /// The excess that this is, with it.
    threshold: Vec<f32>,
    /// Positions [m] that the bonds followed last.
    followed: Vec<DVec3>,
    energy: f64,
    /// The unit of the last product [kg].
    product_unit: f64,
}

/// All bonds of a solver.
pub(crate) struct Bonds {
    bodies: Vec<Body>,
    particles: usize,
    force: Vec<DVec3>,
    /// The ends of bonds that broke at the last positions of an explicit step, and their pull on the first end [N].
    parting: Vec<([u32; 2], DVec3)>,
    /// True if forces are those at the positions that [`Material::update`] saw.
    current: bool,
    /// The factor of each body's K in the operator [s^2].
    dt: f64,
    square: f64,
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
            bodies: bodies.into_iter().map(|body| Body::new(body, particles, seed)).collect(),
            particles: particles.len(),
            force: vec![DVec3::ZERO; particles.len()],
            parting: Vec::new(),
            current: false,
            dt: f64::NAN,
            square: f64::NAN,
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

    /// Forces at the positions that the bodies followed, of all bonds that hold there; the bonds that break there, by index, with
    /// what they pulled the first end with [N].
    fn find_forces(&mut self, breaking: bool) -> Vec<([u32; 2], DVec3)> {
        let mut broken = Vec::new();
        for body in &mut self.bodies {
            let unit = body.law.unit_stiffness() * body.law.spacing / QUANTA;
            let first = body.first as u32;
            broken.extend(
                body.find_forces(breaking)
                    .iter()
                    .map(|bond| (bond.ends.map(|i| first + i), vector(bond.pull) * unit)),
            );
            let own = &mut self.force[body.first..body.first + body.count];
            body.table.set_forces(unit, own);
        }
        broken
    }

    /// Adds the pull of bonds that broke at these positions. An explicit step breaks a bond after its force has been
    /// taken, as [Parks2008] do: the bond acts until the step in which it was found too long is over. An implicit step
    /// cannot, as its derivative would lack the bond.
    fn add_parting(&mut self) {
        for &([a, b], pull) in &self.parting {
            self.force[a as usize] += pull;
            self.force[b as usize] -= pull;
        }
    }

    /// The bodies that have rows in `first..first + count`, with the part of that each has.
    fn parts(&self, first: usize, count: usize) -> impl Iterator<Item = (&Body, Range<usize>)> {
        self.bodies.iter().filter_map(move |body| {
            let start = first.max(body.first);
            let end = (first + count).min(body.first + body.count);
            (start < end).then_some((body, start..end))
        })
    }

    /// [`Self::parts`] of those that the last product is not nothing for.
    fn products(&self, first: usize, count: usize) -> impl Iterator<Item = (&Body, Range<usize>)> {
        self.parts(first, count).filter(|(body, _)| body.product_unit != 0.0)
    }

    /// dt C + square K = this times K.
    fn factor(&self, body: &Body) -> f64 {
        self.square + self.dt * body.law.damping_time
    }
}

/// Bytes of a bond that broke last in a snapshot.
const PARTING_BYTES: usize = 2 * 4 + 3 * 8;

fn read_parting(bytes: &[u8; PARTING_BYTES]) -> ([u32; 2], DVec3) {
    let (ends, pull) = bytes.split_at(8);
    let (ends, pull) = (ends.as_chunks().0, pull.as_chunks().0);
    (
        std::array::from_fn(|end| u32::from_le_bytes(ends[end])),
        DVec3::from_array(std::array::from_fn(|axis| f64::from_le_bytes(pull[axis]))),
    )
}

impl Body {
    fn new(body: BondedBody, particles: &Particles, seed: u64) -> Self {
        let BondedBody { first, count, law, lattice, stored_by_lattice, moment, notches } = body;
        let position = &particles.position[first..first + count];
        let mut table: Box<dyn BondTable> = match &lattice {
            Some(lattice) if stored_by_lattice => Box::new(lattice::LatticeTable::new(lattice, &law)),
            _ => Box::new(rows::RowTable::new(position, &law)),
        };
        if law.surface_correction {
            let gains =
                match lattice.as_ref().filter(|lattice| lattice.is_box() && law.model.dimensions() > 1) {
                    Some(lattice) => box_gains(lattice, &law, moment),
                    None => surface_gains(table.as_ref(), count, &law, moment),
                };
            table.set_gains(&gains);
        }
        let lattice = lattice.filter(|_| stored_by_lattice);
        let intact = live_bonds(table.as_ref(), count);
        for notch in &notches {
            for i in 0..count {
                if notch.is_near(position[i], law.reach()) {
                    table.cut(i, &|j| {
                        // From the lower index, so that both ends see the same.
                        let (a, b) = (i.min(j as usize), i.max(j as usize));
                        notch.crosses(position[a], position[b])
                    });
                }
            }
        }
        let strength: Vec<f32> =
            particles.id[first..first + count].iter().map(|&id| strength(&law, seed, id) as f32).collect();
        Self {
            threshold: strength.iter().map(|&s| excess_of(f64::from(s)) as f32).collect(),
            strength,
            intact,
            followed: position.to_vec(),
            energy: 0.0,
            product_unit: 0.0,
            table,
            lattice,
            first,
            count,
            law,
        }
    }

    fn find_forces(&mut self, breaking: bool) -> Vec<Broken> {
        self.table.load_positions(&self.followed);
        let limit = if breaking { least(&self.threshold) } else { f32::INFINITY };
        let pass = self.table.forces((limit < f32::INFINITY).then_some((&self.threshold, limit)));
        let quantum = self.law.spacing / QUANTA;
        self.energy = pass.energy * self.law.unit_stiffness() * quantum * quantum;
        if self.law.threshold_rise != 0.0 {
            let (rise, table) = (self.law.threshold_rise, &self.table);
            let thresholds = self.threshold.par_iter_mut().zip(&self.strength).enumerate();
            thresholds.with_min_len(CHUNK).for_each(|(i, (threshold, &strength))| {
                let least = f64::from(table.force(i).1);
                let least = if least < f64::INFINITY { stretch_of(least) } else { 0.0 };
                *threshold = excess_of(f64::from(strength) - rise * least) as f32;
            });
        }
        pass.broken
    }

    /// Follows the particles, in one step not by more than half of what a difference can hold: the body is torn apart then.
    fn follow(&mut self, particles: &Particles) -> Result<(), SolverError> {
        let position = &particles.position[self.first..self.first + self.count];
        let (origin, limit) = (position[0] - self.followed[0], STEP_MAX * self.law.spacing);
        let is_near = |to: DVec3, from: DVec3| (to - from - origin).abs().cmple(DVec3::splat(limit)).all();
        // Checked and copied at once, as both wait for memory; far particles stay where they were.
        let chunks = self.followed.par_chunks_mut(CHUNK).zip(position.par_chunks(CHUNK)).enumerate();
        let far = chunks.with_min_len(CHUNKS_PER_TASK).filter_map(|(chunk, (followed, position))| {
            let far = position.iter().zip(&*followed).position(|(&to, &from)| !is_near(to, from));
            if far.is_none() {
                followed.copy_from_slice(position);
            }
            far.map(|at| chunk * CHUNK + at)
        });
        let Some(i) = far.min() else { return Ok(()) };
        Err(SolverError(format!(
            "particle {} went {:.1} spacings away from its body in one step: the body is torn apart by an instability; \
             take shorter steps, or write integrator = \"implicit-euler\"",
            particles.id[self.first + i],
            (position[i] - self.followed[i] - origin).length() / self.law.spacing
        )))
    }
}

/// Spacings that a particle may move in a step against the first of its body.
const STEP_MAX: f64 = 40.0;

/// Purpose of the random numbers of strengths.
const STRENGTH: u64 = 0x7374_7265_6e67_7468;

/// Critical stretch of a particle's bonds.
fn strength(law: &Law, seed: u64, id: ParticleId) -> f64 {
    let spread = 2.0 * uniform_f64(&[seed, STRENGTH, id.0]) - 1.0;
    law.critical_stretch * (1.0 + law.strength_scatter * spread)
}

fn live_bonds(table: &dyn BondTable, count: usize) -> Vec<u32> {
    let live = |i| {
        let mut live = 0;
        table.visit(i, &mut |_| live += 1);
        live
    };
    (0..count).into_par_iter().with_min_len(CHUNK).map(live).collect()
}

/// Factor by which each particle's bonds are strengthened, so that the energy of a uniform extension is that
/// far from surfaces: the sum of L w V there over that of its own bonds.
fn surface_gains(table: &dyn BondTable, count: usize, law: &Law, moment: f64) -> Vec<f32> {
    let gain = |i| {
        let mut sum = 0.0;
        // stiffness = w spacing / L.
        table.visit(i, &mut |bond| sum += bond.stiffness * bond.rest * bond.rest);
        let sum = sum * law.spacing * law.volume;
        if sum > 0.0 { (moment / sum) as f32 } else { 1.0 }
    };
    (0..count).into_par_iter().with_min_len(CHUNK).map(gain).collect()
}

/// The same for a box: each particle has the product of the gains of its layers along the axes, with which plates stretch and bend as
/// they should ([`Plate`]).
fn box_gains(lattice: &Lattice, law: &Law, moment: f64) -> Vec<f32> {
    let plate = Plate::new(law);
    // The axis along which a layer or a row is one particle thick is the last.
    let axes = 0..law.model.dimensions();
    // What is thin along two axes bends across the thinner one, the last, and is stretched evenly along the other.
    let layers: Vec<Vec<f64>> = axes
        .clone()
        .map(|axis| {
            let preferred = if axis + 1 == axes.end { Strain::Bending } else { Strain::Tension };
            plate.gains(lattice.extent[axis] as usize, preferred)
        })
        .collect();
    let inside = moment / law.lattice_moment();
    let gain = |cell: &[i32; 3]| {
        let of_layers: f64 = axes.clone().map(|axis| layers[axis][cell[axis] as usize]).product();
        (inside * of_layers) as f32
    };
    lattice.cells.iter().map(gain).collect()
}

/// Root of the mean square rest length of bonds, by stiffness, in spacings; NaN without any.
fn bond_length(table: &dyn BondTable, count: usize) -> f64 {
    let (mut squares, mut sum) = (0.0, 0.0);
    (0..count).for_each(|i| {
        table.visit(i, &mut |bond| {
            squares += bond.stiffness * bond.rest * bond.rest;
            sum += bond.stiffness;
        });
    });
    (squares / sum).sqrt()
}

impl Notch {
    /// True if a bond of this reach from `x` can cross.
    fn is_near(&self, x: DVec3, reach: f64) -> bool {
        let normal = self.edges[0].cross(self.edges[1]).normalize();
        (x - self.corner).dot(normal).abs() <= reach
    }

    /// True if the segment from `a` to `b` crosses the parallelogram.
    fn crosses(&self, a: DVec3, b: DVec3) -> bool {
        let [u, v] = self.edges;
        let normal = u.cross(v);
        let (from, to) = ((a - self.corner).dot(normal), (b - self.corner).dot(normal));
        // An end that lies in the plane belongs to its upper side.
        if (from < 0.0) == (to < 0.0) {
            return false;
        }
        let at = a + (b - a) * (from / (from - to)) - self.corner;
        let square = normal.length_squared();
        let (s, t) = (at.cross(v).dot(normal) / square, u.cross(at).dot(normal) / square);
        (0.0..=1.0).contains(&s) && (0.0..=1.0).contains(&t)
    }
}

impl Operator for Bonds {
    fn visit_neighbours(&self, i: usize, visit: &mut dyn FnMut(u32)) {
        if let Some((body, _)) = self.parts(i, 1).next() {
            body.table.visit(i - body.first, &mut |bond| visit(body.first as u32 + bond.neighbour));
        }
    }

    fn regions(&self) -> Vec<Region> {
        let of = |body: &Body| Region {
            particles: body.first..body.first + body.count,
            bond_length: bond_length(body.table.as_ref(), body.count) * body.law.spacing,
        };
        self.bodies.iter().map(of).collect()
    }

    fn force(&self, i: usize) -> DVec3 {
        self.force[i]
    }

    fn prepare(&mut self, dt: f64, square: f64) {
        (self.dt, self.square) = (dt, square);
    }

    fn add_diagonal(&self, i: usize, internal: Option<&dyn Fn(u32) -> bool>, block: &mut Block) {
        let Some((body, _)) = self.parts(i, 1).next() else { return };
        let unit = self.factor(body) * body.law.unit_stiffness();
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

    fn load(&mut self, u: Vector<'_>, wanted: Option<&[bool]>) {
        for body in &mut self.bodies {
            let factor = self.square + self.dt * body.law.damping_time;
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
    fn joined(&self, a: u32, b: u32) -> bool {
        let body = self.parts(a as usize, 1).next().map(|(body, _)| body);
        body.filter(|body| (body.first..body.first + body.count).contains(&(b as usize)))
            .is_some_and(|body| body.table.joined(a as usize - body.first, b as usize - body.first))
    }

    fn linearise(&mut self, position: &[DVec3], implicit: bool) {
        if !std::mem::take(&mut self.current) {
            for body in &mut self.bodies {
                copy(&position[body.first..body.first + body.count], &mut body.followed);
            }
            self.find_forces(false);
            self.add_parting();
        }
        if implicit {
            for body in &mut self.bodies {
                body.table.round_positions(&body.followed);
                body.table.find_blocks();
            }
        }
    }

    fn update(&mut self, particles: &Particles, implicit: bool) -> Result<Vec<[u32; 2]>, SolverError> {
        self.bodies.iter_mut().try_for_each(|body| body.follow(particles))?;
        let broken = self.find_forces(true);
        let ends = broken.iter().map(|&(ends, _)| ends).collect();
        self.parting = if implicit { Vec::new() } else { broken };
        self.add_parting();
        self.current = true;
        Ok(ends)
    }

    fn energies(&self, _position: &[DVec3]) -> Vec<(&'static str, f64)> {
        vec![("elastic", self.bodies.iter().map(|body| body.energy).sum())]
    }

    /// `stretch`: the largest stretch of a particle's bonds. `strain`: its equivalent (von Mises) strain, from the
    /// variance of their stretches. `damage`: the part of its bonds that is broken or cut. `fragment`: which piece it
    /// belongs to, counted from 0 in the order of the lowest particle. Without unit; particles without bonds have 0
    /// and the fragment -1.
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

    /// The live bits, the thresholds as they are used next, and the bonds that broke last.
    fn save(&self) -> Vec<u8> {
        let mut bytes = (self.parting.len() as u64).to_le_bytes().to_vec();
        for (ends, pull) in &self.parting {
            bytes.extend(ends.iter().flat_map(|end| end.to_le_bytes()));
            bytes.extend(pull.to_array().iter().flat_map(|pull| pull.to_le_bytes()));
        }
        for body in &self.bodies {
            bytes.extend(body.table.live().iter().flat_map(|word| word.to_le_bytes()));
            bytes.extend(body.threshold.iter().flat_map(|threshold| threshold.to_le_bytes()));
        }
        bytes
    }

    fn restore(&mut self, snapshot: &[u8]) -> bool {
        self.current = false;
        let Some((count, rest)) = snapshot.split_first_chunk() else { return false };
        let bytes = u64::from_le_bytes(*count).checked_mul(PARTING_BYTES as u64);
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let Some((parting, mut snapshot)) = bytes.and_then(|bytes| rest.split_at_checked(bytes)) else {
            return false;
        };
        self.parting = parting.as_chunks().0.iter().map(read_parting).collect();
        if self.parting.iter().any(|(ends, _)| ends.iter().any(|&end| end as usize >= self.particles)) {
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

impl Body {
    /// Bound as for springs: w^2 <= 2 sum k / m, with the longitudinal stiffness.
    fn stable_dt(&self, particles: &Particles) -> f64 {
        let unit = self.law.unit_stiffness();
        let of = |i: usize| {
            if particles.immovable[self.first + i] {
                return f64::INFINITY;
            }
            let mut stiffness = 0.0;
            self.table.visit(i, &mut |bond| stiffness += 2.0 * bond.stiffness);
            let square = unit * stiffness / particles.mass[self.first + i];
            let rate = square * self.law.damping_time;
            4.0 / (rate + (rate * rate + 4.0 * square).sqrt())
        };
        let steps = (0..self.count).into_par_iter().with_min_len(CHUNK).map(of);
        steps.reduce(|| f64::INFINITY, f64::min)
    }

    /// Largest stretch, equivalent strain and damage of a particle.
    fn measures(&self, i: usize) -> [f32; 3] {
        let (mut largest, mut sum, mut squares, mut live) = (f64::NEG_INFINITY, 0.0, 0.0, 0u32);
        self.table.visit(i, &mut |bond| {
            let length = self.followed[i].distance(self.followed[bond.neighbour as usize]);
            let stretch = length / (bond.rest * self.law.spacing) - 1.0;
            largest = f64::max(largest, stretch);
            sum += stretch;
            squares += stretch * stretch;
            live += 1;
        });
        let damage = 1.0 - f64::from(live) / f64::from(self.intact[i].max(1));
        let damage = if self.intact[i] == 0 { 0.0 } else { damage };
        if live == 0 {
            return [0.0, 0.0, damage as f32];
        }
        let mean = sum / f64::from(live);
        let variance = (squares / f64::from(live) - mean * mean).max(0.0);
        let strain = (2.0 / 3.0 * self.law.model.deviator() * variance).sqrt();
        [largest as f32, strain as f32, damage as f32]
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
