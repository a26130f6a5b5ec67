//! Services among hostile callers answer the run that they serve, and their memory stays within the named
//! limits.

#[path = "support/raw.rs"]
mod raw;
mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use amalgam_particles::{DVec3, ParticleId};
use amalgam_proto::contract::Groups;
use amalgam_proto::coordinator::coordinator_client::CoordinatorClient;
use amalgam_proto::coordinator::submit_request::Part;
use amalgam_proto::coordinator::{self as orders, State};
use amalgam_proto::v1::solver_client::SolverClient;
use amalgam_proto::{CHUNK_BYTES, TransportLimits, message_limit, v1};
use amalgam_solver_solid::SolidProgram;
use futures_util::{StreamExt as _, stream};
use raw::{RAW, Raw};
use support::client::Client;
use support::process::{Folder, repository, wait_until};
use support::service::Service;
use tonic::transport::{Channel, Endpoint};

const SECTION: &str = "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\nmass = 1.0\nradius = 0.1\n\
                       positions = [[0, 0, 0], [0.15, 0, 0], [0.5, 0, 0], [1, 0, 0]]\n";

const DROP: &str = "scenes/small/drop.toml";

/// Hostile callers at once.
const PEERS: usize = 36;

/// Duration of an attack, by all kinds at once or by one kind.
const SIEGE: Duration = Duration::from_secs(4);
const SIEGE_OF_ONE_KIND: Duration = Duration::from_secs(2);

/// Longest time until an honest caller is answered, beside whatever else the machine computes.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// Longest time of one try.
const TRY: Duration = Duration::from_secs(1);

/// Memory that connections may take, all together [bytes]: the windows of each, and on each of its calls a
/// message and the room that is asked for before one is read.
const CONNECTIONS_BYTES: u64 = TransportLimits::CONNECTIONS_MAX as u64
    * (TransportLimits::CONNECTION_WINDOW_BYTES as u64
        + TransportLimits::STREAMS_MAX as u64 * (message_limit() as u64 + 3 * CHUNK_BYTES as u64));

/// Memory that the scene takes that is read [bytes].
const SCENE_BYTES: u64 = 256 << 20;

/// Resident memory of a process: now, and its peak [bytes].
fn memory(process: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let read = |key: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    };
    (read("VmRSS:"), read("VmHWM:"))
}

async fn dial(address: &str) -> Option<Channel> {
    Endpoint::from_shared(format!("http://{address}")).expect("an address").connect().await.ok()
}

fn column(name: &str, bytes: usize) -> v1::Column {
    v1::Column { name: name.into(), data: vec![0u8; bytes].into() }
}

fn context(run_id: &str) -> Option<v1::RunContext> {
    Some(v1::RunContext { run_id: run_id.into(), epoch: 1, step: 0 })
}

/// True if the service itself has answered, and not merely hung up on one connection too many.
fn is_refusal(status: &tonic::Status) -> bool {
    std::error::Error::source(status).is_none() && status.code() != tonic::Code::Unavailable
}

/// Action of hostile callers.
trait Attack: Copy + std::fmt::Debug + Send + 'static {
    /// True if the service must refuse each try in words, or hang up.
    fn is_refused(self) -> bool;
    /// Makes a try of at most `longest`. Returns true if the service refused it.
    fn strike(self, address: &str, longest: Duration) -> bool;
}

/// Makes a try by calls, given up after `longest`.
fn attempt(work: impl Future<Output = bool>, longest: Duration) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(longest, work).await }).unwrap_or(false)
}

