//! Recursive bisection: space cut among ranks by measured cost.

use rayon::prelude::*;

use crate::{
    decomposition::{Cell, Decomposition, Plane, Region, SPACE, ranks_below, split},
    ranks::Ranks,
};

/// Largest number of bins in a histogram. Longer windows have several planes of cells per bin; the bin that
/// holds the plane is then divided again.
const BINS_MAX: i64 = 4096;

/// The largest cost of a particle [ns]: the sum of 2^38 of them stays below 2^62.
const WEIGHT_MAX: u64 = 1 << 24;

/// Rows along x are cut where they are longer than this many times the longer side across them.
const ROW: i64 = 4;

/// Particles that one task counts, at least.
const TASK: usize = 1 << 15;

/// A region that is still to be cut among `ranks` ranks.
struct Node {
    /// Index of its plane in [`Decomposition`].
    at: usize,
    ranks: usize,
    region: Region,
}

/// The place of a node's plane, as far as it is known.
struct Search {
    axis: usize,
    /// The first and the last plane of cells of the window in which the plane lies.
    window: (i64, i64),
    /// Planes of cells in a bin.
    bin: i64,
    /// Bins of earlier nodes.
    offset: usize,
    /// The weight below the window.
    below: i64,
    /// The weight of the node; it is known after the first histogram.
    total: Option<i64>,
    /// The first cell above the plane, once it is found.
    above: Option<i64>,
}

impl Decomposition {
    /// Cuts space so that each rank has about the same cost. Collective, and the same on all ranks.
    ///
    /// `cells` is the cell of each of `count` particles of this rank. `weight` is the cost of one on this
    /// rank in whole nanoseconds; it counts as at least 1 and at most 2^24.
    ///
    /// Planes cut y and z while both sides can be 2 cells thick, the longer axis first, so that rows along x
    /// stay whole; x is cut where rows are more than 4 times as long as that, or only x is left. Each side
    /// keeps at least as many planes of cells as ranks: every rank owns cells, though maybe no particles.
    pub fn balanced(ranks: &Ranks, cells: impl Fn(usize) -> Cell + Sync, count: usize, weight: u64) -> Self {
        let size = ranks.size();
        let unset = Plane { axis: 0, above: 0 };
        let mut planes = vec![unset; size - 1];
        let mut nodes = if size > 1 { vec![Node { at: 0, ranks: size, region: SPACE }] } else { Vec::new() };
        // The node of each particle, if its region is still to be cut.
        let mut node_of: Vec<u32> = if size > 1 { vec![0; count] } else { Vec::new() };
        let weight = weight.clamp(1, WEIGHT_MAX).cast_signed();
        while !nodes.is_empty() {
            let extents = extents(ranks, nodes.len(), &cells, &node_of);
            let mut searches: Vec<Search> =
                nodes.iter().zip(extents).map(|(node, extent)| Search::new(node, extent)).collect();
            while searches.iter().any(|search| search.above.is_none()) {
                let bins = place_bins(&mut searches);
                let mut histograms = histograms(&searches, bins, &cells, &node_of, weight);
                ranks.sum(&mut histograms);
                for (search, node) in searches.iter_mut().zip(&nodes) {
                    search.narrow(node, &histograms);
                }
            }
            let (mut next, mut children) = (Vec::new(), Vec::with_capacity(nodes.len()));
            for (node, search) in nodes.iter().zip(&searches) {
                let plane = search.plane(node);
                planes[node.at] = plane;
                children.push((plane, node.children(plane).map(|child| enlist(child, &mut next))));
            }
            node_of.par_iter_mut().with_min_len(TASK).enumerate().for_each(|(i, node)| {
                if let Some(&(plane, [low, high])) = children.get(*node as usize) {
                    *node = if cells(i)[plane.axis] < plane.above { low } else { high };
                }
            });
            nodes = next;
        }
        Self::new(planes)
    }
}

/// The index of a node in the next level, or one that no node has where nothing is to be cut.
fn enlist(node: Node, next: &mut Vec<Node>) -> u32 {
    if node.ranks == 1 {
        return u32::MAX;
    }
    next.push(node);
    next.len() as u32 - 1
}

impl Node {
    fn children(&self, plane: Plane) -> [Self; 2] {
        let below = ranks_below(self.ranks);
        let (low, high) = split(self.region, plane);
        [
            Self { at: self.at + 1, ranks: below, region: low },
            Self { at: self.at + below, ranks: self.ranks - below, region: high },
        ]
    }

    /// The lowest and the highest place of a plane across an axis that leave each side as many cells as
    /// ranks; none if the region is too thin.
    fn range(&self, axis: usize) -> Option<(i64, i64)> {
        let below = ranks_below(self.ranks) as i64;
        let lowest = i64::from(self.region.0[axis]) + below;
        let highest = i64::from(self.region.1[axis]) + 1 - (self.ranks as i64 - below);
        (lowest <= highest).then_some((lowest, highest))
    }

