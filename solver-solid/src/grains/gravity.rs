//! Newton's gravity between particles: a direct sum for few, a tree for many.

mod tree;

use amalgam_particles::{DVec3, ParticleId};
use amalgam_solver_kit::{ExactSum, Ranks};
use rayon::prelude::*;

use crate::chunks::CHUNK;
use tree::Tree;

/// Attraction of particles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gravity {
    /// G [m^3/(kg s^2)]; 0 if they do not.
    pub(crate) constant: f64,
    /// Length epsilon [m] of Plummer's softened potential -G m / sqrt(r^2 + epsilon^2).
    pub(crate) softening: f64,
    /// Particles up to which every pair is summed; above, a tree.
    pub(crate) direct_max: usize,
    /// Opening angle of the tree: a cell of edge l at distance d counts as one if l/d is below it.
    pub(crate) opening_angle: f64,
}

/// The attraction that one particle feels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Attraction {
    /// [m/s^2] over G.
    acceleration: DVec3,
    /// [J/kg] over G.
    potential: f64,
}

impl Attraction {
    /// Adds the attraction of a mass at distance `d`, with Plummer's softening squared.
    #[inline(always)]
    fn add_mass(&mut self, d: DVec3, mass: f64, softening_squared: f64) {
        let inverse = 1.0 / (d.length_squared() + softening_squared).sqrt();
        self.potential -= mass * inverse;
        self.acceleration += d * (mass * inverse * inverse * inverse);
    }
}

/// The particles of all ranks that attract each other, in the order of their ids, which count from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Masses<'a> {
    /// Positions [m].
    pub(crate) position: &'a [DVec3],
    /// Masses [kg].
    pub(crate) mass: &'a [f64],
}

/// Accelerations of particles by all others, and the energy of their attraction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Field {
    /// Accelerations [m/s^2], one per own particle.
    pub(crate) acceleration: Vec<DVec3>,
    /// Potential energy of all ranks [J].
    pub(crate) energy: f64,
    attractions: Vec<Attraction>,
}

