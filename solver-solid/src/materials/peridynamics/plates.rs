//! Plates and strips of few layers: by how much their bonds are strengthened so that they stretch and bend as
//! a body should.
//!
//! A plate has fewer bonds than an endless body, and its bonds lie nearer to its middle: it is too soft, and
//! in bending softer than in tension. Its layers get corrections for which both stiffnesses are right. The
//! correction of a layer is 1 + (m - 1) (p + q d): m is the ratio of moments of `surface_factors`, and d is
//! the number of layers to the nearest surface. Tension and bending determine p and q. Layers that lack no
//! bond keep the correction 1.
//!
//! A bond with the offset (a, b, c) and the length r is stretched by (a^2 s + b^2 e s + c w)/r. In tension s is
//! 1, in bending s is the height of the bond's middle. The strain across, e, is free. The bond's upper layer
//! rises by w more than its lower layer. The energy is the least one over e and the layers' ways, which is a
//! linear system.

use super::law::Law;

/// From this number of layers on, corrections at surfaces are taken as in a thick body: more layers change
/// them by thousandths.
const THICK: usize = 32;
/// The smallest correction. Below, bonds within a layer would hardly resist, and below 0 not at all.
const CORRECTION_MIN: f64 = 0.25;
/// Relative error at which both stiffnesses count as right.
const TOLERANCE: f64 = 1e-9;

/// Sums over the bonds that lead from a particle up by the same number of layers, of their stiffness over
/// r^2.
#[derive(Clone, Copy, Debug, Default)]
struct PlateSums {
    /// Times a^4, a^2 b^2, b^4.
    along: f64,
    mixed: f64,
    across: f64,
    /// Times a^2, b^2 and 1: per layer that they lead up.
    along_up: f64,
    across_up: f64,
    up: f64,
    /// The moment: of r w.
    moment: f64,
}

/// Strains of a plate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Strain {
    Tension,
    Bending,
}

/// The bonds of a law between layers of a lattice.
pub(super) struct Plate {
    reach: i32,
    /// For the layers from `-reach` to `reach`.
    sums: Vec<PlateSums>,
    /// Stiffness of an endless body in tension along an axis of the lattice, with free sides.
    modulus: f64,
}

impl Plate {
    pub(super) fn new(law: &Law) -> Self {
        let reach = (law.reach() / law.spacing).floor() as i32;
        let mut sums = vec![PlateSums::default(); 2 * reach as usize + 1];
        let layers = law.model.dimensions() - 1;
        law.for_each_step(|step, rest| {
            let [a, b] = [step[0], if layers == 2 { step[1] } else { 0 }].map(|n| f64::from(n * n));
            let (r, share) = (rest / law.spacing, law.volume_share(rest));
            let stiffness = share / r.powi(3);
            let sum = &mut sums[(step[layers] + reach) as usize];
            sum.along += stiffness * a * a;
            sum.mixed += stiffness * a * b;
            sum.across += stiffness * b * b;
            sum.along_up += stiffness * a;
            sum.across_up += stiffness * b;
            sum.up += stiffness;
            sum.moment += share * r;
        });
        let along: f64 = sums.iter().map(|sum| sum.along).sum();
        let mixed: f64 = (-reach..=reach).zip(&sums).map(|(c, sum)| f64::from(c * c) * sum.along_up).sum();
        let modulus = if layers == 2 {
            (along - mixed) * (along + 2.0 * mixed) / (along + mixed)
        } else {
            along - mixed * mixed / along
        };
        Self { reach, sums, modulus }
    }

    /// Corrections of the layers of a plate of `count` layers, from one surface to the other. If no
    /// corrections make both tension and bending right, the one in `preferred` is right.
    pub(super) fn corrections(&self, count: usize, preferred: Strain) -> Vec<f64> {
        let thin = self.thin_corrections(count.min(THICK), preferred);
        let of = |layer: usize| {
            let depth = layer.min(count - 1 - layer);
            thin.get(depth).filter(|_| depth < thin.len().div_ceil(2)).copied().unwrap_or(1.0)
        };
        (0..count).map(of).collect()
    }

