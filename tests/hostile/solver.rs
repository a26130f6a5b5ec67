//! Attacks on a solver.

use std::time::{Duration, Instant};

use amalgam_particles::{DVec3, ParticleId};
use amalgam_proto::contract::Groups;
use amalgam_proto::v1::solver_client::SolverClient;
use amalgam_proto::{CHUNK_BYTES, v1};
use amalgam_solver_solid::SolidProgram;
use futures_util::{StreamExt as _, stream};

use super::raw::{RAW, Raw};
use super::support::client::Client;
use super::support::service::Service;
use super::{Attack, CONNECTIONS_BYTES, SIEGE, attempt, besiege, check, dial, is_refusal, may_go_on, memory};

const SECTION: &str = "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\nmass = 1.0\nradius = 0.1\n\
                       positions = [[0, 0, 0], [0.15, 0, 0], [0.5, 0, 0], [1, 0, 0]]\n";

fn column(name: &str, bytes: usize) -> v1::Column {
    v1::Column { name: name.into(), data: vec![0u8; bytes].into() }
}

fn context(run_id: &str) -> Option<v1::RunContext> {
    Some(v1::RunContext { run_id: run_id.into(), epoch: 1, step: 0 })
}

/// Attacks on a solver. `listed` ids are announced to the run of a name, and pieces follow without end.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnSolver {
    Raw(Raw),
    List { run: &'static str, listed: u64, column: &'static str, bytes: usize },
    Groups(u32),
    Headless,
    Stall,
    Empty,
    LongRun,
    LongName,
    LongSection,
    DeepSection,
    NoNumbers,
    ForeignSnapshot,
}

pub(super) fn on_solver() -> Vec<OnSolver> {
    let calls = [
        OnSolver::List { run: "run", listed: 0, column: "heat", bytes: CHUNK_BYTES },
        OnSolver::List { run: "run", listed: 0, column: "interest", bytes: CHUNK_BYTES },
        OnSolver::List { run: "run", listed: 1 << 31, column: "listed", bytes: CHUNK_BYTES },
        OnSolver::List { run: "run", listed: 4, column: "listed", bytes: 1 },
        OnSolver::List { run: "other", listed: 1 << 31, column: "listed", bytes: CHUNK_BYTES },
        OnSolver::Groups(u32::MAX),
        OnSolver::Headless,
        OnSolver::Stall,
        OnSolver::Empty,
        OnSolver::LongRun,
        OnSolver::LongName,
        OnSolver::LongSection,
        OnSolver::DeepSection,
        OnSolver::NoNumbers,
        OnSolver::ForeignSnapshot,
    ];
    calls.into_iter().chain(RAW.map(OnSolver::Raw)).collect()
}

impl Attack for OnSolver {
    fn is_refused(self) -> bool {
        match self {
            Self::Raw(raw) => !may_go_on(raw),
            Self::Stall | Self::Empty => false,
            _ => true,
        }
    }

    fn strike(self, address: &str, longest: Duration) -> bool {
        match self {
            Self::Raw(raw) => raw.strike(address, "/amalgam.solver.v1.Solver/Describe", longest),
            _ => attempt(self.call(address), longest),
        }
    }
}

