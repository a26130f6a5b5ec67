//! The model of an implicit participant before it has answers: neighbours hold each other.
//!
//! The participant reports its slope Z at each particle: with all others held, an impulse p moves the particle by
//! D p with D = (m + Z)^-1. But the others are not held. Where forces depend on differences of velocities, as those of
//! springs do, the slope between two particles is -N_ij, and the N_ij at a particle add up to its Z. The response
//! to impulses is then
//!
//! ```text
//! (D^-1 - N)^-1 = D + D N D + D N D N D + ...
//! ```
//!
//! The participant does not report N. Let A_ij be 1 for neighbours and 0 for others, and no particle have more than n
//! neighbours. With Z = S S^T, the model takes equal parts for all neighbours, N = c S A S^T, where c is a little less
//! than 1/n. It takes four terms, and in their middle it puts 1 for c S^T D S, which is near 1 for stiff materials:
//!
//! ```text
//! B0 = D + D S (Y + Y^2 + Y^3) S^T D,     Y = c A.
//! ```
//!
//! B0 is positive definite: |Y| <= c n < 1, so that Y + Y^2 + Y^3 > -1, and D S S^T D = D Z D <= D.

use std::iter;

use amalgam_particles::lanes::{self, Lanes, Task};
use amalgam_particles::{DMat3, DVec3, PairFinder, Spheres};
use rayon::prelude::*;

use crate::law::tasks::{CHUNK, SERIAL};

/// The part c n of a slope that is shared among neighbours, below 1. The rest holds the particle to those without
/// contacts.
const SHARED: f64 = 0.95;

/// Particles are neighbours if their distance is below this multiple of the mean of their diameters. On a lattice,
/// the nearest are at one diameter as a rule, those along a diagonal at 1.41.
const REACH: f64 = 1.25;

/// Largest number of neighbours: a particle of a lattice has up to 18 at one diameter and along the faces' diagonals. Spheres
/// that overlap far more are no lattice, and their slopes belong to others than the nearest.
const MANY: usize = 26;

/// Powers of Y. It is odd, so that B0 stays positive definite.
const PASSES: usize = 3;

/// Neighbours of the particles of a participant that are in contact.
#[derive(Clone, Debug)]
pub struct Neighbours {
    /// D S of each particle.
    outward: Vec<DMat3>,
    /// As many places for each particle, with its neighbours; in those left the number of particles.
    near: Vec<u32>,
    /// The largest number n of neighbours.
    most: usize,
}

/// A vector and a zero, which fill a register.
type Padded = [f64; 4];

impl Neighbours {
    /// The neighbours among spheres with slopes Z [kg] and `mobility` D [1/kg]. None without neighbours or slopes, or with
    /// more neighbours than lattices have.
    pub fn new(spheres: Spheres<'_>, slopes: &[DMat3], mobility: &[DMat3]) -> Option<Self> {
        if slopes.iter().all(|slope| *slope == DMat3::ZERO) {
            return None;
        }
        let reach: Vec<f64> = spheres.radius.iter().map(|radius| REACH * radius).collect();
        let mut finder = PairFinder::new();
        let pairs = finder.find(Spheres { radius: &reach, ..spheres }, |_, _| true);
        let mut degree = vec![0usize; slopes.len()];
        pairs.iter().flat_map(|&(i, j)| [i, j]).for_each(|i| degree[i as usize] += 1);
        let most = degree.iter().copied().max().filter(|most| (1..=MANY).contains(most))?;
        let mut near = vec![slopes.len() as u32; most * slopes.len()];
        degree.fill(0);
        for (i, j) in pairs.iter().flat_map(|&(i, j)| [(i as usize, j), (j as usize, i)]) {
            near[most * i + degree[i]] = j;
            degree[i] += 1;
        }
        let outward = slopes.iter().zip(mobility).map(|(slope, mobility)| *mobility * root(*slope));
        Some(Self { outward: outward.collect(), near, most })
    }

