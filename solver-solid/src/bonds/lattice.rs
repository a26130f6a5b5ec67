//! Bonds of a body whose particles lie on a simple cubic lattice.
//!
//! Sites are numbered along the lattice with margins as wide as the horizon, so that one *stencil*, a step from a site
//! to a neighbour, is one shift of the number for all sites. Sixteen consecutive sites are a block; a block and a
//! stencil share a word of sixteen live bits, and that is all that is stored: rest length, direction and stiffness are
//! the stencil's. Positions are kept as displacements from a lattice without strain, in whole quanta: a difference of
//! displacements is exact, and the excess follows from it without cancellation, `l^2 - L^2 = eta·(2 xi + eta)` with the
//! lattice's vector xi and the difference eta of displacements.

use std::ops::Range;

use amalgam_particles::DVec3;
use amalgam_particles::lanes::{self, LANES, Sixteen};
use rayon::prelude::*;

use super::cubic::Lattice;
use super::lattice_kernels::{
    ACROSS, ALONG, BlockForce, Coefficient, DiagonalKernel, ForceKernel, Geometry, ProductKernel,
    RoundedKernel, Stencil,
};
use super::law::Law;
use super::stretch::elongation_share;
use super::table::{Bond, BondTable, Broken, Pass, QUANTA, scale_of};
use crate::fixed::{quantise, whole};
use crate::vectors::{Slice, Vector};

/// Blocks that one task works on.
const CHUNK: usize = 32;

/// A site or block that holds nothing.
const VACANT: u32 = u32::MAX;

/// See the module.
pub(crate) struct LatticeTable {
    /// Quanta in a metre.
    per_quantum: f64,
    /// Where the lattice without strain has each particle [m].
    ideal: Vec<DVec3>,
    /// Of each particle: its block, counted among those that hold any, times 16, plus its lane.
    slot: Vec<u32>,
    /// First site of each block that holds any particle.
    block_site: Vec<u32>,
    /// Particle at each site.
    particle: Vec<u32>,
    stencils: Vec<Stencil>,
    live: Vec<u16>,
    /// Half of each site's gain, if any is not 1.
    half_gain: Vec<f32>,
    displacement: [Vec<i32>; 3],
    /// Against the particle in the middle of the order, in spacings, for rounded products.
    position: [Vec<f32>; 3],
    operand: [Vec<i32>; 3],
    force: Vec<BlockForce>,
    diagonal: Vec<[Sixteen; 6]>,
    /// Beside each live word, once the operator is wanted.
    coefficient: Vec<[Coefficient; LANES]>,
    image: Vec<[Sixteen; 3]>,
}

impl LatticeTable {
    /// All bonds of a body. Points must be in the order of [`Lattice::key`].
    pub(crate) fn new(lattice: &Lattice, law: &Law) -> Self {
        let reach = law.reach() / law.spacing;
        let margin = lattice.extent.map(|cells| (reach.floor() as i32).min(cells - 1) as usize);
        let row = lattice.extent[0] as usize + margin[0];
        let layer = row * (lattice.extent[1] as usize + margin[1]);
        let lead = (margin[0] + row * margin[1] + layer * margin[2]).next_multiple_of(LANES);
        let site =
            |cell: [i32; 3]| lead + cell[0] as usize + row * cell[1] as usize + layer * cell[2] as usize;
        let sites: Vec<usize> = lattice.cells.iter().map(|&cell| site(cell)).collect();
        let total = sites.last().map_or(0, |last| last / LANES * LANES + LANES) + lead + LANES;
        let mut particle = vec![VACANT; total];
        let (mut slot, mut block_site) = (Vec::with_capacity(sites.len()), Vec::new());
        for (i, &site) in sites.iter().enumerate() {
            particle[site] = i as u32;
            let first = (site / LANES * LANES) as u32;
            if block_site.last() != Some(&first) {
                block_site.push(first);
            }
            slot.push(((block_site.len() - 1) * LANES + site % LANES) as u32);
        }
        let strides = [1, row as isize, layer as isize];
        let stencils = stencils(lattice, law, margin, strides);
        fn zero<T: Copy + Default>(total: usize) -> [Vec<T>; 3] {
            [(); 3].map(|()| vec![T::default(); total])
        }
        let mut this = Self {
            per_quantum: QUANTA / law.spacing,
            ideal: ideal(lattice),
            slot,
            live: vec![0; block_site.len() * stencils.len()],
            force: vec![BlockForce::default(); block_site.len()],
            diagonal: Vec::new(),
            coefficient: Vec::new(),
            image: Vec::new(),
            block_site,
            particle,
            stencils,
            half_gain: Vec::new(),
            displacement: zero(total),
            position: zero(total),
            operand: zero(total),
        };
        this.join_all();
        this
    }

