//! Bonds of a body whose particles lie on a simple cubic lattice.
//!
//! Sites are numbered along the lattice with margins as wide as the horizon, so that one *stencil*, a step from a site
//! to a neighbour, is one shift of the number for all sites. Sixteen consecutive sites are a block; a block and a
//! stencil share a word of sixteen live bits, and that is all that is stored: rest length, direction and stiffness are
//! the stencil's. Positions are kept as displacements from a lattice without strain, in whole quanta: a difference of
//! displacements is exact, and the excess follows from it without cancellation, `l^2 - L^2 = eta·(2 xi + eta)` with the
//! lattice's vector xi and the difference eta of displacements.

use amalgam_particles::DVec3;
use rayon::prelude::*;

use super::law::Law;
use super::stretch::{SERIES_MAX, elongation_share};
use super::table::{Bond, BondTable, Broken, Pass, QUANTA};
use crate::fixed::{operand_scale, quantise, whole};
use crate::wide::{self, Kernel, LANES, Lanes, Machine};

/// Blocks that one task works on.
const CHUNK: usize = 32;

/// A site or block that holds nothing.
const VACANT: u32 = u32::MAX;

/// Sites there may be for each particle: with more, rows are smaller.
const SITES_MAX: usize = 8;

/// A lattice through a body's points.
#[derive(Clone, Debug)]
pub(crate) struct Lattice {
    /// Position of cell (0, 0, 0) [m].
    origin: DVec3,
    /// Steps along the axes [m].
    steps: [DVec3; 3],
    /// Cell of each point, from 0.
    cells: Vec<[i32; 3]>,
    /// Cells along each axis.
    extent: [i32; 3],
}

impl Lattice {
    /// The lattice of this spacing that all points lie on, each on a site of its own, if there is one. The longest
    /// axis comes first, and points that are ordered by [`Self::key`] are in the order of sites.
    pub(crate) fn find(points: &[DVec3], spacing: f64) -> Option<Self> {
        let origin = *points.first()?;
        let mut steps = [DVec3::ZERO; 3];
        let near = |length: f64| (length - spacing).abs() < 1e-6 * spacing;
        let difference = points.iter().map(|&p| p - origin).find(|d| near(d.length()));
        let first = difference.unwrap_or(DVec3::X).normalize();
        let second = points
            .iter()
            .map(|&p| p - origin)
            .find(|d| near(d.length()) && d.dot(first).abs() < 1e-6 * spacing)
            .map_or_else(|| first.any_orthonormal_vector(), |d| (d - first * d.dot(first)).normalize());
        for (step, axis) in steps.iter_mut().zip([first, second, first.cross(second)]) {
            *step = axis * spacing;
        }
        let mut cells = Vec::with_capacity(points.len());
        for &point in points {
            let cell = steps.map(|step| (point - origin).dot(step) / (spacing * spacing));
            let whole = cell.map(f64::round);
            let off = (0..3).any(|axis| (cell[axis] - whole[axis]).abs() > 1e-6);
            if off || whole.iter().any(|c| c.abs() > 1e6) {
                return None;
            }
            cells.push(whole.map(|c| c as i32));
        }
        let lowest: [i32; 3] = std::array::from_fn(|axis| cells.iter().map(|c| c[axis]).min().unwrap_or(0));
        let mut extent = [0; 3];
        for cell in &mut cells {
            for axis in 0..3 {
                cell[axis] -= lowest[axis];
                extent[axis] = extent[axis].max(cell[axis] + 1);
            }
        }
        let corner = (0..3).fold(origin, |corner, axis| corner + steps[axis] * f64::from(lowest[axis]));
        let mut order = [0, 1, 2];
        order.sort_by_key(|&axis| -extent[axis]);
        for cell in &mut cells {
            *cell = order.map(|axis| cell[axis]);
        }
        let extent = order.map(|axis| extent[axis]);
        let this = Self { origin: corner, steps: order.map(|axis| steps[axis]), cells, extent };
        let mut keys: Vec<u64> = (0..points.len()).map(|i| this.key(i)).collect();
        keys.sort_unstable();
        let distinct = keys.windows(2).all(|pair| pair[0] != pair[1]);
        let sites: f64 = extent.iter().map(|&n| f64::from(n)).product();
        (distinct && sites <= (SITES_MAX * points.len() + 4096) as f64).then_some(this)
    }