impl Field {
    /// Computes the field at the positions of `own` particles. Each particle sums in an order of its own that
    /// depends on no thread and no rank. Collective.
    ///
    /// A direct sum conserves momentum to rounding, since the two halves of a pair differ only in sign. The
    /// tree does so only to its accuracy.
    pub(crate) fn update(&mut self, ranks: &Ranks, own: &[ParticleId], all: Masses<'_>, gravity: &Gravity) {
        let Self { acceleration, energy, attractions } = self;
        let Masses { position, mass } = all;
        let softening = gravity.softening * gravity.softening;
        let tree = (position.len() > gravity.direct_max).then(|| Tree::new(position, mass));
        let attraction = |id: &ParticleId| {
            let i = id.0 as usize;
            if let Some(tree) = &tree {
                return tree.attraction(i, gravity.opening_angle, softening);
            }
            let (here, mut attraction) = (position[i], Attraction::default());
            for (x, m) in position[..i].iter().zip(&mass[..i]) {
                attraction.add_mass(*x - here, *m, softening);
            }
            for (x, m) in position[i + 1..].iter().zip(&mass[i + 1..]) {
                attraction.add_mass(*x - here, *m, softening);
            }
            attraction
        };
        own.par_iter().with_min_len(CHUNK / 8).map(attraction).collect_into_vec(attractions);
        acceleration.clear();
        acceleration.extend(attractions.iter().map(|attraction| attraction.acceleration * gravity.constant));
        let potential = own.iter().zip(&*attractions).map(|(id, of)| mass[id.0 as usize] * of.potential);
        *energy = 0.5 * gravity.constant * ranks.exact_sum(&potential.collect::<ExactSum>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amalgam_particles::{Particles, random};

    fn cloud(count: usize) -> Particles {
        let mut particles = Particles::default();
        for i in 0..count as u64 {
            let number = |axis: u64| random::uniform_f64(&[i, axis]);
            // Three dense lumps in thin surroundings.
            let lump = DVec3::new(number(4).floor() + (i % 3) as f64, (i % 2) as f64, 0.0) * 3.0;
            let spread = if i % 5 == 0 { 8.0 } else { 1.0 };
            let x = lump + (DVec3::new(number(0), number(1), number(2)) - 0.5) * spread;
            particles.push(ParticleId(i), x, DVec3::ZERO, 0.5 + number(3), 0.01, false);
        }
        particles
    }

    fn update(field: &mut Field, particles: &Particles, gravity: &Gravity) {
        let all = Masses { position: &particles.position, mass: &particles.mass };
        field.update(&Ranks::alone(), &particles.id, all, gravity);
    }

    const GRAVITY: Gravity =
        Gravity { constant: 2.0, softening: 0.0, direct_max: usize::MAX, opening_angle: 0.5 };

    #[test]
    fn a_direct_sum_keeps_momentum_and_its_energy_has_the_force_as_slope() {
        let mut particles = cloud(300);
        let mut field = Field::default();
        let gravity = Gravity { softening: 0.01, ..GRAVITY };
        update(&mut field, &particles, &gravity);
        let force = |i: usize| field.acceleration[i] * particles.mass[i];
        let (sum, scale) =
            (0..300).fold((DVec3::ZERO, 0.0), |(s, n), i| (s + force(i), n + force(i).length()));
        assert!(sum.length() < 1e-13 * scale, "{sum}");
        let (expected, h) = (-force(17).y, 1e-5);
        let mut energy = |y: f64| {
            particles.position[17].y += y;
            let mut field = Field::default();
            update(&mut field, &particles, &gravity);
            particles.position[17].y -= y;
            field.energy
        };
        let slope = (energy(h) - energy(-h)) / (2.0 * h);
        assert!((slope / expected - 1.0).abs() < 1e-5, "{slope} {expected}");
    }

    /// The accuracy that docs/theory/solids.md states.
    #[test]
    fn the_tree_agrees_with_the_direct_sum() {
        let particles = cloud(6000);
        let (mut direct, mut tree) = (Field::default(), Field::default());
        update(&mut direct, &particles, &GRAVITY);
        for (opening_angle, root_mean_square, most) in
            [(0.0, 1e-14, 1e-11), (0.25, 2e-4, 4e-3), (0.5, 2e-3, 4e-2)]
        {
            update(&mut tree, &particles, &Gravity { direct_max: 0, opening_angle, ..GRAVITY });
            let errors =
                direct.acceleration.iter().zip(&tree.acceleration).map(|(a, b)| a.distance(*b) / a.length());
            let errors: Vec<f64> = errors.collect();
            let mean = (errors.iter().map(|e| e * e).sum::<f64>() / 6000.0).sqrt();
            let worst = errors.iter().fold(0.0, |worst: f64, e| worst.max(*e));
            println!("opening angle {opening_angle}: {mean:.1e}, at most {worst:.1e}");
            assert!(mean < root_mean_square && worst < most, "{opening_angle}: {mean} {worst}");
            assert!((tree.energy / direct.energy - 1.0).abs() < root_mean_square);
        }
    }

    #[test]
    fn neither_depends_on_threads() {
        let particles = cloud(3000);
        for direct_max in [0, usize::MAX] {
            let bits = [1, 2, 3].map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("pool");
                let mut field = Field::default();
                pool.install(|| update(&mut field, &particles, &Gravity { direct_max, ..GRAVITY }));
                let numbers = field.acceleration.iter().flat_map(|a| a.to_array());
                numbers.chain([field.energy]).map(f64::to_bits).collect::<Vec<u64>>()
            });
            assert!(bits[0] == bits[1] && bits[1] == bits[2]);
        }
    }

    #[test]
    fn particles_at_one_place_are_in_one_leaf() {
        let mut particles = cloud(100);
        for i in 0..40 {
            particles.position[i] = DVec3::ONE;
        }
        let gravity = Gravity { softening: 0.1, direct_max: 0, opening_angle: 0.0, ..GRAVITY };
        let (mut tree, mut direct) = (Field::default(), Field::default());
        update(&mut tree, &particles, &gravity);
        update(&mut direct, &particles, &Gravity { direct_max: 100, ..gravity });
        assert!((tree.energy / direct.energy - 1.0).abs() < 1e-13);
    }
}
