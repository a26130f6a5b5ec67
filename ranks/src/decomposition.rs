//! The decomposition of space among ranks.

/// A cell of the solver's own raster.
pub type Cell = [i32; 3];

/// A plane between cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plane {
    pub(crate) axis: usize,
    /// The first cell above the plane.
    pub(crate) above: i32,
}

/// Cells from the lowest to the highest one, both included.
pub(crate) type Region = (Cell, Cell);

/// All cells.
pub(crate) const SPACE: Region = ([i32::MIN; 3], [i32::MAX; 3]);

/// The ranks below a plane, where `ranks` lie on both sides of it.
pub(crate) fn ranks_below(ranks: usize) -> usize {
    ranks / 2
}

/// A domain decomposition: space is cut among ranks, a box of whole cells per rank. The boxes cover all space;
/// their outermost faces lie at the lowest and the highest cell that an i32 can name.
#[derive(Clone, Debug, PartialEq)]
pub struct Decomposition {
    /// The tree of bisections: a plane, then those of the ranks below it, then those of the ranks above it.
    planes: Vec<Plane>,
    regions: Vec<Region>,
}

impl Decomposition {
    /// One rank owns everything.
    pub fn whole() -> Self {
        Self::new(Vec::new())
    }

    pub(crate) fn new(planes: Vec<Plane>) -> Self {
        let mut regions = Vec::with_capacity(planes.len() + 1);
        divide(&planes, SPACE, &mut regions);
        Self { planes, regions }
    }

    /// The number of ranks that space is cut for.
    pub fn size(&self) -> usize {
        self.regions.len()
    }

    /// The rank that owns a cell.
    #[inline]
    pub fn owner(&self, cell: Cell) -> usize {
        let (mut first, mut ranks, mut at) = (0, self.regions.len(), 0);
        while ranks > 1 {
            let below = ranks_below(ranks);
            let plane = self.planes[at];
            if cell[plane.axis] < plane.above {
                at += 1;
                ranks = below;
            } else {
                // Skips this plane and the planes of the ranks below it: one fewer than these ranks.
                at += below;
                first += below;
                ranks -= below;
            }
        }
        first
    }

    /// The lowest and the highest cell of a rank, both included.
    pub fn region(&self, rank: usize) -> (Cell, Cell) {
        self.regions[rank]
    }

    /// Ranks other than `rank` whose regions, grown by `depth` cells, meet the region of `rank`, in ascending
    /// order. The relation is symmetric.
    pub fn neighbours(&self, rank: usize, depth: i32) -> Vec<usize> {
        let own = self.regions[rank];
        let others = (0..self.size()).filter(|&other| other != rank);
        others.filter(|&other| meet(own, self.regions[other], depth)).collect()
    }

    /// True if a cell lies within `depth` cells of the region of `rank`, or inside.
    #[inline]
    pub fn is_near(&self, rank: usize, cell: Cell, depth: i32) -> bool {
        meet(self.regions[rank], (cell, cell), depth)
    }

    /// The cut as numbers, for a message or a file.
    pub fn to_words(&self) -> Vec<i32> {
        self.planes.iter().flat_map(|plane| [plane.axis as i32, plane.above]).collect()
    }

    /// A cut from the numbers of [`Self::to_words`]; none if they are no cut.
    pub fn from_words(words: &[i32]) -> Option<Self> {
        let (pairs, rest) = words.as_chunks::<2>();
        let sound =
            rest.is_empty() && pairs.iter().all(|&[axis, above]| (0..3).contains(&axis) && above > i32::MIN);
        let plane = |&[axis, above]: &[i32; 2]| Plane { axis: axis as usize, above };
        let cut = sound.then(|| Self::new(pairs.iter().map(plane).collect()))?;
        // A plane outside of its region would leave a rank without a cell.
        let full = |(low, high): &Region| (0..3).all(|axis| low[axis] <= high[axis]);
        cut.regions.iter().all(full).then_some(cut)
    }
}