impl OnSolver {
    async fn call(self, address: &str) -> bool {
        let begin = |run: &str, listed| {
            let interest =
                v1::Interest { wanted: v1::Wanted::Listed.into(), listed, ..v1::Interest::default() };
            let header = v1::BeginHeader { context: context(run), interest: Some(interest) };
            v1::BeginRequest { header: Some(header), columns: Vec::new() }
        };
        let more = |name, bytes| {
            stream::repeat(v1::BeginRequest { header: None, columns: vec![column(name, bytes)] })
        };
        let Some(channel) = dial(address).await else { return false };
        let mut solver = SolverClient::new(channel);
        let initialize = |run_id: String, participant: String, section: String| v1::InitializeRequest {
            run_id,
            participant,
            section,
            epoch: 9,
            seed: 1,
            obstacles: Vec::new(),
            brief: false,
            nearest_to: Vec::new(),
            domain_min: Some(v1::Vec3::default()),
            domain_max: Some(v1::Vec3 { x: 1.0, y: 1.0, z: 1.0 }),
            gravity: Some(v1::Vec3::default()),
        };
        let long = || "x".repeat(3 << 20);
        match self {
            Self::List { run, listed, column, bytes } => {
                let calls = stream::iter([begin(run, listed)]).chain(more(column, bytes));
                solver.begin(calls).await.is_err_and(|status| is_refusal(&status))
            }
            Self::Groups(groups) => {
                let header = v1::IntegrateHeader {
                    context: context("run"),
                    stage: 1,
                    dt: 1e-3,
                    groups,
                    ..v1::IntegrateHeader::default()
                };
                let columns = vec![column("impulse", CHUNK_BYTES)];
                let first = v1::IntegrateRequest { header: Some(header), columns: columns.clone() };
                let more = stream::repeat(v1::IntegrateRequest { header: None, columns });
                solver
                    .integrate(stream::iter([first]).chain(more))
                    .await
                    .is_err_and(|status| is_refusal(&status))
            }
            Self::Headless => {
                solver.begin(more("listed", CHUNK_BYTES)).await.is_err_and(|status| is_refusal(&status))
            }
            Self::Stall => {
                let calls = stream::iter([begin("run", 4)]).chain(stream::pending());
                solver.begin(calls).await.is_err_and(|status| is_refusal(&status))
            }
            Self::Empty => {
                let empty = v1::BeginRequest { header: None, columns: Vec::new() };
                solver
                    .begin(stream::iter([begin("run", 4)]).chain(stream::repeat(empty)))
                    .await
                    .is_err_and(|status| is_refusal(&status))
            }
            Self::LongRun => {
                solver.begin(stream::iter([begin(&long(), 4)])).await.is_err_and(|status| is_refusal(&status))
            }
            Self::LongName => solver
                .initialize(initialize("a".into(), long(), SECTION.into()))
                .await
                .is_err_and(|status| is_refusal(&status)),
            Self::LongSection => solver
                .initialize(initialize("a".into(), "a".into(), long()))
                .await
                .is_err_and(|status| is_refusal(&status)),
            Self::DeepSection => solver
                .initialize(initialize("a".into(), "a".into(), format!("a = {}", "[".repeat(3 << 20))))
                .await
                .is_err_and(|status| is_refusal(&status)),
            Self::NoNumbers => {
                // One group of one particle, all of whose numbers are no numbers.
                let header = v1::IntegrateHeader {
                    context: context("run"),
                    stage: 1,
                    dt: f64::NAN,
                    groups: 1,
                    members: 1,
                    ..v1::IntegrateHeader::default()
                };
                let names =
                    [("group_size", 4), ("member", 8), ("velocity", 24), ("inertia", 8), ("impulse", 24)];
                let columns = names
                    .map(|(name, bytes)| v1::Column { name: name.into(), data: vec![0xff; bytes].into() });
                let request = v1::IntegrateRequest { header: Some(header), columns: columns.into() };
                solver.integrate(stream::iter([request])).await.is_err_and(|status| is_refusal(&status))
            }
            Self::ForeignSnapshot => {
                let header =
                    v1::RestoreHeader { context: context("run"), particles: 4, ..Default::default() };
                let first = v1::RestoreRequest { header: Some(header), columns: Vec::new() };
                let more =
                    v1::RestoreRequest { header: None, columns: vec![column("snapshot", CHUNK_BYTES)] };
                let calls = stream::iter([first]).chain(stream::repeat(more));
                solver.restore(calls).await.is_err_and(|status| is_refusal(&status))
            }
            Self::Raw(_) => unreachable!("it makes no calls"),
        }
    }
}

/// A solver under attack while it serves a run to the bits of an undisturbed one: how often each kind was
/// refused, steps taken, and memory before, after and at most [bytes].
pub(super) fn siege_of_solver(kinds: &[OnSolver], time: Duration) -> (Vec<(OnSolver, u64)>, u64, [u64; 3]) {
    let service = Service::start("solid", "127.0.0.1:0", &[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let channel = runtime.block_on(dial(&service.address)).expect("connects");
    let mut client = Client::over(runtime, channel, SECTION);
    let before = memory(service.child.id()).0;
    let groups = Groups {
        size: vec![2],
        member: vec![ParticleId(0), ParticleId(1)],
        velocity: vec![DVec3::ZERO],
        ..Groups::default()
    };
    let step = |client: &mut Client| {
        client.begin(|_| ()).expect("begins");
        client.integrate((1, 0), &groups, |_| ()).expect("integrates");
        let hash = client.commit((1, 0), &groups, |_| ()).expect("commits").state_hash;
        client.context.step += 1;
        hash
    };
    let (mut steps, mut hash) = (0, 0);
    let counts = besiege(&service.address, kinds, || {
        let start = Instant::now();
        while start.elapsed() < time {
            hash = step(&mut client);
            steps += 1;
        }
    });
    let (after, peak) = memory(service.child.id());
    check(&service.address, &counts);
    let mut undisturbed = Client::new(SolidProgram, SECTION);
    let expected = (0..steps).map(|_| step(&mut undisturbed)).last();
    assert_eq!(Some(hash), expected, "{steps} steps");
    assert!(peak <= before + CONNECTIONS_BYTES, "{kinds:?}: {peak} bytes, {before} before");
    (counts, steps, [before, after, peak])
}

#[test]
fn a_solver_under_siege_serves_its_run_within_its_memory() {
    let (counts, steps, memory) = siege_of_solver(&on_solver(), SIEGE);
    println!("{steps} steps; refused: {counts:?}; {memory:?} bytes before, after and at most");
}
