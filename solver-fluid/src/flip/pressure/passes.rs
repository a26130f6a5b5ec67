//! Passes over a block of the columns of the pressure projection.

use amalgam_particles::lanes::{LANES, Lanes, Task};

use super::super::arithmetic::larger;
use super::columns::{BLOCK, Split};
use super::system::{Kind, System, add_lanes, neighbours, window};

/// The unknowns of one colour in a block.
#[derive(Clone, Copy)]
pub(super) struct Unknowns<'a> {
    pub(super) system: &'a System,
    pub(super) colour: usize,
    pub(super) begin: usize,
    pub(super) len: usize,
}

impl<'a> Unknowns<'a> {
    /// The unknowns of block number `block` of [`blocks`], which has `len` entries.
    pub(super) fn of_block(system: &'a System, block: usize, len: usize) -> Self {
        Self { system, colour: block % 2, begin: block / 2 * BLOCK, len }
    }

    /// Visits runs of neighbouring vectors of one kind, unless they hold no unknown: the first entry of each
    /// run in the block, and its number of entries.
    #[inline(always)]
    fn runs(&self) -> impl Iterator<Item = (Kind, usize, usize)> {
        let kinds = &self.system.kind[self.colour][self.begin / LANES..][..self.len / LANES];
        let mut done = 0;
        let runs = kinds.chunk_by(|a, b| a == b).map(move |run| {
            let (here, len) = (done, run.len() * LANES);
            done += len;
            (run[0], here, len)
        });
        runs.filter(|&(kind, ..)| kind != Kind::Closed)
    }

    /// Computes `A p` at the unknowns.
    #[inline(always)]
    fn times(&self, p: &Split<f64>, image: &mut [f64; BLOCK]) {
        let System { grid, common, face_of, ground_of, links, .. } = self.system;
        let (colour, common) = (self.colour, f64::from(*common));
        let (own, other) = (&p[colour], &p[1 - colour]);
        let [lower, upper] = neighbours(grid, colour);
        for (kind, here, len) in self.runs() {
            let at = self.begin + here;
            let (p, image) = (&own[at..][..len], &mut image[here..][..len]);
            let ground = &ground_of[colour][at..][..len];
            let below = lower.map(|shift| &other[at.wrapping_add_signed(shift)..][..len]);
            let beyond = upper.map(|shift| &other[at.wrapping_add_signed(shift)..][..len]);
            if kind == Kind::Uniform {
                let links = &links[colour][at..][..len];
                for l in 0..len {
                    let around = below[0][l] + beyond[0][l] + (below[1][l] + beyond[1][l]);
                    let around = around + (below[2][l] + beyond[2][l]);
                    // An entry that is no unknown has no links and is zero.
                    let around = if links[l] > 0.0 { around } else { 0.0 };
                    image[l] = f64::from(ground[l]) * p[l] + common * (f64::from(links[l]) * p[l] - around);
                }
            } else {
                for l in 0..len {
                    image[l] = f64::from(ground[l]) * p[l];
                }
                for axis in 0..3 {
                    let (to, next) = (below[axis], beyond[axis]);
                    let face = &face_of[axis][colour][at..][..len];
                    let next_face = &face_of[axis][1 - colour][at.wrapping_add_signed(upper[axis])..][..len];
                    for l in 0..len {
                        image[l] +=
                            f64::from(face[l]) * (p[l] - to[l]) + f64::from(next_face[l]) * (p[l] - next[l]);
                    }
                }
            }
        }
    }
}

/// Computes `p A p` in a block.
pub(super) struct Curvature<'a> {
    pub(super) unknowns: Unknowns<'a>,
    pub(super) p: &'a Split<f64>,
}

impl Task for Curvature<'_> {
    type Output = [f64; 1];

    #[inline(always)]
    fn run<L: Lanes>(self) -> [f64; 1] {
        let Unknowns { colour, begin, len, .. } = self.unknowns;
        let mut image = [0.0; BLOCK];
        self.unknowns.times(self.p, &mut image);
        [dot(&self.p[colour][begin..][..len], &image[..len])]
    }
}

/// Computes `r = right_hand_side - A p` in a block, and r in f32; returns the largest entries of the
/// right-hand side and of r.
pub(super) struct Residual<'a> {
    pub(super) unknowns: Unknowns<'a>,
    pub(super) p: &'a Split<f64>,
    pub(super) right_hand_side: &'a [f64],
    pub(super) r: &'a mut [f64],
    pub(super) rounded: &'a mut [f32],
}

