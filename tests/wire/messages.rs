//! Messages with a fault, and data that were not announced.

use amalgam_particles::ParticleId;
use amalgam_proto::contract::Groups;
use amalgam_proto::v1;

use super::support::balls::BallsProgram;
use super::support::client::{Client, put};
use super::{BALLS, FIRST, HEAP, HEAP_MAX, groups, interest_of, refused, step};

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
