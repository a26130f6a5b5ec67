//! A commit that begins the next step, and lists of particles that are wanted again.

use amalgam_particles::ParticleId;
use amalgam_proto::contract::Batch;
use amalgam_proto::v1;

use super::support::balls::BallsProgram;
use super::support::client::{Client, put};
use super::{BALLS, FIRST, groups, interest_of, step};

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