    /// By what points are ordered.
    pub(crate) fn key(&self, point: usize) -> u64 {
        let [a, b, c] = self.cells[point].map(|c| c as u64);
        a + self.extent[0] as u64 * (b + self.extent[1] as u64 * c)
    }

    /// The same lattice for the points in another order.
    pub(crate) fn reordered(mut self, order: &[u32]) -> Self {
        self.cells = order.iter().map(|&i| self.cells[i as usize]).collect();
        self
    }
}

/// A step from a site to a neighbour.
#[derive(Clone, Copy, Debug)]
struct Stencil {
    shift: isize,
    /// Vector to the neighbour in the lattice, in quanta.
    offset: [f32; 3],
    /// Twice that.
    twice: [f32; 3],
    /// Square of its length, in quanta, and the inverse.
    rest_square: f32,
    inverse_square: f32,
    /// Stiffness, of the body's unit.
    stiffness: f32,
}

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
    operand: [Vec<i32>; 3],
    force: Vec<BlockForce>,
    diagonal: Vec<[Lanes; 6]>,
    image: Vec<[Lanes; 3]>,
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
        let zero = || [vec![0; total], vec![0; total], vec![0; total]];
        let mut this = Self {
            per_quantum: QUANTA / law.spacing,
            ideal: ideal(lattice),
            slot,
            live: vec![0; block_site.len() * stencils.len()],
            force: vec![BlockForce::default(); block_site.len()],
            diagonal: Vec::new(),
            image: Vec::new(),
            block_site,
            particle,
            stencils,
            half_gain: Vec::new(),
            displacement: zero(),
            operand: zero(),
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
                stencils.push(Stencil {
                    shift: i * strides[0] + j * strides[1] + k * strides[2],
                    offset: (vector * (QUANTA / law.spacing)).to_array().map(|x| x as f32),
                    twice: (vector * (2.0 * QUANTA / law.spacing)).to_array().map(|x| x as f32),
                    rest_square: (length * QUANTA).powi(2) as f32,
                    inverse_square: (length * QUANTA).powi(-2) as f32,
                    stiffness: (law.volume_share(rest) / length) as f32,
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
        let stencils = self.stencils.len();
        (0..self.block_site.len())
            .into_par_iter()
            .with_min_len(CHUNK)
            .map(|block| {
                let live = &self.live[block * stencils..(block + 1) * stencils];
                let geometry = self.geometry(self.block_site[block] as usize);
                match (self.half_gain.is_empty(), self.force[block].is_far()) {
                    (true, false) => wide::run(DiagonalKernel::<false, false> { geometry, live }),
                    (true, true) => wide::run(DiagonalKernel::<false, true> { geometry, live }),
                    (false, false) => wide::run(DiagonalKernel::<true, false> { geometry, live }),
                    (false, true) => wide::run(DiagonalKernel::<true, true> { geometry, live }),
                }
            })
            .collect_into_vec(&mut diagonal);
        self.diagonal = diagonal;
    }

    fn multiply(&mut self, u: &[DVec3]) -> f64 {
        let largest = u.par_iter().with_min_len(4096).map(|u| u.abs().max_element()).reduce(|| 0.0, f64::max);
        let scale = operand_scale(largest);
        let mut operand = std::mem::take(&mut self.operand);
        self.scatter(&mut operand, |i| (u[i] * scale).to_array().map(whole));
        self.operand = operand;
        let mut image = std::mem::take(&mut self.image);
        let stencils = self.stencils.len();
        (0..self.block_site.len())
            .into_par_iter()
            .with_min_len(CHUNK)
            .map(|block| {
                let live = &self.live[block * stencils..(block + 1) * stencils];
                let geometry = self.geometry(self.block_site[block] as usize);
                let operand = self.operand.each_ref().map(Vec::as_slice);
                match (self.half_gain.is_empty(), self.force[block].is_far()) {
                    (true, false) => wide::run(ProductKernel::<false, false> { geometry, live, operand }),
                    (true, true) => wide::run(ProductKernel::<false, true> { geometry, live, operand }),
                    (false, false) => wide::run(ProductKernel::<true, false> { geometry, live, operand }),
                    (false, true) => wide::run(ProductKernel::<true, true> { geometry, live, operand }),
                }
            })
            .collect_into_vec(&mut image);
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
        let per_site = 6 * 4 + 4 + if self.half_gain.is_empty() { 0 } else { 4 };
        let per_block = size_of::<BlockForce>() + size_of::<[Lanes; 9]>() + 4;
        let per_particle = 24 + 4;
        self.live.len() * 2
            + self.particle.len() * per_site
            + self.block_site.len() * per_block
            + self.slot.len() * per_particle
    }
}

impl LatticeTable {
    /// Writes `value(i)` of every particle to its site, in parallel over blocks.
    fn scatter(&self, columns: &mut [Vec<i32>; 3], value: impl Fn(usize) -> [i32; 3] + Sync) {
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
            wide::run(ForceKernel::<true, false> { geometry, live })
        } else {
            wide::run(ForceKernel::<false, false> { geometry, live })
        };
        match (near.is_far(), gain) {
            (false, _) => near,
            (true, false) => wide::run(ForceKernel::<false, true> { geometry, live }),
            (true, true) => wide::run(ForceKernel::<true, true> { geometry, live }),
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

impl Stencil {
    /// The excess l^2/L^2 - 1 for a difference of displacements.
    #[inline(always)]
    fn excess(&self, eta: [i32; 3]) -> f32 {
        let [x, y, z] = [eta[0] as f32, eta[1] as f32, eta[2] as f32];
        let [two_x, two_y, two_z] = self.twice;
        let difference = z.mul_add(two_z + z, y.mul_add(two_y + y, x * (two_x + x)));
        difference * self.inverse_square
    }
}

/// What the kernels share: a block, its surroundings and their displacements.
#[derive(Clone, Copy)]
struct Geometry<'a> {
    site: usize,
    stencils: &'a [Stencil],
    displacement: [&'a [i32]; 3],
    half_gain: &'a [f32],
}

/// Sixteen values from `at` on.
#[inline(always)]
fn lanes<T>(column: &[T], at: usize) -> &[T; LANES] {
    match column[at..].first_chunk() {
        Some(lanes) => lanes,
        None => panic!("a block lies within the sites"),
    }
}

/// Half of a gain of 1 in all lanes.
const NO_GAIN: Lanes = [0.5; LANES];

impl<'a> Geometry<'a> {
    #[inline(always)]
    fn at(columns: [&'a [i32]; 3], site: usize) -> [&'a [i32; LANES]; 3] {
        [lanes(columns[0], site), lanes(columns[1], site), lanes(columns[2], site)]
    }

    #[inline(always)]
    fn gain<const GAIN: bool>(&self, site: usize) -> &'a Lanes {
        if GAIN { lanes(self.half_gain, site) } else { &NO_GAIN }
    }
}

/// Forces on a block.
#[derive(Clone, Copy, Debug, Default)]
struct BlockForce {
    force: [Lanes; 3],
    /// Least excess of each particle's bonds, infinite without any.
    least: Lanes,
    /// Least and largest of all.
    range: [f32; 2],
    energy: f32,
}

impl BlockForce {
    /// Whether a bond is stretched or compressed so far that the series does not hold.
    fn is_far(&self) -> bool {
        self.range[0] < -SERIES_MAX || self.range[1] > SERIES_MAX
    }
}

struct ForceKernel<'a, const GAIN: bool, const FAR: bool> {
    geometry: Geometry<'a>,
    live: &'a [u16],
}

impl<const GAIN: bool, const FAR: bool> Kernel for ForceKernel<'_, GAIN, FAR> {
    type Output = BlockForce;

    #[inline(always)]
    fn run<M: Machine>(self) -> BlockForce {
        let Geometry { site, stencils, displacement, .. } = self.geometry;
        let own = Geometry::at(displacement, site);
        let own_gain = self.geometry.gain::<GAIN>(site);
        let mut force = [[0.0f32; LANES]; 3];
        let (mut least, mut largest) = ([f32::INFINITY; LANES], [0.0f32; LANES]);
        let mut energy = [0.0f32; LANES];
        for (stencil, &live) in stencils.iter().zip(self.live) {
            if live == 0 {
                continue;
            }
            let there = site.wrapping_add_signed(stencil.shift);
            let other = Geometry::at(displacement, there);
            let gain = self.geometry.gain::<GAIN>(there);
            for lane in 0..LANES {
                let on = live & (1 << lane) != 0;
                let eta = [
                    other[0][lane].wrapping_sub(own[0][lane]),
                    other[1][lane].wrapping_sub(own[1][lane]),
                    other[2][lane].wrapping_sub(own[2][lane]),
                ];
                let excess = stencil.excess(eta);
                let share = elongation_share::<FAR>(excess);
                let pull = stencil.stiffness * (own_gain[lane] + gain[lane]) * share;
                let pull = if on { pull } else { 0.0 };
                force[0][lane] = pull.mul_add(stencil.offset[0] + eta[0] as f32, force[0][lane]);
                force[1][lane] = pull.mul_add(stencil.offset[1] + eta[1] as f32, force[1][lane]);
                force[2][lane] = pull.mul_add(stencil.offset[2] + eta[2] as f32, force[2][lane]);
                let square = excess.mul_add(stencil.rest_square, stencil.rest_square);
                energy[lane] = (pull * share).mul_add(square, energy[lane]);
                least[lane] = if on & (excess < least[lane]) { excess } else { least[lane] };
                largest[lane] = if on & (excess > largest[lane]) { excess } else { largest[lane] };
            }
        }
        let (bottom, top) = wide::range(&least, &largest);
        // Each bond is seen from both ends: a quarter of k e^2 from each.
        BlockForce { force, least, range: [bottom, top], energy: 0.25 * wide::total(&energy) }
    }
}

struct DiagonalKernel<'a, const GAIN: bool, const FAR: bool> {
    geometry: Geometry<'a>,
    live: &'a [u16],
}

