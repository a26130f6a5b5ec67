//! A service that passes every call on to the service of another process, and does harm once, at a call that
//! is chosen.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use amalgam_proto::v1;
use amalgam_proto::v1::solver_client::SolverClient;
use amalgam_proto::v1::solver_server::{Solver, SolverServer};
use futures_util::{Stream, TryStreamExt as _, stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

/// Harm done to the chosen call.
pub(crate) enum Harm {
    /// The call is answered, and the answer is lost.
    LosesAnswer,
    /// The call comes twice.
    Repeats,
    /// The call is carried out, and no answer ever comes: the connection is open at one end only.
    HoldsAnswer,
    /// The answer comes later by this time.
    Delays(Duration),
    /// Something is done before it is passed on.
    First(Box<dyn FnOnce() + Send>),
}

/// The harm that is still to be done, and the call that it waits for: its name, and the step from which on.
pub(crate) type Planned = Arc<Mutex<Option<(&'static str, u64, Harm)>>>;

/// Serves at a free port and passes calls on to `target`. Ends with the process.
pub(crate) fn relay(target: &str, planned: Planned) -> String {
    let target = Endpoint::from_shared(format!("http://{target}")).expect("an address");
    let (sender, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("listens");
            sender.send(listener.local_addr().expect("an address").to_string()).expect("somebody waits");
            let service =
                SolverServer::new(Relay { target: SolverClient::new(target.connect_lazy()), planned });
            let incoming = TcpIncoming::from(listener);
            Server::builder().add_service(service).serve_with_incoming(incoming).await.expect("serves");
        });
    });
    address.recv().expect("it listens")
}

/// A link to `target`, at a free port. Callers and bytes that come while it is not up wait. Ends with the
/// process.
pub(crate) fn link(target: &str, up: watch::Receiver<bool>) -> String {
    let target = target.to_string();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    listener.set_nonblocking(true).expect("sets");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).expect("listens");
            loop {
                let (caller, _) = listener.accept().await.expect("a caller");
                let (target, mut up) = (target.clone(), up.clone());
                tokio::spawn(async move {
                    up.wait_for(|&up| up).await.ok()?;
                    let (from, to) = caller.into_split();
                    let (back, on) = TcpStream::connect(target).await.ok()?.into_split();
                    tokio::spawn(carry(from, on, up.clone()));
                    tokio::spawn(carry(back, to, up));
                    Some(())
                });
            }
        });
    });
    address
}

/// Carries bytes one way, until either end closes.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut up: watch::Receiver<bool>) -> Option<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut bytes).await.ok().filter(|&read| read > 0)?;
        up.wait_for(|&up| up).await.ok()?;
        to.write_all(&bytes[..read]).await.ok()?;
    }
}

struct Relay {
    target: SolverClient<Channel>,
    planned: Planned,
}

impl Relay {
    /// Passes a call on.
    async fn pass<T, F: Future<Output = Result<T, Status>>>(
        &self,
        name: &str,
        context: Option<v1::RunContext>,
        call: impl Fn(SolverClient<Channel>) -> F,
    ) -> Result<T, Status> {
        let step = context.map_or(0, |context| context.step);
        let harm = {
            let mut planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
            planned.take_if(|(call, from, _)| *call == name && step >= *from).map(|(_, _, harm)| harm)
        };
        match harm {
            None => {}
            Some(Harm::LosesAnswer) => {
                call(self.target.clone()).await.map_err(passed_on)?;
                return Err(Status::unavailable("the answer is lost"));
            }
            Some(Harm::HoldsAnswer) => {
                call(self.target.clone()).await.map_err(passed_on)?;
                return std::future::pending().await;
            }
            Some(Harm::Delays(time)) => {
                let answer = call(self.target.clone()).await.map_err(passed_on);
                tokio::time::sleep(time).await;
                return answer;
            }
            Some(Harm::Repeats) => drop(call(self.target.clone()).await.map_err(passed_on)?),
            Some(Harm::First(action)) => action(),
        }
        call(self.target.clone()).await.map_err(passed_on)
    }
}

/// A broken connection to the target, as one that breaks it off on the other side.
fn passed_on(status: Status) -> Status {
    match std::error::Error::source(&status) {
        Some(cause) => Status::unavailable(cause.to_string()),
        None => status,
    }
}

