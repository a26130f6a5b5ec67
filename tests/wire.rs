//! Calls that break the contract are refused by a service with a message that says what was expected, and
//! change nothing. The files in `wire` have the subjects: faults of messages, the order of calls, the next
//! step that a commit begins, and anything that a message may hold. `wire_answers.rs` has the other
//! direction.

#[path = "wire/columns.rs"]
mod columns;
#[path = "wire/messages.rs"]
mod messages;
#[path = "wire/next_step.rs"]
mod next_step;
#[path = "wire/order.rs"]
mod order;
mod support;

use std::fmt::Write as _;

use amalgam_particles::{DVec3, ParticleId};
use amalgam_proto::contract::Groups;
use amalgam_proto::v1;
use support::balls::BallsProgram;
use support::client::Client;
use tonic::Status;

#[global_allocator]
static HEAP: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;

/// Heap that the tests of this program need at most, all together [MB]. A header that is believed asks for
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

/// A step without a fault; returns the hash of the state after it.
fn step(client: &mut Client) -> u64 {
    client.begin(|_| ()).expect("begins");
    client.integrate(FIRST, &groups(), |_| ()).expect("integrates");
    let committed = client.commit(FIRST, &groups(), |_| ()).expect("commits");
    client.context.step += 1;
    committed.state_hash
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
