//! The gRPC face of a [`Session`]: messages in, messages out. Physics runs on one thread of its own with a
//! pool of workers; the I/O runtime never computes.

pub(crate) mod order;
pub(crate) mod rank_choice;
pub(crate) mod register;
pub(crate) mod serve;
pub(crate) mod session;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll};
use std::thread::JoinHandle;
use std::time::Instant;

use amalgam_network::{Caller, OpenCall, paced};
use amalgam_particles::text::shorten;
use amalgam_proto::contract::{AskFrame, AskSave, Context, Description, Survey};
use amalgam_proto::{Call, Incoming, Known, Outgoing, PROTOCOL_VERSION, Packet, WireError, gather, v1};
use amalgam_ranks::Ranks;
use futures_util::future::BoxFuture;
use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::log::about_call;
use crate::solver::SolverProgram;
use order::{Order, Reply};
use session::files::Files;
use session::{Refusal, Session, check_run};

/// Calls waiting for the solver's thread. A coordinator sends one at a time; more calls come from a second
/// coordinator.
const QUEUE: usize = 4;

/// The run that is served and the number of its particles: enough to refuse a call before its columns are
/// read.
pub(crate) type Serving = Arc<Mutex<Option<(Context, u64)>>>;

/// A solver behind gRPC.
#[derive(Clone)]
pub(crate) struct Service {
    program: Arc<dyn SolverProgram>,
    serving: Serving,
    orders: mpsc::Sender<Order>,
}

impl Service {
    /// Starts the solver's thread with `threads` workers, as the first of `ranks`. The others of `ranks` are
    /// threads with as many workers each. Below the folder `files`, if there is one, they may write frames and
    /// snapshots. A handle of the solver's thread comes back, which ends when the service is gone.
    pub(crate) fn start(
        program: Arc<dyn SolverProgram>,
        threads: usize,
        ranks: Vec<Ranks>,
        files: Option<PathBuf>,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (orders, mut inbox) = mpsc::channel(QUEUE);
        let serving = Serving::default();
        let mut ranks = ranks.into_iter();
        let first = ranks.next().unwrap_or_default();
        for rank in ranks {
            let (program, files) = (Arc::clone(&program), files.clone());
            let name = format!("solver-{}", rank.rank());
            std::thread::Builder::new().name(name).spawn(move || follow(&program, threads, &rank, files))?;
        }
        let (own, served, pool) = (Arc::clone(&program), Arc::clone(&serving), workers(threads)?);
        let solver = std::thread::Builder::new().name("solver".into()).spawn(move || {
            // Inside the pool of workers, a parallel loop starts on the calling thread, without a hand-over.
            pool.install(|| {
                let mut session = Session::new(first.clone(), Files::below(files));
                let mut participant = String::new();
                while let Some(order) = inbox.blocking_recv() {
                    if let Order::Initialize(request, _) = &order {
                        participant = shorten(&request.participant);
                    }
                    let (call, run, step, stage) = order.about();
                    let (run, start) = (shorten(run), Instant::now());
                    let _about = about_call(call, &participant, &run, step, stage);
                    if !first.is_alone() {
                        first.broadcast(order.to_bytes());
                    }
                    carry_out(&mut session, &own, &served, order);
                    let seconds = start.elapsed().as_secs_f64();
                    tracing::debug!(run, participant, step, stage, call, seconds, "computed");
                }
                first.broadcast(END.to_vec());
            });
        })?;
        Ok((Self { program, serving, orders }, solver))
    }

    /// The service, now and later.
    pub(crate) fn serving(&self) -> Serving {
        Arc::clone(&self.serving)
    }

    /// Reads a call for the run that is served. Another one is refused with its header, and so is what it
    /// cannot need.
    async fn read<C: Call>(
        &self,
        name: &str,
        (caller, body): Asked,
        context: fn(&<C::Packet as Packet>::Header) -> &Option<v1::RunContext>,
    ) -> Result<(C, Begun), Status> {
        let mut open = None;
        let room = |header: &<C::Packet as Packet>::Header| {
            let context = Context::from_wire(context(header).clone()).map_err(invalid)?;
            let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
            check_run(name, &context, serving.as_ref().map(|(context, _)| context)).map_err(status)?;
            caller.iter().for_each(Caller::is_of_run);
            open = caller.as_ref().map(Caller::call);
            let particles = serving.as_ref().map_or(0, |&(_, particles)| particles);
            C::room(header, &Known { particles, ..Known::default() }).map_err(invalid)
        };
        let bytes = |packet: &C::Packet| packet.columns().iter().map(|column| column.data.len() as u64).sum();
        let (header, columns) = gather(paced(Incoming::of_request(body), bytes), room).await?;
        Ok((C::decode(header, columns).map_err(invalid)?, open))
    }

