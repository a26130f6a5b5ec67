//! Answers that break the contract end a run with a message that names participant, phase and step, before they spoil
//! anything. `wire.rs` has the other direction.

mod support;

use std::fmt::Write as _;

use amalgam_coordinator::{Address, Cancel, CoordinatorError, ParticipantPlan, Simulation};
use amalgam_proto::v1;
use support::Scene;
use support::balls::BallsProgram;
use support::client::{Lie, put, serve_liar};

#[global_allocator]
static HEAP: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

/// Heap that the tests of this file need at most, all together [MB]. A header that is believed asks for thousands.
const HEAP_MAX: f32 = 256.0;

/// The error that a run with a liar ends with, if any. A ball of the liar approaches one of the other participant, another one overlaps and departs, the third is alone.
fn lied_to(lie: Lie) -> Option<CoordinatorError> {
    let plan = Scene::new(0.01, 1e-3).plan;
    let participant = |name: &str, section: String, address| ParticipantPlan {
        name: name.into(),
        solver: "balls".into(),
        section,
        address: Address::InProcess(address),
    };
    let honest = amalgam_solver_kit::serve_in_process(std::sync::Arc::new(BallsProgram), 1).expect("threads");
    let section = |x: f64, speed: f64, third: &str| {
        format!(
            "positions = [[{x}, 0, 0], [{x}, 1, 0]{third}]\nvelocities = [[{}, 0, 0], [{speed}, 0, 0]{}]\n\
             mass = 1.0\nradius = 0.1\n",
            -speed,
            if third.is_empty() { "" } else { ", [0, 0, 0]" }
        )
    };
    let participants = vec![
        participant("honest", section(0.0, -0.1, ""), honest),
        participant("liar", section(0.15, 0.1, ", [0, 3, 0]"), serve_liar(BallsProgram, lie)),
    ];
    let mut simulation = match Simulation::connect(plan, participants, &Cancel::new()) {
        Ok(simulation) => simulation,
        Err(error) => return Some(error),
    };
    while !simulation.is_finished() {
        if let Err(error) = simulation.frames().map(drop).and_then(|()| simulation.step().map(drop)) {
            return Some(error);
        }
    }
    None
}

/// The messages that `lies` end runs with.
fn told(lies: &[(&str, Lie)]) -> String {
    let mut text = String::new();
    for &(what, lie) in lies {
        let error = lied_to(lie).unwrap_or_else(|| panic!("{what} was believed"));
        let protocol =
            matches!(error, CoordinatorError::Protocol { .. } | CoordinatorError::Handshake { .. });
        assert!(protocol, "{what}: {error:?}");
        writeln!(text, "{what}: {error}").expect("writes");
    }
    let peak = HEAP.peak_usage_as_mb();
    assert!(peak < HEAP_MAX, "{peak} MB were taken");
    text
}