impl Task for Residual<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn run<L: Lanes>(self) -> [f64; 2] {
        let Self { unknowns, p, right_hand_side, r, rounded } = self;
        let mut image = [0.0; BLOCK];
        unknowns.times(p, &mut image);
        for l in 0..r.len() {
            r[l] = right_hand_side[l] - image[l];
            rounded[l] = r[l] as f32;
        }
        [largest(right_hand_side), largest(r)]
    }
}

/// Computes `x += length p` and `r -= length A p` in a block, and r in f32; returns the largest entry of r.
/// Multiplying by A again is cheaper than keeping the product of [`Curvature`] in memory.
pub(super) struct AdvanceSolution<'a> {
    pub(super) unknowns: Unknowns<'a>,
    pub(super) length: f64,
    pub(super) p: &'a Split<f64>,
    pub(super) x: &'a mut [f64],
    pub(super) r: &'a mut [f64],
    pub(super) rounded: &'a mut [f32],
}

impl Task for AdvanceSolution<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let Self { unknowns, length, p, x, r, rounded } = self;
        let mut image = [0.0; BLOCK];
        unknowns.times(p, &mut image);
        let p = &p[unknowns.colour][unknowns.begin..];
        let mut worst = 0.0;
        for (_, here, len) in unknowns.runs() {
            let (p, image) = (&p[here..][..len], &image[here..][..len]);
            let (x, r) = (&mut x[here..][..len], &mut r[here..][..len]);
            let rounded = &mut rounded[here..][..len];
            for l in 0..len {
                x[l] += length * p[l];
                r[l] -= length * image[l];
                rounded[l] = r[l] as f32;
            }
            worst = larger(worst, largest(r));
        }
        worst
    }
}

/// Computes `p = z + beta p` in a block.
pub(super) struct UpdateDirection<'a> {
    pub(super) unknowns: Unknowns<'a>,
    pub(super) beta: f64,
    pub(super) z: &'a [f32],
    pub(super) p: &'a mut [f64],
}

impl Task for UpdateDirection<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { unknowns, beta, z, p } = self;
        for (_, here, len) in unknowns.runs() {
            let (z, p) = (&z[here..][..len], &mut p[here..][..len]);
            for l in 0..len {
                p[l] = f64::from(z[l]) + beta * p[l];
            }
        }
    }
}

/// Computes `x += part x` and `r -= part A x` in a block, with A x = b - r, and r in f32; returns the largest
/// entry of r.
pub(super) struct Rescale<'a> {
    pub(super) part: f64,
    pub(super) b: &'a [f64],
    pub(super) x: &'a mut [f64],
    pub(super) r: &'a mut [f64],
    pub(super) rounded: &'a mut [f32],
}

impl Task for Rescale<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f64 {
        let Self { part, b, x, r, rounded } = self;
        for l in 0..x.len().min(b.len()).min(r.len()).min(rounded.len()) {
            x[l] += part * x[l];
            r[l] -= part * (b[l] - r[l]);
            rounded[l] = r[l] as f32;
        }
        largest(r)
    }
}

/// The scalar product of two columns, summed lane by lane.
#[inline(always)]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        for l in 0..LANES {
            sums[l] += a[l] * b[l];
        }
    }
    add_lanes(sums)
}

/// Scalar products in a block, with q = A p = b - r: `p r - z q` of p with the residual after a step z, and
/// `p q`.
pub(super) struct Products<'a> {
    pub(super) z: &'a [f32],
    pub(super) p: &'a [f64],
    pub(super) b: &'a [f64],
    pub(super) r: &'a [f64],
}

impl Task for Products<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn run<L: Lanes>(self) -> [f64; 2] {
        let Self { z, p, b, r } = self;
        let mut sums = [[0.0; LANES]; 2];
        for n in (0..z.len()).step_by(LANES) {
            let z: &[f32; LANES] = window(z, n);
            let (p, b, r): (&[f64; LANES], _, _) = (window(p, n), window(b, n), window(r, n));
            for l in 0..LANES {
                let q = b[l] - r[l];
                sums[0][l] += p[l] * r[l] - f64::from(z[l]) * q;
                sums[1][l] += p[l] * q;
            }
        }
        sums.map(add_lanes)
    }
}

/// The largest magnitude; NaN if one is not a number.
#[inline(always)]
fn largest(values: &[f64]) -> f64 {
    let mut lanes = [0.0; LANES];
    for chunk in values.as_chunks::<LANES>().0 {
        for l in 0..LANES {
            lanes[l] = larger(lanes[l], chunk[l].abs());
        }
    }
    lanes.into_iter().fold(0.0, larger)
}
