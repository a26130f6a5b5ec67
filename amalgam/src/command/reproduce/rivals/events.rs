//! Event-driven collisions: every collision at its own time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::Rival;
use super::discs::{Attraction, Discs};
use amalgam_particles::DVec3;

/// Collisions within a step, one after the other in the order of their times.
///
/// The attraction changes velocities at the start of a step. From there to its end discs move on straight
/// lines, on which the times of collisions are roots of a quadratic. Discs with a restitution e < 1 would collide
/// infinitely often in a finite time where they pile up. In the TC model a contact lasts for a time t_c, and a
/// collision of a disc that is still in contact with another one takes no energy [LudingMcNamara1998]. Discs
/// that overlap by rounding collide at once if they approach, and never if they part [Bannerman2014].
pub(super) struct Events {
    /// e, the part of the speed of approach with which discs part.
    restitution: f64,
    /// t_c [s].
    contact_time: f64,
    /// Time of the last collision of each disc, before the start of the next step [s].
    last: Vec<f64>,
}

/// Way for which neighbours are sought, over the way of the fastest disc. A collision can make a disc faster.
const ROOM: f64 = 1.5;

impl Events {
    pub(super) fn new(restitution: f64, contact_time: f64) -> Self {
        Self { restitution, contact_time, last: Vec::new() }
    }
}

impl Rival for Events {
    fn step(&mut self, discs: &mut Discs, dt: f64) {
        discs.kick(Attraction::Newton, dt);
        self.last.resize(discs.len(), f64::NEG_INFINITY);
        let mut queue = CollisionQueue::new(discs, dt);
        while let Some(Reverse(event)) = queue.events.pop() {
            if queue.is_due(&event) {
                let (i, j) = event.pair;
                let free = event.time - self.last[i].max(self.last[j]) >= self.contact_time;
                queue.collide(&event, if free { self.restitution } else { 1.0 });
                (self.last[i], self.last[j]) = (event.time, event.time);
            }
        }
        (0..queue.discs.len()).for_each(|i| queue.advance(i, dt));
        self.last.iter_mut().for_each(|time| *time -= dt);
    }
}

/// A collision that will happen unless one of the discs collides before.
#[derive(Clone, Copy, PartialEq)]
struct Event {
    /// Time since the start of the step [s].
    time: f64,
    /// Number of events found before in the step: of events at one time the one found first is the first.
    number: u64,
    pair: (usize, usize),
    /// Numbers of collisions of the two discs when the event was found.
    counts: (u32, u32),
}

impl Eq for Event {}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.time.total_cmp(&other.time).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The collisions of a step, and the discs on their way.
struct CollisionQueue<'a> {
    discs: &'a mut Discs,
    /// Length of the step [s].
    dt: f64,
    /// Time at which each disc has its position [s].
    time: Vec<f64>,
    /// Number of collisions of each disc.
    count: Vec<u32>,
    /// Discs that each disc may meet, as long as no disc is farther than `reach` from its place in `from`.
    near: Vec<Vec<usize>>,
    /// Places when `near` was found [m].
    from: Vec<DVec3>,
    /// Way for which `near` was found [m].
    reach: f64,
    events: BinaryHeap<Reverse<Event>>,
    /// Number of events found.
    found: u64,
}

impl<'a> CollisionQueue<'a> {
    fn new(discs: &'a mut Discs, dt: f64) -> Self {
        let count = discs.len();
        let mut queue = Self {
            discs,
            dt,
            time: vec![0.0; count],
            count: vec![0; count],
            near: Vec::new(),
            from: Vec::new(),
            reach: 0.0,
            events: BinaryHeap::new(),
            found: 0,
        };
        queue.look_around(0.0);
        queue
    }

    /// Finds anew who may meet whom from `now` on, and all events.
    fn look_around(&mut self, now: f64) {
        (0..self.discs.len()).for_each(|i| self.advance(i, now));
        self.from.clone_from(&self.discs.position);
        self.reach = ROOM * self.discs.speed_max() * (self.dt - now);
        self.near = vec![Vec::new(); self.discs.len()];
        self.events.clear();
        for (i, j) in self.discs.nearer_than(2.0 * self.reach) {
            self.near[i].push(j);
            self.near[j].push(i);
            self.predict(i, j);
        }
    }

    /// Moves a disc to where it is at `now`.
    fn advance(&mut self, i: usize, now: f64) {
        self.discs.position[i] += self.discs.velocity[i] * (now - self.time[i]);
        self.time[i] = now;
    }

    fn is_due(&self, event: &Event) -> bool {
        event.counts == (self.count[event.pair.0], self.count[event.pair.1])
    }

    /// Queues the next collision of a pair, if there is one in the step. With the relative position x and
    /// velocity u at a common time, the discs touch t later if |x + u t| = R: with a = u^2, b = x·u < 0 and c
    /// = x^2 - R^2 > 0, first at t = c/(-b + sqrt(b^2 - a c)).
    fn predict(&mut self, i: usize, j: usize) {
        let now = self.time[i].max(self.time[j]);
        let at = |k: usize| self.discs.position[k] + self.discs.velocity[k] * (now - self.time[k]);
        let (x, u) = (at(j) - at(i), self.discs.velocity[j] - self.discs.velocity[i]);
        let touch = self.discs.radius[i] + self.discs.radius[j];
        let (a, b, c) = (u.length_squared(), x.dot(u), x.length_squared() - touch * touch);
        let root = b * b - a * c;
        if b >= 0.0 || root < 0.0 {
            return;
        }
        let time = now + c.max(0.0) / (root.sqrt() - b);
        if time < self.dt {
            let pair = (i.min(j), i.max(j));
            let counts = (self.count[pair.0], self.count[pair.1]);
            self.events.push(Reverse(Event { time, number: self.found, pair, counts }));
            self.found += 1;
        }
    }

    /// Lets a pair part with this restitution, and finds its next events.
    fn collide(&mut self, event: &Event, restitution: f64) {
        let ((i, j), now) = (event.pair, event.time);
        self.advance(i, now);
        self.advance(j, now);
        let pair = self.discs.pair(i, j);
        let impulse = -(1.0 + restitution) * pair.reduced_mass * pair.rate;
        self.discs.push(i, j, pair.normal * impulse);
        for k in [i, j] {
            self.count[k] += 1;
        }
        let left = self.dt - now;
        let farthest =
            |k: usize| self.discs.position[k].distance(self.from[k]) + self.discs.velocity[k].length() * left;
        if farthest(i).max(farthest(j)) > self.reach {
            return self.look_around(now);
        }
        for k in [i, j] {
            for at in 0..self.near[k].len() {
                self.predict(k, self.near[k][at]);
            }
        }
    }
}