type Answers<P> = std::pin::Pin<Box<dyn Stream<Item = Result<P, Status>> + Send>>;

/// A whole answer.
async fn whole<P: Send + 'static>(answer: Response<Streaming<P>>) -> Result<Response<Answers<P>>, Status> {
    let packets: Vec<P> = answer.into_inner().try_collect().await?;
    Ok(Response::new(Box::pin(stream::iter(packets.into_iter().map(Ok)))))
}

/// A whole call.
async fn all<P: Send + 'static>(request: Request<Streaming<P>>) -> Result<Vec<P>, Status> {
    request.into_inner().try_collect().await
}

#[tonic::async_trait]
impl Solver for Relay {
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
        self.target.clone().describe(request.into_inner()).await.map_err(passed_on)
    }

    async fn initialize(
        &self,
        request: Request<v1::InitializeRequest>,
    ) -> Result<Response<Self::InitializeStream>, Status> {
        whole(self.target.clone().initialize(request.into_inner()).await.map_err(passed_on)?).await
    }

    async fn survey(
        &self,
        request: Request<v1::SurveyRequest>,
    ) -> Result<Response<Self::SurveyStream>, Status> {
        whole(self.target.clone().survey(request.into_inner()).await?).await
    }

    async fn begin(
        &self,
        request: Request<Streaming<v1::BeginRequest>>,
    ) -> Result<Response<Self::BeginStream>, Status> {
        let packets = all(request).await?;
        let context = packets.first().and_then(|packet| packet.header.as_ref()?.context.clone());
        let call = |mut target: SolverClient<Channel>| {
            let packets = packets.clone();
            async move { whole(target.begin(stream::iter(packets)).await?).await }
        };
        self.pass("Begin", context, call).await
    }

    async fn integrate(
        &self,
        request: Request<Streaming<v1::IntegrateRequest>>,
    ) -> Result<Response<Self::IntegrateStream>, Status> {
        let packets = all(request).await?;
        let context = packets.first().and_then(|packet| packet.header.as_ref()?.context.clone());
        let call = |mut target: SolverClient<Channel>| {
            let packets = packets.clone();
            async move { whole(target.integrate(stream::iter(packets)).await?).await }
        };
        // The second stage is a call of its own: particles that did not approach before have become contacts.
        let stage =
            packets.first().and_then(|packet| packet.header.as_ref()).map_or(1, |header| header.stage);
        let name = if stage > 1 { "Integrate of stage 2" } else { "Integrate" };
        self.pass(name, context, call).await
    }

    async fn commit(
        &self,
        request: Request<Streaming<v1::CommitRequest>>,
    ) -> Result<Response<Self::CommitStream>, Status> {
        let packets = all(request).await?;
        let context = packets.first().and_then(|packet| packet.header.as_ref()?.context.clone());
        let call = |mut target: SolverClient<Channel>| {
            let packets = packets.clone();
            async move { whole(target.commit(stream::iter(packets)).await?).await }
        };
        self.pass("Commit", context, call).await
    }

    async fn frame(&self, request: Request<v1::FrameRequest>) -> Result<Response<Self::FrameStream>, Status> {
        whole(self.target.clone().frame(request.into_inner()).await.map_err(passed_on)?).await
    }

    async fn save(&self, request: Request<v1::SaveRequest>) -> Result<Response<Self::SaveStream>, Status> {
        let request = request.into_inner();
        let call = |mut target: SolverClient<Channel>| {
            let request = request.clone();
            async move { whole(target.save(request).await?).await }
        };
        self.pass("Save", request.context.clone(), call).await
    }

    async fn restore(
        &self,
        request: Request<Streaming<v1::RestoreRequest>>,
    ) -> Result<Response<v1::RestoreResponse>, Status> {
        self.target.clone().restore(stream::iter(all(request).await?)).await.map_err(passed_on)
    }

    async fn shutdown(
        &self,
        request: Request<v1::ShutdownRequest>,
    ) -> Result<Response<v1::ShutdownResponse>, Status> {
        let request = request.into_inner();
        let call = |mut target: SolverClient<Channel>| {
            let request = request.clone();
            async move { target.shutdown(request).await }
        };
        self.pass("Shutdown", request.context.clone(), call).await
    }
}
