//! Sets of occupied cells: participants tell each other where their particles are, and nothing else about
//! them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use glam::{DVec3, IVec3};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::reduce;

/// A lattice of cubic cells that covers all space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lattice {
    /// A corner of cell (0, 0, 0) [m].
    pub origin: DVec3,
    /// Edge of a cell [m].
    pub cell_size: f64,
}

/// Rule by which a particle occupies cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// Only the cell that holds the particle's centre.
    Centre,
    /// Every cell that the bounding box of the particle's collision sphere touches. The sphere counts as
    /// larger by this part of its radius.
    Sphere(f64),
}

impl Reach {
    /// Half the edge [m] of the cube, centred at a particle of this `radius` [m], in which the particle
    /// occupies cells.
    #[inline]
    fn extent(self, radius: f64) -> f64 {
        match self {
            Self::Centre => 0.0,
            Self::Sphere(margin) => radius * (1.0 + margin),
        }
    }
}

/// A set of cells of one lattice, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "Vec<u64>", into = "Vec<u64>")]
pub struct CellSet {
    keys: Vec<u64>,
}

/// Cell coordinates are in `-HALF..HALF` along each axis.
const HALF: i32 = 1 << 20;

impl Lattice {
    /// The cell that holds `position`. Coordinates beyond 2^20 cells from the origin are clamped.
    #[inline]
    pub fn cell(&self, position: DVec3) -> IVec3 {
        let scaled = (position - self.origin) * (1.0 / self.cell_size);
        floor(scaled.clamp(DVec3::splat(-f64::from(HALF)), DVec3::splat(f64::from(HALF - 1))))
    }

    /// The cells that particles occupy.
    pub fn occupied(&self, positions: &[DVec3], radii: &[f64], reach: Reach) -> CellSet {
        let extent = |i: usize| {
            let r = DVec3::splat(reach.extent(radii[i]));
            (self.cell(positions[i] - r), self.cell(positions[i] + r))
        };
        let count = positions.len();
        if let Some(block) = self.block(positions, radii, reach) {
            // Setting bits commutes, so the set does not depend on the order of threads.
            let bits: Vec<AtomicU64> = (0..block.words()).map(|_| AtomicU64::new(0)).collect();
            (0..count).into_par_iter().with_min_len(reduce::CHUNK).for_each(|i| {
                let (low, high) = extent(i);
                for_each_cell(low, high, |cell| {
                    let (word, bit) = block.bit(cell);
                    if bits[word].load(Relaxed) & bit == 0 {
                        bits[word].fetch_or(bit, Relaxed);
                    }
                });
            });
            return CellSet { keys: block.keys(&bits) };
        }
        let mut keys = Vec::new();
        for i in 0..count {
            let (low, high) = extent(i);
            for_each_cell(low, high, |cell| keys.push(pack(cell)));
        }
        CellSet::from_keys(keys)
    }

    /// A block that holds all cells that particles occupy, if it is small enough.
    fn block(&self, positions: &[DVec3], radii: &[f64], reach: Reach) -> Option<Block> {
        let largest = DVec3::splat(reduce::max(radii.len(), 0.0, |i| reach.extent(radii[i])));
        let union = |a: (DVec3, DVec3), b: (DVec3, DVec3)| (a.0.min(b.0), a.1.max(b.1));
        let points = positions.par_iter().with_min_len(reduce::CHUNK).map(|&x| (x, x));
        let (low, high) = points.reduce(|| (DVec3::INFINITY, DVec3::NEG_INFINITY), union);
        Block::new(self.cell(low - largest), self.cell(high + largest))
    }
}

/// A block of cells small enough for a bit per cell.
#[derive(Clone, Copy, Debug)]
struct Block {
    low: IVec3,
    high: IVec3,
    size: [usize; 3],
}

impl Block {
    /// Largest number of bits in a block: 8 MiB.
    const BITS_MAX: u64 = 1 << 26;

    fn new(low: IVec3, high: IVec3) -> Option<Self> {
        if low.cmpgt(high).any() {
            return None;
        }
        let size = (high - low).to_array().map(|edge| edge as u64 + 1);
        let bits = size.iter().try_fold(1u64, |product, &edge| product.checked_mul(edge))?;
        (bits <= Self::BITS_MAX).then_some(Self { low, high, size: size.map(|edge| edge as usize) })
    }