/// Attacks by [`PEERS`] callers, each with the next of `kinds`, as long as `work` takes: how often each kind
/// was refused.
fn besiege<A: Attack>(address: &str, kinds: &[A], work: impl FnOnce()) -> Vec<(A, u64)> {
    let stop = Arc::new(AtomicBool::new(false));
    let refused: Arc<Vec<AtomicU64>> = Arc::new(kinds.iter().map(|_| AtomicU64::new(0)).collect());
    let attacker = |(at, &attack): (usize, &A)| {
        let (stop, refused, address) = (Arc::clone(&stop), Arc::clone(&refused), address.to_string());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if attack.strike(&address, TRY) {
                    refused[at].fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    };
    let attackers: Vec<_> =
        kinds.iter().enumerate().cycle().take(PEERS.max(kinds.len())).map(attacker).collect();
    work();
    stop.store(true, Ordering::Relaxed);
    attackers.into_iter().for_each(|attacker| attacker.join().expect("no attacker fails"));
    kinds.iter().zip(refused.iter()).map(|(&kind, count)| (kind, count.load(Ordering::Relaxed))).collect()
}

/// Each kind that must be refused was. A try in the crowd may get no answer in time; then one alone must.
fn check<A: Attack>(address: &str, counts: &[(A, u64)]) {
    for &(attack, count) in counts {
        if count == 0 && attack.is_refused() {
            let refused = wait_until(ANSWER_DEADLINE, || attack.strike(address, ANSWER_DEADLINE));
            assert!(refused, "{attack:?} was never refused");
        }
    }
}

/// Kinds of raw callers that the service need not have ended within a try.
fn may_go_on(raw: Raw) -> bool {
    matches!(
        raw,
        Raw::Silence
            | Raw::TlsHello
            | Raw::HalfPreface
            | Raw::Settings
            | Raw::Pings
            | Raw::RapidReset
            | Raw::Continuations
            | Raw::WindowOverflow
            | Raw::HeadersTooLong
            | Raw::Compressed
            | Raw::UnknownCall
            | Raw::Trickle
            | Raw::AnswerNotTaken
            | Raw::Streams
            | Raw::ManyConnections
    )
}

/// Attacks on a solver. `listed` ids are announced to the run of a name, and pieces follow without end.
#[derive(Clone, Copy, Debug)]
enum OnSolver {
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

fn on_solver() -> Vec<OnSolver> {
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
                let header = v1::RestoreHeader { context: context("run"), particles: 4 };
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
fn siege_of_solver(kinds: &[OnSolver], time: Duration) -> (Vec<(OnSolver, u64)>, u64, [u64; 3]) {
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

/// Attacks on a coordinator as a service.
#[derive(Clone, Copy, Debug)]
enum OnCoordinator {
    Raw(Raw),
    FileFirst,
    EndlessScene,
    EndlessFile,
    ManyFiles,
    PathOut,
    LongPath,
    DeepScene,
    WideScene,
    NoScene,
    SilentSubmission,
    LongOptions,
    UnknownRun,
    FetchOut,
    FollowersWhoDoNotRead,
    OneCallThenSilence,
}

fn on_coordinator() -> Vec<OnCoordinator> {
    let calls = [
        OnCoordinator::FileFirst,
        OnCoordinator::EndlessScene,
        OnCoordinator::EndlessFile,
        OnCoordinator::ManyFiles,
        OnCoordinator::PathOut,
        OnCoordinator::LongPath,
        OnCoordinator::DeepScene,
        OnCoordinator::WideScene,
        OnCoordinator::NoScene,
        OnCoordinator::SilentSubmission,
        OnCoordinator::LongOptions,
        OnCoordinator::UnknownRun,
        OnCoordinator::FetchOut,
        OnCoordinator::FollowersWhoDoNotRead,
        OnCoordinator::OneCallThenSilence,
    ];
    calls.into_iter().chain(RAW.map(OnCoordinator::Raw)).collect()
}

fn request(part: Part) -> orders::SubmitRequest {
    orders::SubmitRequest { part: Some(part) }
}

/// The id of the run that is computed meanwhile: the first one of a service.
const FIRST_RUN: &str = "drop-1";

impl Attack for OnCoordinator {
    fn is_refused(self) -> bool {
        match self {
            Self::Raw(raw) => !may_go_on(raw),
            Self::SilentSubmission | Self::FollowersWhoDoNotRead | Self::OneCallThenSilence => false,
            // So many bytes take longer than a try.
            Self::EndlessFile => false,
            _ => true,
        }
    }

    fn strike(self, address: &str, longest: Duration) -> bool {
        match self {
            Self::Raw(raw) => raw.strike(address, "/amalgam.coordinator.v1.Coordinator/List", longest),
            _ => attempt(self.call(address), longest),
        }
    }
}

impl OnCoordinator {
    async fn call(self, address: &str) -> bool {
        let Some(channel) = dial(address).await else { return false };
        let mut coordinator = CoordinatorClient::new(channel);
        let options = || request(Part::Options(orders::Options::default()));
        let scene = |text: Vec<u8>| request(Part::Scene(text.into()));
        let piece = |path: String, bytes: usize| {
            request(Part::File(orders::FilePiece { path, data: vec![b'x'; bytes].into() }))
        };
        let whole = std::fs::read(repository(DROP)).expect("reads");
        let mut submit = async |calls: stream::BoxStream<'static, orders::SubmitRequest>| {
            coordinator.submit(calls).await.is_err_and(|status| is_refusal(&status))
        };
        let with_file =
            |path: &str| stream::iter([options(), scene(whole.clone()), piece(path.into(), 10)]).boxed();
        match self {
            Self::FileFirst => submit(stream::iter([piece("a".into(), 10)]).boxed()).await,
            Self::EndlessScene => {
                let more = scene(vec![b'#'; CHUNK_BYTES]);
                submit(stream::iter([options()]).chain(stream::repeat(more)).boxed()).await
            }
            Self::EndlessFile => {
                let more = piece("a".into(), CHUNK_BYTES);
                submit(stream::iter([options(), scene(whole)]).chain(stream::repeat(more)).boxed()).await
            }
            Self::ManyFiles => {
                let files = stream::iter(0..300).map(move |at| piece(format!("{at}"), 1));
                submit(stream::iter([options(), scene(whole)]).chain(files).boxed()).await
            }
            Self::PathOut => submit(with_file("../../out")).await,
            Self::LongPath => submit(with_file(&"x".repeat(1 << 20))).await,
            Self::DeepScene => {
                let deep = [b"a = ".to_vec(), vec![b'['; (1 << 20) - 4]].concat();
                submit(stream::iter([options(), scene(deep)]).boxed()).await
            }
            Self::WideScene => {
                let wide = [b"a = [".to_vec(), b"[],".repeat((1 << 20) / 3 - 4), b"]".to_vec()].concat();
                submit(stream::iter([options(), scene(wide)]).boxed()).await
            }
            Self::NoScene => submit(stream::iter([options(), scene(vec![0xff; 1 << 20])]).boxed()).await,
            Self::SilentSubmission => {
                submit(stream::iter([options()]).chain(stream::pending()).boxed()).await
            }
            Self::LongOptions => {
                let options = orders::Options { checkpoint_every: "9".repeat(3 << 20), ..Default::default() };
                submit(stream::iter([request(Part::Options(options)), scene(whole)]).boxed()).await
            }
            Self::UnknownRun => {
                let id = "9".repeat(1 << 20);
                coordinator.pause(orders::PauseRequest { id }).await.is_err_and(|status| is_refusal(&status))
            }
            Self::FetchOut => {
                let path = "../../../../../etc/passwd".into();
                let request = orders::FetchRequest { id: FIRST_RUN.into(), path, from: 0 };
                match coordinator.fetch(request).await {
                    Ok(answer) => {
                        answer.into_inner().message().await.is_err_and(|status| is_refusal(&status))
                    }
                    Err(status) => is_refusal(&status),
                }
            }
            Self::FollowersWhoDoNotRead => {
                let mut kept = Vec::new();
                while let Ok(Ok(answer)) = tokio::time::timeout(
                    TRY / 4,
                    coordinator.follow(orders::FollowRequest { id: FIRST_RUN.into() }),
                )
                .await
                {
                    kept.push(answer);
                }
                tokio::time::sleep(TRY / 2).await;
                false
            }
            Self::OneCallThenSilence => {
                // A caller whose call is answered, and who then keeps its place.
                let listed = coordinator.list(orders::ListRequest {}).await;
                tokio::time::sleep(TRY).await;
                listed.is_err()
            }
            Self::Raw(_) => unreachable!("it makes no calls"),
        }
    }
}

/// A coordinator as a service under attack while it computes a run to the bits of an undisturbed one.
fn siege_of_coordinator(
    kinds: &[OnCoordinator],
    time: Duration,
) -> (Vec<(OnCoordinator, u64)>, u64, [u64; 3]) {
    let folder = Folder::new();
    let runs = folder.path().join("runs");
    let directory = format!("--dir={}", runs.display());
    let service = Service::start("coordinator", "127.0.0.1:0", &[&directory]);
    let process = service.child.id();
    let at = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_amalgam"));
        command.args(["at", &service.address]).args(arguments).output().expect("starts")
    };
    let scene = repository(DROP);
    let submitted = at(&["submit", scene.to_str().expect("UTF-8")]);
    assert!(submitted.status.success(), "{}", support::process::stderr(&submitted));
    let id = String::from_utf8(submitted.stdout).expect("UTF-8").trim().to_string();
    assert_eq!(id, FIRST_RUN);
    let before = memory(process).0;
    let mut asked = 0;
    let counts = besiege(&service.address, kinds, || {
        let start = Instant::now();
        while start.elapsed() < time || asked == 0 && start.elapsed() < ANSWER_DEADLINE {
            let answered = at(&["runs"]);
            asked += u64::from(answered.status.success());
        }
    });
    let listed = wait_until(Duration::from_secs(60), || {
        list(&service.address).is_some_and(|run| {
            assert!(run.error.is_empty(), "{run:?}");
            run.state() == State::Finished
        })
    });
    assert!(listed, "the run does not end");
    let (after, peak) = memory(process);
    check(&service.address, &counts);
    let hash = list(&service.address).expect("answers").state_hash;
    assert_eq!(hash, undisturbed(&scene));
    assert!(asked > 0, "an honest caller was never answered");
    let left = std::fs::read_dir(&runs).expect("lists").filter_map(Result::ok);
    let left: Vec<_> =
        left.filter(|entry| entry.file_name().to_string_lossy().starts_with(".incoming-")).collect();
    assert!(left.is_empty(), "{left:?} are left over");
    assert!(peak <= before + CONNECTIONS_BYTES + SCENE_BYTES, "{kinds:?}: {peak} bytes, {before} before");
    (counts, asked, [before, after, peak])
}

fn list(address: &str) -> Option<orders::Run> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut coordinator = CoordinatorClient::new(dial(address).await?);
        let runs = coordinator.list(orders::ListRequest {}).await.ok()?.into_inner().runs;
        runs.into_iter().find(|run| run.id == FIRST_RUN)
    })
}

