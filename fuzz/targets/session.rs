//! Any sequence of calls to a service: each is answered or refused, and the service goes on answering.
#![no_main]

#[allow(dead_code, reason = "only its program is used")]
#[path = "../../solver-kit/examples/balls.rs"]
mod balls;

use std::sync::{Arc, OnceLock};

use amalgam_proto::v1::solver_client::SolverClient;
use amalgam_proto::{PROTOCOL_VERSION, v1};
use amalgam_solver_kit::serve_in_process;
use arbitrary::Arbitrary;
use futures_util::{StreamExt as _, stream};
use hyper_util::rt::TokioIo;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status};

const SECTION: &str = "positions = [[0,0,0],[0,0,1]]\nmass = 1\nradius = 0.6\nself_collision = true";

/// Columns of all calls, with the bytes of one value.
const COLUMNS: [(&str, usize); 17] = [
    ("interest", 8),
    ("listed", 8),
    ("cells", 1),
    ("group_size", 4),
    ("member", 8),
    ("watch", 8),
    ("velocity", 24),
    ("occupied", 1),
    ("inertia", 8),
    ("impulse", 24),
    ("group_velocity", 24),
    ("group_number", 4),
    ("member_velocity", 24),
    ("group_spin", 24),
    ("track", 8),
    ("cells_0", 1),
    ("snapshot", 1),
];

/// A number of a message: mostly a small one, so that calls fit together now and then.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Number {
    Small(u8),
    Any(u64),
}

