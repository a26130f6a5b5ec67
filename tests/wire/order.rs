//! Calls out of order are refused, and repeated calls are answered again.

use amalgam_particles::{DVec3, ParticleId, Particles, StepEnd};
use amalgam_proto::contract::{Batch, Groups};
use amalgam_solver_kit::{
    Answer, Description, Integration, Report, Request, SectionError, Solver, SolverError, SolverProgram,
    World,
};
use tonic::Status;

use super::support::balls::BallsProgram;
use super::support::client::{Client, put};
use super::{BALLS, FIRST, groups, refused, step};

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