    async fn order<P: Send + 'static>(
        &self,
        order: impl FnOnce(Reply<P>) -> Order,
    ) -> Result<Vec<P>, Status> {
        let gone = || Status::internal("the solver panicked; see the solver's log");
        let (reply, answer) = oneshot::channel();
        self.orders.send(order(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    /// Carries out a call of the run, whose answer must be taken in time.
    async fn stream<P: Packet + Send + 'static>(
        &self,
        call: Begun,
        order: impl FnOnce(Reply<P>) -> Order,
    ) -> Result<Answered, Status> {
        let packets = self.order(order).await?;
        if let Some(call) = &call {
            call.caller().is_of_run();
            call.answers(packets.iter().flat_map(P::columns).map(|column| column.data.len() as u64).sum());
        }
        // The call lasts as long as its answer.
        Ok((Outgoing::packets(packets), call))
    }

    async fn single<P: Message + Send + 'static>(
        &self,
        call: Begun,
        order: impl FnOnce(Reply<P>) -> Order,
    ) -> Result<Answered, Status> {
        let packets = self.order(order).await?;
        call.iter().for_each(|call| call.caller().is_of_run());
        let answer = packets.first().ok_or_else(|| Status::internal("no answer"))?;
        Ok((Outgoing::message(answer), call))
    }
}

/// A call in progress, known to its connection.
type Begun = Option<OpenCall>;

/// Messages of an answer, and the call that they answer.
type Answered = (Outgoing, Begun);

/// The caller, and the messages of the call.
type Asked = (Option<Caller>, Body);

/// The only message of a call, which begins when the message is there.
async fn single<M: Message + Default>((caller, body): Asked) -> Result<(M, Begun), Status> {
    let message = Incoming::of_request(body).single().await?;
    Ok((message, caller.as_ref().map(Caller::call)))
}

/// Sent to the other ranks when the service ends, in place of a call.
const END: &[u8] = &[];

fn workers(threads: usize) -> std::io::Result<rayon::ThreadPool> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("physics-{i}"));
    pool.build().map_err(std::io::Error::other)
}

/// Carries out the calls of a participant on a rank other than the first, until the service ends.
pub(crate) fn follow(program: &Arc<dyn SolverProgram>, threads: usize, rank: &Ranks, files: Option<PathBuf>) {
    let pool = workers(threads).expect("threads for physics");
    pool.install(|| {
        let (mut session, serving) = (Session::new(rank.clone(), Files::below(files)), Serving::default());
        loop {
            let call = rank.await_broadcast::<u8>();
            if call == END {
                return;
            }
            let order = Order::from_bytes(&call).unwrap_or_else(|error| panic!("{}", error.message()));
            carry_out(&mut session, program, &serving, order);
        }
    });
}

fn carry_out(session: &mut Session, program: &Arc<dyn SolverProgram>, serving: &Serving, order: Order) {
    let publish = |session: &Session| {
        *serving.lock().unwrap_or_else(PoisonError::into_inner) = session.serving();
    };
    // A caller that has gone away does not want its answer: a failed send is no fault.
    match order {
        Order::Initialize(request, reply) => {
            let answer = packets(session.initialize(program, *request));
            publish(session);
            let _ = reply.send(answer);
        }
        Order::Survey(call, reply) => {
            let _ = reply.send(packets(session.survey(&call)));
        }
        Order::Begin(call, reply) => {
            let _ = reply.send(packets(session.begin(call)));
            prepare(session);
        }
        Order::Integrate(call, reply) => {
            let answer = session.integrate(*call).map_err(status);
            let _ = reply.send(answer.map(|(header, columns)| columns.into_packets(header)));
        }
        Order::Commit(call, reply) => {
            let answer = session.commit(*call).map_err(status).map(|answer| {
                let (header, columns) = answer.encode();
                columns.into_packets(header)
            });
            publish(session);
            let _ = reply.send(answer);
            prepare(session);
        }
        Order::Frame(ask, reply) => {
            let _ = reply.send(packets(session.frame(&ask)));
        }
        Order::Save(ask, reply) => {
            let _ = reply.send(packets(session.save(&ask)));
        }
        Order::Restore(call, reply) => {
            let answer = session.restore(call).map_err(status);
            publish(session);
            let _ = reply.send(answer.map(|state_hash| vec![v1::RestoreResponse { state_hash }]));
        }
        Order::Shutdown(context, reply) => {
            let answer = session.shutdown(&context).map_err(status);
            publish(session);
            let _ = reply.send(answer.map(|()| vec![v1::ShutdownResponse {}]));
        }
    }
}

/// Does the work that does not depend on merging, while the coordinator looks for contacts. A fault is the
/// answer of the next call.
fn prepare(session: &mut Session) {
    if let Err(error) = session.prepare() {
        session.fail(error);
    }
}

fn packets<C: Call>(answer: Result<C, Refusal>) -> Result<Vec<C::Packet>, Status> {
    answer.map(Call::into_packets).map_err(status)
}