/// Appends the regions of the ranks among which `planes` cut `region`.
fn divide(planes: &[Plane], region: Region, regions: &mut Vec<Region>) {
    let Some((plane, planes)) = planes.split_first() else { return regions.push(region) };
    let below = ranks_below(planes.len() + 2);
    let (low, high) = split(region, *plane);
    divide(&planes[..below - 1], low, regions);
    divide(&planes[below - 1..], high, regions);
}

/// The parts of a region below and above a plane.
pub(crate) fn split(region: Region, plane: Plane) -> (Region, Region) {
    let (mut low, mut high) = (region, region);
    low.1[plane.axis] = plane.above - 1;
    high.0[plane.axis] = plane.above;
    (low, high)
}

/// True if no more than `depth - 1` cells lie between two regions along any axis.
#[inline]
fn meet(a: Region, b: Region, depth: i32) -> bool {
    (0..3).all(|axis| {
        a.0[axis].saturating_sub(depth) <= b.1[axis] && b.0[axis] <= a.1[axis].saturating_add(depth)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A cut for five ranks: two below y = 0, three above.
    fn five() -> Decomposition {
        Decomposition::from_words(&[1, 0, 2, 10, 0, -3, 2, 4]).expect("a cut")
    }

    #[test]
    fn the_first_ranks_lie_below_the_first_plane() {
        let cut = five();
        assert_eq!(cut.size(), 5);
        let (low, high) = (i32::MIN, i32::MAX);
        assert_eq!(cut.region(0), ([low; 3], [high, -1, 9]));
        assert_eq!(cut.region(1), ([low, low, 10], [high, -1, high]));
        assert_eq!(cut.region(2), ([low, 0, low], [-4, high, high]));
        assert_eq!(cut.region(3), ([-3, 0, low], [high, high, 3]));
        assert_eq!(cut.region(4), ([-3, 0, 4], [high; 3]));
        assert_eq!(cut.neighbours(2, 1), [0, 1, 3, 4]);
        assert_eq!(cut.neighbours(1, 1), [0, 2, 4]);
        assert_eq!(cut.neighbours(1, 6), [0, 2, 4]);
        assert_eq!(cut.neighbours(1, 7), [0, 2, 3, 4]);
    }

    #[test]
    fn one_rank_owns_everything() {
        let cut = Decomposition::whole();
        assert_eq!(cut.owner([i32::MAX, 0, i32::MIN]), 0);
        assert_eq!(cut.region(0), SPACE);
        assert!(cut.neighbours(0, i32::MAX).is_empty());
    }

    #[test]
    fn words_that_are_no_cut_are_refused() {
        assert_eq!(Decomposition::from_words(&five().to_words()), Some(five()));
        assert_eq!(Decomposition::from_words(&[]), Some(Decomposition::whole()));
        assert_eq!(Decomposition::from_words(&[1]), None);
        assert_eq!(Decomposition::from_words(&[3, 0]), None);
        assert_eq!(Decomposition::from_words(&[1, i32::MIN]), None);
        assert_eq!(Decomposition::from_words(&[1, 0, 1, 0]), None);
        // The third rank would lie below 5 and above 0.
        assert_eq!(Decomposition::from_words(&[1, 0, 1, -5]).map(|cut| cut.size()), None);
    }

    proptest! {
        #[test]
        fn a_cell_lies_in_its_owners_region_alone(cell: [i32; 3], near in prop::array::uniform3(-12..12), depth in 0..5) {
            let cut = five();
            for cell in [cell, near] {
                for rank in 0..cut.size() {
                    prop_assert_eq!(cut.is_near(rank, cell, 0), cut.owner(cell) == rank);
                    let (low, high) = cut.region(rank);
                    let near = (0..3).all(|a| {
                        let (low, high) = (i64::from(low[a]), i64::from(high[a]));
                        (low - i64::from(depth)..=high + i64::from(depth)).contains(&i64::from(cell[a]))
                    });
                    prop_assert_eq!(cut.is_near(rank, cell, depth), near);
                    // A rank that must know of a cell is a neighbour of the cell's owner.
                    let owner = cut.owner(cell);
                    prop_assert!(!near || rank == owner || cut.neighbours(owner, depth).contains(&rank));
                }
            }
        }
    }
}
