//! Participants that are broken on purpose: each is told the rule that it breaks, with the calls that show
//! it.

#[path = "../../tests/support/client.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod client;

#[path = "../../solver-kit/examples/balls.rs"]
#[allow(unreachable_pub, missing_docs, reason = "an example's file")]
mod balls;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use amalgam_conform::{Finding, RULES, Section, Verdict, examine};
use amalgam_network::{Access, dial_in_process};
use amalgam_particles::{DMat3, DVec3, ParticleId, Particles, StepEnd};
use amalgam_proto::v1;
use amalgam_solver_kit::{
    Answer, Description, Integration, Report, Request, SectionError, Solver, SolverError, SolverProgram,
    World, serve_in_process,
};
use balls::BallsProgram;
use client::{Lie, Queue, put, serve_liar};
use futures_util::TryFutureExt as _;

const BALLS: &str = "positions = [[0, 0, 1], [0, 0, 1.15], [0.4, 0.1, 1], [-1, 0.5, 2]]\n\
                     velocities = [[0, 0, 0], [0, 0, -1], [1, 0.5, 0.25], [0.1, 0, 0]]\n\
                     mass = 2.0\nradius = 0.1\nself_collision = true\n";

/// Tries the rules that are wanted.
fn tried(queue: Queue, text: &str, wanted: impl Fn(&str) -> bool) -> Vec<Finding> {
    let section = Section {
        participant: "tried".into(),
        text: text.into(),
        domain: (DVec3::splat(-10.0), DVec3::splat(10.0)),
        gravity: DVec3::new(0.0, 0.0, -9.81),
        seed: 1,
    };
    let access = Access::default();
    let connect = dial_in_process(queue, &access).map_err(|error| error.to_string());
    examine(connect, &section, |rule| wanted(rule.name), |_| ()).expect("the service is there")
}

fn broken(findings: &[Finding]) -> Vec<&'static str> {
    let failed = findings.iter().filter(|finding| matches!(finding.verdict, Verdict::Failed(_)));
    failed.map(|finding| finding.rule).collect()
}

/// Faults of balls that are broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Not wrong: each run stores the particles in another order.
    Turned,
    MovesInIntegrate,
    CountsImpulse,
    DoublesMomentum,
    HasSlope,
    LeavesMembers,
    IgnoresSplit,
    ForgetsGravity,
    DiffersEachTime,
    SavesNoVelocities,
    TakesAnySnapshot,
    HalvesSlope,
}

/// Balls on springs to where they were at the start: explicit, or implicit with one unknown for each.
struct Tethered {
    particles: Particles,
    home: Vec<DVec3>,
    gravity: DVec3,
    wrong: Wrong,
}

/// Stiffness of a tether [N/m].
const STIFFNESS: f64 = 3e4;

impl Tethered {
    fn is_implicit(&self) -> bool {
        self.wrong == Wrong::HalvesSlope
    }

    /// Force on a ball at the start of a step [N].
    fn force(&self, i: usize) -> DVec3 {
        let noise = if self.wrong == Wrong::DiffersEachTime {
            static CALLS: AtomicU64 = AtomicU64::new(0);
            1e-9 * CALLS.fetch_add(1, Ordering::Relaxed) as f64
        } else {
            0.0
        };
        let pull = if self.is_implicit() {
            (self.particles.position[i] - self.home[i]) * STIFFNESS
        } else {
            DVec3::ZERO
        };
        self.gravity * self.particles.mass[i] - pull + DVec3::X * noise
    }

    /// Indices of the particles, by id.
    fn by_id(&self) -> Vec<usize> {
        let mut indices = Vec::from_iter(0..self.particles.len());
        indices.sort_by_key(|&i| self.particles.id[i]);
        indices
    }

    /// Decrease of a tether's momentum per m/s [kg].
    fn slope(&self, dt: f64) -> f64 {
        if self.is_implicit() { dt * dt * STIFFNESS } else { 0.0 }
    }
}

