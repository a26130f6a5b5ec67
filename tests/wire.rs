//! Calls that break the contract are refused by a service with a message that says what was expected, and
//! change nothing. `wire_answers.rs` has the other direction, `wire_columns.rs` anything that a message may
//! hold.

mod support;
mod wire_columns;

use std::fmt::Write as _;

use amalgam_particles::{DVec3, ParticleId, Particles, StepEnd};
use amalgam_proto::contract::{Batch, Groups};
use amalgam_proto::v1;
use amalgam_solver_kit::{
    Answer, Description, Integration, Report, Request, SectionError, Solver, SolverError, SolverProgram,
    World,
};
use support::balls::BallsProgram;
use support::client::{Client, put};
use tonic::Status;

#[global_allocator]
static HEAP: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

/// Heap that the tests of this file need at most, all together [MB]. A header that is believed asks for
/// thousands.
const HEAP_MAX: f32 = 256.0;

const BALLS: &str = "positions = [[0, 0, 0], [0.15, 0, 0], [0.5, 0, 0], [1, 0, 0]]\n\
                     velocities = [[0.1, 0, 0], [-0.1, 0, 0], [0, 0.3, 0], [0, 0, 0]]\nmass = 1.0\nradius = 0.1\n";

const FIRST: (u32, u32) = (1, 0);

/// Particles 0 and 1 as a group, 2 watched.
fn groups() -> Groups {
    Groups {
        size: vec![2],
        member: vec![ParticleId(0), ParticleId(1)],
        velocity: vec![DVec3::ZERO],
        watch: vec![ParticleId(2)],
        occupied: None,
    }
}

/// Four balls at rest whose solver starts each answer from its last one, as an iteration does.
struct Warm {
    particles: Particles,
    calls: f64,
}

impl Solver for Warm {
    fn particles(&self) -> &Particles {
        &self.particles
    }

    fn integrate(&mut self, request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        self.calls += 1.0;
        answer
            .momentum
            .iter_mut()
            .zip(request.velocity)
            .for_each(|(j, &v)| *j = v + DVec3::splat(self.calls));
        answer.velocity.fill(DVec3::X * self.calls);
        Ok(())
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        end.advance(&mut self.particles, integrated);
        Ok(Report { stable_dt: f64::INFINITY, ..Report::default() })
    }
}

struct WarmProgram;

impl SolverProgram for WarmProgram {
    fn describe(&self) -> Description {
        Description { name: "warm", version: "1", integration: Integration::Implicit }
    }

    fn create(&self, _section: &str, _world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        let mut particles = Particles::default();
        for i in 0..4 {
            particles.push(ParticleId(i), DVec3::X * i as f64, DVec3::ZERO, 1.0, 0.1, false);
        }
        Ok(Box::new(Warm { particles, calls: 0.0 }))
    }
}

/// A line for a refused call.
fn refused<T>(text: &mut String, what: &str, result: Result<T, Status>) {
    match result {
        Ok(_) => panic!("{what} was accepted"),
        Err(status) => writeln!(text, "{what}: {:?}: {}", status.code(), status.message()).expect("writes"),
    }
}

fn interest_of(packets: &mut [v1::BeginRequest]) -> &mut v1::Interest {
    packets[0].header.as_mut().expect("a header").interest.as_mut().expect("an interest")
}

fn bad_begins(client: &mut Client) -> String {
    type Change = fn(&mut Vec<v1::BeginRequest>);
    let mut text = String::new();
    let lattice =
        |x, cell_size| Some(v1::Lattice { origin: Some(v1::Vec3 { x, y: 0.0, z: 0.0 }), cell_size });
    let mut near = |what: &str, interest, keys: &[u8], margin| {
        let result = client.begin(|packets| {
            let header = interest_of(packets);
            header.set_wanted(v1::Wanted::Near);
            (header.lattice, header.margin) = (interest, margin);
            put(&mut packets[0].columns, "interest", keys);
        });
        refused(&mut text, what, result);
    };
    near("no lattice", None, &[], 0.0);
    near("lattice not finite", lattice(f64::NAN, 1.0), &[], 0.0);
    near("cells of no size", lattice(0.0, 0.0), &[], 0.0);
    near("tiny cells", lattice(0.0, 1e-12), &[1], 0.0);
    near("a margin without end", lattice(0.0, 1.0), &[1], f64::INFINITY);
    near("no number as margin", lattice(0.0, 1.0), &[1], f64::NAN);
    near("a cell cut off", lattice(0.0, 1.0), &[0x80], 0.0);
    near("a cell twice", lattice(0.0, 1.0), &[3, 0], 0.0);
    near("a cell too far", lattice(0.0, 1.0), &[0xff; 12], 0.0);
    let mut list = |what: &str, count, ids: &[u64]| {
        let result = client.begin(|packets| {
            let header = interest_of(packets);
            header.set_wanted(v1::Wanted::Listed);
            header.listed = count;
            put(&mut packets[0].columns, "listed", ids);
        });
        refused(&mut text, what, result);
    };
    list("an unknown particle listed", 1, &[77]);
    list("a particle listed twice", 2, &[1, 1]);
    list("a short list", 3, &[0, 1]);
    list("a list without end", u64::MAX, &[]);
    let wanted =
        |wanted: i32| move |packets: &mut Vec<v1::BeginRequest>| interest_of(packets).wanted = wanted;
    refused(&mut text, "a list that was never given", client.begin(wanted(v1::Wanted::Again.into())));
    refused(&mut text, "an unknown wish", client.begin(wanted(9)));
    let mut survey = |what: &str, lattice, margin| {
        refused(
            &mut text,
            what,
            client.survey(|request| (request.lattice, request.margin) = (lattice, margin)),
        );
    };
    survey("a survey of tiny cells", lattice(0.0, 1e-12), 0.0);
    survey("a survey with a negative margin", lattice(0.0, 1.0), -0.5);
    survey("a survey without cells", None, 0.0);
    let changes: [(&str, Change); 6] = [
        ("no messages", Vec::clear),
        ("no interest", |packets| packets[0].header.as_mut().expect("a header").interest = None),
        ("no header", |packets| packets[0].header = None),
        ("two headers", |packets| packets.push(packets[0].clone())),
        ("no context", |packets| packets[0].header.as_mut().expect("a header").context = None),
        ("unknown column", |packets| put(&mut packets[0].columns, "colour", &[1u8])),
    ];
    for (what, change) in changes {
        refused(&mut text, what, client.begin(change));
    }
    text
}

