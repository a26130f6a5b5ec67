//! A service among hostile callers answers the run that it serves, and its memory stays within the named limits.

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use amalgam_particles::{DVec3, ParticleId};
use amalgam_proto::contract::Groups;
use amalgam_proto::v1::solver_client::SolverClient;
use amalgam_proto::{CHUNK_BYTES, TransportLimits, message_limit, v1};
use amalgam_solver_solid::SolidProgram;
use futures_util::{StreamExt as _, stream};
use support::client::Client;
use tonic::transport::{Channel, Endpoint};

const SECTION: &str = "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\nmass = 1.0\nradius = 0.1\n\
                       positions = [[0, 0, 0], [0.15, 0, 0], [0.5, 0, 0], [1, 0, 0]]\n";

/// Hostile callers at once.
const PEERS: usize = 30;

/// How long the service is attacked.
const SIEGE: Duration = Duration::from_secs(4);

/// Memory that connections may take, all together [bytes]: the windows of each, and on each of its calls a message and the
/// room that is asked for before one is read.
const CONNECTIONS_BYTES: u64 = TransportLimits::CONNECTIONS_MAX as u64
    * (TransportLimits::CONNECTION_WINDOW_BYTES as u64
        + TransportLimits::STREAMS_MAX as u64 * (message_limit() as u64 + 3 * CHUNK_BYTES as u64));

struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start() -> (Service, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
    command.args(["serve", "solid", "--listen", "127.0.0.1:0", "--threads", "1", "--exit-with-stdin"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut service = Service(command.spawn().expect("it starts"));
    let mut line = String::new();
    let output = service.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("reads");
    let address = line.trim_end().strip_prefix("listening ").expect("an address").to_string();
    (service, address)
}

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

/// What hostile callers do. `listed` ids are announced to the run of a name, and pieces follow without end.
#[derive(Clone, Copy, Debug)]
enum Attack {
    List { run: &'static str, listed: u64, column: &'static str, bytes: usize },
    Groups(u32),
    Headless,
    Stall,
    Empty,
    LongRun,
    LongName,
    LongSection,
    Garbage,
    Idle,
}

const ATTACKS: [Attack; 14] = [
    Attack::List { run: "run", listed: 0, column: "heat", bytes: CHUNK_BYTES },
    Attack::List { run: "run", listed: 0, column: "interest", bytes: CHUNK_BYTES },
    Attack::List { run: "run", listed: 1 << 31, column: "listed", bytes: CHUNK_BYTES },
    Attack::List { run: "run", listed: 4, column: "listed", bytes: 1 },
    Attack::List { run: "other", listed: 1 << 31, column: "listed", bytes: CHUNK_BYTES },
    Attack::Groups(u32::MAX),
    Attack::Headless,
    Attack::Stall,
    Attack::Empty,
    Attack::LongRun,
    Attack::LongName,
    Attack::LongSection,
    Attack::Garbage,
    Attack::Idle,
];

/// Whether the service itself has answered, and not merely hung up on one connection too many.
fn is_refusal(status: &tonic::Status) -> bool {
    std::error::Error::source(status).is_none() && status.code() != tonic::Code::Unavailable
}

impl Attack {
    /// One try; whether the service refused it.
    async fn strike(self, address: &str) -> bool {
        let begin = |run: &str, listed| {
            let interest =
                v1::Interest { wanted: v1::Wanted::Listed.into(), listed, ..v1::Interest::default() };
            let header = v1::BeginHeader { context: context(run), interest: Some(interest) };
            v1::BeginRequest { header: Some(header), columns: Vec::new() }
        };
        let more = |name, bytes| {
            stream::repeat(v1::BeginRequest { header: None, columns: vec![column(name, bytes)] })
        };
        if let Self::Garbage | Self::Idle = self {
            let Ok(mut stream) = std::net::TcpStream::connect(address) else { return true };
            if let Self::Garbage = self {
                // The service hangs up in the middle.
                let _ = stream.write_all(&vec![b'x'; 1 << 20]);
                return true;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            return false;
        }
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
            Self::Garbage | Self::Idle => unreachable!("they are no calls"),
        }
    }
}

#[test]
fn a_service_under_siege_serves_its_run_within_its_memory() {
    let (service, address) = start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let channel = runtime.block_on(dial(&address)).expect("connects");
    let mut client = Client::over(runtime, channel, SECTION);
    let before = memory(service.0.id()).0;

    let stop = Arc::new(AtomicBool::new(false));
    let refused: Arc<[AtomicU64; ATTACKS.len()]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
    let attackers = ATTACKS.iter().enumerate().cycle().take(PEERS).map(|(at, &attack)| {
        let (stop, refused, address) = (Arc::clone(&stop), Arc::clone(&refused), address.clone());
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            while !stop.load(Ordering::Relaxed) {
                let strike =
                    async { tokio::time::timeout(Duration::from_secs(1), attack.strike(&address)).await };
                if runtime.block_on(strike).unwrap_or(false) {
                    refused[at].fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    });
    let attackers: Vec<_> = attackers.collect();
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
    let (start, mut steps, mut hash) = (Instant::now(), 0, 0);
    while start.elapsed() < SIEGE {
        hash = step(&mut client);
        steps += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let (after, peak) = memory(service.0.id());
    attackers.into_iter().for_each(|attacker| attacker.join().expect("no attacker fails"));

    let mut undisturbed = Client::new(SolidProgram, SECTION);
    let expected = (0..steps).map(|_| step(&mut undisturbed)).last();
    assert_eq!(Some(hash), expected, "{steps} steps");
    let counts: Vec<(Attack, u64)> =
        ATTACKS.into_iter().zip(refused.iter().map(|count| count.load(Ordering::Relaxed))).collect();
    println!("{steps} steps; refused: {counts:?}; {before} bytes before, {after} after, {peak} at most");
    for &(attack, count) in &counts {
        assert!(count > 0 || matches!(attack, Attack::Stall | Attack::Empty | Attack::Idle), "{attack:?}");
    }
    let allowed = before + CONNECTIONS_BYTES;
    assert!(peak <= allowed, "{peak} bytes of resident memory, but at most {allowed} are named");
}
