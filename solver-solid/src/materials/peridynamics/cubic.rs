//! The cubic lattice that a body's particles lie on, found from their positions.

use amalgam_particles::DVec3;

/// Sites there may be for each particle: with more, rows are smaller.
const SITES_MAX: usize = 8;

/// Points of a row, at least, unless no row has as many: some vectors.
const ROW_MIN: i32 = 64;

/// A lattice through a body's points.
#[derive(Clone, Debug)]
pub(crate) struct Lattice {
    /// Position of cell (0, 0, 0) [m].
    pub(super) origin: DVec3,
    /// Steps along the axes [m].
    pub(super) steps: [DVec3; 3],
    /// Cell of each point, from 0.
    pub(super) cells: Vec<[i32; 3]>,
    /// Cells along each axis.
    pub(super) extent: [i32; 3],
    /// The axes as sites are numbered along them: in a row, from row to row, from layer to layer.
    pub(super) numbered: [usize; 3],
}

impl Lattice {
    /// The lattice of this spacing that all points lie on, each on a site of its own, if there is one. The
    /// longest axis comes first, and points that are ordered by [`Self::key`] are in the order of sites.
    ///
    /// Layers lie across the longest axis, if rows along the next one are long enough. Then they are small:
    /// neighbours have near numbers, and parts of consecutive sites have small surfaces.
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
        let numbered = if extent[1] < ROW_MIN { [0, 1, 2] } else { [1, 2, 0] };
        let this = Self { origin: corner, steps: order.map(|axis| steps[axis]), cells, extent, numbered };
        let mut keys: Vec<u64> = (0..points.len()).map(|i| this.key(i)).collect();
        keys.sort_unstable();
        let distinct = keys.windows(2).all(|pair| pair[0] != pair[1]);
        let sites: f64 = extent.iter().map(|&n| f64::from(n)).product();
        (distinct && sites <= (SITES_MAX * points.len() + 4096) as f64).then_some(this)
    }

    /// True if there is a point on every site.
    pub(super) fn is_box(&self) -> bool {
        self.extent.iter().map(|&n| n as usize).product::<usize>() == self.cells.len()
    }

    /// Key by which points are ordered.
    pub(crate) fn key(&self, point: usize) -> u64 {
        self.key_of(self.cells[point])
    }

    /// The key of a cell of the lattice.
    pub(super) fn key_of(&self, cell: [i32; 3]) -> u64 {
        let [a, b, c] = self.numbered.map(|axis| cell[axis] as u64);
        let [row, layer, _] = self.numbered.map(|axis| self.extent[axis] as u64);
        a + row * (b + layer * c)
    }

    /// The same lattice for the points in another order.
    pub(crate) fn reordered(mut self, order: &[u32]) -> Self {
        self.cells = order.iter().map(|&i| self.cells[i as usize]).collect();
        self
    }
}