fn status(refusal: Refusal) -> Status {
    match refusal {
        Refusal::OutOfOrder { .. } | Refusal::OtherRun { .. } => {
            Status::failed_precondition(refusal.to_string())
        }
        Refusal::NoRun { .. } => Status::not_found(refusal.to_string()),
        Refusal::Wire(error) => invalid(error),
        Refusal::Solver(error) => Status::aborted(error.to_string()),
        Refusal::Section(errors) => {
            let mut details = ErrorDetails::new();
            let text: Vec<String> = errors.iter().map(|e| format!("{}: {}", e.key, e.message)).collect();
            for error in errors {
                details.add_bad_request_violation(error.key, error.message);
            }
            Status::with_error_details(Code::InvalidArgument, text.join("; "), details)
        }
    }
}

fn invalid(error: WireError) -> Status {
    Status::invalid_argument(error.to_string())
}

impl Service {
    async fn answer(&self, method: &str, asked: Asked) -> Result<Answered, Status> {
        match method {
            "Describe" => self.describe(asked).await,
            "Initialize" => self.initialize(asked).await,
            "Survey" => self.survey(asked).await,
            "Begin" => self.begin(asked).await,
            "Integrate" => self.integrate(asked).await,
            "Commit" => self.commit(asked).await,
            "Frame" => self.frame(asked).await,
            "Save" => self.save(asked).await,
            "Restore" => self.restore(asked).await,
            "Shutdown" => self.shutdown(asked).await,
            _ => Err(Status::unimplemented(format!("no call is named {:?}", shorten(method)))),
        }
    }

    async fn describe(&self, asked: Asked) -> Result<Answered, Status> {
        let (v1::DescribeRequest { protocol_version: asked }, open) = single(asked).await?;
        let program = self.program.describe();
        let description = Description {
            name: program.name.into(),
            version: program.version.into(),
            integration: program.integration,
            wants_obstacles: self.program.wants_obstacles(),
        };
        if asked != PROTOCOL_VERSION {
            let older = if asked < PROTOCOL_VERSION { "the coordinator" } else { program.name };
            return Err(Status::failed_precondition(format!(
                "the coordinator speaks version {asked} of amalgam.solver, {} {} version {PROTOCOL_VERSION}: update {older}",
                program.name, program.version
            )));
        }
        Ok((Outgoing::message(&description.to_wire()), open))
    }

    async fn initialize(&self, asked: Asked) -> Result<Answered, Status> {
        let caller = asked.0.clone();
        let (request, open) = single(asked).await?;
        let answer = self.stream(open, |reply| Order::Initialize(Box::new(request), reply)).await?;
        caller.iter().for_each(Caller::begins_run);
        Ok(answer)
    }

    async fn survey(&self, asked: Asked) -> Result<Answered, Status> {
        let (request, open) = single(asked).await?;
        let call = Survey::from_wire(request).map_err(invalid)?;
        self.stream(open, |reply| Order::Survey(call, reply)).await
    }

    async fn begin(&self, asked: Asked) -> Result<Answered, Status> {
        let (call, open) = self.read("Begin", asked, |header: &v1::BeginHeader| &header.context).await?;
        self.stream(open, |reply| Order::Begin(call, reply)).await
    }

    async fn integrate(&self, asked: Asked) -> Result<Answered, Status> {
        let (call, open) =
            self.read("Integrate", asked, |header: &v1::IntegrateHeader| &header.context).await?;
        self.stream(open, |reply| Order::Integrate(Box::new(call), reply)).await
    }

    async fn commit(&self, asked: Asked) -> Result<Answered, Status> {
        let (call, open) = self.read("Commit", asked, |header: &v1::CommitHeader| &header.context).await?;
        self.stream(open, |reply| Order::Commit(Box::new(call), reply)).await
    }

    async fn frame(&self, asked: Asked) -> Result<Answered, Status> {
        let (request, open) = single(asked).await?;
        let ask = AskFrame::from_wire(request).map_err(invalid)?;
        self.stream(open, |reply| Order::Frame(ask, reply)).await
    }

    async fn save(&self, asked: Asked) -> Result<Answered, Status> {
        let (request, open) = single(asked).await?;
        let ask = AskSave::from_wire(request).map_err(invalid)?;
        self.stream(open, |reply| Order::Save(ask, reply)).await
    }

    async fn restore(&self, asked: Asked) -> Result<Answered, Status> {
        let (call, open) = self.read("Restore", asked, |header: &v1::RestoreHeader| &header.context).await?;
        self.single(open, |reply| Order::Restore(call, reply)).await
    }

    async fn shutdown(&self, asked: Asked) -> Result<Answered, Status> {
        let (v1::ShutdownRequest { context }, open) = single(asked).await?;
        let context = Context::from_wire(context).map_err(invalid)?;
        self.single(open, |reply| Order::Shutdown(context, reply)).await
    }
}

impl NamedService for Service {
    const NAME: &'static str = v1::solver_server::SERVICE_NAME;
}

impl tower::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let method = head.uri.path().rsplit('/').next().unwrap_or_default();
            let caller = head.extensions.get::<Caller>().cloned();
            Ok(match service.answer(method, (caller, body)).await {
                Ok((answer, call)) => answer.into_answer(call),
                Err(status) => status.into_http(),
            })
        })
    }
}
