//! Discs that attract each other: the state that every rival advances, and what rivals share.

use amalgam_particles::{DVec3, PairFinder, Particles, Spheres};

/// Discs in a plane of constant z. Columns have an entry per disc.
#[derive(Default)]
pub(super) struct Discs {
    pub(super) id: Vec<u64>,
    /// Centres [m].
    pub(super) position: Vec<DVec3>,
    /// Velocities [m/s].
    pub(super) velocity: Vec<DVec3>,
    /// Masses [kg].
    pub(super) mass: Vec<f64>,
    /// Radii [m].
    pub(super) radius: Vec<f64>,
    /// Constant of gravitation G [m^3/(kg s^2)].
    pub(super) gravitational_constant: f64,
    finder: PairFinder,
}

/// Form of the attraction at small distances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Attraction {
    /// G m1 m2/d^2 at any distance d.
    Newton,
    /// The same, but nowhere more than at the distance r1 + r2 at which two discs touch.
    Bounded,
}

/// Two discs, seen from the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// Direction from the first centre to the second; the x axis if the centres coincide.
    pub(super) normal: DVec3,
    /// Distance of the centres less the sum of the radii [m]: f in the theory of constraints.
    pub(super) gap: f64,
    /// Relative velocity along the normal [m/s], the rate of change of the gap. It is negative if the discs
    /// approach.
    pub(super) rate: f64,
    /// m1 m2/(m1 + m2) [kg].
    pub(super) reduced_mass: f64,
}

impl Discs {
    /// Discs at the places of these particles, with their masses and radii.
    pub(super) fn new(particles: &Particles, gravitational_constant: f64) -> Self {
        Self {
            id: particles.id.iter().map(|id| id.0).collect(),
            position: particles.position.clone(),
            velocity: particles.velocity.clone(),
            mass: particles.mass.clone(),
            radius: particles.radius.clone(),
            gravitational_constant,
            finder: PairFinder::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.id.len()
    }

    /// Acceleration of each disc by all others [m/s^2]: the sum of G m/d^2 towards each. The sum runs in the
    /// order of the discs. Discs at one place do not attract each other, as there is no direction.
    pub(super) fn acceleration(&self, attraction: Attraction) -> Vec<DVec3> {
        let mut acceleration = vec![DVec3::ZERO; self.len()];
        for i in 0..self.len() {
            for j in i + 1..self.len() {
                let d = self.position[j] - self.position[i];
                let distance = d.length();
                if distance == 0.0 {
                    continue;
                }
                let felt = match attraction {
                    Attraction::Newton => distance,
                    Attraction::Bounded => distance.max(self.radius[i] + self.radius[j]),
                };
                let part = d * (self.gravitational_constant / (distance * felt * felt));
                acceleration[i] += part * self.mass[j];
                acceleration[j] -= part * self.mass[i];
            }
        }
        acceleration
    }

    /// The first half of a step of symplectic Euler: v += a dt.
    pub(super) fn kick(&mut self, attraction: Attraction, dt: f64) {
        let acceleration = self.acceleration(attraction);
        for (v, a) in self.velocity.iter_mut().zip(acceleration) {
            *v += a * dt;
        }
    }

    /// The second half of a step of symplectic Euler: x += v dt.
    pub(super) fn drift(&mut self, dt: f64) {
        for (x, v) in self.position.iter_mut().zip(&self.velocity) {
            *x += *v * dt;
        }
    }

    /// All pairs that overlap, in the order of their indices.
    pub(super) fn overlapping(&mut self) -> Vec<(usize, usize)> {
        self.nearer_than(0.0)
    }

    /// All pairs whose gap is at most `margin` [m], in the order of their indices.
    pub(super) fn nearer_than(&mut self, margin: f64) -> Vec<(usize, usize)> {
        let grown: Vec<f64> = self.radius.iter().map(|radius| radius + 0.5 * margin).collect();
        let spheres = Spheres { position: &self.position, radius: &grown, class: None };
        let pairs = self.finder.find(spheres, |_, _| true);
        pairs.iter().map(|&(i, j)| (i as usize, j as usize)).collect()
    }

    /// True if every disc is at most this far from the origin [m] and this fast [m/s].
    pub(super) fn is_within(&self, distance: f64, speed: f64) -> bool {
        let within = |column: &[DVec3], most: f64| column.iter().all(|value| value.length() <= most);
        within(&self.position, distance) && within(&self.velocity, speed)
    }

    pub(super) fn pair(&self, i: usize, j: usize) -> Pair {
        let d = self.position[j] - self.position[i];
        let normal = d.normalize_or(DVec3::X);
        let (a, b) = (self.mass[i], self.mass[j]);
        Pair {
            normal,
            gap: d.length() - self.radius[i] - self.radius[j],
            rate: (self.velocity[j] - self.velocity[i]).dot(normal),
            reduced_mass: a * b / (a + b),
        }
    }

    /// Gives an impulse [kg m/s] to j and its opposite to i.
    pub(super) fn push(&mut self, i: usize, j: usize, impulse: DVec3) {
        self.velocity[i] -= impulse / self.mass[i];
        self.velocity[j] += impulse / self.mass[j];
    }

    /// Moves two discs apart along their normal until they touch. The way is shared so that the centre of
    /// mass stays: m1 dx1 + m2 dx2 = 0.
    pub(super) fn part(&mut self, i: usize, j: usize, pair: &Pair) {
        let moment = pair.normal * (-pair.gap * pair.reduced_mass);
        self.position[i] -= moment / self.mass[i];
        self.position[j] += moment / self.mass[j];
    }

    /// Sum of m v [kg m/s].
    pub(super) fn momentum(&self) -> DVec3 {
        self.mass.iter().zip(&self.velocity).map(|(m, v)| *m * *v).sum()
    }

    /// Sum of m x × v about the origin [kg m^2/s].
    pub(super) fn angular_momentum(&self) -> DVec3 {
        (0..self.len()).map(|i| self.position[i].cross(self.velocity[i]) * self.mass[i]).sum()
    }

    /// Sum of m v^2/2 [J].
    pub(super) fn kinetic_energy(&self) -> f64 {
        self.mass.iter().zip(&self.velocity).map(|(m, v)| 0.5 * m * v.length_squared()).sum()
    }

    /// Speed of the fastest disc [m/s].
    pub(super) fn speed_max(&self) -> f64 {
        self.velocity.iter().map(|v| v.length()).fold(0.0, f64::max)
    }

    /// The deepest overlap [m], and the deepest one over the smaller radius.
    pub(super) fn overlap_max(&mut self) -> [f64; 2] {
        let pairs = self.overlapping();
        pairs.iter().fold([0.0, 0.0], |[depth, relative], &(i, j)| {
            let overlap = -self.pair(i, j).gap;
            [f64::max(depth, overlap), f64::max(relative, overlap / self.radius[i].min(self.radius[j]))]
        })
    }
}
