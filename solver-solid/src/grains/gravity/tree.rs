//! An octree over particles: a distant cell counts as one mass with its quadrupole [BarnesHut1986].

use amalgam_particles::DVec3;

use super::Attraction;

/// Particles up to which a cell is not divided.
const LEAF: usize = 8;

/// Bits of a key along each axis: the depth of the tree.
const DEPTH: u32 = 21;

/// A cell and, behind it in the list, all cells inside it.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Its particles, in the order of the tree.
    first: u32,
    end: u32,
    /// Index of the cell after those inside.
    next: u32,
    is_leaf: bool,
    /// Edge [m].
    edge: f64,
    mass: f64,
    /// Centre of mass [m].
    center: DVec3,
    /// Traceless quadrupole about it, sum of m (3 y y^T - y^2 I): xx, yy, zz and xy, yz, zx [kg m^2].
    diagonal: DVec3,
    mixed: DVec3,
}

/// The tree, made anew for every state. Its shape depends on positions alone.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    cells: Vec<Cell>,
    /// Place of each particle in the order of the tree: by key, and by index where keys are equal. The next
    /// columns are in that order.
    place_of: Vec<u32>,
    position: Vec<DVec3>,
    mass: Vec<f64>,
}

impl Tree {
    /// Over particles that are not at infinity.
    pub(super) fn new(position: &[DVec3], mass: &[f64]) -> Self {
        let low = position.iter().copied().reduce(DVec3::min).unwrap_or_default();
        let high = position.iter().copied().reduce(DVec3::max).unwrap_or_default();
        let edge = (high - low).max_element().max(f64::MIN_POSITIVE);
        let scale = f64::from(1u32 << DEPTH) / edge;
        let key = |x: DVec3| {
            // A position that is not finite gets some key; its acceleration will tell.
            let cell = ((x - low) * scale).to_array().map(|c| (c as u64).min((1 << DEPTH) - 1));
            spread(cell[0]) | spread(cell[1]) << 1 | spread(cell[2]) << 2
        };
        let mut order: Vec<(u64, u32)> =
            position.iter().enumerate().map(|(i, x)| (key(*x), i as u32)).collect();
        order.sort_unstable();
        let index: Vec<u32> = order.iter().map(|(_, i)| *i).collect();
        let mut place_of = vec![0; index.len()];
        for (place, &i) in index.iter().enumerate() {
            place_of[i as usize] = place as u32;
        }
        let mut tree = Self {
            cells: Vec::new(),
            place_of,
            position: index.iter().map(|&i| position[i as usize]).collect(),
            mass: index.iter().map(|&i| mass[i as usize]).collect(),
        };
        tree.divide(&order, 0..order.len(), DEPTH, edge);
        tree
    }

    /// Appends the cell of the particles in `range`, which agree in all bits of their keys above `level`.
    fn divide(&mut self, order: &[(u64, u32)], range: std::ops::Range<usize>, level: u32, edge: f64) {
        let at = self.cells.len();
        let is_leaf = range.len() <= LEAF || level == 0;
        self.cells.push(self.cell(range.clone(), is_leaf, edge));
        if !is_leaf {
            let shift = 3 * (level - 1);
            let mut first = range.start;
            while first < range.end {
                let octant = order[first].0 >> shift;
                let length = order[first..range.end].partition_point(|(key, _)| key >> shift == octant);
                self.divide(order, first..first + length, level - 1, 0.5 * edge);
                first += length;
            }
        }
        self.cells[at].next = self.cells.len() as u32;
    }

    fn cell(&self, range: std::ops::Range<usize>, is_leaf: bool, edge: f64) -> Cell {
        let all = || self.position[range.clone()].iter().zip(&self.mass[range.clone()]);
        let mass: f64 = all().map(|(_, m)| m).sum();
        let center = all().map(|(x, m)| *x * *m).sum::<DVec3>() / mass;
        let (mut diagonal, mut mixed) = (DVec3::ZERO, DVec3::ZERO);
        for (x, m) in all() {
            let y = *x - center;
            diagonal += (3.0 * y * y - y.length_squared()) * *m;
            mixed += 3.0 * y * DVec3::new(y.y, y.z, y.x) * *m;
        }
        Cell {
            first: range.start as u32,
            end: range.end as u32,
            next: 0,
            is_leaf,
            edge,
            mass,
            center,
            diagonal,
            mixed,
        }
    }

    /// The attraction of particle `i` by all others.
    pub(super) fn attraction(&self, i: usize, opening_angle: f64, softening_squared: f64) -> Attraction {
        let place = self.place_of[i] as usize;
        let here = self.position[place];
        let mut attraction = Attraction::default();
        let mut at = 0;
        while let Some(cell) = self.cells.get(at) {
            let d = cell.center - here;
            let inside = (cell.first as usize..cell.end as usize).contains(&place);
            if !inside && cell.edge * cell.edge < opening_angle * opening_angle * d.length_squared() {
                cell.add_to(&mut attraction, d, softening_squared);
                at = cell.next as usize;
            } else if cell.is_leaf {
                for other in (cell.first as usize..cell.end as usize).filter(|other| *other != place) {
                    attraction.add_mass(self.position[other] - here, self.mass[other], softening_squared);
                }
                at = cell.next as usize;
            } else {
                at += 1;
            }
        }
        attraction
    }
}

impl Cell {
    /// Mass and quadrupole: the potential is -M/r - d Q d / (2 r^5).
    fn add_to(&self, attraction: &mut Attraction, d: DVec3, softening_squared: f64) {
        attraction.add_mass(d, self.mass, softening_squared);
        let square = d.length_squared() + softening_squared;
        let fifth = 1.0 / (square * square * square.sqrt());
        let turned = self.diagonal * d
            + DVec3::new(
                self.mixed.x * d.y + self.mixed.z * d.z,
                self.mixed.x * d.x + self.mixed.y * d.z,
                self.mixed.y * d.y + self.mixed.z * d.x,
            );
        let along = d.dot(turned);
        attraction.potential -= 0.5 * along * fifth;
        attraction.acceleration += (d * (2.5 * along / square) - turned) * fifth;
    }
}

/// Puts two zero bits between the lowest 21 bits.
fn spread(bits: u64) -> u64 {
    let mut x = bits & 0x1f_ffff;
    for (shift, mask) in [
        (32, 0x001f_0000_0000_ffff),
        (16, 0x001f_0000_ff00_00ff),
        (8, 0x100f_00f0_0f00_f00f),
        (4, 0x10c3_0c30_c30c_30c3),
        (2, 0x1249_2492_4924_9249),
    ] {
        x = (x | x << shift) & mask;
    }
    x
}