fn bad_integrates(client: &mut Client) -> String {
    type Header = fn(&mut v1::IntegrateHeader);
    type Change = fn(&mut Vec<v1::Column>);
    let mut text = String::new();
    let headers: [(&str, Header); 12] = [
        ("no groups announced", |header| header.groups = 0),
        ("groups without end", |header| header.groups = u32::MAX),
        ("members without end", |header| header.members = u64::MAX),
        ("many members", |header| header.members = 1 << 31),
        ("many watched", |header| header.watched = (1 << 32) - 1),
        ("no dt", |header| header.dt = 0.0),
        ("endless dt", |header| header.dt = f64::INFINITY),
        ("a dt of next to nothing", |header| header.dt = 1e-300),
        ("dt not a number", |header| header.dt = f64::NAN),
        ("forced to nothing", |header| header.forcing = 1.0),
        ("forcing not a number", |header| header.forcing = f64::NAN),
        ("stage 0", |header| header.stage = 0),
    ];
    for (what, change) in headers {
        let result = client
            .integrate(FIRST, &groups(), |packets| change(packets[0].header.as_mut().expect("a header")));
        refused(&mut text, what, result);
    }
    let columns: [(&str, Change); 19] = [
        ("short velocity", |columns| put(columns, "velocity", &[0.0, 0.0])),
        ("long velocity", |columns| put(columns, "velocity", &[0.0; 6])),
        ("velocity not a number", |columns| put(columns, "velocity", &[0.0, f64::NAN, 0.0])),
        ("unknown member", |columns| put(columns, "member", &[0u64, 99])),
        ("member out of range", |columns| put(columns, "member", &[0u64, 1 << 48])),
        ("member twice", |columns| put(columns, "member", &[1u64, 1])),
        ("half a member", |columns| put(columns, "member", &[0u8; 12])),
        ("empty group", |columns| put(columns, "group_size", &[0u32])),
        ("too large a group", |columns| put(columns, "group_size", &[3u32])),
        ("unknown watched", |columns| put(columns, "watch", &[77u64])),
        ("a member watched", |columns| put(columns, "watch", &[1u64])),
        ("no inertia", |columns| put(columns, "inertia", &[0.0])),
        ("negative inertia", |columns| put(columns, "inertia", &[-1.0])),
        ("inertia not a number", |columns| put(columns, "inertia", &[f64::NAN])),
        ("velocity beyond all", |columns| put(columns, "velocity", &[0.0, 1e300, 0.0])),
        ("inertia beyond all", |columns| put(columns, "inertia", &[1e300])),
        ("impulse beyond all", |columns| put(columns, "impulse", &[0.0, 0.0, 1e300])),
        ("endless impulse", |columns| put(columns, "impulse", &[0.0, 0.0, f64::NEG_INFINITY])),
        ("unknown column", |columns| put(columns, "mass", &[1.0])),
    ];
    for (what, change) in columns {
        let result = client.integrate(FIRST, &groups(), |packets| change(&mut packets[0].columns));
        refused(&mut text, what, result);
    }
    let twice = Groups { watch: vec![ParticleId(2), ParticleId(2)], ..groups() };
    refused(&mut text, "watched twice", client.integrate(FIRST, &twice, |_| ()));
    let result = client
        .integrate(FIRST, &groups(), |packets| put(&mut packets[0].columns, "velocity", &vec![0u8; 5 << 20]));
    refused(&mut text, "a message of 5 MiB", result);
    text
}