    /// Adds the change of velocity [m/s] by (B0 - D) times impulses [kg m/s]. Each particle gathers, so that the bits
    /// are the same on any number of threads.
    pub(in crate::law) fn add(&self, impulse: &[DVec3], change: &mut [DVec3]) {
        let part = SHARED / self.most as f64;
        let mut sum = vec![Padded::default(); impulse.len()];
        // One zero more, for places without a neighbour.
        let inward =
            self.outward.iter().zip(impulse).map(|(outward, impulse)| padded(outward.transpose() * *impulse));
        let mut passed: Vec<Padded> = inward.chain(iter::once(Padded::default())).collect();
        let mut next = vec![Padded::default(); passed.len()];
        for _ in 0..PASSES {
            let near = self.near.par_chunks(CHUNK * self.most);
            let columns = sum.par_chunks_mut(CHUNK).zip(next.par_chunks_mut(CHUNK)).zip(near);
            columns.with_min_len(SERIAL / CHUNK).for_each(|((sum, next), near)| {
                lanes::run(Pass { near, most: self.most, part, passed: &passed, sum, next });
            });
            std::mem::swap(&mut passed, &mut next);
        }
        for ((change, outward), sum) in change.iter_mut().zip(&self.outward).zip(&sum) {
            *change += *outward * DVec3::new(sum[0], sum[1], sum[2]);
        }
    }

    /// Bound on the factor by which neighbours enlarge an answer of D.
    pub(super) fn growth(&self) -> f64 {
        (0..=PASSES as i32).map(|power| SHARED.powi(power)).sum()
    }
}

fn padded(v: DVec3) -> Padded {
    [v.x, v.y, v.z, 0.0]
}

/// One product with Y for some particles.
struct Pass<'a> {
    near: &'a [u32],
    most: usize,
    part: f64,
    passed: &'a [Padded],
    sum: &'a mut [Padded],
    next: &'a mut [Padded],
}

impl Task for Pass<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { near, most, part, passed, sum, next } = self;
        for ((near, sum), next) in near.chunks_exact(most).zip(sum).zip(next) {
            let mut taken = Padded::default();
            for &other in near {
                let other = &passed[other as usize];
                for axis in 0..4 {
                    taken[axis] += other[axis];
                }
            }
            for axis in 0..4 {
                next[axis] = part * taken[axis];
                sum[axis] += next[axis];
            }
        }
    }
}

/// The lower triangular S with S S^T = Z for a positive semidefinite Z, by Cholesky. Directions in which Z is zero
/// but for rounding are zero in S.
fn root(z: DMat3) -> DMat3 {
    const ROUNDING: f64 = 1e-12;
    let least = ROUNDING * (z.x_axis.x + z.y_axis.y + z.z_axis.z);
    let (mut rest, mut columns) = (z, [DVec3::ZERO; 3]);
    for (k, column) in columns.iter_mut().enumerate() {
        let pivot = rest.col(k)[k];
        if pivot > least {
            *column = rest.col(k) / pivot.sqrt();
            (0..k).for_each(|above| column[above] = 0.0);
            rest -= DMat3::from_cols(*column * column.x, *column * column.y, *column * column.z);
        }
    }
    DMat3::from_cols(columns[0], columns[1], columns[2])
}

#[cfg(test)]
mod tests {
    use amalgam_particles::random::uniform_f64;

    use super::*;

    const MASS: f64 = 2.0;

    /// B0 times impulses, for particles of MASS and radius 0.5.
    fn answer(places: &[DVec3], slopes: &[DMat3], impulse: &[DVec3]) -> Vec<DVec3> {
        let mobility: Vec<DMat3> =
            slopes.iter().map(|z| (*z + DMat3::from_diagonal(DVec3::splat(MASS))).inverse()).collect();
        let radius = vec![0.5; places.len()];
        let spheres = Spheres { position: places, radius: &radius, class: None };
        let mut change: Vec<DVec3> = mobility.iter().zip(impulse).map(|(d, p)| *d * *p).collect();
        if let Some(neighbours) = Neighbours::new(spheres, slopes, &mobility) {
            neighbours.add(impulse, &mut change);
        }
        change
    }

    fn work(impulse: &[DVec3], change: &[DVec3]) -> f64 {
        impulse.iter().zip(change).map(|(p, v)| p.dot(*v)).sum()
    }