    /// Sets the bit of every bond whose ends both hold a particle.
    fn join_all(&mut self) {
        let (particle, stencils) = (&self.particle, &self.stencils);
        self.live.par_chunks_mut(stencils.len().max(1)).zip(&self.block_site).for_each(|(live, &site)| {
            for (live, stencil) in live.iter_mut().zip(stencils) {
                for lane in 0..LANES {
                    let own = site as usize + lane;
                    if particle[own] != VACANT && particle[own.wrapping_add_signed(stencil.shift)] != VACANT {
                        *live |= 1 << lane;
                    }
                }
            }
        });
    }

    fn site(&self, i: usize) -> usize {
        let slot = self.slot[i] as usize;
        self.block_site[slot / LANES] as usize + slot % LANES
    }

    /// Stiffness of a bond from `site`, of the body's unit.
    fn stiffness(&self, stencil: &Stencil, site: usize) -> f32 {
        match self.half_gain.as_slice() {
            [] => stencil.stiffness,
            gain => stencil.stiffness * (gain[site] + gain[site.wrapping_add_signed(stencil.shift)]),
        }
    }

    fn geometry(&self, site: usize) -> Geometry<'_> {
        Geometry {
            site,
            stencils: &self.stencils,
            displacement: self.displacement.each_ref().map(Vec::as_slice),
            half_gain: &self.half_gain,
        }
    }
}

/// Positions of the lattice's points [m].
fn ideal(lattice: &Lattice) -> Vec<DVec3> {
    let cells = lattice.cells.par_iter().with_min_len(4096);
    cells
        .map(|cell| (0..3).fold(lattice.origin, |at, axis| at + lattice.steps[axis] * f64::from(cell[axis])))
        .collect()
}

fn stencils(lattice: &Lattice, law: &Law, margin: [usize; 3], strides: [isize; 3]) -> Vec<Stencil> {
    let reach = law.reach() / law.spacing;
    let [a, b, c] = margin.map(|m| m as isize);
    let mut stencils = Vec::new();
    for k in -c..=c {
        for j in -b..=b {
            for i in -a..=a {
                let length = ((i * i + j * j + k * k) as f64).sqrt();
                if length == 0.0 || length > reach {
                    continue;
                }
                let vector =
                    lattice.steps[0] * i as f64 + lattice.steps[1] * j as f64 + lattice.steps[2] * k as f64;
                let rest = length * law.spacing;
                let stiffness = law.volume_share(rest) / length;
                stencils.push(Stencil {
                    shift: i * strides[0] + j * strides[1] + k * strides[2],
                    offset: (vector * (QUANTA / law.spacing)).to_array().map(|x| x as f32),
                    twice: (vector * (2.0 * QUANTA / law.spacing)).to_array().map(|x| x as f32),
                    rest_square: (length * QUANTA).powi(2) as f32,
                    inverse_square: (length * QUANTA).powi(-2) as f32,
                    stiffness: stiffness as f32,
                    across_part: (stiffness / f64::from(ACROSS)) as f32,
                    along_part: (stiffness / (length * length) / f64::from(ALONG)) as f32,
                });
            }
        }
    }
    stencils
}

impl BondTable for LatticeTable {
    fn load_positions(&mut self, position: &[DVec3]) {
        let mut displacement = std::mem::take(&mut self.displacement);
        self.scatter(&mut displacement, |i| {
            (position[i] - self.ideal[i]).to_array().map(|length| quantise(length, self.per_quantum))
        });
        self.displacement = displacement;
        let Some(&origin) = position.get(position.len() / 2) else { return };
        let per_spacing = self.per_quantum / QUANTA;
        let mut rounded = std::mem::take(&mut self.position);
        self.scatter(&mut rounded, |i| {
            ((position[i] - origin) * per_spacing).to_array().map(|length| length as f32)
        });
        self.position = rounded;
    }

