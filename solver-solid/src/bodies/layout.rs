//! Common part of bodies: their conversion to particles and springs.

use std::ops::Range;

use amalgam_particles::shapes::{Layers, Shape, ShapeError};
use amalgam_particles::{DVec3, ParticleId, Particles};
use serde::Deserialize;

use super::checks::Checks;
use super::motion::Script;
use crate::materials::peridynamics::BondedBody;
use crate::materials::springs::{Foundation, Spring};

/// A body of the section.
pub(crate) trait Body {
    /// Reads the files that it names.
    fn read_files(&mut self, _checks: &mut Checks) {}

    /// Records every fault of its settings.
    fn check(&self, self_collision: bool, checks: &mut Checks);

    /// Appends its particles and springs; asked only of faultless bodies.
    fn lay_out(&self, layout: &mut Layout);

    /// True if it appends only the part [`Layout::part`] of them. The first part of a layout has all particles of other
    /// bodies.
    fn has_parts(&self) -> bool {
        false
    }

    /// Initial angular velocity about its middle [rad/s].
    fn angular_velocity(&self) -> DVec3 {
        DVec3::ZERO
    }

    /// Radius of gyration of its particles about their own middles [m], if it is not that of balls.
    fn lever(&self) -> f64 {
        0.0
    }
}

/// Particles, springs and bonded bodies of a section, in its order. Ids are indices, unless this is one of several
/// parts.
#[derive(Default)]
pub(crate) struct Layout {
    /// The part of the particles that is laid out here.
    pub(crate) part: Layers,
    /// True if their particles collide with each other.
    pub(crate) self_collision: bool,
    pub(crate) particles: Particles,
    /// Angular velocity of the body of each particle at the start [rad/s].
    pub(crate) spin: Vec<DVec3>,
    /// Radius of gyration of each particle about its own middle [m], 0 for that of a ball.
    pub(crate) lever: Vec<f64>,
    /// Until when each particle is held [s]: 0 for one that is free, infinite for one that is never let go.
    pub(crate) held_until: Vec<f64>,
    /// Particles of each body.
    pub(crate) bodies: Vec<Range<usize>>,
    pub(crate) springs: Vec<Spring>,
    /// Foundations, one per particle.
    pub(crate) foundations: Vec<Foundation>,
    pub(crate) triangles: Vec<[ParticleId; 3]>,
    pub(crate) bonded: Vec<BondedBody>,
    pub(crate) scripts: Vec<(Script, Vec<u32>)>,
    /// Keys of parts in which there is no particle of the last body.
    pub(crate) empty_parts: Vec<String>,
}

/// A particle as a body lays it out.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) position: DVec3,
    pub(crate) velocity: DVec3,
    pub(crate) mass: f64,
    pub(crate) radius: f64,
    /// Until when it is held [s], as in [`Layout::held_until`].
    pub(crate) held_until: f64,
}

impl Layout {
    /// Appends a particle, on a foundation if the body has one.
    pub(crate) fn push(&mut self, node: &Node, foundation: Option<&FoundationSettings>) {
        let id = ParticleId(self.particles.len() as u64);
        let held = node.held_until > 0.0;
        self.particles.push(id, node.position, node.velocity, node.mass, node.radius, held);
        self.held_until.push(node.held_until);
        // What is never let go takes no force, so a foundation under it would only count energy that nobody
        // gets.
        let foundation = foundation.filter(|_| node.held_until < f64::INFINITY).map_or_else(
            Foundation::default,
            |settings| Foundation {
                anchor: node.position,
                stiffness: settings.stiffness,
                damping: settings.damping,
            },
        );
        self.foundations.push(foundation);
    }

    /// Holds parts of the body whose particles begin with index `first`: pinned ones, those that scripts
    /// move, those with more mass. `named` says whether a particle is in a part with a name.
    pub(crate) fn hold(&mut self, first: usize, held: &Constraints<'_>, named: impl Fn(&str, usize) -> bool) {
        let find = |layout: &mut Self, part: &Part, key: String| -> Vec<usize> {
            let is_in = |&i: &usize| match part {
                Part::Named(name) => named(name, i),
                Part::Within(shape) => shape.contains(layout.particles.position[i]),
            };
            let found: Vec<usize> = (first..layout.particles.len()).filter(is_in).collect();
            let nowhere = matches!(part, Part::Named(name) if name == "none");
            if found.is_empty() && !nowhere {
                layout.empty_parts.push(key);
            }
            found
        };
        for (n, part) in held.pinned.iter().enumerate() {
            for i in find(self, part, format!("pinned[{n}]")) {
                self.fix(i, held.pinned_velocity, held.release.unwrap_or(f64::INFINITY));
            }
        }
        for (n, scripted) in held.scripted.iter().enumerate() {
            let found = find(self, &scripted.part, format!("scripted[{n}].part"));
            let until = scripted.release.unwrap_or(f64::INFINITY);
            found.iter().for_each(|&i| self.fix(i, DVec3::ZERO, until));
            self.scripts.push((scripted.script(), found.into_iter().map(|i| i as u32).collect()));
        }
        for (n, attached) in held.attached_mass.iter().enumerate() {
            let found = find(self, &attached.part, format!("attached_mass[{n}].part"));
            let share = attached.mass / found.len() as f64;
            found.into_iter().for_each(|i| self.particles.mass[i] += share);
        }
    }