    fn words(&self) -> usize {
        self.size.iter().product::<usize>().div_ceil(64)
    }

    #[inline]
    fn bit(&self, cell: IVec3) -> (usize, u64) {
        let [x, y, z] = (cell - self.low).to_array().map(|c| c as usize);
        let at = (z * self.size[1] + y) * self.size[0] + x;
        (at / 64, 1 << (at % 64))
    }

    /// Packed keys of the marked cells, ascending, since bits and keys are both ordered by z, y, x.
    fn keys(&self, bits: &[AtomicU64]) -> Vec<u64> {
        let mut keys = Vec::new();
        for (word, marked) in bits.iter().enumerate() {
            let mut marked = marked.load(Relaxed);
            while marked != 0 {
                let at = word * 64 + marked.trailing_zeros() as usize;
                marked &= marked - 1;
                let (row, x) = (at / self.size[0], at % self.size[0]);
                let (z, y) = (row / self.size[1], row % self.size[1]);
                keys.push(pack(self.low + IVec3::new(x as i32, y as i32, z as i32)));
            }
        }
        keys
    }
}

/// A set of cells prepared for asking which particles touch it.
#[derive(Debug)]
pub struct CellMask {
    lattice: Lattice,
    set: CellSet,
    block: Option<(Block, Vec<u64>)>,
}

impl CellMask {
    /// Prepares `set` on `lattice`.
    pub fn new(lattice: Lattice, set: CellSet) -> Self {
        let nothing = (IVec3::MAX, IVec3::MIN);
        let (low, high) = set.iter().fold(nothing, |(low, high), cell| (low.min(cell), high.max(cell)));
        let block = Block::new(low, high).map(|block| {
            let mut bits = vec![0; block.words()];
            for cell in set.iter() {
                let (word, bit) = block.bit(cell);
                bits[word] |= bit;
            }
            (block, bits)
        });
        Self { lattice, set, block }
    }

    /// True if a particle's collision sphere may touch a cell of the set.
    #[inline]
    pub fn touches(&self, position: DVec3, radius: f64) -> bool {
        let r = DVec3::splat(radius);
        let (low, high) = (self.lattice.cell(position - r), self.lattice.cell(position + r));
        let mut found = false;
        match &self.block {
            Some((block, bits)) => for_each_cell(low.max(block.low), high.min(block.high), |cell| {
                let (word, bit) = block.bit(cell);
                found |= bits[word] & bit != 0;
            }),
            None => for_each_cell(low, high, |cell| found |= self.set.contains(cell)),
        }
        found
    }
}

impl From<Vec<u64>> for CellSet {
    fn from(keys: Vec<u64>) -> Self {
        Self::from_keys(keys)
    }
}

impl From<CellSet> for Vec<u64> {
    fn from(cells: CellSet) -> Self {
        cells.keys
    }
}

impl CellSet {
    /// A set from packed keys in any order, repeated or not.
    pub fn from_keys(mut keys: Vec<u64>) -> Self {
        keys.par_sort_unstable();
        keys.dedup();
        Self { keys }
    }

    /// The union of several sets.
    pub fn union<'a>(sets: impl IntoIterator<Item = &'a CellSet>) -> Self {
        Self::from_keys(sets.into_iter().flat_map(|set| set.keys.iter().copied()).collect())
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if no cell is in the set.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// True if `cell` is in the set.
    pub fn contains(&self, cell: IVec3) -> bool {
        self.keys.binary_search(&pack(cell)).is_ok()
    }

    /// The cells, in the order of their packed keys.
    pub fn iter(&self) -> impl Iterator<Item = IVec3> + '_ {
        self.keys.iter().map(|&key| unpack(key))
    }

    /// Packed keys, sorted: 21 bits per axis, z highest, each shifted by 2^20.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// The set as bytes: differences of sorted keys, each in base 128, low digits first, the high bit of a
    /// byte saying that more follow.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2 * self.keys.len());
        let mut last = 0;
        for &key in &self.keys {
            let mut gap = key - last;
            last = key;
            while gap >= 0x80 {
                bytes.push(gap as u8 | 0x80);
                gap >>= 7;
            }
            bytes.push(gap as u8);
        }
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote.
    ///
    /// # Errors
    /// A sentence that says what is wrong and at which byte.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let mut keys: Vec<u64> = Vec::with_capacity(bytes.len());
        let (mut gap, mut shift) = (0u64, 0);
        for (at, &byte) in bytes.iter().enumerate() {
            let digit = u64::from(byte & 0x7f);
            if shift > 56 || (digit << shift) >> shift != digit {
                return Err(format!("a cell key at byte {at} does not fit 63 bits"));
            }
            gap |= digit << shift;
            shift += 7;
            if byte & 0x80 != 0 {
                continue;
            }
            let key = match keys.last() {
                Some(_) if gap == 0 => return Err(format!("a cell stands twice at byte {at}")),
                Some(last) => last.checked_add(gap),
                None => Some(gap),
            };
            match key {
                Some(key) if key < 1 << 63 => keys.push(key),
                _ => return Err(format!("a cell key at byte {at} does not fit 63 bits")),
            }
            (gap, shift) = (0, 0);
        }
        if shift != 0 {
            return Err("the last cell key is cut off".into());
        }
        Ok(Self { keys })
    }
}