impl<const GAIN: bool, const FAR: bool> Kernel for DiagonalKernel<'_, GAIN, FAR> {
    type Output = [Lanes; 6];

    #[inline(always)]
    fn run<M: Machine>(self) -> [Lanes; 6] {
        let Geometry { site, stencils, displacement, .. } = self.geometry;
        let own = Geometry::at(displacement, site);
        let own_gain = self.geometry.gain::<GAIN>(site);
        let mut sum = [[0.0f32; LANES]; 6];
        for (stencil, &live) in stencils.iter().zip(self.live) {
            if live == 0 {
                continue;
            }
            let there = site.wrapping_add_signed(stencil.shift);
            let other = Geometry::at(displacement, there);
            let gain = self.geometry.gain::<GAIN>(there);
            for lane in 0..LANES {
                let eta = [
                    other[0][lane].wrapping_sub(own[0][lane]),
                    other[1][lane].wrapping_sub(own[1][lane]),
                    other[2][lane].wrapping_sub(own[2][lane]),
                ];
                let stiffness = stencil.stiffness * (own_gain[lane] + gain[lane]);
                let stiffness = if live & (1 << lane) != 0 { stiffness } else { 0.0 };
                let (across, along) = stencil.linearised::<FAR>(eta, stiffness);
                let d = [
                    stencil.offset[0] + eta[0] as f32,
                    stencil.offset[1] + eta[1] as f32,
                    stencil.offset[2] + eta[2] as f32,
                ];
                sum[0][lane] = (along * d[0]).mul_add(d[0], sum[0][lane]) + across;
                sum[1][lane] = (along * d[1]).mul_add(d[1], sum[1][lane]) + across;
                sum[2][lane] = (along * d[2]).mul_add(d[2], sum[2][lane]) + across;
                sum[3][lane] = (along * d[1]).mul_add(d[2], sum[3][lane]);
                sum[4][lane] = (along * d[0]).mul_add(d[2], sum[4][lane]);
                sum[5][lane] = (along * d[0]).mul_add(d[1], sum[5][lane]);
            }
        }
        sum
    }
}