    /// Makes a particle immovable until a time [s]. It is free when nothing holds it any more.
    fn fix(&mut self, i: usize, velocity: DVec3, until: f64) {
        self.particles.immovable[i] = true;
        self.particles.velocity[i] = velocity;
        self.held_until[i] = self.held_until[i].max(until);
        if self.held_until[i] == f64::INFINITY {
            // It takes no force, so a foundation under it would only count energy that nobody gets.
            self.foundations[i] = Foundation::default();
        }
    }

    /// Appends a spring as long as the distance of its ends.
    pub(crate) fn join(&mut self, ends: [usize; 2], stiffness: f64, damping: Damping) {
        let particles = &self.particles;
        // Reciprocals, so that an end that is never let go counts as infinitely heavy.
        let is_fixed = |i: usize| self.held_until[i] == f64::INFINITY;
        let mobility = ends.map(|i| if is_fixed(i) { 0.0 } else { 1.0 / particles.mass[i] });
        let reduced_mass = match mobility[0] + mobility[1] {
            0.0 => 0.0,
            sum => 1.0 / sum,
        };
        let damping = match damping {
            Damping::Constant(damping) => damping,
            Damping::Ratio(ratio) => ratio * 2.0 * (stiffness * reduced_mass).sqrt(),
        };
        let rest_length = particles.position[ends[0]].distance(particles.position[ends[1]]);
        self.springs.push(Spring { ends: ends.map(|i| i as u32), stiffness, damping, rest_length });
    }
}

/// Damping of the springs of a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Damping {
    /// Constant damping [N s/m].
    Constant(f64),
    /// Fraction of the critical damping of a spring's two particles.
    Ratio(f64),
}

impl Damping {
    /// Damping from the keys `damping` and `damping_ratio`, of which at most one may stand.
    pub(crate) fn read(damping: Option<f64>, ratio: Option<f64>, checks: &mut Checks) -> Self {
        for (key, value) in [("damping", damping), ("damping_ratio", ratio)] {
            checks.not_negative(key, value.unwrap_or(0.0));
        }
        checks.that(damping.is_none() || ratio.is_none(), "damping_ratio", || {
            "stands beside damping: write one of the two".into()
        });
        Self::of(damping, ratio)
    }

    /// Damping from keys that have been checked; see [`Self::read`].
    pub(crate) fn of(damping: Option<f64>, ratio: Option<f64>) -> Self {
        damping.map_or(Self::Ratio(ratio.unwrap_or(0.0)), Self::Constant)
    }
}

/// Some particles of a body.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected the name of a part, or a shape around it such as { type = \"box\", min = [0, 0, 0], max = [1, 1, 1] }"
)]
pub(crate) enum Part {
    /// A part by its name; each kind of body has its own names.
    Named(String),
    /// The particles that lie in a shape at the start.
    Within(Shape),
}

impl Part {
    /// True if this is the part of the given name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        matches!(self, Self::Named(own) if own == name)
    }

    fn check(&self, key: &str, names: &[&str], checks: &mut Checks) {
        match self {
            Self::Named(name) => checks.that(names.contains(&name.as_str()), key, || {
                let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
                format!(
                    "is \"{name}\", which is unknown: write {}, a shape, or a list of these",
                    names.join(", ")
                )
            }),
            Self::Within(shape) => {
                for fault in shape.faults() {
                    checks.fault(&fault.path(key), fault.message);
                }
            }
        }
    }
}

/// Particles that move by a script, as they are written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scripted {
    /// The particles.
    pub(crate) part: Part,
    /// Velocity [m/s].
    #[serde(default)]
    velocity: DVec3,
    /// Angular velocity about `center` [rad/s].
    #[serde(default)]
    angular_velocity: DVec3,
    /// Centre of the rotation, which moves with `velocity` [m].
    center: Option<DVec3>,
    /// Start [s].
    #[serde(default)]
    from: f64,
    /// End [s]; never if not given.
    until: Option<f64>,
    /// Time at which the particles are let go [s]; never if not given.
    pub(crate) release: Option<f64>,
}

