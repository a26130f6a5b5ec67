//! Answers that break the contract end a run with a message that names participant, phase and step, before
//! they spoil anything. `wire.rs` has the other direction.

mod support;

use std::fmt::Write as _;

use amalgam_coordinator::{Address, Cancel, CoordinatorError, ParticipantPlan, Simulation};
use amalgam_proto::v1;
use support::Scene;
use support::balls::BallsProgram;
use support::client::{Lie, put, serve_liar};

#[global_allocator]
static HEAP: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

/// Heap that the tests of this file need at most, all together [MB]. A header that is believed asks for
/// thousands.
const HEAP_MAX: f32 = 256.0;

/// The error that a run with a liar ends with, if any. A ball of the liar approaches one of the other
/// participant, another one overlaps and departs, the third is alone.
fn lied_to(lie: Lie) -> Option<CoordinatorError> {
    let mut simulation = match simulation_with(lie) {
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

fn simulation_with(lie: Lie) -> Result<Simulation, CoordinatorError> {
    let plan = Scene::new(0.01, 1e-3).plan;
    let participant = |name: &str, section: String, address| ParticipantPlan {
        name: name.into(),
        solver: "balls".into(),
        section,
        address: Address::InProcess(address),
        access: Default::default(),
        elastic: true,
        wait: std::time::Duration::ZERO,
    };
    let honest =
        amalgam_solver_kit::serve_in_process(std::sync::Arc::new(BallsProgram), 1, 1, None).expect("threads");
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
    Simulation::connect(plan, participants, &Cancel::new())
}

/// A service whose answers get lost is asked again: the run goes on to the same bits.
#[test]
fn lost_answers_do_not_end_a_run() {
    let hash = |lie| {
        let mut simulation = simulation_with(lie).unwrap_or_else(|error| panic!("{error}"));
        let mut groups = 0;
        while !simulation.is_finished() {
            simulation.frames().unwrap_or_else(|error| panic!("{error}"));
            groups += simulation.step().unwrap_or_else(|error| panic!("{error}")).groups;
        }
        assert!(groups > 0, "nobody touched");
        simulation.summary().state_hash
    };
    let honest = hash(Lie::Describe(|_| ()));
    for first in 0..6 {
        assert_eq!(hash(Lie::Loses(first)), honest, "answer {first} and every third one after it");
    }
}

/// An exception in a program that is not ours is told as such, and cut; a service that is gone is told as
/// lost.
#[test]
fn errors_of_a_program_are_its_own() {
    use tonic::Code;
    let text = |code, text| lied_to(Lie::Fails(code, text)).expect("an end").to_string();
    insta::assert_snapshot!(text(Code::Unknown, "Exception calling application: division by zero"), @"participant liar cannot go on, in Frame of step 0: an error in its program, which its log may explain (Unknown): Exception calling application: division by zero");
    insta::assert_snapshot!(text(Code::Internal, "Traceback (most recent call last):\n  File \"a.py\""), @r#"participant liar cannot go on, in Frame of step 0: an error in its program, which its log may explain (Internal): Traceback (most recent call last): File "a.py""#);
    insta::assert_snapshot!(text(Code::Unavailable, "gone"), @"participant liar at this process was lost in Frame of step 0: the connection broke twice (gone), though its service answers; see its log");
    let long = text(Code::Unknown, Box::leak("word ".repeat(1200).into_boxed_str()));
    assert!(long.chars().count() < 700, "{long}");
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
        ("older version", Lie::Speaks(1)),
        ("newer version", Lie::Describe(|answer| answer.protocol_version = 3)),
        ("another version", Lie::Speaks(3)),
        ("a long name", Lie::Describe(|answer| answer.name = "n".repeat(3 << 20))),
        ("no integration", Lie::Describe(|answer| answer.integration = 0)),
        ("unknown integration", Lie::Describe(|answer| answer.integration = 17)),
        ("other solver", Lie::Describe(|answer| answer.name = "cubes".into())),
    ]);
    insta::assert_snapshot!(text, @r#"
    older version: participant liar is not what the scene says: it speaks version 1 of amalgam.solver, this coordinator version 2: update the solver
    newer version: participant liar is not what the scene says: it speaks version 3 of amalgam.solver, this coordinator version 2: update amalgam
    another version: participant liar is not what the scene says: use programs of the same release
    a long name: participant liar is not what the scene says: name has 3145728 bytes, but at most 512 are allowed
    no integration: participant liar is not what the scene says: it does not say how it integrates (explicit, implicit or projection)
    unknown integration: participant liar is not what the scene says: integration 17 is unknown
    other solver: participant liar is not what the scene says: the scene wants solver "balls", but this process serves "cubes"
    "#);
}

#[test]
fn a_false_brief_answer_is_refused() {
    fn header(answer: &mut v1::InitializeResponse) -> &mut v1::InitializeHeader {
        answer.header.as_mut().expect("a header")
    }
    fn brief(answer: &mut v1::InitializeResponse) -> &mut v1::Brief {
        header(answer).brief.as_mut().expect("a brief answer")
    }
    let text = told(&[
        ("no particles", Lie::Briefly(|answer| header(answer).particles = 0)),
        ("particles without end", Lie::Briefly(|answer| header(answer).particles = u64::MAX)),
        ("triangles", Lie::Briefly(|answer| header(answer).triangles = 2)),
        (
            "bodies",
            Lie::Briefly(|answer| {
                header(answer).bodies = true;
                put(&mut answer.columns, "body", &[0u64, 0, 2]);
            }),
        ),
        ("negative mass", Lie::Briefly(|answer| brief(answer).mass = -1.0)),
        ("radius not a number", Lie::Briefly(|answer| brief(answer).radius = f64::NAN)),
        ("beyond all speeds", Lie::Briefly(|answer| brief(answer).speed_max = 1e300)),
        (
            "more points than asked",
            Lie::Briefly(|answer| {
                brief(answer).nearest = 1;
                put(&mut answer.columns, "nearest", &[0u64]);
                put(&mut answer.columns, "nearest_position", &[0.0; 3]);
            }),
        ),
        (
            "nobody is nearest",
            Lie::Briefly(|answer| {
                brief(answer).nearest = 1;
                put(&mut answer.columns, "nearest", &[9u64]);
                put(&mut answer.columns, "nearest_position", &[0.0; 3]);
            }),
        ),
        ("points without end", Lie::Briefly(|answer| brief(answer).nearest = 1 << 40)),
        ("a table beside it", Lie::Briefly(|answer| put(&mut answer.columns, "id", &[0u64, 1, 2]))),
    ]);
    insta::assert_snapshot!(text, @r"
    no particles: participant liar broke the contract in Initialize of step 0: brief: there are no particles to be brief about
    particles without end: participant liar broke the contract in Initialize of step 0: particles is 18446744073709551615, more than 4294967296
    triangles: participant liar broke the contract in Initialize of step 0: brief: particles of triangles are not alike
    bodies: participant liar broke the contract in Initialize of step 0: column body is none that the header of this call calls for
    negative mass: participant liar broke the contract in Initialize of step 0: brief: the mass must be positive, from 1e-50 to 1e50 kg
    radius not a number: participant liar broke the contract in Initialize of step 0: brief: the radius must be positive, from 1e-30 to 1e12 m
    beyond all speeds: participant liar broke the contract in Initialize of step 0: brief: speed_max is 1e300, but must be from 0 to below 1e12 m/s
    more points than asked: participant liar broke the contract in Initialize of step 0: 1 nearest particles for 0 points
    nobody is nearest: participant liar broke the contract in Initialize of step 0: nearest: id 9 is unknown to the participant
    points without end: participant liar broke the contract in Initialize of step 0: 1099511627776 nearest particles, more than 65536
    a table beside it: participant liar broke the contract in Initialize of step 0: column id is none that the header of this call calls for
    ");
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
        (
            "a velocity beyond all",
            Lie::Initialize(|answer| put(&mut answer.columns, "velocity", &[1e300; 9])),
        ),
        ("a mass beyond all", Lie::Initialize(|answer| put(&mut answer.columns, "mass", &[1e300]))),
        ("a radius beyond all", Lie::Initialize(|answer| put(&mut answer.columns, "radius", &[1e300]))),
        ("a step of next to nothing", Lie::Initialize(|answer| header(answer).stable_dt = 1e-300)),
        ("sub-steps without end", Lie::Initialize(|answer| header(answer).substeps_once = 1001)),
        ("negative mass", Lie::Initialize(|answer| put(&mut answer.columns, "mass", &[-1.0]))),
        ("no radius", Lie::Initialize(|answer| put(&mut answer.columns, "radius", &[0.1, 0.0, 0.1]))),
        ("neither movable nor not", Lie::Initialize(|answer| put(&mut answer.columns, "immovable", &[7u8]))),
        (
            "triangle of nobody",
            Lie::Initialize(|answer| {
                header(answer).triangles = 1;
                put(&mut answer.columns, "triangles", &[0u64, 1, 9]);
            }),
        ),
        (
            "a triangle that was not announced",
            Lie::Initialize(|answer| put(&mut answer.columns, "triangles", &[0u64, 1, 2])),
        ),
        ("triangles without end", Lie::Initialize(|answer| header(answer).triangles = 1 << 31)),
        (
            "half a triangle",
            Lie::Initialize(|answer| {
                header(answer).triangles = 1;
                put(&mut answer.columns, "triangles", &[0u64, 1]);
            }),
        ),
        ("unknown column", Lie::Initialize(|answer| put(&mut answer.columns, "taste", &[0u64]))),
    ]);
    insta::assert_snapshot!(text, @r"
    no header: participant liar broke the contract in Initialize of step 0: the stream ended without a header
    many particles: participant liar broke the contract in Initialize of step 0: the columns that were announced need more than 17179869184 bytes
    particles without end: participant liar broke the contract in Initialize of step 0: particles is 18446744073709551615, more than 4294967296
    no stable dt: participant liar broke the contract in Initialize of step 0: stable_dt is 0, but must be at least 1e-30 s
    stable dt not a number: participant liar broke the contract in Initialize of step 0: stable_dt is NaN, but must be at least 1e-30 s
    id twice: participant liar broke the contract in Initialize of step 0: particle id 2 stands twice
    id out of range: participant liar broke the contract in Initialize of step 0: id[2] is 1125899906842624, but must be below 2^48
    position not a number: participant liar broke the contract in Initialize of step 0: position[0] is (NaN, NaN, NaN), but must be finite and within 1e12 m of the origin
    short position: participant liar broke the contract in Initialize of step 0: column position holds 64 bytes, but 3 x 24 were announced
    a velocity beyond all: participant liar broke the contract in Initialize of step 0: velocity[0] is (1e300, 1e300, 1e300), but must be finite and below 1e12 m/s
    a mass beyond all: participant liar broke the contract in Initialize of step 0: particle 0: mass is 1e300, but must be positive, from 1e-50 to 1e50 kg
    a radius beyond all: participant liar broke the contract in Initialize of step 0: particle 0: radius is 1e300, but must be positive, from 1e-30 to 1e12 m
    a step of next to nothing: participant liar broke the contract in Initialize of step 0: stable_dt is 1e-300, but must be at least 1e-30 s
    sub-steps without end: participant liar broke the contract in Initialize of step 0: substeps_once is 1001, but must be at most 1000
    negative mass: participant liar broke the contract in Initialize of step 0: particle 0: mass is -1, but must be positive, from 1e-50 to 1e50 kg
    no radius: participant liar broke the contract in Initialize of step 0: particle 1: radius is 0, but must be positive, from 1e-30 to 1e12 m
    neither movable nor not: participant liar broke the contract in Initialize of step 0: immovable[0] is 7, but must be 0 or 1
    triangle of nobody: participant liar broke the contract in Initialize of step 0: triangles: id 9 is unknown to the particle table
    a triangle that was not announced: participant liar broke the contract in Initialize of step 0: column triangles holds more than the 0 bytes that were announced
    triangles without end: participant liar broke the contract in Initialize of step 0: triangles is 2147483648, but at most 192 are possible
    half a triangle: participant liar broke the contract in Initialize of step 0: column triangles holds 16 bytes, but 3 x 8 were announced
    unknown column: participant liar broke the contract in Initialize of step 0: column taste is none that the header of this call calls for
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
        ("momentum beyond all", Lie::Integrate(|answer| put(&mut answer.columns, "momentum", &[1e300; 3]))),
        (
            "momentum beyond its mass",
            Lie::Integrate(|answer| put(&mut answer.columns, "momentum", &[1e30, 0.0, 0.0])),
        ),
        (
            "slope beyond all",
            Lie::Integrate(|answer| put(&mut answer.columns, "slope", &[1e300, 1e300, 1e300, 0.0, 0.0, 0.0])),
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
        ("a rate of nothing", Lie::Commit(|answer| done(answer).radius_rate_max = 0.0)),
        (
            "nobody moves",
            Lie::Commit(|answer| (done(answer).radius_rate_max, done(answer).speed_max) = (0.0, 0.0)),
        ),
        ("speed beyond all", Lie::Commit(|answer| done(answer).speed_max = 1e300)),
        (
            "sum beyond all",
            Lie::Commit(|answer| done(answer).momentum = Some(v1::Vec3 { x: 1e300, y: 0.0, z: 0.0 })),
        ),
        (
            "cells that nobody can fill",
            Lie::Survey(|answer| put(&mut answer.columns, "cells", &[1u8; 1 << 20])),
        ),
        (
            "contacts without end",
            Lie::Begin(|answer| {
                answer.header.as_mut().expect("a header").contacts = 1 << 30;
            }),
        ),
        ("an endless column", Lie::Floods("contacts")),
        ("an endless column of another call", Lie::Floods("cells")),
        ("an endless column of no call", Lie::Floods("heat")),
        ("endless energy that was not taken", Lie::Commit(|answer| done(answer).not_taken = f64::INFINITY)),
        ("no energy from outside", Lie::Commit(|answer| done(answer).given = f64::NAN)),
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
            "a field that is no number",
            Lie::Frame(|answer| {
                let field = v1::FieldInfo { name: "heat".into(), components: 1 };
                answer.header.as_mut().expect("a header").fields.push(field);
                put(&mut answer.columns, "field_0", &[0.0f32, f32::NAN, 0.0]);
            }),
        ),
        (
            "files that nobody asked for",
            Lie::Frame(|answer| {
                answer.header.as_mut().expect("a header").parts = 1;
                answer.columns.clear();
            }),
        ),
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
    nobody told: participant liar broke the contract in Commit of step 0: particles is 2147483648, but at most 3 are possible
    unknown id: participant liar broke the contract in Begin of step 0: id 9 is not in its particle table
    id twice: participant liar broke the contract in Begin of step 0: id: id 1 stands twice
    short velocity: participant liar broke the contract in Begin of step 0: column velocity holds 24 bytes, but 2 x 24 were announced
    endless position: participant liar broke the contract in Begin of step 0: position[0] is (inf, inf, inf), but must be finite and within 1e12 m of the origin
    contact with nobody: participant liar broke the contract in Begin of step 0: contacts[0] is (0, 2), but must be two places in this answer, the lower first
    contact with itself: participant liar broke the contract in Begin of step 0: contacts[0] is (1, 1), but must be two places in this answer, the lower first
    contact twice: participant liar broke the contract in Begin of step 0: contacts must ascend, none twice
    momentum not a number: participant liar broke the contract in Integrate of step 0: momentum[0] is (NaN, NaN, NaN), but must be finite and below 1e62 kg m/s
    momentum beyond all: participant liar broke the contract in Integrate of step 0: momentum[0] is (1e300, 1e300, 1e300), but must be finite and below 1e62 kg m/s
    momentum beyond its mass: participant liar broke the contract in Integrate of step 0: momentum (1e30, 0, 0) kg m/s of the group of particle 0, which has 2 kg, is beyond 1e12 m/s
    slope beyond all: participant liar broke the contract in Integrate of step 0: slope[0] is (1e300, 0, 0) (0, 1e300, 0) (0, 0, 1e300), but must be positive semidefinite, entries below 1e62 kg
    long momentum: participant liar broke the contract in Integrate of step 0: column momentum holds more than the 24 bytes that were announced
    negative slope: participant liar broke the contract in Integrate of step 0: slope[0] is (1, 0, 0) (0, 1, 0) (0, 0, -1e-9), but must be positive semidefinite, entries below 1e62 kg
    no slope: participant liar broke the contract in Integrate of step 0: column slope holds 0 bytes, but 1 x 48 were announced
    watched not told: participant liar broke the contract in Integrate of step 0: column watch_velocity holds 0 bytes, but 1 x 24 were announced
    endless travel: participant liar broke the contract in Integrate of step 0: travel_max is inf, but must be finite and not negative
    unknown column: participant liar broke the contract in Integrate of step 0: column heat is none that the header of this call calls for
    a rate of nothing: participant liar broke the contract in Commit of step 0: radius_rate_max is 0 1/s, but with speed_max 0.10143327 m/s and radii from 0.1 to 0.1 m it must be from 1.0143327 to 1.0143327
    nobody moves: participant liar broke the contract in Begin of step 1: speed_max is 0 m/s, but a particle moves at 0.10143327 m/s
    speed beyond all: participant liar broke the contract in Commit of step 0: speed_max is 1e300, but must be from 0 to 2e12
    sum beyond all: participant liar broke the contract in Commit of step 0: momentum is (1e300, 0, 0), but must be finite and below 1e100
    cells that nobody can fill: participant liar broke the contract in Survey of step 0: column cells holds more than the 216 bytes that were announced
    contacts without end: participant liar broke the contract in Begin of step 0: contacts is 1073741824, but at most 3072 are possible
    an endless column: participant liar broke the contract in Begin of step 0: column contacts holds more than the 0 bytes that were announced
    an endless column of another call: participant liar broke the contract in Begin of step 0: column cells is none that the header of this call calls for
    an endless column of no call: participant liar broke the contract in Begin of step 0: column heat is none that the header of this call calls for
    endless energy that was not taken: participant liar broke the contract in Commit of step 0: not_taken is inf, but must be below 1e100 J
    no energy from outside: participant liar broke the contract in Commit of step 0: given is NaN, but must be below 1e100 J
    fewer particles: participant liar broke the contract in Commit of step 0: it says it has 2 particles, but 3 are known
    negative stable dt: participant liar broke the contract in Commit of step 0: stable_dt is -1, but must be at least 1e-30 s
    no time spent: participant liar broke the contract in Commit of step 0: solver_seconds is NaN, but must be from 0 to 1e100
    endless energy: participant liar broke the contract in Commit of step 0: kinetic_energy is inf, but must be from 0 to 1e100
    momentum missing: participant liar broke the contract in Commit of step 0: field momentum is missing
    cells twice: participant liar broke the contract in Survey of step 0: column cells: a cell stands twice at byte 1
    born known: participant liar broke the contract in Commit of step 0: particle 2 was born, but is known already
    born without mass: participant liar broke the contract in Commit of step 0: column born_mass holds 0 bytes, but 1 x 8 were announced
    died unknown: participant liar broke the contract in Commit of step 0: particle 8 died, but was not alive
    ids of a frame in disorder: participant liar broke the contract in Frame of step 0: ids of a frame must ascend
    a field that is no number: participant liar broke the contract in Frame of step 0: field "heat" holds NaN at place 1, but must be finite
    files that nobody asked for: participant liar broke the contract in Frame of step 0: it wrote files that were not asked for
    a field with a bad name: participant liar broke the contract in Frame of step 0: field "../../x" with 1 components: names are a-z, 0-9 and _, components 1 or 3
    "#);
}
