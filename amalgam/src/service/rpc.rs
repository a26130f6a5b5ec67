//! The calls of `amalgam.coordinator.v1`.

use std::{
    io::{Seek as _, SeekFrom},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use amalgam_network::{Caller, OpenCall, paced};
use amalgam_proto::coordinator::{
    self as v1, coordinator_server::Coordinator, follow_response::Event, submit_request::Part,
};
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{feed::event, results, runs::Runs};

/// Scenes that are received at once.
const SUBMISSIONS_MAX: usize = 4;

/// Pieces of a file that wait to be sent.
const PIECES_MAX: usize = 4;

/// Longest time for a client to take a piece.
const FETCH_DEADLINE: Duration = Duration::from_secs(60);

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The runs behind gRPC.
pub(super) struct Service {
    runs: Arc<Runs>,
    submissions: Semaphore,
    /// Scenes are read one after the other.
    reading: Arc<Semaphore>,
}

impl Service {
    pub(super) fn new(runs: Arc<Runs>) -> Self {
        Self { runs, submissions: Semaphore::new(SUBMISSIONS_MAX), reading: Arc::new(Semaphore::new(1)) }
    }
}

/// Next message for a follower.
enum Following {
    /// The run as it was when following began, then events.
    First(v1::Run, broadcast::Receiver<v1::FollowResponse>),
    Then(broadcast::Receiver<v1::FollowResponse>),
    End,
}

fn after(run: &v1::Run, events: broadcast::Receiver<v1::FollowResponse>) -> Following {
    match run.state() {
        v1::State::Finished | v1::State::Stopped | v1::State::Failed => Following::End,
        _ => Following::Then(events),
    }
}

async fn next(following: Following) -> Option<(Result<v1::FollowResponse, Status>, Following)> {
    let (response, events) = match following {
        Following::End => return None,
        Following::First(run, events) => (event(Event::Run(run)), events),
        Following::Then(mut events) => {
            let response = match events.recv().await {
                Ok(response) => response,
                Err(broadcast::error::RecvError::Lagged(count)) => event(Event::LeftOut(count)),
                Err(broadcast::error::RecvError::Closed) => return None,
            };
            (response, events)
        }
    };
    let then = match &response.event {
        Some(Event::Run(run)) => after(run, events),
        _ => Following::Then(events),
    };
    Some((Ok(response), then))
}

/// Begins a call: its connection does not count as silent as long as the value lives.
fn begun<T>(request: &Request<T>) -> Option<OpenCall> {
    request.extensions().get::<Caller>().map(Caller::call)
}

/// Bytes of a piece of a scene.
fn piece_bytes(message: &v1::SubmitRequest) -> u64 {
    let bytes = match &message.part {
        Some(Part::Scene(data)) => data.len(),
        Some(Part::File(piece)) => piece.data.len(),
        Some(Part::Options(_)) | None => 0,
    };
    bytes as u64
}

/// Answers during which a call lasts.
fn lasting<T: Send + 'static>(
    call: Option<OpenCall>,
    answers: impl Stream<Item = Result<T, Status>> + Send + 'static,
) -> Response<Answers<T>> {
    Response::new(Box::pin(answers.inspect(move |_| {
        let _lasts = &call;
    })))
}

/// Sends the messages of `work`, on a thread that may wait for the disk, until the client has gone.
fn produced<T: Send + 'static>(
    work: impl FnOnce(&mut dyn FnMut(Result<T, Status>) -> bool) + Send + 'static,
) -> impl Stream<Item = Result<T, Status>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        work(&mut |item| {
            let sent =
                runtime.block_on(async { tokio::time::timeout(FETCH_DEADLINE, sender.send(item)).await });
            matches!(sent, Ok(Ok(())))
        });
    });
    ReceiverStream::new(receiver)
}

fn unreadable(error: &std::io::Error) -> Status {
    match error.kind() {
        std::io::ErrorKind::NotFound => Status::not_found("the run has no such file"),
        _ => Status::internal(format!("a file cannot be read: {error}")),
    }
}

#[tonic::async_trait]
impl Coordinator for Service {
    type FollowStream = Answers<v1::FollowResponse>;
    type FilesStream = Answers<v1::FilesResponse>;
    type FetchStream = Answers<v1::FetchResponse>;