impl Stencil {
    /// The stiffness of a bond across it, k (1 - L/l) and not negative, and what it has along it above that, divided by
    /// the square of its length.
    #[inline(always)]
    fn linearised<const FAR: bool>(&self, eta: [i32; 3], stiffness: f32) -> (f32, f32) {
        let share = elongation_share::<FAR>(self.excess(eta));
        let across = stiffness * if share > 0.0 { share } else { 0.0 };
        // L^2/l^2 = (1 - share)^2.
        let ratio = 1.0 - share;
        (across, (stiffness - across) * (ratio * ratio * self.inverse_square))
    }
}

struct ProductKernel<'a, const GAIN: bool, const FAR: bool> {
    geometry: Geometry<'a>,
    live: &'a [u16],
    operand: [&'a [i32]; 3],
}

impl<const GAIN: bool, const FAR: bool> Kernel for ProductKernel<'_, GAIN, FAR> {
    type Output = [Lanes; 3];

    #[inline(always)]
    fn run<M: Machine>(self) -> [Lanes; 3] {
        let Geometry { site, stencils, displacement, .. } = self.geometry;
        let own = Geometry::at(displacement, site);
        let own_u = Geometry::at(self.operand, site);
        let own_gain = self.geometry.gain::<GAIN>(site);
        let mut image = [[0.0f32; LANES]; 3];
        for (stencil, &live) in stencils.iter().zip(self.live) {
            if live == 0 {
                continue;
            }
            let there = site.wrapping_add_signed(stencil.shift);
            let other = Geometry::at(displacement, there);
            let other_u = Geometry::at(self.operand, there);
            let gain = self.geometry.gain::<GAIN>(there);
            for lane in 0..LANES {
                let eta = [
                    other[0][lane].wrapping_sub(own[0][lane]),
                    other[1][lane].wrapping_sub(own[1][lane]),
                    other[2][lane].wrapping_sub(own[2][lane]),
                ];
                let u = [
                    own_u[0][lane].wrapping_sub(other_u[0][lane]) as f32,
                    own_u[1][lane].wrapping_sub(other_u[1][lane]) as f32,
                    own_u[2][lane].wrapping_sub(other_u[2][lane]) as f32,
                ];
                let stiffness = stencil.stiffness * (own_gain[lane] + gain[lane]);
                let stiffness = if live & (1 << lane) != 0 { stiffness } else { 0.0 };
                let (across, along) = stencil.linearised::<FAR>(eta, stiffness);
                let d = [
                    stencil.offset[0] + eta[0] as f32,
                    stencil.offset[1] + eta[1] as f32,
                    stencil.offset[2] + eta[2] as f32,
                ];
                let along = along * d[2].mul_add(u[2], d[1].mul_add(u[1], d[0] * u[0]));
                image[0][lane] = along.mul_add(d[0], across.mul_add(u[0], image[0][lane]));
                image[1][lane] = along.mul_add(d[1], across.mul_add(u[1], image[1][lane]));
                image[2][lane] = along.mul_add(d[2], across.mul_add(u[2], image[2][lane]));
            }
        }
        image
    }
}