    fn thin_corrections(&self, count: usize, preferred: Strain) -> Vec<f64> {
        let equal = |strain| vec![1.0 / self.stiffness(&vec![1.0; count], strain).0; count];
        match count {
            1 => equal(Strain::Tension),
            _ => self.both(count).unwrap_or_else(|| equal(preferred)),
        }
    }

    /// Corrections with which tension and bending are right, found by Newton's method, if all are at least
    /// [`CORRECTION_MIN`].
    fn both(&self, count: usize) -> Option<Vec<f64>> {
        let shape: Vec<[f64; 2]> = (0..count)
            .map(|layer| {
                let lack = self.lack(layer, count) - 1.0;
                [lack, lack * layer.min(count - 1 - layer) as f64]
            })
            .collect();
        let mut factors = [1.0, 0.0];
        for _ in 0..50 {
            let corrections: Vec<f64> =
                shape.iter().map(|[p, q]| 1.0 + p * factors[0] + q * factors[1]).collect();
            let [tension, bending] =
                [Strain::Tension, Strain::Bending].map(|strain| self.stiffness(&corrections, strain));
            // Derivative of the stiffness by the correction of a layer: the part of its bonds at fixed
            // displacements. These have the least energy, so their change adds nothing in first order.
            let slopes = [&tension.1, &bending.1].map(|slope| {
                let by =
                    |n: usize| slope.iter().zip(&shape).map(|(slope, shape)| slope * shape[n]).sum::<f64>();
                [by(0), by(1)]
            });
            let errors = [tension.0 - 1.0, bending.0 - 1.0];
            if errors.iter().all(|error| error.abs() < TOLERANCE) {
                return corrections
                    .iter()
                    .all(|correction| *correction >= CORRECTION_MIN)
                    .then_some(corrections);
            }
            let [[a, b], [c, d]] = slopes;
            let determinant = a * d - b * c;
            factors[0] -= (d * errors[0] - b * errors[1]) / determinant;
            factors[1] -= (a * errors[1] - c * errors[0]) / determinant;
        }
        None
    }

    /// The moment of an endless body's particle over that of a layer's.
    fn lack(&self, layer: usize, count: usize) -> f64 {
        let own: f64 = self.neighbours(layer, count).map(|(_, sum)| sum.moment).sum();
        self.sums.iter().map(|sum| sum.moment).sum::<f64>() / own
    }

    /// The layers that bonds of a layer lead to, with these bonds' sums.
    fn neighbours(&self, layer: usize, count: usize) -> impl Iterator<Item = (usize, &PlateSums)> {
        let other = move |c: i32| usize::try_from(layer as i32 + c).ok().filter(|other| *other < count);
        (-self.reach..=self.reach).zip(&self.sums).filter_map(move |(c, sum)| Some((other(c)?, sum)))
    }

    /// Stiffness of a plate over what it should be, and how much of it is from the bonds of each layer, per
    /// correction.
    fn stiffness(&self, corrections: &[f64], strain: Strain) -> (f64, Vec<f64>) {
        let count = corrections.len();
        let middle = |i: usize, j: usize| match strain {
            Strain::Tension => 1.0,
            Strain::Bending => 0.5 * ((i + j) as f64 - (count - 1) as f64),
        };
        // Unknowns: how far layers move, the first of them not at all, and the strain across.
        let mut system = vec![vec![0.0; count + 2]; count + 1];
        for i in 0..count {
            for (j, sum) in self.neighbours(i, count) {
                let (correction, s, c) =
                    (0.5 * (corrections[i] + corrections[j]), middle(i, j), j as f64 - i as f64);
                system[count][count] += correction * sum.across * s * s;
                system[count][count + 1] -= correction * sum.mixed * s * s;
                for (k, sign) in [(i, -c), (j, c)] {
                    system[k][count + 1] -= correction * sum.along_up * s * sign;
                    system[k][count] += correction * sum.across_up * s * sign;
                    system[count][k] += correction * sum.across_up * s * sign;
                    system[k][i] -= correction * sum.up * c * sign;
                    system[k][j] += correction * sum.up * c * sign;
                }
            }
        }
        let way = solve(system);
        let cubed = (count as f64).powi(3) / 12.0;
        let right = self.modulus * if strain == Strain::Tension { count as f64 } else { cubed };
        let mut parts = vec![0.0; count];
        for i in 0..count {
            for (j, sum) in self.neighbours(i, count) {
                let (s, e) = (middle(i, j), way[count] * middle(i, j));
                let up = (way[j] - way[i]) * (j as f64 - i as f64);
                let strained = sum.along * s * s + sum.across * e * e + sum.up * up * up;
                let coupled = sum.mixed * s * e + sum.along_up * s * up + sum.across_up * e * up;
                let energy = (strained + 2.0 * coupled) / right;
                parts[i] += 0.5 * energy;
                parts[j] += 0.5 * energy;
            }
        }
        (parts.iter().zip(corrections).map(|(part, correction)| part * correction).sum(), parts)
    }
}