    /// The axis to cut, for particles within `extent`.
    fn axis(&self, extent: &[(i64, i64); 3]) -> usize {
        let thick = |axis: usize| extent[axis].1 - extent[axis].0 + 1;
        let possible = |axis: &usize| self.range(*axis).is_some();
        let longest = |axes: [usize; 3], least: i64| {
            let axes = axes.into_iter().filter(possible).filter(|&axis| thick(axis) >= least);
            // Of equally thick axes, the first one.
            axes.reduce(|best, axis| if thick(axis) > thick(best) { axis } else { best })
        };
        // Four cells leave two on either side.
        match (longest([1, 2, 2], 4), longest([0, 0, 0], 2)) {
            (Some(across), Some(x)) if thick(x) <= ROW * thick(across) => Some(across),
            (across, x) => x.or(across),
        }
        .or_else(|| longest([1, 2, 0], i64::MIN))
        .expect("a side keeps as many planes of cells as ranks, so one axis at least can always be cut again")
    }
}

impl Search {
    fn new(node: &Node, extent: [(i64, i64); 3]) -> Self {
        let axis = node.axis(&extent);
        let window = extent[axis];
        // Without particles, any plane will do.
        let above = (window.0 > window.1).then_some(0);
        Self { axis, window, bin: 1, offset: 0, below: 0, total: None, above }
    }

    fn bins(&self) -> usize {
        if self.above.is_some() {
            return 0;
        }
        ((self.window.1 - self.window.0) / self.bin + 1) as usize
    }

    /// Finds the bin in which the plane lies; the plane itself, if bins are as thin as cells.
    fn narrow(&mut self, node: &Node, histograms: &[i64]) {
        if self.above.is_some() {
            return;
        }
        let bins = &histograms[self.offset..self.offset + self.bins()];
        let total = *self.total.get_or_insert_with(|| bins.iter().sum());
        let ranks = node.ranks as i128;
        let wanted = i128::from(total) * ranks_below(node.ranks) as i128;
        let mut below = self.below;
        for (k, &weight) in bins.iter().enumerate() {
            let missing = wanted - i128::from(below) * ranks;
            let with = i128::from(below + weight) * ranks - wanted;
            // Bins are passed until the next one would bring the weight below the plane to what is wanted.
            if with < 0 && k + 1 < bins.len() {
                below += weight;
                continue;
            }
            let first = self.window.0 + k as i64 * self.bin;
            if self.bin == 1 {
                self.above = Some(if missing <= with { first } else { first + 1 });
            } else {
                self.window = (first, self.window.1.min(first + self.bin - 1));
                self.below = below;
            }
            return;
        }
    }

    /// The plane: where it was found, or the nearest one that leaves each side as many cells as ranks.
    fn plane(&self, node: &Node) -> Plane {
        let (lowest, highest) = node.range(self.axis).expect("the axis was chosen so");
        let above = self.above.unwrap_or(0).clamp(lowest, highest);
        Plane { axis: self.axis, above: above as i32 }
    }
}

/// Sets each search's bins within its window; returns the number of all bins.
fn place_bins(searches: &mut [Search]) -> usize {
    let mut bins = 0;
    for search in searches {
        search.bin = (search.window.1 - search.window.0) / BINS_MAX + 1;
        search.offset = bins;
        bins += search.bins();
    }
    bins
}

/// The lowest and the highest occupied cell of each node along each axis, over all ranks.
fn extents(
    ranks: &Ranks,
    nodes: usize,
    cells: &(impl Fn(usize) -> Cell + Sync),
    node_of: &[u32],
) -> Vec<[(i64, i64); 3]> {
    // Largest values of -x and x, -y and y, -z and z. An f64 holds every cell.
    let nothing = || vec![[f64::NEG_INFINITY; 6]; nodes];
    let tasks = node_of.par_iter().with_min_len(TASK).enumerate();
    let within = tasks.fold(nothing, |mut within, (i, &node)| {
        if let Some(within) = within.get_mut(node as usize) {
            let cell = cells(i);
            for (k, largest) in within.iter_mut().enumerate() {
                let value = f64::from(cell[k / 2]);
                *largest = largest.max(if k % 2 == 0 { -value } else { value });
            }
        }
        within
    });
    let mut within = within.reduce(nothing, |mut a, b| {
        for (a, b) in a.as_flattened_mut().iter_mut().zip(b.as_flattened()) {
            *a = a.max(*b);
        }
        a
    });
    ranks.max(within.as_flattened_mut());
    // Without particles: from 1 to 0.
    let extent = |[low, high]: [f64; 2]| if high.is_finite() { (-low as i64, high as i64) } else { (1, 0) };
    within.iter().map(|w| [extent([w[0], w[1]]), extent([w[2], w[3]]), extent([w[4], w[5]])]).collect()
}

/// The weight of this rank's particles in each bin.
fn histograms(
    searches: &[Search],
    bins: usize,
    cells: &(impl Fn(usize) -> Cell + Sync),
    node_of: &[u32],
    weight: i64,
) -> Vec<i64> {
    let tasks = node_of.par_iter().with_min_len(TASK).enumerate();
    let zeros = || vec![0i64; bins];
    let counted = tasks.fold(zeros, |mut counts, (i, &node)| {
        if let Some(search) = searches.get(node as usize).filter(|search| search.above.is_none()) {
            let place = i64::from(cells(i)[search.axis]);
            if (search.window.0..=search.window.1).contains(&place) {
                counts[search.offset + ((place - search.window.0) / search.bin) as usize] += weight;
            }
        }
        counts
    });
    counted.reduce(zeros, |mut a, b| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    })
}
