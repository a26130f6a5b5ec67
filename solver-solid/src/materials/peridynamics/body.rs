//! The bonds of one body: made, cut by notches, followed, and measured.

use std::ops::Range;

use amalgam_particles::random::uniform_f64;
use amalgam_particles::{DVec3, ParticleId, Particles};
use amalgam_solver_kit::{Ranks, SolverError};
use rayon::prelude::*;

use super::cubic::Lattice;
use super::lattice::LatticeTable;
use super::law::Law;
use super::plates::{Plate, Strain};
use super::rows::RowTable;
use super::stretch::{double_strain_of, stretch_of};
use super::table::{BodyPart, BondTable, Broken, QUANTA};
use crate::chunks::{CHUNK, CHUNKS_PER_TASK};
use crate::linear::partition::Partition;
use crate::linear::vectors::{copy, least};

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
pub(super) struct BodyBonds {
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) law: Law,
    pub(super) share: BodyPart,
    pub(super) table: Box<dyn BondTable>,
    /// The lattice on which the particles lie, for the surface.
    pub(super) lattice: Option<Lattice>,
    /// Bonds of each particle before any was cut or broke.
    pub(super) intact: Vec<u32>,
    /// Stretch at which bonds of each particle break without the influence of compression.
    pub(super) strength: Vec<f32>,
    /// The double strain that this is, with it.
    pub(super) threshold: Vec<f32>,
    /// Positions [m] that the bonds followed last.
    pub(super) followed: Vec<DVec3>,
    /// The unit of the last product [kg].
    pub(super) product_unit: f64,
}