impl Solver for Tethered {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        let (dt, slope) = (request.dt, self.slope(request.dt));
        for i in 0..self.particles.len() {
            let (mass, before) = (self.particles.mass[i], self.particles.velocity[i]);
            answer.velocity[i] = (before * mass + self.force(i) * dt) / (mass + slope);
        }
        answer.slope.resize(request.groups.len(), DMat3::ZERO);
        for group in 0..request.groups.len() {
            let members = request.groups.members(group);
            let force: DVec3 = members.iter().map(|&i| self.force(i as usize) * dt).sum();
            let slope = slope * members.len() as f64;
            let (mass, impulse, before) =
                (request.inertia[group], request.impulse[group], request.velocity[group]);
            let after =
                if mass.is_finite() { (before * mass + impulse + force) / (mass + slope) } else { before };
            answer.momentum[group] = force - after * slope;
            answer.slope[group] = DMat3::from_diagonal(DVec3::splat(slope));
            match self.wrong {
                Wrong::CountsImpulse => answer.momentum[group] += impulse,
                Wrong::DoublesMomentum => answer.momentum[group] *= 2.0,
                Wrong::HasSlope => answer.slope[group] = DMat3::IDENTITY,
                Wrong::HalvesSlope => answer.slope[group] *= 0.5,
                _ => {}
            }
        }
        if self.wrong == Wrong::MovesInIntegrate {
            for (x, v) in self.particles.position.iter_mut().zip(&answer.velocity) {
                *x += *v * dt;
            }
        }
        Ok(())
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        let (before, mut told) = (self.particles.clone(), integrated.to_vec());
        if self.wrong == Wrong::ForgetsGravity {
            told.clone_from(&before.velocity);
        }
        end.advance(&mut self.particles, &told);
        for (&member, velocity) in end.groups.all_members().iter().zip(end.member_velocity) {
            let i = member as usize;
            match self.wrong {
                Wrong::LeavesMembers => self.particles.position[i] = before.position[i] + *velocity * end.dt,
                Wrong::IgnoresSplit => {
                    self.particles.velocity[i] = end.group_velocity[end.groups.group_of()[i] as usize]
                }
                _ => {}
            }
        }
        Ok(Report { stable_dt: f64::INFINITY, ..Report::default() })
    }

    fn save(&self) -> Result<Vec<u8>, SolverError> {
        let (order, keeps) = (self.by_id(), self.wrong != Wrong::SavesNoVelocities);
        let position = order.iter().map(|&i| self.particles.position[i]);
        let velocity = order.iter().map(|&i| if keeps { self.particles.velocity[i] } else { DVec3::ZERO });
        let numbers = position.chain(velocity).flat_map(|v| v.to_array());
        Ok(numbers.flat_map(f64::to_le_bytes).chain(*b"whole").collect())
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), SolverError> {
        let count = self.particles.len();
        let numbers = snapshot.strip_suffix(b"whole").filter(|numbers| numbers.len() == 48 * count);
        let numbers = match (numbers, self.wrong) {
            (Some(numbers), _) => numbers,
            (None, Wrong::TakesAnySnapshot) => return Ok(()),
            (None, _) => return Err(SolverError("the snapshot is none of these balls".into())),
        };
        let number = |at: usize| f64::from_le_bytes(std::array::from_fn(|k| numbers[8 * at + k]));
        let vector = |at: usize| DVec3::new(number(3 * at), number(3 * at + 1), number(3 * at + 2));
        for (k, i) in self.by_id().into_iter().enumerate() {
            (self.particles.position[i], self.particles.velocity[i]) = (vector(k), vector(count + k));
        }
        Ok(())
    }
}

struct TetheredProgram(Wrong);

impl SolverProgram for TetheredProgram {
    fn describe(&self) -> Description {
        let implicit = self.0 == Wrong::HalvesSlope;
        let integration = if implicit { Integration::Implicit } else { Integration::Explicit };
        Description { name: "tethered", version: "1", integration }
    }

    fn create(&self, section: &str, world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        amalgam_solver_kit::parse_section::<std::collections::BTreeMap<String, f64>>(section)?;
        let mut particles = Particles::default();
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let first = if self.0 == Wrong::Turned { RUNS.fetch_add(1, Ordering::Relaxed) } else { 0 };
        for i in (0..6).map(|k| (first + k) % 6) {
            let position = DVec3::new(0.3 * f64::from(i), 0.0, 1.0);
            let velocity = DVec3::new(0.1, 0.2 * f64::from(i), -0.3);
            particles.push(ParticleId(i.into()), position, velocity, 1.0 + f64::from(i), 0.1, false);
        }
        let home = particles.position.clone();
        Ok(Box::new(Tethered { particles, home, gravity: world.gravity, wrong: self.0 }))
    }
}

#[test]
fn what_is_not_broken_breaks_no_rule() {
    for sound in [Wrong::Nothing, Wrong::Turned] {
        let queue = serve_in_process(Arc::new(TetheredProgram(sound)), 1, 1, None).expect("threads");
        assert_eq!(broken(&tried(queue, "", |_| true)), [""; 0], "{sound:?}");
    }
}

#[test]
fn broken_solvers_are_told_which_rule_they_break() {
    for (wrong, rules) in [
        (Wrong::MovesInIntegrate, &["integrate-tentative"][..]),
        (Wrong::CountsImpulse, &["explicit", "momentum-of-groups"]),
        (Wrong::DoublesMomentum, &["group-of-one", "momentum-of-groups"]),
        (Wrong::HasSlope, &["slope-kind"]),
        (Wrong::LeavesMembers, &["members-move"]),
        (Wrong::IgnoresSplit, &["members-move"]),
        (Wrong::ForgetsGravity, &["free-move"]),
        (Wrong::DiffersEachTime, &["determinism"]),
        (Wrong::SavesNoVelocities, &["save-restore"]),
        (Wrong::TakesAnySnapshot, &["snapshot-faults"]),
        (Wrong::HalvesSlope, &["slopes"]),
    ] {
        let queue = serve_in_process(Arc::new(TetheredProgram(wrong)), 1, 1, None).expect("threads");
        let found = broken(&tried(queue, "", |_| true));
        assert!(rules.iter().all(|rule| found.contains(rule)), "{wrong:?}: {found:?}");
    }
}

