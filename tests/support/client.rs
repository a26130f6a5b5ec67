//! The generated client against a service in this process, message by message; and a service that passes
//! everything on to a real one and falsifies one kind of answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amalgam_particles::{CellSet, ContactLookAhead, DMat3, DVec3, Lattice};
use amalgam_proto::contract::{
    Batch, Begin, Call, Commit, Committed, Context, Frame, Groups, Integrate, Integrated, Interest, Survey,
    Surveyed, Table, Wanted,
};
use amalgam_proto::v1::solver_client::SolverClient;
use amalgam_proto::v1::solver_server::{Solver, SolverServer};
use amalgam_proto::{Columns, Known, PROTOCOL_VERSION, Packet, gather, v1};
use amalgam_solver_kit::{SolverProgram, serve_in_process};
use bytemuck::NoUninit;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tonic::{Request, Response, Status, Streaming};

/// Queue from which a service in this process takes connections.
pub(crate) type Queue = mpsc::Sender<DuplexStream>;

pub(crate) async fn dial(queue: Queue) -> Channel {
    let connect = move |_: Uri| {
        let queue = queue.clone();
        async move {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            queue.send(theirs).await.map_err(std::io::Error::other)?;
            Ok::<_, std::io::Error>(TokioIo::new(ours))
        }
    };
    let endpoint = Endpoint::from_static("http://localhost");
    endpoint.connect_with_connector(tower::service_fn(connect)).await.expect("connects")
}

/// A whole answer.
async fn whole<C: Call>(
    answer: Response<Streaming<C::Packet>>,
) -> Result<(<C::Packet as Packet>::Header, Columns), Status> {
    let room = |header: &<C::Packet as Packet>::Header| {
        C::room(header, &Known::default()).map_err(|error| Status::internal(error.to_string()))
    };
    gather(answer.into_inner(), room).await
}

/// Replaces a column of a message, or adds it.
pub(crate) fn put<T: NoUninit>(columns: &mut Vec<v1::Column>, name: &str, values: &[T]) {
    columns.retain(|column| column.name != name);
    let data = bytes::Bytes::copy_from_slice(bytemuck::cast_slice(values));
    columns.push(v1::Column { name: name.into(), data });
}

/// All particles.
pub(crate) const EVERYONE: Interest = Interest {
    wanted: Wanted::All,
    triangles: false,
    look_ahead: ContactLookAhead { time: 0.0, acceleration: 0.0 },
};

/// A caller of a service.
pub(crate) struct Client {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) channel: Channel,
    pub(crate) context: Context,
    solver: SolverClient<Channel>,
    /// Slopes in the last answer to Integrate.
    slope: Vec<DMat3>,
}

impl Client {
    /// Connects and initialises the run "run" of epoch 1.
    pub(crate) fn new(program: impl SolverProgram, section: &str) -> Self {
        let queue = serve_in_process(Arc::new(program), 1, 1, None).expect("threads");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let channel = runtime.block_on(dial(queue));
        Self::over(runtime, channel, section)
    }

    /// Initialises the run "run" of epoch 1 over a connection.
    pub(crate) fn over(runtime: tokio::runtime::Runtime, channel: Channel, section: &str) -> Self {
        let context = Context { run_id: "run".into(), epoch: 1, step: 0 };
        let solver = SolverClient::new(channel.clone());
        let mut client = Self { runtime, channel, context, solver, slope: Vec::new() };
        client.initialize("run", 1, section).expect("initialises");
        client
    }

    pub(crate) fn describe(&mut self, protocol_version: u32) -> Result<v1::DescribeResponse, Status> {
        let call = self.solver.describe(v1::DescribeRequest { protocol_version });
        Ok(self.runtime.block_on(call)?.into_inner())
    }

    pub(crate) fn initialize(&mut self, run_id: &str, epoch: u64, section: &str) -> Result<Table, Status> {
        let corner = |x| Some(v1::Vec3 { x, y: x, z: x });
        let request = v1::InitializeRequest {
            run_id: run_id.into(),
            epoch,
            participant: "balls".into(),
            section: section.into(),
            domain_min: corner(-10.0),
            domain_max: corner(10.0),
            gravity: Some(v1::Vec3 { x: 0.0, y: 0.0, z: -9.81 }),
            seed: 1,
            obstacles: Vec::new(),
            brief: false,
            nearest_to: Vec::new(),
        };
        let solver = &mut self.solver;
        self.runtime.block_on(async {
            let (header, columns) = whole::<Table>(solver.initialize(request).await?).await?;
            Ok(Table::decode(header, columns).expect("the service keeps the contract"))
        })
    }

