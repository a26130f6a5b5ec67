//! Explicit spheres and discs under the contact law, without participants.

use amalgam_particles::{DVec3, PairFinder, Spheres};

use crate::law::{
    ContactLaw, LawStatistics, Step, WarmStart,
    bodies::{Bodies, InverseInertia},
    contact::{Contact, ContactMaterial, Plane, Sphere, reach},
};

/// Accelerations of bodies [m/s^2] from their positions [m] and masses [kg].
pub type Attraction = fn(&[DVec3], &[f64]) -> Vec<DVec3>;

/// Factor of m r^2 in a sphere's inertia, or no rotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spin {
    /// No rotation.
    None,
    /// A solid disc about its axis.
    Disc,
    /// A solid ball.
    Ball,
}

/// Spheres, each a body of one particle, and planes that nothing moves.
#[derive(Debug, Default)]
pub struct World {
    /// The solver.
    pub law: ContactLaw,
    /// The solver's memory between steps.
    pub warm_start: WarmStart,
    /// Spheres, then planes.
    pub bodies: Bodies,
    /// Centres of spheres [m].
    pub position: Vec<DVec3>,
    /// Radii of spheres [m].
    pub radius: Vec<f64>,
    /// Half spaces.
    pub planes: Vec<Plane>,
    /// Acceleration of all spheres [m/s^2].
    pub gravity: DVec3,
    /// Surface of all contacts.
    pub material: ContactMaterial,
    /// Acceleration of each body by other forces [m/s^2], before every step.
    pub attraction: Option<Attraction>,
    /// Contacts of the last step.
    pub contacts: Vec<Contact>,
    finder: PairFinder,
}

/// Planes are named after all spheres.
const FIRST_PLANE: u64 = 1 << 60;

impl World {
    /// A world without spheres, with gravity [m/s^2] and one coefficient of friction.
    pub fn new(gravity: DVec3, friction: f64) -> Self {
        let material = ContactMaterial { friction, ..ContactMaterial::default() };
        Self { gravity, material, ..Self::default() }
    }

    /// Adds a sphere of a mass [kg] and a radius [m], and returns its number. An infinite mass is immovable.
    ///
    /// # Panics
    /// If there is a plane already: planes come after all spheres.
    pub fn push(&mut self, position: DVec3, velocity: DVec3, mass: f64, radius: f64, spin: Spin) -> u32 {
        assert!(self.planes.is_empty(), "spheres first");
        let inertia = mass * radius * radius;
        let inverse = match spin {
            _ if mass.is_infinite() => InverseInertia::None,
            Spin::None => InverseInertia::None,
            Spin::Disc => InverseInertia::Sphere(2.0 / inertia),
            Spin::Ball => InverseInertia::Sphere(2.5 / inertia),
        };
        self.position.push(position);
        self.radius.push(radius);
        self.bodies.push(1.0 / mass, inverse, velocity, DVec3::ZERO)
    }

    /// Adds a half space.
    pub fn plane(&mut self, point: DVec3, normal: DVec3) {
        let body = self.bodies.push(0.0, InverseInertia::None, DVec3::ZERO, DVec3::ZERO);
        let name = FIRST_PLANE + self.planes.len() as u64;
        self.planes.push(Plane { name, body, point, normal: normal.normalize(), centre: point });
    }

    /// A sphere, as the law sees it.
    pub fn sphere(&self, i: usize) -> Sphere {
        Sphere {
            name: i as u64,
            body: i as u32,
            centre: self.position[i],
            offset: DVec3::ZERO,
            radius: self.radius[i],
        }
    }

    /// Finds contacts for bodies that have their velocities without contacts.
    pub fn find_contacts(&mut self, dt: f64) {
        let count = self.position.len();
        let travel = |i: usize| reach(self.bodies.velocity[i].length(), dt);
        // Touching pairs at rest must stay candidates: rounding must not part them.
        let grown: Vec<f64> = (0..count).map(|i| (self.radius[i] + travel(i)) * (1.0 + 1e-9)).collect();
        let spheres = Spheres { position: &self.position, radius: &grown, class: None };
        let movable = |i: u32, j: u32| !(self.bodies.is_immovable(i) && self.bodies.is_immovable(j));
        let pairs = self.finder.find(spheres, movable).to_vec();
        self.contacts.clear();
        for (i, j) in pairs {
            let (i, j) = (self.sphere(i as usize), self.sphere(j as usize));
            self.contacts.push(Contact::between_spheres(&i, &j, &self.bodies, self.material));
        }
        for plane in &self.planes {
            for i in (0..count).filter(|&i| !self.bodies.is_immovable(i as u32)) {
                let contact = Contact::with_plane(plane, &self.sphere(i), self.material);
                let margin = travel(i) + 1e-9 * self.radius[i];
                if contact.gap < margin {
                    self.contacts.push(contact);
                }
            }
        }
        self.contacts.sort_by_key(|contact| contact.pair);
    }