/// A service whose answers are falsified.
fn lies(lie: Lie, wanted: impl Fn(&str) -> bool) -> Vec<Finding> {
    tried(serve_liar(BallsProgram, lie), BALLS, wanted)
}

fn change(columns: &mut [v1::Column], name: &str, change: impl Fn(&mut [u8])) {
    for column in columns.iter_mut().filter(|column| column.name == name) {
        let mut data = column.data.to_vec();
        change(&mut data);
        column.data = data.into();
    }
}

#[test]
fn false_answers_are_told_which_rule_they_break() {
    let lies_and_rules: [(&str, Lie, &str); 14] = [
        ("no integration", Lie::Describe(|answer| answer.integration = 0), "describe"),
        ("negative mass", Lie::Initialize(|answer| put(&mut answer.columns, "mass", &[-1.0])), "initialize"),
        ("surveys nothing", Lie::Survey(|answer| answer.columns.clear()), "survey"),
        (
            "forgets ids",
            Lie::Begin(|answer| {
                answer.columns.retain(|column| column.name != "id");
                answer.header.iter_mut().for_each(|header| header.as_before = true);
            }),
            "begin-repeated",
        ),
        (
            "elsewhere in Begin",
            Lie::Begin(|answer| change(&mut answer.columns, "position", |data| data[0] ^= 1)),
            "begin",
        ),
        (
            "contacts of all",
            Lie::Begin(|answer| {
                answer.header.iter_mut().for_each(|header| header.contacts = 1);
                put(&mut answer.columns, "contacts", &[0u32, 3]);
            }),
            "own-contacts",
        ),
        (
            "travels nowhere",
            Lie::Integrate(|answer| answer.header.iter_mut().for_each(|header| header.travel_max = 0.0)),
            "travel",
        ),
        (
            "hash of another state",
            Lie::Commit(|answer| answer.header.iter_mut().for_each(|header| header.state_hash ^= 1)),
            "state-hash",
        ),
        (
            "no momentum",
            Lie::Commit(|answer| {
                answer.header.iter_mut().for_each(|header| header.momentum = Some(v1::Vec3::default()))
            }),
            "sums",
        ),
        (
            "too much energy",
            Lie::Commit(|answer| answer.header.iter_mut().for_each(|header| header.kinetic_energy *= 2.0)),
            "energy",
        ),
        (
            "too fast",
            Lie::Commit(|answer| answer.header.iter_mut().for_each(|header| header.acceleration_max += 1.0)),
            "largest",
        ),
        (
            "tracked elsewhere",
            Lie::Commit(|answer| change(&mut answer.columns, "track_position", |data| data[0] ^= 1)),
            "tracked",
        ),
        (
            "other cells",
            Lie::Commit(|answer| change(&mut answer.columns, "cells_0", |data| data[0] ^= 1)),
            "grids",
        ),
        ("radius in a frame", Lie::Frame(|answer| put(&mut answer.columns, "radius", &[0.2])), "frame"),
    ];
    for (what, lie, rule) in lies_and_rules {
        let findings = lies(lie, |name| name == rule);
        let finding = findings.iter().find(|finding| finding.rule == rule).expect("the rule was tried");
        assert!(matches!(finding.verdict, Verdict::Failed(_)), "{what}: {:?}", broken(&findings));
        assert!(!finding.calls.is_empty(), "{what}: the calls show it");
    }
}

#[test]
fn a_lost_answer_is_a_finding_and_ends_nothing() {
    // The liar reads a request to its end, and then that rule waits.
    let findings = lies(Lie::Loses(4), |name| name != "refused-at-once");
    assert!(!broken(&findings).is_empty());
    assert_eq!(findings.len() + 1, RULES.iter().map(|rules| rules.len()).sum::<usize>());
}

/// Every heading that a rule names is in the page, and no name stands twice.
#[test]
fn rules_are_where_they_say() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/protocol.md"))
        .expect("the page");
    let mut names = std::collections::BTreeSet::new();
    for rule in RULES.iter().flat_map(|rules| rules.iter()) {
        let heading = |line: &str| line.trim_start_matches('#').trim() == rule.see && line.starts_with("##");
        assert!(
            page.lines().any(heading),
            "{}: no heading {:?} in docs/reference/protocol.md",
            rule.name,
            rule.see
        );
        assert!(names.insert(rule.name), "{} stands twice", rule.name);
        assert!(rule.says.ends_with('.') && rule.says.split_whitespace().count() <= 35, "{}", rule.says);
    }
}