    pub(crate) fn shutdown(&mut self) -> Result<(), Status> {
        let request = v1::ShutdownRequest { context: Some(self.context.to_wire()) };
        self.runtime.block_on(self.solver.shutdown(request)).map(drop)
    }

    /// Survey of cells of 1 m, with its message changed.
    pub(crate) fn survey(&mut self, change: impl FnOnce(&mut v1::SurveyRequest)) -> Result<CellSet, Status> {
        let lattice = Lattice { origin: DVec3::ZERO, cell_size: 1.0 };
        let mut request =
            Survey { context: self.context.clone(), lattice, margin: 0.5, centres: false }.to_wire();
        change(&mut request);
        let solver = &mut self.solver;
        self.runtime.block_on(async {
            let (header, columns) = whole::<Surveyed>(solver.survey(request).await?).await?;
            Ok(Surveyed::decode(header, columns).expect("the service keeps the contract").0)
        })
    }

    /// Begin for all particles, with its messages changed.
    pub(crate) fn begin(&mut self, change: impl FnOnce(&mut Vec<v1::BeginRequest>)) -> Result<Batch, Status> {
        let mut packets = Begin { context: self.context.clone(), interest: EVERYONE }.into_packets();
        change(&mut packets);
        let solver = &mut self.solver;
        self.runtime.block_on(async {
            let (header, columns) = whole::<Batch>(solver.begin(stream::iter(packets)).await?).await?;
            Ok(Batch::decode(header, columns).expect("the service keeps the contract"))
        })
    }

    /// Integrate with `groups`, one impulse and inertia for each, with its messages changed.
    pub(crate) fn integrate(
        &mut self,
        (stage, repetition): (u32, u32),
        groups: &Groups,
        change: impl FnOnce(&mut Vec<v1::IntegrateRequest>),
    ) -> Result<Integrated, Status> {
        let count = groups.size.len();
        let call = Integrate {
            context: self.context.clone(),
            stage,
            repetition,
            dt: 1e-3,
            forcing: 0.0,
            groups: (repetition == 0).then(|| groups.clone()),
            inertia: Some(vec![2.0; count]),
            impulse: vec![Default::default(); count],
        };
        let mut packets = call.into_packets();
        change(&mut packets);
        let (solver, last, watched) = (&mut self.solver, &mut self.slope, groups.watch.len() as u64);
        self.runtime.block_on(async {
            let (header, columns) =
                gather(solver.integrate(stream::iter(packets)).await?.into_inner(), |header| {
                    Ok(Integrated::room(header, count as u64, watched))
                })
                .await?;
            let answer = Integrated::decode(header, columns, (count as u64, watched), repetition > 0);
            let mut answer = answer.expect("the service keeps the contract");
            answer.complete(last);
            Ok(answer)
        })
    }

    /// Commit of what was integrated for `groups`, which keep their velocity, with its messages changed. Does
    /// not go on to the next step.
    pub(crate) fn commit(
        &mut self,
        (stage, repetition): (u32, u32),
        groups: &Groups,
        change: impl FnOnce(&mut Vec<v1::CommitRequest>),
    ) -> Result<Committed, Status> {
        let call = Commit {
            context: self.context.clone(),
            stage,
            repetition,
            want_state_hash: true,
            grids: Vec::new(),
            group_velocity: groups.velocity.clone(),
            group_number: (0..groups.size.len() as u32).collect(),
            member_velocity: Some(vec![groups.velocity[0]; groups.member.len()]),
            group_spin: None,
            track: Vec::new(),
            next: None,
        };
        let mut packets = call.into_packets();
        change(&mut packets);
        let solver = &mut self.solver;
        self.runtime.block_on(async {
            let (header, columns) =
                gather(solver.commit(stream::iter(packets)).await?.into_inner(), |header| {
                    Committed::room(header, &Known::default(), 0, 0)
                        .map_err(|error| Status::internal(error.to_string()))
                })
                .await?;
            Ok(Committed::decode(header, columns, 0, 0).expect("the service keeps the contract"))
        })
    }

