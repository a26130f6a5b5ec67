//! Exchanges of N particles between two processes, beside a raw socket of the same kind that carries the same
//! bytes.
//!
//! An *exchange* is one call: two vectors of each particle go out and two come back, through the contract's
//! encoding, checks and limits. No participant computes. The other tools' figures are of such a call. A
//! *step* is the two calls of a coupled step with a served solver at rest, whose particles are groups of one:
//! Integrate sends inertias and impulses and brings momenta back; Commit sends the velocities of groups and
//! members, and brings the positions and velocities of the next step. The service does all that a step needs
//! besides: ids, groups, totals. `cargo bench --workspace --bench exchange` prints ratios; calls and raw ones
//! take turns, so that both meet the same machine. Names as `exchange-unix-10000` after `--` choose rows.

#![allow(missing_docs, reason = "a benchmark")]

use std::convert::Infallible;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use amalgam_coordinator::{Address, dial};
use amalgam_network::{Access, Calls};
use amalgam_particles::{ContactLookAhead, DVec3, ParticleId, Particles, StepEnd};
use amalgam_proto::contract::{
    Batch, Begin, Call, Commit, Committed, Context, Groups, Integrate, Integrated, Interest, Next, Table,
    Wanted,
};
use amalgam_proto::{Columns, Incoming, Known, Outgoing, Packet, Room, call, gather, v1};
use amalgam_solver_kit::{
    Answer, Description, Gate, Integration, Listen, Report, Request, SectionError, ServeOptions, Solver,
    SolverError, SolverProgram, World, listen, serve, serve_routes,
};
use futures_util::future::BoxFuture;
use tonic::Status;
use tonic::service::Routes;

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const COUNTS: [usize; 3] = [10_000, 100_000, 1_000_000];

/// Wall time spent on each figure, at least [s].
const LEAST: f64 = 2.0;

/// Wall time of a turn, at least [s].
const TURN: f64 = 0.02;

/// Particles that do nothing.
struct Rest(Particles);

impl Solver for Rest {
    fn particles(&self) -> &Particles {
        &self.0
    }

    fn integrate(&mut self, _request: &Request<'_>, answer: &mut Answer) -> Result<(), SolverError> {
        answer.velocity.copy_from_slice(&self.0.velocity);
        answer.momentum.fill(DVec3::Z);
        Ok(())
    }

    fn commit(&mut self, end: &StepEnd<'_>, integrated: &[DVec3]) -> Result<Report, SolverError> {
        end.advance(&mut self.0, integrated);
        Ok(Report { stable_dt: f64::INFINITY, ..Report::default() })
    }
}

struct RestProgram;

impl SolverProgram for RestProgram {
    fn describe(&self) -> Description {
        Description { name: "rest", version: "1", integration: Integration::Explicit }
    }

    fn create(&self, section: &str, _world: &World) -> Result<Box<dyn Solver>, Vec<SectionError>> {
        let count: u64 = section.trim().parse().map_err(|_| vec![SectionError::new("", "a number")])?;
        let mut particles = Particles::default();
        for i in 0..count {
            let position = DVec3::new((i % 1000) as f64, (i / 1000) as f64, 0.0);
            particles.push(ParticleId(i), position, DVec3::X * 1e-6 * i as f64, 1.0, 0.1, false);
        }
        Ok(Box::new(Rest(particles)))
    }
}

/// Answers Commit with the velocities that came, as positions and velocities of tracked particles.
#[derive(Clone)]
struct Mirror;

impl tonic::server::NamedService for Mirror {
    const NAME: &'static str = "amalgam.solver.v1.Solver";
}

impl tower::Service<http::Request<tonic::body::Body>> for Mirror {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        Box::pin(async move {
            let room = |header: &v1::CommitHeader| Ok(Commit::room(header, &Known::default()).expect("room"));
            let request = Incoming::<v1::CommitRequest>::of_request(request.into_body());
            let (header, columns) = gather(request, room).await.expect("a call");
            let commit = Commit::decode(header, columns).expect("a call");
            let answer = Committed {
                stable_dt: 1.0,
                track_position: commit.group_velocity,
                track_velocity: commit.member_velocity.unwrap_or_default(),
                ..Committed::default()
            };
            let (header, columns) = answer.encode();
            let packets: Vec<v1::CommitResponse> = columns.into_packets(header);
            Ok(Outgoing::packets(packets).into_answer(()))
        })
    }
}