    async fn submit(
        &self,
        request: Request<Streaming<v1::SubmitRequest>>,
    ) -> Result<Response<v1::SubmitResponse>, Status> {
        let place = self.submissions.try_acquire();
        let _place = place.map_err(|_| {
            Status::resource_exhausted(format!(
                "{SUBMISSIONS_MAX} scenes are being received: submit it again"
            ))
        })?;
        let (mut incoming, _call) = (self.runs.receive()?, begun(&request));
        let mut messages = paced(request.into_inner(), piece_bytes);
        while let Some(message) = messages.next().await {
            incoming.take(message?)?;
        }
        let (runs, turn) = (Arc::clone(&self.runs), Arc::clone(&self.reading).acquire_owned().await);
        // Each scene is read on a thread of its own, one after the other, so that all take memory from the
        // same arena of the allocator.
        let (answer, answered) = oneshot::channel();
        let read = move || {
            // The turn lasts as long as the reading, even if the client has gone.
            let _turn = turn;
            // Sending fails only if the client has gone.
            let _ = answer.send(incoming.finish().and_then(|submission| runs.submit(submission)));
        };
        let thread = std::thread::Builder::new().name("scene".into()).spawn(read);
        thread.map_err(|error| Status::resource_exhausted(format!("no thread can be started: {error}")))?;
        let run = answered.await.map_err(|_| Status::internal("a fault of the service, see its log"))??;
        Ok(Response::new(v1::SubmitResponse { run: Some(run) }))
    }

    async fn list(&self, _: Request<v1::ListRequest>) -> Result<Response<v1::ListResponse>, Status> {
        Ok(Response::new(v1::ListResponse { runs: self.runs.list() }))
    }

    async fn follow(
        &self,
        request: Request<v1::FollowRequest>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let call = begun(&request);
        let (run, events) = self.runs.follow(&request.into_inner().id)?;
        Ok(lasting(call, stream::unfold(Following::First(run, events), next)))
    }

    async fn pause(&self, request: Request<v1::PauseRequest>) -> Result<Response<v1::PauseResponse>, Status> {
        self.runs.pause(&request.into_inner().id)?;
        Ok(Response::new(v1::PauseResponse {}))
    }

    async fn r#continue(
        &self,
        request: Request<v1::ContinueRequest>,
    ) -> Result<Response<v1::ContinueResponse>, Status> {
        self.runs.go_on(&request.into_inner().id)?;
        Ok(Response::new(v1::ContinueResponse {}))
    }

    async fn checkpoint(
        &self,
        request: Request<v1::CheckpointRequest>,
    ) -> Result<Response<v1::CheckpointResponse>, Status> {
        self.runs.save(&request.into_inner().id)?;
        Ok(Response::new(v1::CheckpointResponse {}))
    }

    async fn stop(&self, request: Request<v1::StopRequest>) -> Result<Response<v1::StopResponse>, Status> {
        self.runs.stop(&request.into_inner().id)?;
        Ok(Response::new(v1::StopResponse {}))
    }

    async fn remove(
        &self,
        request: Request<v1::RemoveRequest>,
    ) -> Result<Response<v1::RemoveResponse>, Status> {
        self.runs.remove(&request.into_inner().id)?;
        Ok(Response::new(v1::RemoveResponse {}))
    }

    async fn files(&self, request: Request<v1::FilesRequest>) -> Result<Response<Self::FilesStream>, Status> {
        let call = begun(&request);
        let folder = self.runs.results(&request.into_inner().id)?;
        Ok(lasting(
            call,
            produced(move |send| {
                let listed =
                    results::list(&folder, &mut |path, bytes| send(Ok(v1::FilesResponse { path, bytes })));
                if let Err(error) = listed {
                    send(Err(unreadable(&error)));
                }
            }),
        ))
    }

    async fn fetch(&self, request: Request<v1::FetchRequest>) -> Result<Response<Self::FetchStream>, Status> {
        let call = begun(&request);
        let v1::FetchRequest { id, path, from } = request.into_inner();
        let folder = self.runs.results(&id)?;
        Ok(lasting(
            call,
            produced(move |send| {
                let mut read = || {
                    let mut file = results::open(&folder, &path)?;
                    file.seek(SeekFrom::Start(from))?;
                    while let Some(data) = results::piece(&mut file)? {
                        if !send(Ok(v1::FetchResponse { data: data.into() })) {
                            break;
                        }
                    }
                    Ok(())
                };
                let read: std::io::Result<()> = read();
                if let Err(error) = read {
                    send(Err(unreadable(&error)));
                }
            }),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_follower_is_told_how_much_was_left_out_and_the_end_is_the_end() {
        let sender = broadcast::Sender::new(2);
        let events = sender.subscribe();
        let finished = v1::Run { state: v1::State::Finished.into(), ..v1::Run::default() };
        let sent = ["a", "b", "c"].map(|text| Event::Line(text.into())).into_iter();
        for happened in sent.chain([Event::Run(finished.clone()), Event::Line("never seen".into())]) {
            sender.send(event(happened)).expect("somebody listens");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let running = v1::Run { state: v1::State::Running.into(), ..v1::Run::default() };
        let (mut following, mut seen) = (Following::First(running.clone(), events), Vec::new());
        while let Some((response, then)) = runtime.block_on(next(following)) {
            seen.extend(response.expect("an event").event);
            following = then;
        }
        assert_eq!(seen, [Event::Run(running), Event::LeftOut(3), Event::Run(finished)]);
    }
}