    pub(crate) fn frame(&mut self) -> Result<Frame, Status> {
        self.frame_in(None)
    }

    /// A frame, which the service may write to files.
    pub(crate) fn frame_in(&mut self, files: Option<v1::FrameFiles>) -> Result<Frame, Status> {
        let context = Some(self.context.to_wire());
        let request = v1::FrameRequest { context, surface: false, files };
        let solver = &mut self.solver;
        self.runtime.block_on(async {
            let (header, columns) = whole::<Frame>(solver.frame(request).await?).await?;
            Ok(Frame::decode(header, columns).expect("the service keeps the contract"))
        })
    }
}

/// Answer that is falsified, and the way. Answers of few particles travel in one message.
#[derive(Clone, Copy)]
pub(crate) enum Lie {
    Describe(fn(&mut v1::DescribeResponse)),
    /// An answer with a table.
    Initialize(fn(&mut v1::InitializeResponse)),
    /// A brief answer.
    Briefly(fn(&mut v1::InitializeResponse)),
    Survey(fn(&mut v1::SurveyResponse)),
    Begin(fn(&mut v1::BeginResponse)),
    Integrate(fn(&mut v1::IntegrateResponse)),
    Commit(fn(&mut v1::CommitResponse)),
    Frame(fn(&mut v1::FrameResponse)),
    /// Another version of the contract.
    Speaks(u32),
    /// No falsification, but the loss of this answer and of every third one after it.
    Loses(u64),
    /// Answers Begin with its header and then this column without end.
    Floods(&'static str),
    /// All calls of a step fail, as a program fails that is not ours.
    Fails(tonic::Code, &'static str),
}

/// Serves `program`, but lies.
pub(crate) fn serve_liar(program: impl SolverProgram, lie: Lie) -> Queue {
    let honest = serve_in_process(Arc::new(program), 1, 1, None).expect("threads");
    let (queue, inbox) = mpsc::channel(4);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let service = SolverServer::new(Liar {
                honest: SolverClient::new(dial(honest).await),
                lie,
                answers: AtomicU64::new(0),
            });
            let incoming = tokio_stream::wrappers::ReceiverStream::new(inbox).map(Ok::<_, std::io::Error>);
            Server::builder().add_service(service).serve_with_incoming(incoming).await.expect("serves");
        });
    });
    queue
}

struct Liar {
    honest: SolverClient<Channel>,
    lie: Lie,
    answers: AtomicU64,
}

impl Liar {
    /// Passes an answer to a call of a step, or falsifies it.
    fn pass<T>(&self, answer: T) -> Result<T, Status> {
        match self.lie {
            Lie::Loses(first) => {
                let number = self.answers.fetch_add(1, Ordering::Relaxed);
                let lost = number >= first && (number - first).is_multiple_of(3);
                if lost { Err(Status::unavailable("the answer is lost")) } else { Ok(answer) }
            }
            Lie::Fails(code, text) => Err(Status::new(code, text)),
            _ => Ok(answer),
        }
    }
}

type Answers<P> = std::pin::Pin<Box<dyn Stream<Item = Result<P, Status>> + Send>>;

/// The answer of the honest service, its first message changed.
async fn falsified<P: Send + 'static>(
    answer: Response<Streaming<P>>,
    change: Option<fn(&mut P)>,
) -> Result<Response<Answers<P>>, Status> {
    let mut packets: Vec<P> = answer.into_inner().try_collect().await?;
    if let (Some(change), Some(first)) = (change, packets.first_mut()) {
        change(first);
    }
    Ok(Response::new(Box::pin(stream::iter(packets.into_iter().map(Ok)))))
}

async fn all<P>(request: Request<Streaming<P>>) -> Result<impl Stream<Item = P> + Send + 'static, Status>
where
    P: Send + 'static,
{
    Ok(stream::iter(request.into_inner().try_collect::<Vec<P>>().await?))
}