impl Scripted {
    fn script(&self) -> Script {
        Script {
            velocity: self.velocity,
            angular_velocity: self.angular_velocity,
            center: self.center.unwrap_or_default(),
            from: self.from,
            until: self.until.unwrap_or(f64::INFINITY),
            release: self.release.unwrap_or(f64::INFINITY),
        }
    }
}

/// Mass that is spread evenly over some particles, as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttachedMass {
    /// The particles.
    part: Part,
    /// Mass of all together [kg].
    mass: f64,
}

/// Constraints of a body.
pub(crate) struct Constraints<'a> {
    pub(crate) pinned: &'a [Part],
    pub(crate) pinned_velocity: DVec3,
    /// Time at which pinned parts are let go [s], if ever.
    pub(crate) release: Option<f64>,
    pub(crate) scripted: &'a [Scripted],
    pub(crate) attached_mass: &'a [AttachedMass],
}

impl Constraints<'_> {
    /// Checks it for a body that has parts of these names.
    pub(crate) fn check(&self, names: &[&str], checks: &mut Checks) {
        checks.finite("pinned_velocity", self.pinned_velocity);
        check_release(self.release, self.pinned.is_empty(), checks);
        for part in self.pinned {
            part.check("pinned", names, checks);
        }
        for (n, scripted) in self.scripted.iter().enumerate() {
            let key = |key: &str| format!("scripted[{n}].{key}");
            scripted.part.check(&key("part"), names, checks);
            checks.finite(&key("velocity"), scripted.velocity);
            checks.finite(&key("angular_velocity"), scripted.angular_velocity);
            checks.finite(&key("center"), scripted.center.unwrap_or_default());
            let turns = scripted.angular_velocity != DVec3::ZERO;
            checks.that(!turns || scripted.center.is_some(), &key("angular_velocity"), || {
                "has no center to turn about: write e.g. center = [0.0, 0.0, 0.0]".into()
            });
            checks.not_negative(&key("from"), scripted.from);
            checks.that(scripted.until.is_none_or(|until| until > scripted.from), &key("until"), || {
                "must be later than from: write a time in seconds".into()
            });
            checks.positive(&key("release"), scripted.release.unwrap_or(1.0));
        }
        for (n, attached) in self.attached_mass.iter().enumerate() {
            attached.part.check(&format!("attached_mass[{n}].part"), names, checks);
            checks.positive(&format!("attached_mass[{n}].mass"), attached.mass);
        }
    }
}

/// Checks the key `release` of a body, of which nothing may be pinned.
fn check_release(release: Option<f64>, nothing_pinned: bool, checks: &mut Checks) {
    checks.positive("release", release.unwrap_or(1.0));
    checks.that(release.is_none() || !nothing_pinned, "release", || {
        "lets nothing go, since nothing is pinned: write pinned beside it, or release in an entry of scripted".into()
    });
}

/// Records faults of a shape that stands at the key `shape`, with its pose and motion beside it.
pub(crate) fn report_shape(faults: Vec<ShapeError>, checks: &mut Checks) {
    for fault in faults {
        match fault.key.split('.').next() {
            // Reported with the body's own keys.
            Some("spacing") => {}
            Some("velocity" | "angular_velocity" | "rotation") => checks.fault(&fault.key, fault.message),
            _ => checks.fault(&fault.path("shape"), fault.message),
        }
    }
}

/// A spring under every particle of a body, from where the particle is at the start.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FoundationSettings {
    /// Stiffness in each direction [N/m]. With 0 the foundation is a drag.
    pub(crate) stiffness: f64,
    /// Damping in each direction [N s/m].
    #[serde(default)]
    pub(crate) damping: f64,
}

impl FoundationSettings {
    pub(crate) fn check(&self, checks: &mut Checks) {
        checks.not_negative("foundation.stiffness", self.stiffness);
        checks.not_negative("foundation.damping", self.damping);
    }
}

/// A single value for all, or a value for each.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a value or a list of values")]
pub(crate) enum OneOrMany<T> {
    /// The same for all.
    One(T),
    /// A value for each.
    Many(Vec<T>),
}

/// The part that `pinned` names if it is not given.
pub(crate) fn nowhere() -> OneOrMany<Part> {
    OneOrMany::Many(Vec::new())
}

impl<T> OneOrMany<T> {
    /// All values there are.
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }

    /// The value for `index`.
    pub(crate) fn get(&self, index: usize) -> &T {
        match self {
            Self::One(value) => value,
            Self::Many(values) => &values[index],
        }
    }

    /// The number of values, where there must be one for each.
    pub(crate) fn count(&self) -> Option<usize> {
        match self {
            Self::One(_) => None,
            Self::Many(values) => Some(values.len()),
        }
    }
}