fn bad_commits(client: &mut Client) -> String {
    type Change = fn(&mut v1::CommitRequest);
    fn header(packet: &mut v1::CommitRequest) -> &mut v1::CommitHeader {
        packet.header.as_mut().expect("a header")
    }
    fn grid(cell_size: f64) -> v1::Lattice {
        v1::Lattice { origin: Some(v1::Vec3::default()), cell_size }
    }
    let mut text = String::new();
    fn next(packet: &mut v1::CommitRequest, wanted: v1::Wanted, within: f64) -> &mut v1::Interest {
        header(packet).next_within = within;
        let next = header(packet).next.get_or_insert_default();
        next.set_wanted(wanted);
        next
    }
    let changes: [(&str, Change); 17] = [
        ("group velocity not a number", |packet| put(&mut packet.columns, "group_velocity", &[f64::NAN; 3])),
        ("short group velocity", |packet| put(&mut packet.columns, "group_velocity", &[0.0; 2])),
        ("no group number", |packet| put::<u32>(&mut packet.columns, "group_number", &[])),
        ("long member velocity", |packet| put(&mut packet.columns, "member_velocity", &[0.0; 9])),
        ("endless member velocity", |packet| {
            put(&mut packet.columns, "member_velocity", &[f64::INFINITY; 6])
        }),
        ("tracked without end", |packet| header(packet).tracked = u64::MAX),
        ("many tracked", |packet| header(packet).tracked = 1 << 31),
        ("unknown tracked", |packet| {
            header(packet).tracked = 1;
            put(&mut packet.columns, "track", &[8u64]);
        }),
        ("tracked twice", |packet| {
            header(packet).tracked = 2;
            put(&mut packet.columns, "track", &[2u64, 2]);
        }),
        ("nine grids", |packet| header(packet).grids = vec![grid(1.0); 9]),
        ("a grid of no place", |packet| {
            header(packet).grids = vec![v1::Lattice { origin: None, cell_size: 1.0 }]
        }),
        ("a grid of cells of no size", |packet| header(packet).grids = vec![grid(0.0)]),
        ("a next step for a list that was never given", |packet| {
            next(packet, v1::Wanted::Again, 1.0);
        }),
        ("a next step with an unknown particle", |packet| {
            next(packet, v1::Wanted::Listed, 1.0).listed = 1;
            put(&mut packet.columns, "listed", &[77u64]);
        }),
        ("a next step near tiny cells", |packet| {
            next(packet, v1::Wanted::Near, 1.0).lattice = Some(grid(1e-12));
        }),
        ("a next step for no number", |packet| {
            next(packet, v1::Wanted::All, f64::NAN);
        }),
        ("a list for no next step", |packet| put(&mut packet.columns, "listed", &[1u64])),
    ];
    for (what, change) in changes {
        refused(&mut text, what, client.commit(FIRST, &groups(), |packets| change(&mut packets[0])));
    }
    text
}

/// A step without a fault; returns the hash of the state after it.
fn step(client: &mut Client) -> u64 {
    client.begin(|_| ()).expect("begins");
    client.integrate(FIRST, &groups(), |_| ()).expect("integrates");
    let committed = client.commit(FIRST, &groups(), |_| ()).expect("commits");
    client.context.step += 1;
    committed.state_hash
}