#[tonic::async_trait]
impl Solver for Liar {
    type InitializeStream = Answers<v1::InitializeResponse>;
    type SurveyStream = Answers<v1::SurveyResponse>;
    type BeginStream = Answers<v1::BeginResponse>;
    type IntegrateStream = Answers<v1::IntegrateResponse>;
    type CommitStream = Answers<v1::CommitResponse>;
    type FrameStream = Answers<v1::FrameResponse>;
    type SaveStream = Answers<v1::SaveResponse>;

    async fn describe(
        &self,
        request: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::DescribeResponse>, Status> {
        let mut request = request.into_inner();
        if let Lie::Speaks(version) = self.lie {
            if request.protocol_version != version {
                return Err(Status::failed_precondition("use programs of the same release"));
            }
            request.protocol_version = PROTOCOL_VERSION;
        }
        let mut answer = self.honest.clone().describe(request).await?.into_inner();
        match self.lie {
            Lie::Describe(change) => change(&mut answer),
            Lie::Speaks(version) => answer.protocol_version = version,
            _ => {}
        }
        Ok(Response::new(answer))
    }

    async fn initialize(
        &self,
        request: Request<v1::InitializeRequest>,
    ) -> Result<Response<Self::InitializeStream>, Status> {
        let mut request = request.into_inner();
        let change = match self.lie {
            Lie::Initialize(change) => {
                request.brief = false;
                Some(change)
            }
            Lie::Briefly(change) => Some(change),
            _ => None,
        };
        falsified(self.honest.clone().initialize(request).await?, change).await
    }

    async fn survey(
        &self,
        request: Request<v1::SurveyRequest>,
    ) -> Result<Response<Self::SurveyStream>, Status> {
        let change = if let Lie::Survey(change) = self.lie { Some(change) } else { None };
        falsified(self.pass(self.honest.clone().survey(request.into_inner()).await?)?, change).await
    }

    async fn begin(
        &self,
        request: Request<Streaming<v1::BeginRequest>>,
    ) -> Result<Response<Self::BeginStream>, Status> {
        if let Lie::Floods(name) = self.lie {
            let answer = self.honest.clone().begin(all(request).await?).await?;
            let data = bytes::Bytes::from(vec![0u8; 512 << 10]);
            let column = v1::Column { name: name.into(), data };
            let more = v1::BeginResponse { header: None, columns: vec![column] };
            return Ok(Response::new(Box::pin(answer.into_inner().chain(stream::repeat(Ok(more))))));
        }
        let change = if let Lie::Begin(change) = self.lie { Some(change) } else { None };
        falsified(self.pass(self.honest.clone().begin(all(request).await?).await?)?, change).await
    }

    async fn integrate(
        &self,
        request: Request<Streaming<v1::IntegrateRequest>>,
    ) -> Result<Response<Self::IntegrateStream>, Status> {
        let change = if let Lie::Integrate(change) = self.lie { Some(change) } else { None };
        falsified(self.pass(self.honest.clone().integrate(all(request).await?).await?)?, change).await
    }

    async fn commit(
        &self,
        request: Request<Streaming<v1::CommitRequest>>,
    ) -> Result<Response<Self::CommitStream>, Status> {
        let change = if let Lie::Commit(change) = self.lie { Some(change) } else { None };
        falsified(self.pass(self.honest.clone().commit(all(request).await?).await?)?, change).await
    }

    async fn frame(&self, request: Request<v1::FrameRequest>) -> Result<Response<Self::FrameStream>, Status> {
        let change = if let Lie::Frame(change) = self.lie { Some(change) } else { None };
        falsified(self.pass(self.honest.clone().frame(request.into_inner()).await?)?, change).await
    }

    async fn save(&self, request: Request<v1::SaveRequest>) -> Result<Response<Self::SaveStream>, Status> {
        falsified(self.honest.clone().save(request.into_inner()).await?, None).await
    }

    async fn restore(
        &self,
        request: Request<Streaming<v1::RestoreRequest>>,
    ) -> Result<Response<v1::RestoreResponse>, Status> {
        self.honest.clone().restore(all(request).await?).await
    }

    async fn shutdown(
        &self,
        request: Request<v1::ShutdownRequest>,
    ) -> Result<Response<v1::ShutdownResponse>, Status> {
        self.honest.clone().shutdown(request.into_inner()).await
    }
}