async fn mirror(at: Listen) -> anyhow::Result<()> {
    let gate = Gate::default();
    let listening = listen(&at, &gate).await?;
    serve_routes(listening, &gate, Routes::new(Mirror), std::future::pending()).await
}

/// Serves until this process ends.
struct Peer(Child);

impl Peer {
    fn start(kind: &str, address: &str) -> Self {
        let program = std::env::current_exe().expect("this program");
        Self(Command::new(program).args(["--peer", kind, address]).spawn().expect("starts"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn peer(kind: &str, address: &str) {
    let at: Listen = address.parse().expect("an address");
    match (kind, &at) {
        ("exchange", _) => {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(mirror(at)).expect("serves");
        }
        ("step", _) => {
            let orphan_timeout = Duration::from_secs(3600);
            let options = ServeOptions {
                listen: at,
                threads: Some(1),
                ranks: None,
                files: None,
                exit_with_stdin: false,
                orphan_timeout,
                log_format: Default::default(),
                security: Default::default(),
                registration: Default::default(),
            };
            serve(Arc::new(RestProgram), options).expect("serves");
        }
        (_, Listen::Unix(path)) => {
            let (mut stream, _) = UnixListener::bind(path).expect("listens").accept().expect("a caller");
            answer_raw(&mut stream);
        }
        (_, Listen::Tcp(address)) => {
            let (mut stream, _) = TcpListener::bind(address).expect("listens").accept().expect("a caller");
            stream.set_nodelay(true).expect("sets");
            answer_raw(&mut stream);
        }
    }
}

/// Answers calls of a header, 16 bytes with both lengths, and bytes.
fn answer_raw(stream: &mut (impl Read + Write)) {
    let mut buffer = Vec::new();
    let mut lengths = [0; 16];
    while stream.read_exact(&mut lengths).is_ok() {
        let length =
            |at: usize| u64::from_le_bytes(lengths[at..at + 8].try_into().expect("8 bytes")) as usize;
        let (sent, wanted) = (length(0), length(8));
        buffer.resize(sent.max(wanted), 1);
        stream.read_exact(&mut buffer[..sent]).expect("reads");
        stream.write_all(&buffer[..wanted]).expect("writes");
    }
}

/// Calls of a raw socket.
trait Raw: Read + Write {}
impl<T: Read + Write> Raw for T {}

fn dial_raw(address: &str) -> Box<dyn Raw> {
    loop {
        let stream = match address.strip_prefix("unix:") {
            Some(path) => UnixStream::connect(path).map(|stream| Box::new(stream) as Box<dyn Raw>),
            None => TcpStream::connect(address).map(|stream| {
                stream.set_nodelay(true).expect("sets");
                Box::new(stream) as Box<dyn Raw>
            }),
        };
        if let Ok(stream) = stream {
            return stream;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn call_raw(stream: &mut dyn Raw, sent: &[u8], wanted: &mut [u8]) {
    let lengths = [sent.len() as u64, wanted.len() as u64].map(u64::to_le_bytes).concat();
    stream.write_all(&lengths).expect("writes");
    stream.write_all(sent).expect("writes");
    stream.read_exact(wanted).expect("reads");
}

async fn read<P: Packet>(
    answer: Incoming<P>,
    room: impl FnOnce(&P::Header) -> Result<Room, amalgam_proto::WireError>,
) -> (P::Header, Columns) {
    let room = |header: &P::Header| room(header).map_err(|error| Status::internal(error.to_string()));
    gather(answer, room).await.expect("an answer")
}

fn connect(address: &str) -> (tokio::runtime::Runtime, Calls) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let calls = runtime.block_on(async {
        loop {
            let address = Address::parse(address).expect("an address");
            match dial(&address, &Access::default()).await {
                Ok(calls) => break calls,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    });
    (runtime, calls)
}

/// Sends a Commit and reads its answer for `tracked` particles, with the bytes of columns that went and came.
async fn send_commit(solver: &mut Calls, commit: Commit, tracked: u64) -> (Committed, [u64; 2]) {
    let (header, columns) = commit.encode();
    let sent = columns.bytes();
    let packets: Vec<v1::CommitRequest> = columns.into_packets(header);
    let answer: Incoming<v1::CommitResponse> =
        call(solver, "Commit", Outgoing::packets(packets)).await.expect("commits");
    let room = |header: &_| Committed::room(header, &Known::default(), 0, tracked);
    let (header, columns) = read(answer, room).await;
    let bytes = [sent, columns.bytes()];
    (Committed::decode(header, columns, 0, tracked).expect("an answer"), bytes)
}

fn commit(step: u64, velocity: &[DVec3], next: Option<Next>) -> Commit {
    Commit {
        context: Context { run_id: "run".into(), epoch: 1, step },
        stage: 1,
        repetition: 0,
        want_state_hash: false,
        grids: Vec::new(),
        group_velocity: velocity.to_vec(),
        group_number: (0..velocity.len() as u32).collect(),
        member_velocity: Some(velocity.to_vec()),
        group_spin: None,
        track: Vec::new(),
        next,
    }
}

/// Makes a call, and returns the seconds that it took without what had to be made before.
type Timed = Box<dyn FnMut() -> f64>;

fn timed(call: impl FnOnce()) -> f64 {
    let before = Instant::now();
    call();
    before.elapsed().as_secs_f64()
}

/// An exchange, and the bytes of columns of each of its calls that go and come.
fn exchange(address: &str, count: usize) -> (Timed, Vec<[u64; 2]>) {
    let (runtime, mut solver) = connect(address);
    let velocity: Vec<DVec3> = (0..count).map(|i| DVec3::X * 1e-6 * i as f64).collect();
    let mut bytes = [0; 2];
    let mut call = move || {
        let commit = commit(0, &velocity, None);
        let seconds = timed(|| {
            let (answer, both) = runtime.block_on(send_commit(&mut solver, commit, count as u64));
            bytes = both;
            assert_eq!(answer.track_velocity.len(), count);
            black_box(answer);
        });
        (seconds, bytes)
    };
    let (_, bytes) = call();
    (Box::new(move || call().0), vec![bytes])
}

/// A step, and the bytes of columns of each of its calls that go and come.
fn step(address: &str, count: usize) -> (Timed, Vec<[u64; 2]>) {
    let mut caller = Caller::new(address, count);
    caller.step();
    let bytes = caller.bytes.clone();
    (Box::new(move || timed(|| caller.step())), bytes)
}

/// Calls of a raw socket with these bytes.
fn raw(address: &str, bytes: &[[u64; 2]]) -> Timed {
    let mut socket = dial_raw(address);
    let mut buffers: Vec<(Vec<u8>, Vec<u8>)> =
        bytes.iter().map(|&[out, back]| (vec![1; out as usize], vec![0; back as usize])).collect();
    Box::new(move || {
        timed(|| {
            for (out, back) in &mut buffers {
                call_raw(&mut *socket, out, back);
                black_box(&back);
            }
        })
    })
}

/// The coordinator's side of one service.
struct Caller {
    runtime: tokio::runtime::Runtime,
    solver: Calls,
    groups: Groups,
    step: u64,
    /// Bytes of columns that a step sends and receives, in Integrate and in Commit.
    bytes: Vec<[u64; 2]>,
}

const EVERYONE: Interest = Interest {
    wanted: Wanted::All,
    triangles: false,
    look_ahead: ContactLookAhead { time: 0.0, acceleration: 0.0 },
};

impl Caller {
    fn new(address: &str, count: usize) -> Self {
        let (runtime, solver) = connect(address);
        let ids: Vec<ParticleId> = (0..count as u64).map(ParticleId).collect();
        let groups = Groups {
            size: vec![1; count],
            member: ids,
            velocity: vec![DVec3::X; count],
            watch: Vec::new(),
            occupied: None,
        };
        let mut caller = Self { runtime, solver, groups, step: 0, bytes: Vec::new() };
        caller.start(count);
        caller
    }

    fn context(&self) -> Context {
        Context { run_id: "run".into(), epoch: 1, step: self.step }
    }

    fn start(&mut self, count: usize) {
        let corner = |x| Some(v1::Vec3 { x, y: x, z: x });
        let request = v1::InitializeRequest {
            run_id: "run".into(),
            epoch: 1,
            participant: "rest".into(),
            section: count.to_string(),
            domain_min: corner(-1e4),
            domain_max: corner(1e4),
            gravity: corner(0.0),
            seed: 1,
            obstacles: Vec::new(),
            brief: false,
            nearest_to: Vec::new(),
        };
        let begin = Begin { context: self.context(), interest: EVERYONE }.into_packets();
        let solver = &mut self.solver;
        self.runtime.block_on(async {
            let request = Outgoing::message(&request);
            let answer: Incoming<v1::InitializeResponse> =
                call(solver, "Initialize", request).await.expect("initialises");
            read(answer, |header| Table::room(header, &Known::default())).await;
            let answer: Incoming<v1::BeginResponse> =
                call(solver, "Begin", Outgoing::packets(begin)).await.expect("begins");
            read(answer, |header| Batch::room(header, &Known::default())).await;
        });
    }

    fn step(&mut self) {
        let count = self.groups.size.len();
        let integrate = Integrate {
            context: self.context(),
            stage: 1,
            repetition: 0,
            dt: 1e-9,
            forcing: 0.0,
            groups: Some(self.groups.clone()),
            inertia: Some(vec![1.0; count]),
            impulse: self.groups.velocity.clone(),
        };
        let commit = commit(
            self.step,
            &self.groups.velocity,
            Some(Next { interest: EVERYONE, within: f64::INFINITY }),
        );
        let solver = &mut self.solver;
        self.bytes = self.runtime.block_on(async {
            let (header, columns) = integrate.encode();
            let sent = columns.bytes();
            let packets: Vec<v1::IntegrateRequest> = columns.into_packets(header);
            let answer: Incoming<v1::IntegrateResponse> =
                call(solver, "Integrate", Outgoing::packets(packets)).await.expect("integrates");
            let room = |header: &_| Ok(Integrated::room(header, count as u64, 0));
            let (header, columns) = read(answer, room).await;
            let first = [sent, columns.bytes()];
            black_box(Integrated::decode(header, columns, (count as u64, 0), false).expect("an answer"));
            let (answer, second) = send_commit(solver, commit, 0).await;
            black_box(answer);
            vec![first, second]
        });
        self.step += 1;
    }
}

/// Least and median times [ms] of two kinds of calls that take turns.
fn times(mut both: [Timed; 2]) -> [[f64; 2]; 2] {
    let mut times = [Vec::new(), Vec::new()];
    let started = Instant::now();
    while times[0].len() < 5 || started.elapsed().as_secs_f64() < 2.0 * LEAST {
        for (call, times) in both.iter_mut().zip(&mut times) {
            // The first of a turn finds the other's data in the caches.
            call();
            let since = Instant::now();
            times.push(call());
            while since.elapsed().as_secs_f64() < TURN {
                times.push(call());
            }
        }
    }
    times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        [1e3 * times[0], 1e3 * times[times.len() / 2]]
    })
}

fn free_address(folder: &Path, kind: &str, name: &str) -> String {
    match kind {
        "unix" => format!("unix:{}", folder.join(name).display()),
        _ => TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").to_string(),
    }
}

/// Prints a row: times [ms] of `what` and of a raw socket of the same kind, and their ratios.
fn row(folder: &Path, what: &str, kind: &str, count: usize) {
    let address = free_address(folder, kind, &format!("{what}-{count}"));
    let _service = Peer::start(what, &address);
    let (call, bytes) = if what == "exchange" { exchange(&address, count) } else { step(&address, count) };
    let address = free_address(folder, kind, &format!("raw-{what}-{count}"));
    let _raw = Peer::start("raw", &address);
    let [ours, raw] = times([call, raw(&address, &bytes)]);
    let part = |way: usize| bytes.iter().map(|call| call[way]).sum::<u64>() as f64 / count as f64;
    println!(
        "{:24} {:8.3} / {:8.3}   raw {:8.3} / {:8.3}   ratio {:.2} / {:.2}   {:.0} B, {:.0} B",
        format!("{what}-{kind}-{count}"),
        ours[0],
        ours[1],
        raw[0],
        raw[1],
        ours[0] / raw[0],
        ours[1] / raw[1],
        part(0),
        part(1)
    );
}

fn main() {
    let args: Vec<String> = std::env::args().filter(|argument| argument != "--bench").collect();
    if let [_, flag, kind, address] = args.as_slice()
        && flag == "--peer"
    {
        return peer(kind, address);
    }
    let folder = tempfile::tempdir().expect("a folder");
    println!("ms: least / median; bytes of columns per particle: out, back");
    for name in &args[1..] {
        let parts: Vec<&str> = name.split('-').collect();
        match parts[..] {
            [what @ ("exchange" | "step"), kind @ ("unix" | "tcp"), count] => {
                row(folder.path(), what, kind, count.parse().expect("a number of particles"));
            }
            _ => panic!("{name:?} is no row: write one as exchange-unix-10000 or step-tcp-1000000"),
        }
    }
    if args.len() > 1 {
        return;
    }
    for what in ["exchange", "step"] {
        for kind in ["unix", "tcp"] {
            for count in COUNTS {
                row(folder.path(), what, kind, count);
            }
        }
    }
}