/// Solves a symmetric system with its right-hand side in the last column; unknowns without stiffness, and the
/// first, are 0.
fn solve(mut system: Vec<Vec<f64>>) -> Vec<f64> {
    let count = system.len();
    let free: Vec<usize> = (1..count).filter(|&k| system[k][k] > 0.0).collect();
    for (at, &k) in free.iter().enumerate() {
        let pivot = system[k].clone();
        for &row in &free[at + 1..] {
            let factor = system[row][k] / pivot[k];
            system[row].iter_mut().zip(&pivot).for_each(|(value, pivot)| *value -= factor * pivot);
        }
    }
    let mut solution = vec![0.0; count];
    for (at, &k) in free.iter().enumerate().rev() {
        let known: f64 = free[at + 1..].iter().map(|&other| system[k][other] * solution[other]).sum();
        solution[k] = (system[k][count] - known) / system[k][k];
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::materials::peridynamics::law::Model;

    fn law(model: Model, horizon: f64) -> Law {
        Law {
            spacing: 0.5,
            horizon: 0.5 * horizon,
            volume: 1.0,
            micromodulus: 1.0,
            critical_stretch: f64::INFINITY,
            threshold_rise: 0.0,
            strength_scatter: 0.0,
            volume_correction: true,
            surface_correction: true,
            damping_time: 0.0,
            model,
        }
    }

    #[test]
    fn thick_plates_need_no_correction_inside_and_thin_ones_get_both_stiffnesses() {
        for (model, horizon) in
            [(Model::Solid, 3.015), (Model::PlaneStress, 3.015), (Model::PlaneStress, 5.015)]
        {
            let plate = Plate::new(&law(model, horizon));
            for count in [6, 8, 13, 32] {
                let corrections = plate.corrections(count, Strain::Bending);
                for strain in [Strain::Tension, Strain::Bending] {
                    let (stiffness, _) = plate.stiffness(&corrections, strain);
                    assert!(
                        (stiffness - 1.0).abs() < 1e-8,
                        "{model:?}, {count} layers, {strain:?}: {stiffness}"
                    );
                }
                let inside = count / 2;
                assert!(count < 13 || (corrections[inside] - 1.0).abs() < 1e-12, "{corrections:?}");
                assert!(
                    corrections.iter().eq(corrections.iter().rev())
                        || corrections
                            .iter()
                            .zip(corrections.iter().rev())
                            .all(|(a, b)| (a - b).abs() < 1e-12)
                );
            }
            let (two, _) = plate.stiffness(&plate.corrections(2, Strain::Bending), Strain::Bending);
            assert!((two - 1.0).abs() < 1e-12, "{two}");
            assert_eq!(plate.corrections(200, Strain::Bending)[100], 1.0);
        }
    }

    #[test]
    fn a_plate_without_corrections_is_as_soft_as_an_independent_computation_says() {
        // Root of the prototype: dense least squares over all displacements of a section.
        let plate = Plate::new(&law(Model::PlaneStress, 3.015));
        for (count, tension, bending) in [(2, 0.705, 0.415), (4, 0.853, 0.649), (8, 0.926, 0.803)] {
            let none = vec![1.0; count];
            assert!((plate.stiffness(&none, Strain::Tension).0 - tension).abs() < 2e-3);
            assert!((plate.stiffness(&none, Strain::Bending).0 - bending).abs() < 2e-3);
        }
    }
}