    fn forces(&mut self, thresholds: Option<(&[f32], f32)>) -> Pass {
        let mut live = std::mem::take(&mut self.live);
        let mut force = std::mem::take(&mut self.force);
        let stencils = self.stencils.len();
        let passes: Vec<Pass> = force
            .par_chunks_mut(CHUNK)
            .zip(live.par_chunks_mut(CHUNK * stencils.max(1)))
            .zip(self.block_site.par_chunks(CHUNK))
            .map(|((force, live), sites)| {
                let mut pass = Pass::default();
                for ((force, live), &site) in force.iter_mut().zip(live.chunks_mut(stencils)).zip(sites) {
                    *force = self.block_force(site as usize, live);
                    if let Some((thresholds, limit)) = thresholds
                        && force.range[1] > limit
                        && self.break_bonds(site as usize, live, thresholds, &mut pass.broken)
                    {
                        *force = self.block_force(site as usize, live);
                    }
                    pass.energy += f64::from(force.energy);
                }
                pass
            })
            .collect();
        (self.live, self.force) = (live, force);
        passes.into_iter().fold(Pass::default(), |mut total, mut pass| {
            total.energy += pass.energy;
            total.broken.append(&mut pass.broken);
            total
        })
    }

    fn find_blocks(&mut self) {
        let mut diagonal = std::mem::take(&mut self.diagonal);
        let mut all = std::mem::take(&mut self.coefficient);
        all.resize(self.live.len(), [0; LANES]);
        let stencils = self.stencils.len().max(1);
        let blocks = all.par_chunks_mut(stencils).zip(self.live.par_chunks(stencils));
        let blocks = blocks.zip(&self.block_site).zip(&self.force).with_min_len(CHUNK);
        blocks
            .map(|(((coefficient, live), &site), force)| {
                let geometry = self.geometry(site as usize);
                match (!self.half_gain.is_empty(), force.is_far()) {
                    (false, false) => {
                        lanes::run(DiagonalKernel::<false, false> { geometry, live, coefficient })
                    }
                    (false, true) => {
                        lanes::run(DiagonalKernel::<false, true> { geometry, live, coefficient })
                    }
                    (true, false) => {
                        lanes::run(DiagonalKernel::<true, false> { geometry, live, coefficient })
                    }
                    (true, true) => lanes::run(DiagonalKernel::<true, true> { geometry, live, coefficient }),
                }
            })
            .collect_into_vec(&mut diagonal);
        (self.diagonal, self.coefficient) = (diagonal, all);
    }

    fn multiply(&mut self, u: Vector<'_>, first: usize, wanted: Option<&[bool]>) -> f64 {
        let mut operand = std::mem::take(&mut self.operand);
        let (scale, rounded) = match u {
            Vector::Exact(u) => {
                let own = &u[first..first + self.slot.len()];
                let scale = scale_of(own);
                self.scatter(&mut operand, |i| (own[i] * scale).to_array().map(whole));
                (scale, false)
            }
            Vector::Rounded(u) => {
                self.scatter(&mut operand, |i| u.get(first + i).map(|u| u.to_bits() as i32));
                (1.0, true)
            }
        };
        self.operand = operand;
        let mut image = std::mem::take(&mut self.image);
        let stencils = self.stencils.len();
        image.resize(self.block_site.len(), Default::default());
        image.par_iter_mut().enumerate().with_min_len(CHUNK).for_each(|(block, image)| {
            let site = self.block_site[block] as usize;
            let is_wanted = |wanted: &[bool]| {
                let particles = self.particle[site..site + LANES].iter().filter(|&&i| i != VACANT);
                particles.into_iter().any(|&i| wanted[(first + i as usize) / LANES])
            };
            if !wanted.is_none_or(is_wanted) {
                return;
            }
            let live = &self.live[block * stencils..(block + 1) * stencils];
            let geometry = self.geometry(site);
            let operand = self.operand.each_ref().map(Vec::as_slice);
            let (gain, far) = (!self.half_gain.is_empty(), self.force[block].is_far());
            macro_rules! run {
                ($gain:literal, $far:literal) => {
                    if rounded {
                        let coefficient = &self.coefficient[block * stencils..(block + 1) * stencils];
                        let position = self.position.each_ref().map(Vec::as_slice);
                        lanes::run(RoundedKernel::<$gain, $far> {
                            geometry,
                            live,
                            coefficient,
                            position,
                            operand,
                        })
                    } else {
                        lanes::run(ProductKernel::<$gain, $far> { geometry, live, operand })
                    }
                };
            }
            *image = match (gain, far) {
                (false, false) => run!(false, false),
                (false, true) => run!(false, true),
                (true, false) => run!(true, false),
                (true, true) => run!(true, true),
            };
        });
        self.image = image;
        1.0 / scale
    }