fn undisturbed(scene: &Path) -> String {
    let folder = Folder::new();
    let output = folder.run(scene, &["--quiet", "--transport=in-process"]);
    assert!(output.status.success(), "{}", support::process::stderr(&output));
    folder.summary()["state_hash"].as_str().expect("a hash").into()
}

#[test]
fn a_coordinator_under_siege_computes_its_run_within_its_memory() {
    let (counts, asked, memory) = siege_of_coordinator(&on_coordinator(), SIEGE);
    println!("{asked} answers; refused: {counts:?}; {memory:?} bytes before, after and at most");
}

/// Callers whose call was answered, and who then keep their places without another one.
#[test]
fn callers_who_are_silent_after_a_call_lock_nobody_out_of_a_coordinator() {
    let folder = Folder::new();
    let directory = format!("--dir={}", folder.path().join("runs").display());
    let service = Service::start("coordinator", "127.0.0.1:0", &[&directory]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let kept: Vec<_> = (0..TransportLimits::CONNECTIONS_MAX)
        .map(|_| {
            runtime.block_on(async {
                let channel = dial(&service.address).await.expect("a place");
                CoordinatorClient::new(channel.clone()).list(orders::ListRequest {}).await.expect("lists");
                channel
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(1100));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_amalgam"));
    let output = command.args(["at", &service.address, "runs"]).output().expect("starts");
    assert!(output.status.success(), "{}", support::process::stderr(&output));
    drop(kept);
}

/// Each kind alone, and its cost in memory.
#[test]
#[ignore = "five minutes: cargo test --release --workspace --test hostile -- --ignored --nocapture"]
fn each_kind_of_attack_alone() {
    let mebibytes = |[before, after, peak]: [u64; 3]| {
        format!("{:>4} MiB before, {:>4} after, {:>4} at most", before >> 20, after >> 20, peak >> 20)
    };
    for kind in on_solver() {
        let (counts, steps, memory) = siege_of_solver(&[kind], SIEGE_OF_ONE_KIND);
        println!("solver: {}, {steps:>6} steps, {:>6} refused: {kind:?}", mebibytes(memory), counts[0].1);
    }
    for kind in on_coordinator() {
        let (counts, asked, memory) = siege_of_coordinator(&[kind], SIEGE_OF_ONE_KIND);
        println!(
            "coordinator: {}, {asked:>4} answers, {:>6} refused: {kind:?}",
            mebibytes(memory),
            counts[0].1
        );
    }
}
