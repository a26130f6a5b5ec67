//! Rivals of the first order: impulses.

use super::Rival;
use super::discs::{Attraction, Discs};

/// Impulses that hold a constraint on the velocities of discs that overlap.
///
/// The gap f of two discs must not be negative. A condition on its rate alone, f' >= 0, stops a pair, but the
/// overlap that it has stays. Baumgarte's condition f' >= -beta f/dt closes the part beta of the overlap in a
/// step [Baumgarte1972]. A pair of reduced mass mu gets the impulse mu (-(1 + e) f' - beta f/dt), after which it
/// parts with -e f' - beta f/dt. An impulse must not pull. In several iterations each pair keeps the sum of its
/// impulses, and the sum, not each impulse, is held above 0 [Catto2009]. They end where (1 + e) f' = -beta f/dt:
/// so many iterations take the rebound away.
pub(super) struct Impulses {
    /// The part beta of an overlap that is to close in a step.
    pub(super) beta: f64,
    /// e, the part of the speed of approach with which discs part.
    pub(super) restitution: f64,
    pub(super) iterations: u32,
}

struct Contact {
    i: usize,
    j: usize,
    /// Rate of the gap by Baumgarte's term [m/s].
    wanted: f64,
    /// Sum of the impulses so far [kg m/s].
    impulse: f64,
}

impl Rival for Impulses {
    fn step(&mut self, discs: &mut Discs, dt: f64) {
        discs.kick(Attraction::Newton, dt);
        let overlapping = discs.overlapping();
        let contact = |(i, j)| {
            let pair = discs.pair(i, j);
            Contact { i, j, wanted: -self.beta * pair.gap / dt, impulse: 0.0 }
        };
        let mut contacts: Vec<Contact> = overlapping.into_iter().map(contact).collect();
        for _ in 0..self.iterations {
            for contact in &mut contacts {
                let (i, j) = (contact.i, contact.j);
                let pair = discs.pair(i, j);
                let before = contact.impulse;
                let change = contact.wanted - (1.0 + self.restitution) * pair.rate;
                contact.impulse = (before + pair.reduced_mass * change).max(0.0);
                discs.push(i, j, pair.normal * (contact.impulse - before));
            }
        }
        discs.drift(dt);
    }
}
