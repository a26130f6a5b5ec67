//! Sources of fluid: discs that emit particles, and boxes that remove them.
//!
//! A disc emits layers of a square lattice of the particles' spacing. It emits a layer when the last layer
//! has moved on by a spacing, so that the emitted fluid is at rest density. Particles appear and disappear at
//! the end of a step. Ids are never used again.

use amalgam_particles::{DVec3, ParticleId, Particles};
use amalgam_solver_kit::{ExactSum, Ranks};

/// A disc that emits.
#[derive(Clone, Copy, Debug)]
pub struct Emitter {
    /// Its centre [m].
    pub center: DVec3,
    /// The direction in which it emits, of length 1.
    pub axis: DVec3,
    /// Its radius [m].
    pub radius: f64,
    /// Speed of the emitted fluid [m/s].
    pub speed: f64,
    /// Time at which the emission ends [s].
    pub until: f64,
}

/// A box that swallows particles whose centres are in it.
#[derive(Clone, Copy, Debug)]
pub struct Sink {
    /// Lowest corner [m].
    pub min: DVec3,
    /// Highest corner [m].
    pub max: DVec3,
}

/// Length of an emitter's nozzle, in spacings: a support radius of SPH. Otherwise water that is thrown back would
/// stand where particles are born, and burst apart.
const NOZZLE: f64 = 2.0;

impl Emitter {
    /// Places in a layer, relative to the centre [m].
    pub fn layer(&self, spacing: f64) -> Vec<DVec3> {
        let (u, v) = self.axis.any_orthonormal_pair();
        let steps = (self.radius / spacing).ceil() as i32;
        let places = (-steps..=steps).flat_map(|j| (-steps..=steps).map(move |i| (i, j)));
        places
            .map(|(i, j)| spacing * (f64::from(i) * u + f64::from(j) * v))
            .filter(|place| place.length() <= self.radius * (1.0 + 1e-9))
            .collect()
    }

    /// True if a position [m] is in the nozzle, in which particles keep the velocity of the emission.
    fn carries(&self, position: DVec3, spacing: f64) -> bool {
        let from = position - self.center;
        let along = from.dot(self.axis);
        let across = (from - along * self.axis).length();
        (-0.5 * spacing..NOZZLE * spacing).contains(&along) && across < self.radius + 0.5 * spacing
    }

    /// Number of layers emitted before a time [s]. The first layer is emitted at 0.
    fn layers_before(&self, time: f64, spacing: f64) -> u64 {
        (time.min(self.until) * self.speed / spacing).ceil() as u64
    }

    /// Positions [m] at `time.1` of particles emitted from `time.0` to `time.1` [s].
    fn emit(&self, time: (f64, f64), spacing: f64) -> Vec<DVec3> {
        let layers = self.layers_before(time.0, spacing)..self.layers_before(time.1, spacing);
        if layers.is_empty() {
            return Vec::new();
        }
        let places = self.layer(spacing);
        layers
            .flat_map(|layer| {
                let travelled = self.speed * time.1 - spacing * layer as f64;
                places.iter().map(move |place| self.center + travelled * self.axis + place)
            })
            .collect()
    }
}

impl Sink {
    fn holds(&self, position: DVec3) -> bool {
        position.cmpge(self.min).all() && position.cmple(self.max).all()
    }
}

/// All emitters and sinks of a fluid, and their state.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The discs that emit.
    pub emitters: Vec<Emitter>,
    /// The boxes that swallow.
    pub sinks: Vec<Sink>,
    /// Time since the start [s].
    pub time: f64,
    /// The id of the next particle.
    pub next_id: u64,
    /// Gravity [m/s^2].
    pub gravity: DVec3,
    /// Energy [J], kinetic and in gravity, that the last step brought, less the energy that it took.
    pub given: f64,
}

/// Ids of particles that appeared and disappeared.
pub(super) type Changes = (Vec<ParticleId>, Vec<ParticleId>);

impl Sources {
    /// True if an emitter emits now.
    pub(super) fn emit_now(&self) -> bool {
        self.emitters.iter().any(|emitter| self.time < emitter.until)
    }

    /// True if particles never appear or disappear.
    pub fn is_empty(&self) -> bool {
        self.emitters.is_empty() && self.sinks.is_empty()
    }

    /// Advances by `dt` [s]: removes the particles in sinks, gives those in nozzles the velocity of the emission, and
    /// appends the emitted particles, each of `mass` [kg] and `radius` [m]. The first rank gets all emitted particles.
    /// Collective.
    pub(super) fn pass(
        &mut self,
        dt: f64,
        spacing: f64,
        (mass, radius): (f64, f64),
        ranks: &Ranks,
        to: &mut Particles,
    ) -> Changes {
        let time = (self.time, self.time + dt);
        self.time = time.1;
        let gravity = self.gravity;
        let owned = |velocity: DVec3, position: DVec3| {
            mass * (0.5 * velocity.length_squared() - gravity.dot(position))
        };
        let is_swallowed = |&i: &usize| self.sinks.iter().any(|sink| sink.holds(to.position[i]));
        let swallowed = (0..to.len()).filter(is_swallowed).map(|i| owned(to.velocity[i], to.position[i]));
        let mut given = ExactSum::default();
        swallowed.for_each(|energy| given.add(-energy));
        let dead = self.swallow(to);
        for emitter in self.emitters.iter().filter(|emitter| time.1 < emitter.until) {
            let carried = emitter.speed * emitter.axis;
            for (&position, velocity) in to.position.iter().zip(&mut to.velocity) {
                if emitter.carries(position, spacing) {
                    given.add(owned(carried, position) - owned(*velocity, position));
                    *velocity = carried;
                }
            }
        }
        let mut born = Vec::new();
        for emitter in &self.emitters {
            for position in emitter.emit(time, spacing) {
                let id = ParticleId(self.next_id);
                self.next_id += 1;
                if !ranks.is_first() {
                    continue;
                }
                to.push(id, position, emitter.speed * emitter.axis, mass, radius, false);
                born.push(id);
                given.add(owned(emitter.speed * emitter.axis, position));
            }
        }
        self.given = if self.is_empty() { 0.0 } else { ranks.exact_sum(&given) };
        (born, dead)
    }

    fn swallow(&self, particles: &mut Particles) -> Vec<ParticleId> {
        if self.sinks.is_empty() {
            return Vec::new();
        }
        let stays: Vec<bool> =
            particles.position.iter().map(|&x| !self.sinks.iter().any(|sink| sink.holds(x))).collect();
        if stays.iter().all(|&stays| stays) {
            return Vec::new();
        }
        let gone = particles.id.iter().zip(&stays).filter(|(_, stays)| !**stays);
        let mut dead: Vec<ParticleId> = gone.map(|(&id, _)| id).collect();
        dead.sort_unstable();
        fn keep<T>(column: &mut Vec<T>, stays: &[bool]) {
            let mut stays = stays.iter();
            column.retain(|_| *stays.next().expect("one a particle"));
        }
        let Particles { id, position, velocity, mass, radius, immovable } = particles;
        keep(id, &stays);
        keep(position, &stays);
        keep(velocity, &stays);
        keep(mass, &stays);
        keep(radius, &stays);
        keep(immovable, &stays);
        dead
    }
}