#[test]
fn a_solver_of_another_kind_is_refused() {
    let text = told(&[
        ("other version", Lie::Describe(|answer| answer.protocol_version = 2)),
        ("no integration", Lie::Describe(|answer| answer.integration = 0)),
        ("unknown integration", Lie::Describe(|answer| answer.integration = 17)),
        ("other solver", Lie::Describe(|answer| answer.name = "cubes".into())),
    ]);
    insta::assert_snapshot!(text, @r#"
    other version: participant liar is not what the scene says: it speaks version 2 of amalgam.solver, this coordinator version 1; use programs of the same release
    no integration: participant liar is not what the scene says: it does not say how it integrates (explicit, implicit or projection)
    unknown integration: participant liar is not what the scene says: it does not say how it integrates (explicit, implicit or projection)
    other solver: participant liar is not what the scene says: the scene wants solver "balls", but this process serves "cubes"
    "#);
}

#[test]
fn a_false_particle_table_is_refused() {
    fn header(answer: &mut v1::InitializeResponse) -> &mut v1::InitializeHeader {
        answer.header.as_mut().expect("a header")
    }
    let text = told(&[
        ("no header", Lie::Initialize(|answer| answer.header = None)),
        ("many particles", Lie::Initialize(|answer| header(answer).particles = 1 << 31)),
        ("particles without end", Lie::Initialize(|answer| header(answer).particles = u64::MAX)),
        ("no stable dt", Lie::Initialize(|answer| header(answer).stable_dt = 0.0)),
        ("stable dt not a number", Lie::Initialize(|answer| header(answer).stable_dt = f64::NAN)),
        ("id twice", Lie::Initialize(|answer| put(&mut answer.columns, "id", &[0u64, 2, 2]))),
        ("id out of range", Lie::Initialize(|answer| put(&mut answer.columns, "id", &[0u64, 1, 1 << 50]))),
        (
            "position not a number",
            Lie::Initialize(|answer| put(&mut answer.columns, "position", &[f64::NAN; 9])),
        ),
        ("short position", Lie::Initialize(|answer| put(&mut answer.columns, "position", &[0.0; 8]))),
        ("negative mass", Lie::Initialize(|answer| put(&mut answer.columns, "mass", &[-1.0]))),
        ("no radius", Lie::Initialize(|answer| put(&mut answer.columns, "radius", &[0.1, 0.0, 0.1]))),
        ("neither movable nor not", Lie::Initialize(|answer| put(&mut answer.columns, "immovable", &[7u8]))),
        (
            "triangle of nobody",
            Lie::Initialize(|answer| put(&mut answer.columns, "triangles", &[0u64, 1, 9])),
        ),
        ("half a triangle", Lie::Initialize(|answer| put(&mut answer.columns, "triangles", &[0u64, 1]))),
        ("unknown column", Lie::Initialize(|answer| put(&mut answer.columns, "taste", &[0u64]))),
    ]);
    insta::assert_snapshot!(text, @r"
    no header: participant liar broke the contract in Initialize of step 0: the stream ended without a header
    many particles: participant liar broke the contract in Initialize of step 0: column id holds 24 bytes, but 2147483648 x 8 were announced
    particles without end: participant liar broke the contract in Initialize of step 0: particles is 18446744073709551615, more than 4294967296
    no stable dt: participant liar broke the contract in Initialize of step 0: stable_dt is 0, but must be positive
    stable dt not a number: participant liar broke the contract in Initialize of step 0: stable_dt is NaN, but must be positive
    id twice: participant liar broke the contract in Initialize of step 0: particle id 2 stands twice
    id out of range: participant liar broke the contract in Initialize of step 0: id[2] is 1125899906842624, but must be below 2^48
    position not a number: participant liar broke the contract in Initialize of step 0: position[0] is DVec3(NaN, NaN, NaN), but must be finite
    short position: participant liar broke the contract in Initialize of step 0: column position holds 64 bytes, but 3 x 24 were announced
    negative mass: participant liar broke the contract in Initialize of step 0: particle 0: mass is -1, but must be positive and finite
    no radius: participant liar broke the contract in Initialize of step 0: particle 1: radius is 0, but must be positive and finite
    neither movable nor not: participant liar broke the contract in Initialize of step 0: immovable[0] is 7, but must be 0 or 1
    triangle of nobody: participant liar broke the contract in Initialize of step 0: triangles: id 9 is unknown to the particle table
    half a triangle: participant liar broke the contract in Initialize of step 0: column triangles holds 16 bytes, but 0 x 8 were announced
    unknown column: participant liar broke the contract in Initialize of step 0: column taste is unknown in this call
    ");
}

#[test]
fn false_answers_in_a_step_are_refused() {
    fn done(answer: &mut v1::CommitResponse) -> &mut v1::CommitAnswer {
        answer.header.as_mut().expect("a header")
    }
    fn next(answer: &mut v1::CommitResponse) -> &mut v1::BeginAnswer {
        done(answer).next.as_mut().expect("the next step has begun")
    }
    fn lie_of_contacts(answer: &mut v1::BeginResponse, contacts: &[[u32; 2]]) {
        answer.header.as_mut().expect("a header").contacts = contacts.len() as u64;
        put(&mut answer.columns, "contacts", contacts);
    }
    let text = told(&[
        ("a cell cut off", Lie::Survey(|answer| put(&mut answer.columns, "cells", &[0x80u8]))),
        (
            "as before",
            Lie::Begin(|answer| {
                answer.header.as_mut().expect("a header").as_before = true;
                answer.columns.retain(|column| column.name != "id");
            }),
        ),
        (
            "more than before",
            Lie::Commit(|answer| {
                next(answer).particles = 3;
                put(&mut answer.columns, "position", &[0.0; 9]);
                put(&mut answer.columns, "velocity", &[0.0; 9]);
            }),
        ),
        ("nobody told", Lie::Commit(|answer| next(answer).particles = 1 << 31)),
        ("unknown id", Lie::Begin(|answer| put(&mut answer.columns, "id", &[0u64, 9]))),
        ("id twice", Lie::Begin(|answer| put(&mut answer.columns, "id", &[1u64, 1]))),
        ("short velocity", Lie::Begin(|answer| put(&mut answer.columns, "velocity", &[0.0; 3]))),
        ("endless position", Lie::Begin(|answer| put(&mut answer.columns, "position", &[f64::INFINITY; 6]))),
        ("contact with nobody", Lie::Begin(|answer| lie_of_contacts(answer, &[[0, 2]]))),
        ("contact with itself", Lie::Begin(|answer| lie_of_contacts(answer, &[[1, 1]]))),
        ("contact twice", Lie::Begin(|answer| lie_of_contacts(answer, &[[0, 1], [0, 1]]))),
        (
            "momentum not a number",
            Lie::Integrate(|answer| put(&mut answer.columns, "momentum", &[f64::NAN; 3])),
        ),
        ("long momentum", Lie::Integrate(|answer| put(&mut answer.columns, "momentum", &[0.0; 6]))),
        (
            "negative slope",
            Lie::Integrate(|answer| put(&mut answer.columns, "slope", &[1.0, 1.0, -1e-9, 0.0, 0.0, 0.0])),
        ),
        ("no slope", Lie::Integrate(|answer| put::<f64>(&mut answer.columns, "slope", &[]))),
        ("watched not told", Lie::Integrate(|answer| put::<f64>(&mut answer.columns, "watch_velocity", &[]))),
        (
            "endless travel",
            Lie::Integrate(|answer| {
                answer.header.as_mut().expect("a header").travel_max = f64::INFINITY;
            }),
        ),
        ("unknown column", Lie::Integrate(|answer| put(&mut answer.columns, "heat", &[0.0]))),
        ("fewer particles", Lie::Commit(|answer| done(answer).particles = 2)),
        ("negative stable dt", Lie::Commit(|answer| done(answer).stable_dt = -1.0)),
        ("no time spent", Lie::Commit(|answer| done(answer).solver_seconds = f64::NAN)),
        ("endless energy", Lie::Commit(|answer| done(answer).kinetic_energy = f64::INFINITY)),
        ("momentum missing", Lie::Commit(|answer| done(answer).momentum = None)),
        ("cells twice", Lie::Survey(|answer| put(&mut answer.columns, "cells", &[1u8, 0]))),
        (
            "born known",
            Lie::Commit(|answer| {
                done(answer).born = 1;
                put(&mut answer.columns, "born_id", &[2u64]);
                put(&mut answer.columns, "born_mass", &[1.0]);
                put(&mut answer.columns, "born_radius", &[0.1]);
                put(&mut answer.columns, "born_immovable", &[0u8]);
            }),
        ),
        (
            "born without mass",
            Lie::Commit(|answer| {
                done(answer).born = 1;
                put(&mut answer.columns, "born_id", &[3u64]);
            }),
        ),
        (
            "died unknown",
            Lie::Commit(|answer| {
                done(answer).dead = 1;
                put(&mut answer.columns, "dead", &[8u64]);
            }),
        ),
        ("ids of a frame in disorder", Lie::Frame(|answer| put(&mut answer.columns, "id", &[1u64, 0, 2]))),
        (
            "a field with a bad name",
            Lie::Frame(|answer| {
                let field = v1::FieldInfo { name: "../../x".into(), components: 1 };
                answer.header.as_mut().expect("a header").fields.push(field);
            }),
        ),
    ]);
    insta::assert_snapshot!(text, @r#"
    a cell cut off: participant liar broke the contract in Survey of step 0: column cells: the last cell key is cut off
    as before: participant liar broke the contract in Begin of step 0: 2 particles as before, but before there were 0
    more than before: participant liar broke the contract in Commit of step 0: 3 particles as before, but before there were 2
    nobody told: participant liar broke the contract in Commit of step 0: column position holds 48 bytes, but 2147483648 x 24 were announced
    unknown id: participant liar broke the contract in Begin of step 0: id 9 is not in its particle table
    id twice: participant liar broke the contract in Begin of step 0: id: id 1 stands twice
    short velocity: participant liar broke the contract in Begin of step 0: column velocity holds 24 bytes, but 2 x 24 were announced
    endless position: participant liar broke the contract in Begin of step 0: position[0] is DVec3(inf, inf, inf), but must be finite
    contact with nobody: participant liar broke the contract in Begin of step 0: contacts[0] is [0, 2], but must be two places in this answer, the lower first
    contact with itself: participant liar broke the contract in Begin of step 0: contacts[0] is [1, 1], but must be two places in this answer, the lower first
    contact twice: participant liar broke the contract in Begin of step 0: contacts must ascend, none twice
    momentum not a number: participant liar broke the contract in Integrate of step 0: momentum[0] is DVec3(NaN, NaN, NaN), but must be finite
    long momentum: participant liar broke the contract in Integrate of step 0: column momentum holds 48 bytes, but 1 x 24 were announced
    negative slope: participant liar broke the contract in Integrate of step 0: slope[0] is DMat3 { x_axis: DVec3(1.0, 0.0, 0.0), y_axis: DVec3(0.0, 1.0, 0.0), z_axis: DVec3(0.0, 0.0, -1e-9) }, but must be finite and positive semidefinite
    no slope: participant liar broke the contract in Integrate of step 0: column slope holds 0 bytes, but 1 x 48 were announced
    watched not told: participant liar broke the contract in Integrate of step 0: column watch_velocity holds 0 bytes, but 1 x 24 were announced
    endless travel: participant liar broke the contract in Integrate of step 0: travel_max is inf, but must be finite and not negative
    unknown column: participant liar broke the contract in Integrate of step 0: column heat is unknown in this call
    fewer particles: participant liar broke the contract in Commit of step 0: it says it has 2 particles, but 3 are known
    negative stable dt: participant liar broke the contract in Commit of step 0: stable_dt is -1, but must be positive
    no time spent: participant liar broke the contract in Commit of step 0: solver_seconds is NaN, but must be finite and not negative
    endless energy: participant liar broke the contract in Commit of step 0: energy, speeds and acceleration are [inf, 0.10143327018291386, 1.0143327018291386, 200.48002280646375], but must be finite
    momentum missing: participant liar broke the contract in Commit of step 0: field momentum is missing
    cells twice: participant liar broke the contract in Survey of step 0: column cells: a cell stands twice at byte 1
    born known: participant liar broke the contract in Commit of step 0: particle 2 was born, but is known already
    born without mass: participant liar broke the contract in Commit of step 0: column born_mass holds 0 bytes, but 1 x 8 were announced
    died unknown: participant liar broke the contract in Commit of step 0: particle 8 died, but was not alive
    ids of a frame in disorder: participant liar broke the contract in Frame of step 0: ids of a frame must ascend
    a field with a bad name: participant liar broke the contract in Frame of step 0: field "../../x" with 1 components: names are a-z, 0-9 and _, components 1 or 3
    "#);
}
