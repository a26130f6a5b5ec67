//! Sets of occupied cells: how participants tell each other where they are without telling what they are.

use glam::{DVec3, IVec3};
use rayon::prelude::*;

/// A lattice of cubic cells that covers all space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lattice {
    /// A corner of cell (0, 0, 0) [m].
    pub origin: DVec3,
    /// Edge of a cell [m].
    pub cell_size: f64,
}

/// Which cells a particle occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The cell that holds its centre.
    Centre,
    /// Every cell that the bounding box of its collision sphere touches.
    Sphere,
}

/// A set of cells of one lattice, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellSet {
    keys: Vec<u64>,
}

/// Cell coordinates are in `-HALF..HALF` along each axis.
const HALF: i32 = 1 << 20;

impl Lattice {
    /// The cell that holds `position`, saturated at 2^20 cells from the origin.
    #[inline]
    pub fn cell(&self, position: DVec3) -> IVec3 {
        let scaled = ((position - self.origin) / self.cell_size).floor();
        scaled.clamp(DVec3::splat(-f64::from(HALF)), DVec3::splat(f64::from(HALF - 1))).as_ivec3()
    }

    /// The cells that particles occupy.
    pub fn occupied(&self, positions: &[DVec3], radii: &[f64], reach: Reach) -> CellSet {
        const CHUNK: usize = 8192;
        let chunks: Vec<Vec<u64>> = positions
            .par_chunks(CHUNK)
            .zip(radii.par_chunks(CHUNK))
            .map(|(positions, radii)| {
                let mut keys = Vec::with_capacity(positions.len());
                for (&x, &r) in positions.iter().zip(radii) {
                    let r = DVec3::splat(if reach == Reach::Sphere { r } else { 0.0 });
                    for_each_cell(self.cell(x - r), self.cell(x + r), |key| {
                        if keys.last() != Some(&key) {
                            keys.push(key);
                        }
                    });
                }
                keys.sort_unstable();
                keys.dedup();
                keys
            })
            .collect();
        CellSet::from_keys(chunks.concat())
    }

    /// Whether a particle's collision sphere may touch a cell of `set`.
    pub fn touches(&self, set: &CellSet, position: DVec3, radius: f64) -> bool {
        let r = DVec3::splat(radius);
        let mut found = false;
        for_each_cell(self.cell(position - r), self.cell(position + r), |key| found |= set.contains_key(key));
        found
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

    /// Whether no cell is in the set.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether `cell` is in the set.
    pub fn contains(&self, cell: IVec3) -> bool {
        self.contains_key(pack(cell))
    }

    /// The cells, in the order of their packed keys.
    pub fn iter(&self) -> impl Iterator<Item = IVec3> + '_ {
        self.keys.iter().map(|&key| unpack(key))
    }

    /// Packed keys, sorted: 21 bits an axis, z highest, each shifted by 2^20.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    fn contains_key(&self, key: u64) -> bool {
        self.keys.binary_search(&key).is_ok()
    }

    /// The set as bytes: differences of sorted keys, each in base 128, low digits first, the high bit of a byte
    /// saying that more follow.
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

fn pack(cell: IVec3) -> u64 {
    let part = |c: i32| (c + HALF) as u64;
    part(cell.z) << 42 | part(cell.y) << 21 | part(cell.x)
}

fn unpack(key: u64) -> IVec3 {
    let part = |shift: u32| (key >> shift & 0x1f_ffff) as i32 - HALF;
    IVec3::new(part(0), part(21), part(42))
}

#[inline]
fn for_each_cell(low: IVec3, high: IVec3, mut visit: impl FnMut(u64)) {
    for z in low.z..=high.z {
        for y in low.y..=high.y {
            for x in low.x..=high.x {
                visit(pack(IVec3::new(x, y, z)));
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
    fn overlapping_spheres_share_a_cell() {
        let lattice = Lattice { origin: DVec3::splat(0.3), cell_size: 0.7 };
        let (a, b) = (DVec3::new(0.1, 5.0, -3.0), DVec3::new(4.0, 5.2, -2.5));
        let set = lattice.occupied(&[a], &[0.1], Reach::Sphere);
        assert!(lattice.touches(&set, b, 3.9));
        assert!(!lattice.touches(&set, b, 0.2));
    }
}