    /// A chain of springs k along x, whose ends hang on walls: its slopes are 2 k, and a long wave of impulses moves it
    /// far more than each particle alone would move.
    #[test]
    fn particles_that_are_pushed_together_give_way_together() {
        const COUNT: usize = 41;
        let stiffness = 40.0;
        let places: Vec<DVec3> = (0..COUNT).map(|k| DVec3::X * k as f64).collect();
        let slopes = vec![DMat3::from_diagonal(DVec3::new(2.0 * stiffness, 0.0, 0.0)); COUNT];
        let wave = |k: usize| (std::f64::consts::PI * (k + 1) as f64 / (COUNT + 1) as f64).sin();
        let impulse: Vec<DVec3> = (0..COUNT).map(|k| DVec3::X * wave(k)).collect();
        let middle = answer(&places, &slopes, &impulse)[COUNT / 2].x;
        let alone = 1.0 / (MASS + 2.0 * stiffness);
        let cosine = (std::f64::consts::PI / (COUNT + 1) as f64).cos();
        let right = 1.0 / (MASS + 2.0 * stiffness * (1.0 - cosine));
        assert!(middle > 3.0 * alone && middle < right, "{alone} {middle} {right}");
        // Impulses that alternate are the ones that neighbours answer least.
        let alternating: Vec<DVec3> =
            impulse.iter().zip(0..).map(|(p, k)| if k % 2 == 0 { *p } else { -*p }).collect();
        assert!(work(&alternating, &answer(&places, &slopes, &alternating)) > 0.0);
        // Across the chain there is no slope, and particles answer alone.
        let across: Vec<DVec3> = (0..COUNT).map(|k| DVec3::Y * wave(k)).collect();
        let middle = answer(&places, &slopes, &across)[COUNT / 2].y;
        assert!((middle - 1.0 / MASS).abs() < 1e-12, "{middle}");
    }

    /// Slopes of any size and direction, and impulses that alternate: positive definite and symmetric.
    #[test]
    fn the_answer_is_symmetric_and_never_against_the_impulse() {
        let places: Vec<DVec3> =
            (0..60).map(|k| DVec3::new(f64::from(k % 4), f64::from(k / 4 % 5), f64::from(k / 20))).collect();
        let noise = |of: u64, k: usize| {
            DVec3::from_array([0, 1, 2].map(|axis| uniform_f64(&[of, k as u64, axis]) - 0.5))
        };
        let slope = |k: usize| {
            let columns = [noise(1, k), noise(2, k) * 100.0, noise(3, k) * 0.01];
            let outer = |v: DVec3| DMat3::from_cols(v * v.x, v * v.y, v * v.z);
            // Some have a slope in one direction, some none.
            columns[..k % 4].iter().map(|&v| outer(v)).fold(DMat3::ZERO, |sum, part| sum + part)
        };
        let slopes: Vec<DMat3> = (0..places.len()).map(slope).collect();
        let checkered = |k: usize| if (k % 4 + k / 4 % 5 + k / 20).is_multiple_of(2) { 1.0 } else { -1.0 };
        for trial in 10..40 {
            let p: Vec<DVec3> =
                (0..places.len()).map(|k| DVec3::splat(checkered(k)) + noise(trial, k)).collect();
            let q: Vec<DVec3> = (0..places.len()).map(|k| noise(trial + 100, k)).collect();
            let (of_p, of_q) = (answer(&places, &slopes, &p), answer(&places, &slopes, &q));
            assert!(work(&p, &of_p) > 0.0 && work(&q, &of_q) > 0.0);
            assert!((work(&p, &of_q) - work(&q, &of_p)).abs() < 1e-12 * work(&p, &of_p));
        }
    }

    #[test]
    fn there_are_neighbours_where_particles_are_near_and_have_slopes() {
        let has = |position: &[DVec3], slope: DMat3| {
            let (slopes, mobility) = (vec![slope; position.len()], vec![DMat3::IDENTITY; position.len()]);
            let radius = vec![0.5; position.len()];
            let spheres = Spheres { position, radius: &radius, class: None };
            Neighbours::new(spheres, &slopes, &mobility).is_some()
        };
        let apart = |distance: f64| [DVec3::ZERO, DVec3::X * distance];
        assert!(has(&apart(1.2), DMat3::IDENTITY));
        assert!(!has(&apart(1.3), DMat3::IDENTITY));
        assert!(!has(&apart(1.2), DMat3::ZERO));
        // Thirty spheres in one place are no lattice.
        let crowd: Vec<DVec3> = (0..30).map(|k| DVec3::X * 0.01 * f64::from(k)).collect();
        assert!(has(&crowd[..20], DMat3::IDENTITY) && !has(&crowd, DMat3::IDENTITY));
    }
}