#[test]
fn bad_messages_are_refused_and_change_nothing() {
    let mut undisturbed = Client::new(BallsProgram, BALLS);
    let expected = [step(&mut undisturbed), step(&mut undisturbed)];

    let mut client = Client::new(BallsProgram, BALLS);
    insta::assert_snapshot!(bad_begins(&mut client), @r"
    no lattice: InvalidArgument: field lattice is missing
    lattice not finite: InvalidArgument: origin is (NaN, 0, 0), but must be finite and below 1e100
    cells of no size: InvalidArgument: cell_size is 0, but must be positive and finite
    tiny cells: InvalidArgument: cells of 1e-12 m are too small for these particles: use 0.00625 m or more
    a margin without end: InvalidArgument: margin is inf, but must be from 0 to 4
    no number as margin: InvalidArgument: margin is NaN, but must be from 0 to 4
    a cell cut off: InvalidArgument: column interest: the last cell key is cut off
    a cell twice: InvalidArgument: column interest: a cell stands twice at byte 1
    a cell too far: InvalidArgument: column interest: a cell key at byte 9 does not fit 63 bits
    an unknown particle listed: InvalidArgument: listed: id 77 is unknown to this solver
    a particle listed twice: InvalidArgument: listed: id 1 stands twice
    a short list: InvalidArgument: column listed holds 16 bytes, but 3 x 8 were announced
    a list without end: InvalidArgument: listed is 18446744073709551615, more than 4294967296
    a list that was never given: InvalidArgument: no particles were listed yet that could be wanted again
    an unknown wish: InvalidArgument: wanted 9 is unknown
    a survey of tiny cells: InvalidArgument: cells of 1e-12 m are too small for these particles: use 0.00625 m or more
    a survey with a negative margin: InvalidArgument: margin is -0.5, but must be from 0 to 4
    a survey without cells: InvalidArgument: field lattice is missing
    no messages: InvalidArgument: the stream ended without a header
    no interest: InvalidArgument: field interest is missing
    no header: InvalidArgument: the stream ended without a header
    two headers: InvalidArgument: a second header in one stream
    no context: InvalidArgument: field context is missing
    unknown column: InvalidArgument: column colour is none that the header of this call calls for
    ");
    client.begin(|_| ()).expect("begins");
    insta::assert_snapshot!(bad_integrates(&mut client), @r"
    no groups announced: InvalidArgument: column group_size holds more than the 0 bytes that were announced
    groups without end: InvalidArgument: groups is 4294967295, but at most 4 are possible
    members without end: InvalidArgument: members is 18446744073709551615, more than 4294967296
    many members: InvalidArgument: members is 2147483648, but at most 4 are possible
    many watched: InvalidArgument: watched is 4294967295, but at most 4 are possible
    no dt: InvalidArgument: dt is 0, but must be from 1e-30 to 1e15 s
    endless dt: InvalidArgument: dt is inf, but must be from 1e-30 to 1e15 s
    a dt of next to nothing: InvalidArgument: dt is 1e-300, but must be from 1e-30 to 1e15 s
    dt not a number: InvalidArgument: dt is NaN, but must be from 1e-30 to 1e15 s
    forced to nothing: InvalidArgument: forcing is 1, but must be from 0 to below 1
    forcing not a number: InvalidArgument: forcing is NaN, but must be from 0 to below 1
    stage 0: InvalidArgument: stages count from 1
    short velocity: InvalidArgument: column velocity holds 16 bytes, but 1 x 24 were announced
    long velocity: InvalidArgument: column velocity holds more than the 24 bytes that were announced
    velocity not a number: InvalidArgument: velocity[0] is (0, NaN, 0), but must be finite and below 1e12 m/s
    unknown member: InvalidArgument: member: id 99 is unknown to this solver
    member out of range: InvalidArgument: member[1] is 281474976710656, but must be below 2^48
    member twice: InvalidArgument: member: id 1 stands twice
    half a member: InvalidArgument: column member holds 12 bytes, but 2 x 8 were announced
    empty group: InvalidArgument: group_size[0] is 0, but must be at least 1
    too large a group: InvalidArgument: group sizes do not add up to 2 members
    unknown watched: InvalidArgument: watch: id 77 is unknown to this solver
    a member watched: InvalidArgument: watch: particle 1 is a member of a group, not free
    no inertia: InvalidArgument: inertia[0] is 0, but must be infinite, or from 1e-50 to 1e62 kg
    negative inertia: InvalidArgument: inertia[0] is -1, but must be infinite, or from 1e-50 to 1e62 kg
    inertia not a number: InvalidArgument: inertia[0] is NaN, but must be infinite, or from 1e-50 to 1e62 kg
    velocity beyond all: InvalidArgument: velocity[0] is (0, 1e300, 0), but must be finite and below 1e12 m/s
    inertia beyond all: InvalidArgument: inertia[0] is 1e300, but must be infinite, or from 1e-50 to 1e62 kg
    impulse beyond all: InvalidArgument: impulse[0] is (0, 0, 1e300), but must be finite and below 1e62 kg m/s
    endless impulse: InvalidArgument: impulse[0] is (0, 0, -inf), but must be finite and below 1e62 kg m/s
    unknown column: InvalidArgument: column mass is none that the header of this call calls for
    watched twice: InvalidArgument: watch: id 2 stands twice
    a message of 5 MiB: OutOfRange: a message of 5243053 bytes, but at most 4194304 bytes are read
    ");
    client.integrate(FIRST, &groups(), |_| ()).expect("integrates");
    insta::assert_snapshot!(bad_commits(&mut client), @r"
    group velocity not a number: InvalidArgument: group_velocity[0] is (NaN, NaN, NaN), but must be finite and below 1e12 m/s
    short group velocity: InvalidArgument: column group_velocity holds 16 bytes, but 1 x 24 were announced
    no group number: InvalidArgument: column group_number holds 0 bytes, but 1 x 4 were announced
    long member velocity: InvalidArgument: column member_velocity holds more than the 48 bytes that were announced
    endless member velocity: InvalidArgument: member_velocity[0] is (inf, inf, inf), but must be finite and below 1e12 m/s
    tracked without end: InvalidArgument: tracked is 18446744073709551615, more than 4294967296
    many tracked: InvalidArgument: tracked is 2147483648, but at most 4 are possible
    unknown tracked: InvalidArgument: track: id 8 is unknown to this solver
    tracked twice: InvalidArgument: track: id 2 stands twice
    nine grids: InvalidArgument: more than 8 grids in one commit
    a grid of no place: InvalidArgument: field origin is missing
    a grid of cells of no size: InvalidArgument: cell_size is 0, but must be positive and finite
    a next step for a list that was never given: InvalidArgument: no particles were listed yet that could be wanted again
    a next step with an unknown particle: InvalidArgument: listed: id 77 is unknown to this solver
    a next step near tiny cells: InvalidArgument: cells of 1e-12 m are too small for these particles: use 0.00625 m or more
    a next step for no number: InvalidArgument: next_within is NaN, but must not be negative
    a list for no next step: InvalidArgument: column listed is none that the header of this call calls for
    ");
    let committed = client.commit(FIRST, &groups(), |_| ()).expect("commits");
    client.context.step += 1;
    assert_eq!([committed.state_hash, step(&mut client)], expected);
    let peak = HEAP.peak_usage_as_mb();
    assert!(peak < HEAP_MAX, "{peak} MB were taken");
}

/// A commit that begins the next step, if no ball has drifted farther than `within`.
fn and_begin(wanted: v1::Wanted, within: f64) -> impl Fn(&mut Vec<v1::CommitRequest>) {
    move |packets| {
        let header = packets[0].header.as_mut().expect("a header");
        header.next_within = within;
        header.next.get_or_insert_default().set_wanted(wanted);
    }
}

#[test]
fn listed_particles_are_sent_again_until_they_have_drifted() {
    let mut client = Client::new(BallsProgram, BALLS);
    // Cells of 1 m about balls at x = 0, 0.15, 0.5 and 1, of radius 0.1 and counted as 0.15.
    let cells = client.survey(|_| ()).expect("is surveyed");
    let keys: Vec<[i32; 3]> = cells.iter().map(|cell| cell.to_array()).collect();
    let expected = [-1, 0].map(|z| [-1, 0].map(|y| [-1, 0, 1].map(|x| [x, y, z])));
    assert_eq!(keys, expected.as_flattened().as_flattened());
    let batch = client
        .begin(|packets| {
            let interest = interest_of(packets);
            interest.set_wanted(v1::Wanted::Listed);
            interest.listed = 2;
            put(&mut packets[0].columns, "listed", &[3u64, 1]);
        })
        .expect("begins");
    assert_eq!(batch.id, Some(vec![ParticleId(3), ParticleId(1)]));
    for n in [1.0, 2.0, 3.0] {
        // The fastest: 0.3 m/s and free fall, 1 ms a step.
        let fallen = 9.81 * 1e-6 * n * (n + 1.0) / 2.0;
        let drift = f64::hypot(fallen, 0.3e-3 * n) / 0.1;
        let enough = [(1.0 - 1e-9, false), (1.0 + 1e-9, true)][usize::from(n < 3.0)];
        client.integrate(FIRST, &groups(), |_| ()).expect("integrates");
        let change = and_begin(v1::Wanted::Again, drift * enough.0);
        let next = client.commit(FIRST, &groups(), change).expect("commits").next;
        let told = next.map(|batch| (batch.id, batch.position.len()));
        assert_eq!(told, enough.1.then_some((None, 2)), "step {n}");
        client.context.step += 1;
    }
    let again = client.begin(|packets| interest_of(packets).set_wanted(v1::Wanted::Again)).expect("begins");
    assert_eq!((again.id, again.position.len()), (None, 2));
}

#[test]
fn a_commit_begins_the_next_step() {
    let mut apart = Client::new(BallsProgram, BALLS);
    let first = step(&mut apart);
    let begun = apart.begin(|_| ()).expect("begins");

    let mut client = Client::new(BallsProgram, BALLS);
    client.begin(|_| ()).expect("begins");
    client.integrate(FIRST, &groups(), |_| ()).expect("integrates");
    // Nobody was surveyed.
    let all = || and_begin(v1::Wanted::All, f64::INFINITY);
    let done = client.commit(FIRST, &groups(), all()).expect("commits");
    assert_eq!((done.state_hash, done.next.as_ref()), (first, Some(&begun)));
    let repeated = client.commit(FIRST, &groups(), all()).expect("answers").next.expect("has begun");
    let with_ids = Batch { id: Some((0..4).map(ParticleId).collect()), ..begun.clone() };
    assert_eq!(repeated, with_ids);

    // The state that was committed can be looked at, and surveyed for another beginning.
    client.context.step = 1;
    assert_eq!(client.frame().expect("a frame").position, begun.position);
    client.survey(|_| ()).expect("is surveyed");
    assert_eq!(client.begin(|_| ()).expect("begins again"), with_ids);
    for client in [&mut apart, &mut client] {
        client.integrate(FIRST, &groups(), |_| ()).expect("integrates");
    }
    // How far somebody may have drifted does not matter to what is said.
    let [some, any] = [(&mut client, 1e9), (&mut apart, f64::INFINITY)].map(|(client, within)| {
        let done = client.commit(FIRST, &groups(), and_begin(v1::Wanted::All, within)).expect("commits");
        (done.state_hash, done.next.expect("has begun"))
    });
    assert_eq!(some, any);
}

#[test]
fn calls_out_of_order_are_refused_and_change_nothing() {
    let mut undisturbed = Client::new(BallsProgram, BALLS);
    let expected = [step(&mut undisturbed), step(&mut undisturbed)];

    let mut client = Client::new(BallsProgram, BALLS);
    let mut text = String::new();
    let mut refused = |what: &str, result: Result<(), Status>| refused(&mut text, what, result);
    let (all, none) = (groups(), |_: &mut Vec<_>| ());

    client.context.step = 1;
    refused("Survey of step 1", client.survey(|_| ()).map(drop));
    client.context.step = 0;
    refused("Integrate first", client.integrate(FIRST, &all, |_| ()).map(drop));
    refused("Commit first", client.commit(FIRST, &all, |_| ()).map(drop));
    client.context.step = 5;
    refused("Begin of step 5", client.begin(none).map(drop));
    refused("Frame of step 5", client.frame().map(drop));
    client.context.step = 0;
    client.context.run_id = "other".into();
    refused("Begin of another run", client.begin(none).map(drop));
    client.context.run_id = "run".into();
    client.context.epoch = 0;
    refused("Begin of an older epoch", client.begin(none).map(drop));
    client.context.epoch = 1;
    refused("the same epoch again", client.initialize("run", 1, BALLS).map(drop));
    refused(
        "a run that begins anew, on a service of another",
        client.initialize("other", 2, BALLS).map(drop),
    );

    client.begin(none).expect("begins");
    refused("Commit before Integrate", client.commit(FIRST, &all, |_| ()).map(drop));
    refused("stage 2 first", client.integrate((2, 0), &all, |_| ()).map(drop));
    refused("repetition 1 first", client.integrate((1, 1), &all, |_| ()).map(drop));

    client.integrate(FIRST, &all, |_| ()).expect("integrates");
    refused("Begin inside a step", client.begin(none).map(drop));
    refused("Survey inside a step", client.survey(|_| ()).map(drop));
    refused("Frame inside a step", client.frame().map(drop));
    refused("Commit of stage 2", client.commit((2, 0), &all, |_| ()).map(drop));
    refused("Commit of repetition 1", client.commit((1, 1), &all, |_| ()).map(drop));
    refused("stage 3 after 1", client.integrate((3, 0), &all, |_| ()).map(drop));
    client.context.step = 1;
    refused("Integrate of step 1", client.integrate(FIRST, &all, |_| ()).map(drop));
    refused("Commit of step 1", client.commit(FIRST, &all, |_| ()).map(drop));
    client.context.step = 0;

    let repeated = client.integrate((1, 1), &all, |_| ()).expect("repeats");
    assert_eq!(repeated, client.integrate((2, 0), &all, |_| ()).expect("another stage"));
    client.integrate(FIRST, &all, |_| ()).expect("starts again");
    let committed = client.commit(FIRST, &all, |_| ()).expect("commits");
    client.context.step += 1;
    refused("Integrate after Commit", client.integrate(FIRST, &all, |_| ()).map(drop));
    assert_eq!([committed.state_hash, step(&mut client)], expected);
    insta::assert_snapshot!(text, @r#"
    Survey of step 1: FailedPrecondition: Survey of step 1 is out of order: expected Begin of step 0
    Integrate first: FailedPrecondition: Integrate of stage 1, repetition 0, of step 0 is out of order: expected Begin of step 0
    Commit first: FailedPrecondition: Commit of stage 1, repetition 0, of step 0 is out of order: expected Begin of step 0
    Begin of step 5: FailedPrecondition: Begin of step 5 is out of order: expected Begin of step 0
    Frame of step 5: FailedPrecondition: Frame of step 5 is out of order: expected Begin of step 0
    Begin of another run: FailedPrecondition: the call is for run "other", epoch 1, but this solver serves "run", epoch 1
    Begin of an older epoch: FailedPrecondition: the call is for run "run", epoch 0, but this solver serves "run", epoch 1
    the same epoch again: FailedPrecondition: Initialize of run run, epoch 1 is out of order: expected an epoch above 1
    a run that begins anew, on a service of another: FailedPrecondition: the call is for run "other", epoch 2, but this solver serves "run", epoch 1
    Commit before Integrate: FailedPrecondition: Commit of stage 1, repetition 0, of step 0 is out of order: expected Integrate of step 0, stage 1, repetition 0
    stage 2 first: FailedPrecondition: Integrate of stage 2, repetition 0, of step 0 is out of order: expected Integrate of step 0, stage 1, repetition 0
    repetition 1 first: FailedPrecondition: Integrate of stage 1, repetition 1, of step 0 is out of order: expected Integrate of step 0, stage 1, repetition 0
    Begin inside a step: FailedPrecondition: Begin of step 0 is out of order: expected Integrate or Commit of step 0 after stage 1, repetition 0
    Survey inside a step: FailedPrecondition: Survey of step 0 is out of order: expected Integrate or Commit of step 0 after stage 1, repetition 0
    Frame inside a step: FailedPrecondition: Frame of step 0 is out of order: expected Integrate or Commit of step 0 after stage 1, repetition 0
    Commit of stage 2: FailedPrecondition: Commit of stage 2, repetition 0, of step 0 is out of order: expected Integrate or Commit of step 0 after stage 1, repetition 0
    Commit of repetition 1: FailedPrecondition: Commit of stage 1, repetition 1, of step 0 is out of order: expected Integrate or Commit of step 0 after stage 1, repetition 0
    stage 3 after 1: FailedPrecondition: Integrate of stage 3, repetition 0, of step 0 is out of order: expected Integrate or Commit of step 0 after stage 1, repetition 0
    Integrate of step 1: FailedPrecondition: Integrate of stage 1, repetition 0, of step 1 is out of order: expected Integrate or Commit of step 0 after stage 1, repetition 0
    Commit of step 1: FailedPrecondition: Commit of stage 1, repetition 0, of step 1 is out of order: expected Integrate or Commit of step 0 after stage 1, repetition 0
    Integrate after Commit: FailedPrecondition: Integrate of stage 1, repetition 0, of step 1 is out of order: expected Begin of step 1
    "#);

    // A run that starts again has a new epoch, and the old one is over.
    client.initialize("run", 2, BALLS).expect("initialises");
    assert!(client.begin(none).is_err());
    assert_eq!(client.shutdown().expect_err("an old epoch").code(), tonic::Code::FailedPrecondition);
    (client.context.epoch, client.context.step) = (2, 0);
    assert_eq!([step(&mut client), step(&mut client)], expected);

    // Its end may be said again, and then there is no run.
    client.shutdown().expect("ends");
    client.shutdown().expect("has ended");
    let error = client.begin(none).expect_err("no run is served");
    assert_eq!(
        (error.code(), error.message()),
        (tonic::Code::NotFound, "Begin of step 2 is out of order: expected Initialize")
    );
}

#[test]
fn a_repeated_commit_is_answered_and_not_applied() {
    let mut client = Client::new(BallsProgram, BALLS);
    client.begin(|_| ()).expect("begins");
    client.integrate(FIRST, &groups(), |_| ()).expect("integrates");
    let first = client.commit(FIRST, &groups(), |_| ()).expect("commits");
    for _ in 0..3 {
        assert_eq!(client.commit(FIRST, &groups(), |_| ()).expect("answers"), first);
    }
    client.context.step = 1;
    let frame = client.frame().expect("a frame");
    // Ball 3 fell for one step, not for four.
    assert_eq!(frame.velocity[3], DVec3::NEG_Z * 9.81 * 1e-3);
    let mut once = Client::new(BallsProgram, BALLS);
    assert_eq!(step(&mut once), first.state_hash);
    assert_eq!(step(&mut client), step(&mut once));
}

/// A call that comes again because its answer was lost gets the same one, and changes nothing.
#[test]
fn repeated_calls_are_answered_again() {
    let mut undisturbed = Client::new(WarmProgram, "");
    let mut client = Client::new(WarmProgram, "");
    let first = |client: &mut Client, groups: &Groups| client.integrate(FIRST, groups, |_| ());
    let wanted = || Groups { velocity: vec![DVec3::X], ..groups() };
    for step in 0..2 {
        let cells = client.survey(|_| ()).expect("is surveyed");
        assert_eq!(client.survey(|_| ()).expect("again"), cells);
        let batch = client.begin(|_| ()).expect("begins");
        let again = client.begin(|_| ()).expect("begins again");
        assert_eq!(again, Batch { id: again.id.clone(), ..batch.clone() });
        // Who has lost an answer does not know whose particles it held.
        assert_eq!(again.id.expect("all ids").len(), 4);

        let answer = first(&mut client, &groups()).expect("integrates");
        for _ in 0..3 {
            assert_eq!(first(&mut client, &groups()).expect("answers"), answer);
        }
        let repeated = client.integrate((1, 1), &groups(), |_| ()).expect("repeats");
        assert_ne!(repeated, answer, "what iterates goes on from where it was");
        assert_eq!(client.integrate((1, 1), &groups(), |_| ()).expect("answers"), repeated);
        assert!(
            client
                .integrate((1, 1), &wanted(), |packets| {
                    put(&mut packets[0].columns, "impulse", &[1.0, 0.0, 0.0]);
                })
                .is_err()
        );
        let other = first(&mut client, &wanted()).expect("other groups");
        assert_ne!(other, answer);
        let second = client.integrate((2, 0), &groups(), |_| ()).expect("another stage");
        assert_eq!(client.integrate((2, 0), &groups(), |_| ()).expect("answers"), second);
        let done = client.commit((2, 0), &groups(), |_| ()).expect("commits");

        undisturbed.begin(|_| ()).expect("begins");
        first(&mut undisturbed, &groups()).expect("integrates");
        undisturbed.integrate((1, 1), &groups(), |_| ()).expect("repeats");
        first(&mut undisturbed, &wanted()).expect("other groups");
        undisturbed.integrate((2, 0), &groups(), |_| ()).expect("another stage");
        let expected = undisturbed.commit((2, 0), &groups(), |_| ()).expect("commits");
        assert_eq!(done.state_hash, expected.state_hash, "step {step}");
        client.context.step += 1;
        undisturbed.context.step += 1;
    }
}

/// Data that were not announced are refused with their first message, however much would follow.
#[test]
fn data_beyond_what_was_announced_are_refused_at_once() {
    let mut client = Client::new(BallsProgram, BALLS);
    let piece = bytes::Bytes::from(vec![0u8; 512 << 10]);
    let flood = |name: &str| {
        let column = v1::Column { name: name.into(), data: piece.clone() };
        std::iter::repeat_n(column, 4096)
    };
    let mut text = String::new();
    for (what, name) in
        [("two gigabytes of a list", "listed"), ("of cells", "interest"), ("of nothing", "heat")]
    {
        let begun = client.begin(|packets| {
            packets
                .extend(flood(name).map(|column| v1::BeginRequest { header: None, columns: vec![column] }));
        });
        refused(&mut text, what, begun);
    }
    let one = client.begin(|packets| {
        let interest = interest_of(packets);
        interest.set_wanted(v1::Wanted::Listed);
        interest.listed = 1;
        packets
            .extend(flood("listed").map(|column| v1::BeginRequest { header: None, columns: vec![column] }));
    });
    refused(&mut text, "two gigabytes for one id", one);
    let known = client.context.run_id.clone();
    for (what, run_id) in [("of another run", "other".into()), ("of a long name", "x".repeat(1 << 20))] {
        client.context.run_id = run_id;
        let begun = client.begin(|packets| {
            packets.extend(
                flood("listed").map(|column| v1::BeginRequest { header: None, columns: vec![column] }),
            );
        });
        refused(&mut text, what, begun);
    }
    client.context.run_id = known;
    refused(&mut text, "a run with a long name", client.initialize(&"x".repeat(3 << 20), 1, BALLS));
    client.begin(|_| ()).expect("begins");
    for name in ["momentum", "member", "impulse"] {
        let integrated = client.integrate(FIRST, &groups(), |packets| {
            packets.extend(
                flood(name).map(|column| v1::IntegrateRequest { header: None, columns: vec![column] }),
            );
        });
        refused(&mut text, name, integrated);
    }
    insta::assert_snapshot!(text, @r#"
    two gigabytes of a list: InvalidArgument: column listed is none that the header of this call calls for
    of cells: InvalidArgument: column interest is none that the header of this call calls for
    of nothing: InvalidArgument: column heat is none that the header of this call calls for
    two gigabytes for one id: InvalidArgument: column listed holds more than the 8 bytes that were announced
    of another run: FailedPrecondition: the call is for run "other", epoch 1, but this solver serves "run", epoch 1
    of a long name: InvalidArgument: run_id has 1048576 bytes, but at most 512 are allowed
    a run with a long name: InvalidArgument: run_id has 3145728 bytes, but at most 512 are allowed
    momentum: InvalidArgument: column momentum is none that the header of this call calls for
    member: InvalidArgument: column member holds more than the 16 bytes that were announced
    impulse: InvalidArgument: column impulse holds more than the 24 bytes that were announced
    "#);
    client.integrate(FIRST, &groups(), |_| ()).expect("integrates");
    client.commit(FIRST, &groups(), |_| ()).expect("commits");
    let peak = HEAP.peak_usage_as_mb();
    assert!(peak < HEAP_MAX, "{peak} MB were taken");
}

#[test]
fn versions_health_and_reflection_are_told() {
    let mut client = Client::new(BallsProgram, BALLS);
    for (version, older) in [(1, "the coordinator"), (3, "balls")] {
        let refusal = client.describe(version).expect_err("refuses");
        assert_eq!(refusal.code(), tonic::Code::FailedPrecondition);
        let expected = format!(
            "the coordinator speaks version {version} of amalgam.solver, balls {} version 2: update {older}",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(refusal.message(), expected);
    }
    let description = client.describe(amalgam_proto::PROTOCOL_VERSION).expect("describes");
    assert_eq!((description.name.as_str(), description.protocol_version), ("balls", 2));

    let Client { runtime, channel, .. } = &client;
    runtime.block_on(async {
        use tonic_health::pb::{
            HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
        };
        let request = HealthCheckRequest { service: "amalgam.solver.v1.Solver".into() };
        let health = HealthClient::new(channel.clone()).check(request).await.expect("answers").into_inner();
        assert_eq!(health.status(), ServingStatus::Serving);

        use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::v1::{
            ServerReflectionRequest, server_reflection_request::MessageRequest,
            server_reflection_response::MessageResponse,
        };
        let message_request = Some(MessageRequest::ListServices(String::new()));
        let request = ServerReflectionRequest { host: String::new(), message_request };
        let mut reflection = ServerReflectionClient::new(channel.clone());
        let answers =
            reflection.server_reflection_info(tokio_stream::iter([request])).await.expect("answers");
        let answer = answers.into_inner().message().await.expect("a message").expect("one answer");
        let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
            panic!("{answer:?}")
        };
        assert!(list.service.iter().any(|service| service.name == "amalgam.solver.v1.Solver"), "{list:?}");

        // Older clients ask by another name.
        use tonic_reflection::pb::v1alpha::server_reflection_client::ServerReflectionClient as Older;
        use tonic_reflection::pb::v1alpha::{
            ServerReflectionRequest as OlderRequest,
            server_reflection_request::MessageRequest as OlderMessage,
        };
        let message_request = Some(OlderMessage::FileContainingSymbol("amalgam.solver.v1.Solver".into()));
        let request = OlderRequest { host: String::new(), message_request };
        let answers = Older::new(channel.clone()).server_reflection_info(tokio_stream::iter([request])).await;
        let answer = answers.expect("answers").into_inner().message().await.expect("a message");
        assert!(format!("{answer:?}").contains("FileDescriptorResponse"), "{answer:?}");
    });
}