    fn force(&self, i: usize) -> ([f32; 3], f32) {
        let slot = self.slot[i] as usize;
        let block = &self.force[slot / LANES];
        (block.force.map(|lanes| lanes[slot % LANES]), block.least[slot % LANES])
    }

    fn block(&self, i: usize) -> [f32; 6] {
        let slot = self.slot[i] as usize;
        self.diagonal[slot / LANES].map(|lanes| lanes[slot % LANES])
    }

    fn product(&self, i: usize) -> [f32; 3] {
        let slot = self.slot[i] as usize;
        self.image[slot / LANES].map(|lanes| lanes[slot % LANES])
    }

    fn add_products(&self, rows: Range<usize>, unit: f32, image: &mut [Slice], at: usize) {
        for (i, at) in rows.zip(at..) {
            let slot = self.slot[i] as usize;
            let product = &self.image[slot / LANES];
            for axis in 0..3 {
                image[at / LANES][axis][at % LANES] += product[axis][slot % LANES] * unit;
            }
        }
    }

    fn joined(&self, i: usize, j: usize) -> bool {
        let (slot, shift) = (self.slot[i] as usize, self.site(j) as isize - self.site(i) as isize);
        // Stencils are in the order of their shifts; margins keep two sites apart that are no step from each other.
        let step = self.stencils.binary_search_by_key(&shift, |stencil| stencil.shift);
        let live = |step: usize| self.live[slot / LANES * self.stencils.len() + step];
        step.is_ok_and(|step| live(step) >> (slot % LANES) & 1 != 0)
    }

    fn visit(&self, i: usize, visit: &mut dyn FnMut(Bond)) {
        let (slot, site) = (self.slot[i] as usize, self.site(i));
        let first = slot / LANES * self.stencils.len();
        for (stencil, live) in self.stencils.iter().zip(&self.live[first..]) {
            if live >> (slot % LANES) & 1 != 0 {
                visit(Bond {
                    neighbour: self.particle[site.wrapping_add_signed(stencil.shift)],
                    rest: f64::from(stencil.rest_square).sqrt() / QUANTA,
                    stiffness: f64::from(self.stiffness(stencil, site)),
                });
            }
        }
    }

    fn cut(&mut self, i: usize, cut: &dyn Fn(u32) -> bool) {
        let (slot, site) = (self.slot[i] as usize, self.site(i));
        let first = slot / LANES * self.stencils.len();
        for (stencil, live) in self.stencils.iter().zip(&mut self.live[first..]) {
            let bit = 1 << (slot % LANES);
            if *live & bit != 0 && cut(self.particle[site.wrapping_add_signed(stencil.shift)]) {
                *live &= !bit;
            }
        }
    }

    fn set_gains(&mut self, gains: &[f32]) {
        self.half_gain = vec![0.5; self.particle.len()];
        for (i, gain) in gains.iter().enumerate() {
            let site = self.site(i);
            self.half_gain[site] = 0.5 * gain;
        }
    }

    fn live(&self) -> &[u16] {
        &self.live
    }

    fn set_live(&mut self, live: &[u16]) {
        self.live.copy_from_slice(live);
    }