    /// Takes a step of length `dt` [s]: velocities by forces, then contacts, then positions.
    pub fn step(&mut self, dt: f64) -> LawStatistics {
        let acceleration = self.accelerate(dt);
        self.find_contacts(dt);
        let statistics = self.solve(Step { dt, acceleration, enough: 0.0 });
        self.advance(dt);
        statistics
    }

    /// Changes velocities by forces over `dt` [s]. Returns the largest acceleration [m/s^2].
    pub fn accelerate(&mut self, dt: f64) -> f64 {
        let count = self.position.len();
        let other = self.attraction.map(|f| f(&self.position, &masses(&self.bodies, count)));
        let mut acceleration = 0.0f64;
        let movable: Vec<usize> = (0..count).filter(|&i| !self.bodies.is_immovable(i as u32)).collect();
        for i in movable {
            let a = self.gravity + other.as_ref().map_or(DVec3::ZERO, |other| other[i]);
            acceleration = acceleration.max(a.length());
            self.bodies.velocity[i] += a * dt;
        }
        acceleration
    }

    /// Moves spheres by their velocities over `dt` [s].
    pub fn advance(&mut self, dt: f64) {
        for (x, v) in self.position.iter_mut().zip(&self.bodies.velocity) {
            *x += *v * dt;
        }
    }

    /// Solves the contacts, for bodies that have their velocities without contacts.
    pub fn solve(&mut self, step: Step) -> LawStatistics {
        self.law.solve(&mut self.warm_start, &mut self.bodies, &self.contacts, step)
    }

    /// Momentum of all spheres [kg m/s].
    pub fn momentum(&self) -> DVec3 {
        let mass = masses(&self.bodies, self.position.len());
        mass.iter().zip(&self.bodies.velocity).map(|(&m, &v)| m * v).sum()
    }

    /// Angular momentum about the origin [kg m^2/s].
    pub fn angular_momentum(&self) -> DVec3 {
        let mass = masses(&self.bodies, self.position.len());
        let term = |i: usize| {
            let own = match self.bodies.inverse_inertia[i] {
                InverseInertia::None => DVec3::ZERO,
                InverseInertia::Sphere(inverse) => self.bodies.spin[i] / inverse,
                InverseInertia::Tensor(inverse) => inverse.inverse() * self.bodies.spin[i],
            };
            self.position[i].cross(self.bodies.velocity[i]) * mass[i] + own
        };
        (0..mass.len()).map(term).sum()
    }

    /// Kinetic energy [J], of spins too.
    pub fn kinetic_energy(&self) -> f64 {
        let mass = masses(&self.bodies, self.position.len());
        let term = |i: usize| {
            let own = match self.bodies.inverse_inertia[i] {
                InverseInertia::None => 0.0,
                InverseInertia::Sphere(inverse) => self.bodies.spin[i].length_squared() / inverse,
                InverseInertia::Tensor(inverse) => {
                    self.bodies.spin[i].dot(inverse.inverse() * self.bodies.spin[i])
                }
            };
            0.5 * (mass[i] * self.bodies.velocity[i].length_squared() + own)
        };
        (0..mass.len()).map(term).sum()
    }

    /// Largest overlap of two spheres, or of a sphere and a plane, over the (smaller) radius.
    pub fn overlap(&self) -> f64 {
        let mut most = 0.0f64;
        let mut finder = PairFinder::new();
        let spheres = Spheres { position: &self.position, radius: &self.radius, class: None };
        for &(i, j) in finder.find(spheres, |_, _| true) {
            let (i, j) = (i as usize, j as usize);
            let depth = self.radius[i] + self.radius[j] - self.position[i].distance(self.position[j]);
            most = most.max(depth / self.radius[i].min(self.radius[j]));
        }
        for plane in &self.planes {
            for (x, r) in self.position.iter().zip(&self.radius) {
                most = most.max((r - (*x - plane.point).dot(plane.normal)) / r);
            }
        }
        most
    }

    /// Bits of the whole state.
    pub fn bits(&self) -> Vec<u64> {
        let columns = [&self.position, &self.bodies.velocity, &self.bodies.spin];
        columns.into_iter().flatten().flat_map(|v| v.to_array()).map(f64::to_bits).collect()
    }
}

/// Finite masses [kg]; immovable bodies count nothing.
pub fn masses(bodies: &Bodies, count: usize) -> Vec<f64> {
    bodies.inverse_mass[..count].iter().map(|&w| if w > 0.0 { 1.0 / w } else { 0.0 }).collect()
}