impl Number {
    fn get(self) -> u64 {
        match self {
            Self::Small(value) => u64::from(value % 4),
            Self::Any(value) => value,
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Real {
    Usual(u8),
    Any(f64),
}

impl Real {
    fn get(self) -> f64 {
        match self {
            Self::Usual(value) => f64::from(value) * 1e-3,
            Self::Any(value) => value,
        }
    }
}

#[derive(Arbitrary, Clone, Debug)]
enum Data {
    Bytes(Vec<u8>),
    Zeros(u8),
    Ids(Vec<u8>),
}

#[derive(Arbitrary, Clone, Debug)]
struct Column {
    which: u8,
    data: Data,
}

#[derive(Arbitrary, Clone, Debug)]
struct Step {
    kind: u8,
    step: Number,
    epoch: u8,
    stage: Number,
    repetition: u8,
    counts: [Number; 4],
    real: Real,
    flags: u8,
    columns: Vec<Column>,
}

impl Step {
    fn context(&self) -> Option<v1::RunContext> {
        (self.flags & 64 == 0).then(|| v1::RunContext {
            run_id: if self.flags & 32 == 0 { "run".into() } else { "other".into() },
            epoch: 1 + u64::from(self.epoch / 64),
            step: self.step.get(),
        })
    }

    fn columns(&self) -> Vec<v1::Column> {
        let column = |column: &Column| {
            let (name, width) = COLUMNS[usize::from(column.which) % COLUMNS.len()];
            let data = match &column.data {
                Data::Bytes(bytes) => bytes.clone(),
                Data::Zeros(count) => vec![0; width * usize::from(count % 8)],
                Data::Ids(ids) => ids.iter().flat_map(|&id| u64::from(id % 3).to_le_bytes()).collect(),
            };
            v1::Column { name: name.into(), data: data.into() }
        };
        self.columns.iter().map(column).collect()
    }

    fn lattice(&self) -> Option<v1::Lattice> {
        let origin = Some(v1::Vec3::default());
        (self.flags & 16 == 0).then(|| v1::Lattice { origin, cell_size: self.real.get() })
    }

    fn interest(&self) -> v1::Interest {
        v1::Interest {
            wanted: (self.counts[3].get() % 5) as i32,
            lattice: self.lattice(),
            margin: self.real.get(),
            listed: self.counts[2].get(),
            triangles: self.flags & 1 == 0,
            ..Default::default()
        }
    }
}

struct Peer {
    runtime: Runtime,
    solver: SolverClient<Channel>,
}

impl Peer {
    fn new() -> Self {
        let queue = serve_in_process(Arc::new(balls::BallsProgram), 1, 1, None).expect("threads");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let connect = move |_: Uri| {
            let queue = queue.clone();
            async move {
                let (ours, theirs) = tokio::io::duplex(1 << 16);
                queue.send(theirs).await.map_err(std::io::Error::other)?;
                Ok::<_, std::io::Error>(TokioIo::new(ours))
            }
        };
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = runtime.block_on(endpoint.connect_with_connector(tower::service_fn(connect)));
        Self { solver: SolverClient::new(channel.expect("connects")), runtime }
    }

    /// A new run, which ends the one before.
    fn start(&mut self, run: u64) {
        let corner = |x| Some(v1::Vec3 { x, y: x, z: x });
        let request = v1::InitializeRequest {
            run_id: format!("run{run}"),
            epoch: 1,
            participant: "balls".into(),
            section: SECTION.into(),
            domain_min: corner(-10.0),
            domain_max: corner(10.0),
            gravity: corner(-1.0),
            seed: 1,
            obstacles: Vec::new(),
            brief: false,
            nearest_to: Vec::new(),
        };
        let answer = self.runtime.block_on(async { drained(self.solver.initialize(request).await).await });
        answer.expect("it initialises");
    }

    fn call(&mut self, run: u64, step: &Step) -> Result<(), Status> {
        let context = step.context().map(|context| v1::RunContext {
            run_id: context.run_id.replace("run", &format!("run{run}")),
            ..context
        });
        let solver = &mut self.solver;
        let [a, b, c, d] = step.counts.map(Number::get);
        self.runtime.block_on(async {
            match step.kind % 8 {
                0 => {
                    let (lattice, margin) = (step.lattice(), step.real.get());
                    drained(solver.survey(v1::SurveyRequest { context, lattice, margin, centres: a % 2 == 1 }).await).await
                }
                1 => {
                    let header = Some(v1::BeginHeader { context, interest: Some(step.interest()) });
                    let packet = v1::BeginRequest { header, columns: step.columns() };
                    drained(solver.begin(stream::iter([packet])).await).await
                }
                2 => {
                    let header = v1::IntegrateHeader {
                        context,
                        stage: step.stage.get() as u32,
                        repetition: u32::from(step.repetition % 3),
                        dt: step.real.get(),
                        groups: a as u32,
                        members: b,
                        watched: c,
                        has_occupied: step.flags & 2 == 0,
                        forcing: 0.0,
                    };
                    let packet = v1::IntegrateRequest { header: Some(header), columns: step.columns() };
                    drained(solver.integrate(stream::iter([packet])).await).await
                }
                3 => {
                    let header = v1::CommitHeader {
                        context,
                        stage: step.stage.get() as u32,
                        repetition: u32::from(step.repetition % 3),
                        groups: a as u32,
                        members: b,
                        tracked: c,
                        want_state_hash: step.flags & 4 == 0,
                        next: (step.flags & 8 == 0).then(|| step.interest()),
                        next_within: step.real.get(),
                        ..Default::default()
                    };
                    let packet = v1::CommitRequest { header: Some(header), columns: step.columns() };
                    drained(solver.commit(stream::iter([packet])).await).await
                }
                4 => {
                    let files = v1::FrameFiles { folder: "/".into(), stem: "a".into(), time: step.real.get(), compressed: false };
                    let files = (step.flags & 2 == 0).then_some(files);
                    let request = v1::FrameRequest { context, surface: step.flags & 1 == 0, files };
                    drained(solver.frame(request).await).await
                }
                5 => drained(solver.save(v1::SaveRequest { context, ..Default::default() }).await).await,
                6 => {
                    let header = v1::RestoreHeader { context, particles: d, ..Default::default() };
                    let packet = v1::RestoreRequest { header: Some(header), columns: step.columns() };
                    solver.restore(stream::iter([packet])).await.map(drop)
                }
                _ => solver.shutdown(v1::ShutdownRequest { context }).await.map(drop),
            }
        })
    }
}

/// Reads an answer to its end.
async fn drained<P>(answer: Result<tonic::Response<tonic::Streaming<P>>, Status>) -> Result<(), Status> {
    let mut stream = answer?.into_inner();
    while let Some(packet) = stream.next().await {
        packet?;
    }
    Ok(())
}

static PEER: OnceLock<std::sync::Mutex<(Peer, u64)>> = OnceLock::new();

fuzz_target!(|steps: Vec<Step>| {
    let peer = PEER.get_or_init(|| std::sync::Mutex::new((Peer::new(), 0)));
    let mut peer = peer.lock().expect("no panic before");
    let (peer, run) = &mut *peer;
    *run += 1;
    peer.start(*run);
    for step in steps.iter().take(16) {
        if let Err(status) = peer.call(*run, step) {
            // A panic of the service is INTERNAL, a service that has gone UNAVAILABLE.
            let refused = !matches!(status.code(), Code::Internal | Code::Unavailable | Code::Unknown);
            assert!(refused, "{step:?} ended with {status:?}");
        }
    }
    let request = v1::DescribeRequest { protocol_version: PROTOCOL_VERSION };
    let described = peer.runtime.block_on(peer.solver.describe(request));
    described.expect("the service still answers");
});