    fn bytes(&self) -> usize {
        let per_site = 9 * 4 + 4 + if self.half_gain.is_empty() { 0 } else { 4 };
        let per_block = size_of::<BlockForce>() + size_of::<[Sixteen; 9]>() + 4;
        let per_particle = 24 + 4;
        self.live.len() * 2
            + self.coefficient.len() * size_of::<[Coefficient; LANES]>()
            + self.particle.len() * per_site
            + self.block_site.len() * per_block
            + self.slot.len() * per_particle
    }
}

impl LatticeTable {
    /// Writes `value(i)` of every particle to its site, in parallel over blocks.
    fn scatter<T: Send>(&self, columns: &mut [Vec<T>; 3], value: impl Fn(usize) -> [T; 3] + Sync) {
        const SITES: usize = 64 * LANES;
        let [x, y, z] = columns;
        let chunks = x.par_chunks_mut(SITES).zip(y.par_chunks_mut(SITES)).zip(z.par_chunks_mut(SITES));
        chunks.zip(self.particle.par_chunks(SITES)).for_each(|(((x, y), z), particle)| {
            for (at, &i) in particle.iter().enumerate() {
                if i != VACANT {
                    [x[at], y[at], z[at]] = value(i as usize);
                }
            }
        });
    }

    fn block_force(&self, site: usize, live: &[u16]) -> BlockForce {
        let geometry = self.geometry(site);
        let gain = !self.half_gain.is_empty();
        let near = if gain {
            lanes::run(ForceKernel::<true, false> { geometry, live })
        } else {
            lanes::run(ForceKernel::<false, false> { geometry, live })
        };
        match (near.is_far(), gain) {
            (false, _) => near,
            (true, false) => lanes::run(ForceKernel::<false, true> { geometry, live }),
            (true, true) => lanes::run(ForceKernel::<true, true> { geometry, live }),
        }
    }

    /// Breaks bonds of a block whose excess is above the threshold of either end; whether there was any. With the
    /// arithmetic of the kernel, so that both ends of a bond decide alike.
    fn break_bonds(
        &self,
        site: usize,
        live: &mut [u16],
        thresholds: &[f32],
        broken: &mut Vec<Broken>,
    ) -> bool {
        let before = broken.len();
        let mut any = false;
        for lane in 0..LANES {
            let own = self.particle[site + lane];
            for (stencil, live) in self.stencils.iter().zip(live.iter_mut()) {
                if *live >> lane & 1 == 0 {
                    continue;
                }
                let there = (site + lane).wrapping_add_signed(stencil.shift);
                let other = self.particle[there];
                let displacement = self.displacement.each_ref();
                let eta: [i32; 3] = std::array::from_fn(|axis| {
                    displacement[axis][there].wrapping_sub(displacement[axis][site + lane])
                });
                let excess = stencil.excess(eta);
                if excess > thresholds[own as usize].min(thresholds[other as usize]) {
                    *live &= !(1 << lane);
                    any = true;
                    if own < other {
                        let pull = self.stiffness(stencil, site + lane) * elongation_share::<true>(excess);
                        let d: [f32; 3] = std::array::from_fn(|axis| stencil.offset[axis] + eta[axis] as f32);
                        broken.push(Broken { ends: [own, other], pull: d.map(|d| pull * d) });
                    }
                }
            }
        }
        broken[before..].sort_unstable_by_key(|bond| bond.ends);
        any
    }
}

#[cfg(test)]
mod tests {
    use amalgam_particles::lanes::Width;
    use amalgam_particles::random::uniform_f64;

    use super::super::law::Model;
    use super::*;