/// Rounds each component down to an integer. Components must be within the range of i32 less one.
/// `f64::floor` would be a function call: the oldest instruction set of x86-64 has no rounding.
#[inline]
pub(crate) fn floor(x: DVec3) -> IVec3 {
    let truncated = x.as_ivec3();
    let above = truncated.as_dvec3().cmpgt(x);
    truncated - IVec3::new(i32::from(above.x), i32::from(above.y), i32::from(above.z))
}

fn pack(cell: IVec3) -> u64 {
    let part = |c: i32| (c + HALF) as u64;
    part(cell.z) << 42 | part(cell.y) << 21 | part(cell.x)
}

fn unpack(key: u64) -> IVec3 {
    let part = |shift: u32| (key >> shift & 0x1f_ffff) as i32 - HALF;
    IVec3::new(part(0), part(21), part(42))
}

#[inline]
fn for_each_cell(low: IVec3, high: IVec3, mut visit: impl FnMut(IVec3)) {
    for z in low.z..=high.z {
        for y in low.y..=high.y {
            for x in low.x..=high.x {
                visit(IVec3::new(x, y, z));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_round_trip(cells in prop::collection::vec(prop::array::uniform3(-HALF..HALF), 0..200)) {
            let set = CellSet::from_keys(cells.iter().map(|&c| pack(IVec3::from(c))).collect());
            prop_assert_eq!(CellSet::from_bytes(&set.to_bytes()).expect("own bytes"), set.clone());
            prop_assert!(cells.iter().all(|&c| set.contains(IVec3::from(c))));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(set) = CellSet::from_bytes(&bytes) {
                prop_assert!(set.keys().is_sorted());
            }
        }
    }

    #[test]
    fn a_block_and_a_list_of_keys_hold_the_same_cells() {
        let lattice = Lattice { origin: DVec3::ZERO, cell_size: 1.0 };
        let positions: Vec<DVec3> = (0..300u64)
            .map(|i| DVec3::from_array([0, 1, 2].map(|axis| 40.0 * crate::random::uniform_f64(&[i, axis]))))
            .collect();
        let radii = vec![1.3; positions.len()];
        let dense = lattice.occupied(&positions, &radii, Reach::Sphere(0.0));
        // One point far away makes the block too large.
        let (mut far, mut far_radii) = (positions.clone(), radii.clone());
        far.push(DVec3::splat(9000.5));
        far_radii.push(0.1);
        let sparse = lattice.occupied(&far, &far_radii, Reach::Sphere(0.0));
        assert_eq!(sparse.len(), dense.len() + 1);
        assert!(dense.iter().all(|cell| sparse.contains(cell)));
        let (dense, sparse) = (CellMask::new(lattice, dense), CellMask::new(lattice, sparse));
        for x in &positions {
            let near = *x + DVec3::splat(2.0);
            assert_eq!(dense.touches(near, 0.4), sparse.touches(near, 0.4));
        }
    }

    #[test]
    fn overlapping_spheres_share_a_cell() {
        let lattice = Lattice { origin: DVec3::splat(0.3), cell_size: 0.7 };
        let (a, b) = (DVec3::new(0.1, 5.0, -3.0), DVec3::new(4.0, 5.2, -2.5));
        let mask = CellMask::new(lattice, lattice.occupied(&[a], &[0.1], Reach::Sphere(0.0)));
        assert!(mask.touches(b, 3.9));
        assert!(!mask.touches(b, 0.2));
    }
}