impl BodyBonds {
    pub(super) fn new(body: BondedBody, particles: &Particles, seed: u64) -> Self {
        let BondedBody { first, count, law, lattice, stored_by_lattice, moment, notches } = body;
        let position = &particles.position[first..first + count];
        let mut table: Box<dyn BondTable> = match &lattice {
            Some(lattice) if stored_by_lattice => Box::new(LatticeTable::new(lattice, &law)),
            _ => Box::new(RowTable::new(position, &law)),
        };
        if law.surface_correction {
            let corrections =
                match lattice.as_ref().filter(|lattice| lattice.is_box() && law.model.dimensions() > 1) {
                    Some(lattice) => box_corrections(lattice, &law, moment),
                    None => surface_factors(table.as_ref(), count, &law, moment),
                };
            table.set_corrections(&corrections);
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
        let share = BodyPart::whole(count, first);
        table.share(&share);
        let strength: Vec<f32> =
            particles.id[first..first + count].iter().map(|&id| strength(&law, seed, id) as f32).collect();
        Self {
            threshold: strength.iter().map(|&s| double_strain_of(f64::from(s)) as f32).collect(),
            strength,
            intact,
            followed: position.to_vec(),
            product_unit: 0.0,
            share,
            table,
            lattice,
            first,
            count,
            law,
        }
    }

    /// Computes only this rank's part from here on.
    pub(super) fn share(&mut self, partition: &Partition) {
        self.share = BodyPart::new(partition, self.first, self.count);
        self.table.share(&self.share);
    }

    /// The places of this rank's particles.
    pub(super) fn own_places(&self) -> Range<usize> {
        let place = self.share.place(self.share.own.start).unwrap_or_default();
        place..place + self.share.own.len()
    }

    /// The rows of this rank's particles.
    pub(super) fn own_rows(&self) -> Range<usize> {
        self.share.row..self.share.row + self.share.own.len()
    }

    /// The least of the double strains above which bonds break.
    pub(super) fn least_threshold(&self) -> f32 {
        least(&self.threshold[self.share.own.clone()])
    }

    /// Computes forces; first the bonds break that are beyond the thresholds, if `limit`, the least of these,
    /// is finite. Returns those that broke, all of whose first ends this rank has.
    pub(super) fn find_forces(&mut self, limit: f32) -> Vec<Broken> {
        self.table.load_positions(&self.followed);
        let mut broken = self.table.forces((limit < f32::INFINITY).then_some((&self.threshold, limit)));
        broken.retain(|bond| self.share.own.contains(&(bond.ends[0] as usize)));
        if self.law.threshold_rise != 0.0 {
            let (rise, table, own) = (self.law.threshold_rise, &self.table, self.share.own.clone());
            let own_thresholds = self.threshold[own.clone()].par_iter_mut().zip(&self.strength[own.clone()]);
            own_thresholds.enumerate().with_min_len(CHUNK).for_each(|(k, (threshold, &strength))| {
                let least = f64::from(table.force(own.start + k).1);
                let least = if least < f64::INFINITY { stretch_of(least) } else { 0.0 };
                *threshold = double_strain_of(f64::from(strength) - rise * least) as f32;
            });
        }
        broken
    }

    /// Joins the bonds that broke on all ranks, in an order that does not depend on ranks, and breaks those of
    /// other ranks here. Collective.
    pub(super) fn join_broken(&mut self, ranks: &Ranks, own: Vec<Broken>) -> Vec<Broken> {
        if ranks.is_alone() {
            return own;
        }
        let mut broken = ranks.all_to_all(vec![own; ranks.size()]).concat();
        broken.iter().for_each(|bond| self.table.break_bond(bond.ends));
        broken.sort_by_key(|bond| self.table.breaking_order(bond.ends[0] as usize));
        broken
    }

    /// The energy of a particle's bonds [J], each of which counts once over all particles.
    pub(super) fn energy(&self, i: usize) -> f64 {
        let quantum = self.law.spacing / QUANTA;
        self.table.energy(i) * (self.law.unit_stiffness() * quantum * quantum)
    }

    /// Takes positions [m] by place.
    pub(super) fn take_positions(&mut self, position: &[DVec3]) {
        for (run, place) in &self.share.held {
            copy(&position[*place..][..run.len()], &mut self.followed[run.clone()]);
        }
    }

    /// Follows the particles to positions [m] by place, in one step not by more than half of what a difference
    /// can hold: the body is torn apart then. `origin` is the displacement of its first particle [m].
    pub(super) fn follow(&mut self, position: &[DVec3], origin: DVec3) -> Result<(), SolverError> {
        let limit = STEP_MAX * self.law.spacing;
        let is_near = |to: DVec3, from: DVec3| (to - from - origin).abs().cmple(DVec3::splat(limit)).all();
        for (run, place) in &self.share.held {
            // Checked and copied at once, as both wait for memory; far particles stay where they were.
            let (followed, position) = (&mut self.followed[run.clone()], &position[*place..][..run.len()]);
            let chunks = followed.par_chunks_mut(CHUNK).zip(position.par_chunks(CHUNK)).enumerate();
            let far = chunks.with_min_len(CHUNKS_PER_TASK).filter_map(|(chunk, (followed, position))| {
                let far = position.iter().zip(&*followed).position(|(&to, &from)| !is_near(to, from));
                if far.is_none() {
                    followed.copy_from_slice(position);
                }
                far.map(|at| chunk * CHUNK + at)
            });
            if let Some(i) = far.min() {
                return Err(SolverError(format!(
                    "particle {} went {:.1} spacings away from its body in one step: the body is torn apart by an \
                     instability; take shorter steps, or write integrator = \"implicit-euler\"",
                    self.first + run.start + i,
                    (position[i] - followed[i] - origin).length() / self.law.spacing
                )));
            }
        }
        Ok(())
    }

    /// Bound as for springs: w^2 <= 2 sum k / m, with the longitudinal stiffness.
    pub(super) fn stable_dt(&self, particles: &Particles) -> f64 {
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
    pub(super) fn measures(&self, i: usize) -> [f32; 3] {
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

/// Spacings that a particle may move in a step against the first of its body.
const STEP_MAX: f64 = 40.0;

/// Purpose of the random numbers of strengths.
const STRENGTH: u64 = 0x7374_7265_6e67_7468;

/// Critical stretch of a particle's bonds.
fn strength(law: &Law, seed: u64, id: ParticleId) -> f64 {
    let spread = 2.0 * uniform_f64(&[seed, STRENGTH, id.0]) - 1.0;
    law.critical_stretch * (1.0 + law.strength_scatter * spread)
}

pub(super) fn live_bonds(table: &dyn BondTable, count: usize) -> Vec<u32> {
    let live = |i| {
        let mut live = 0;
        table.visit(i, &mut |_| live += 1);
        live
    };
    (0..count).into_par_iter().with_min_len(CHUNK).map(live).collect()
}

/// Factor by which each particle's bonds are strengthened, so that a uniform extension has the same energy as
/// far from surfaces. It is the sum of L w V far from surfaces over the sum of the particle's own bonds.
fn surface_factors(table: &dyn BondTable, count: usize, law: &Law, moment: f64) -> Vec<f32> {
    let correction = |i| {
        let mut sum = 0.0;
        // stiffness = w spacing / L.
        table.visit(i, &mut |bond| sum += bond.stiffness * bond.rest * bond.rest);
        let sum = sum * law.spacing * law.volume;
        if sum > 0.0 { (moment / sum) as f32 } else { 1.0 }
    };
    (0..count).into_par_iter().with_min_len(CHUNK).map(correction).collect()
}

/// Factors for a box: each particle has the product of the corrections of its layers along the axes. With
/// them, plates have the right stiffness in tension and bending ([`Plate`]).
fn box_corrections(lattice: &Lattice, law: &Law, moment: f64) -> Vec<f32> {
    let plate = Plate::new(law);
    // The axis along which a layer or a row is one particle thick is the last.
    let axes = 0..law.model.dimensions();
    // What is thin along two axes bends across the thinner one, the last, and is stretched evenly along the
    // other.
    let layers: Vec<Vec<f64>> = axes
        .clone()
        .map(|axis| {
            let preferred = if axis + 1 == axes.end { Strain::Bending } else { Strain::Tension };
            plate.corrections(lattice.extent[axis] as usize, preferred)
        })
        .collect();
    let inside = moment / law.lattice_moment();
    let correction = |cell: &[i32; 3]| {
        let of_layers: f64 = axes.clone().map(|axis| layers[axis][cell[axis] as usize]).product();
        (inside * of_layers) as f32
    };
    lattice.cells.iter().map(correction).collect()
}

/// Root of the mean square rest length of bonds, by stiffness, in spacings; NaN without any.
pub(super) fn bond_length(table: &dyn BondTable, count: usize) -> f64 {
    let (mut squares, mut sum) = (0.0, 0.0);
    (0..count).for_each(|i| {
        table.visit(i, &mut |bond| {
            squares += bond.stiffness * bond.rest * bond.rest;
            sum += bond.stiffness;
        });
    });
    (squares / sum).sqrt()
}