    fn table(gain: bool) -> LatticeTable {
        let points: Vec<DVec3> = (0..7 * 6 * 5)
            .map(|i| DVec3::new(f64::from(i % 7), f64::from(i / 7 % 6), f64::from(i / 42)))
            .collect();
        let lattice = Lattice::find(&points, 1.0).expect("a lattice");
        let mut law = Law {
            spacing: 1.0,
            horizon: 3.015,
            volume: 1.0,
            micromodulus: 1.0,
            critical_stretch: f64::INFINITY,
            threshold_rise: 0.0,
            strength_scatter: 0.0,
            volume_correction: true,
            surface_correction: gain,
            damping_time: 0.0,
            model: Model::Solid,
        };
        law.calibrate(Model::Solid.moment(law.horizon, 1.0), None);
        let mut table = LatticeTable::new(&lattice, &law);
        if gain {
            table.set_gains(&(0..points.len()).map(|i| 1.0 + 0.01 * i as f32).collect::<Vec<_>>());
        }
        let shaken = |i: usize, x: &DVec3| {
            *x + DVec3::from_array([0, 1, 2].map(|axis| 0.2 * uniform_f64(&[i as u64, axis])))
        };
        let position: Vec<DVec3> = points.iter().enumerate().map(|(i, x)| shaken(i, x)).collect();
        table.load_positions(&position);
        table.forces(None);
        table.multiply(Vector::Exact(&position), 0, None);
        table
    }

    /// Forces, diagonal and product of every block, as bits.
    fn bits(table: &LatticeTable, width: &Width) -> Vec<u32> {
        let mut bits = Vec::new();
        for (block, &site) in table.block_site.iter().enumerate() {
            let geometry = table.geometry(site as usize);
            let live = &table.live[block * table.stencils.len()..(block + 1) * table.stencils.len()];
            let operand = table.operand.each_ref().map(Vec::as_slice);
            let force = width.run(ForceKernel::<true, true> { geometry, live });
            let mut coefficient = vec![[0; LANES]; live.len()];
            let diagonal =
                width.run(DiagonalKernel::<true, true> { geometry, live, coefficient: &mut coefficient });
            let coefficient = coefficient.as_slice();
            let product = width.run(ProductKernel::<true, true> { geometry, live, operand });
            // Exponents and mantissas as they come, but no NaN.
            let operand = operand.map(|u| u.iter().map(|u| u & 0x4fff_ffff).collect::<Vec<_>>());
            let operand = operand.each_ref().map(Vec::as_slice);
            let position = table.position.each_ref().map(Vec::as_slice);
            let rounded =
                width.run(RoundedKernel::<true, true> { geometry, live, coefficient, position, operand });
            let near =
                width.run(RoundedKernel::<true, false> { geometry, live, coefficient, position, operand });
            let all = force.force.iter().chain(&diagonal).chain(&product).chain(&rounded).chain(&near);
            let all = all.flatten();
            bits.extend(coefficient.iter().flatten().copied());
            bits.extend(all.chain([&force.energy]).map(|value| value.to_bits()));
        }
        bits
    }

    #[test]
    fn every_width_gives_the_same_bits() {
        let table = table(true);
        let widths = Width::supported();
        let plain = bits(&table, &widths[0]);
        assert!(plain.iter().any(|&bits| bits != 0));
        for width in &widths[1..] {
            assert!(bits(&table, width) == plain, "{width:?}");
        }
    }

    #[test]
    fn a_bond_pulls_both_ends_alike() {
        let table = table(false);
        for i in 0..table.slot.len() {
            table.visit(i, &mut |bond| {
                let mut back = 0;
                table.visit(bond.neighbour as usize, &mut |other| {
                    if other.neighbour as usize == i {
                        back += 1;
                        assert_eq!((other.rest, other.stiffness), (bond.rest, bond.stiffness));
                    }
                });
                assert_eq!(back, 1);
            });
            for j in 0..table.slot.len() {
                let mut joined = false;
                table.visit(i, &mut |bond| joined |= bond.neighbour as usize == j);
                assert_eq!(table.joined(i, j), joined, "{i} {j}");
            }
        }
        // What is left of the sum of all forces is the rounding of each particle's own sum.
        let total = (0..table.slot.len()).fold([0.0; 3], |total: [f64; 3], i| {
            let force = table.force(i).0;
            std::array::from_fn(|axis| total[axis] + f64::from(force[axis]))
        });
        let scale: f64 = (0..table.slot.len()).map(|i| f64::from(table.force(i).0[0].abs())).sum();
        assert!(total.iter().all(|sum| sum.abs() < 1e-6 * scale), "{total:?} of {scale}");
    }
}
