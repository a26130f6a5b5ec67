//! The service `amalgam.registry.v1`, at which solvers register, so that no scene needs their addresses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use amalgam_network::{Caller, Gate, Listen, Listening, listen};
use amalgam_particles::text::shorten;
use amalgam_proto::TransportLimits;
use amalgam_proto::registry::registry_server::RegistryServer;
use amalgam_proto::registry::{RegisterRequest, RegisterResponse, registry_server};
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use super::Address;

/// Time after which a service registers again.
const AGAIN: Duration = Duration::from_secs(2);

/// Time of silence after which another service may take a name.
const FORGOTTEN: Duration = Duration::from_secs(6);

/// Largest message [bytes].
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Error of a registry that could not start.
#[derive(Debug, thiserror::Error)]
#[error("the registry: {0}")]
pub struct RegistryError(String);

/// A registry that listens, for the participants of a scene. Clones share it; it ends with the last of them.
#[derive(Clone)]
pub struct Registry(Arc<Shared>);

struct Shared {
    address: String,
    book: Arc<Book>,
    /// Ends the service when it is dropped.
    _end: oneshot::Sender<()>,
}

impl Registry {
    /// Listens, on its own thread, for the solvers of `participants`, given by name and wanted program (any
    /// if empty).
    ///
    /// # Errors
    /// An address that cannot be listened at.
    pub fn start(
        at: &Listen,
        gate: Gate,
        participants: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, RegistryError> {
        let failed = |error: String| RegistryError(error);
        let entry = |(name, solver)| (name, Entry { solver, found: None });
        let book = Arc::new(Book(Mutex::new(participants.into_iter().map(entry).collect())));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let listening = runtime.block_on(listen(at, &gate)).map_err(|error| failed(format!("{error:#}")))?;
        let (address, (end, ended)) = (listening.address.clone(), oneshot::channel());
        let served = Arc::clone(&book);
        std::thread::Builder::new()
            .name("registry".into())
            .spawn(move || {
                if let Err(error) = runtime.block_on(serve(served, listening, &gate, ended)) {
                    tracing::error!(%error, "the registry ended");
                }
            })
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self(Arc::new(Shared { address, book, _end: end })))
    }

    /// Address at which the registry listens.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// `HOST:PORT` of the service that registered last for a participant.
    pub fn address_of(&self, participant: &str) -> Option<String> {
        let entries = self.0.book.lock();
        entries.get(participant)?.found.as_ref().map(|found| found.address.clone())
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Registry({})", self.0.address)
    }
}

async fn serve(
    book: Arc<Book>,
    listening: Listening,
    gate: &Gate,
    ended: oneshot::Receiver<()>,
) -> Result<(), tonic::transport::Error> {
    let service = RegistryServer::from_arc(book).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let served = tonic::transport::Server::builder()
        .max_concurrent_streams(TransportLimits::STREAMS_MAX)
        .http2_max_header_list_size(TransportLimits::HEADER_LIST_BYTES)
        .layer(tonic::service::InterceptorLayer::new(gate.checks()))
        .add_service(service)
        .serve_with_incoming(listening.incoming);
    tokio::select! {
        served = served => served,
        // Services that are connected are not waited for.
        _ = ended => Ok(()),
    }
}

struct Book(Mutex<BTreeMap<String, Entry>>);

struct Entry {
    solver: String,
    found: Option<Found>,
}

struct Found {
    address: String,
    host: String,
    process: u32,
    last: Instant,
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, request: RegisterRequest, now: Instant) -> Result<(), Status> {
        let RegisterRequest { participant, solver, address, host, process, .. } = request;
        if !matches!(Address::parse(&address), Ok(Address::Tcp(_))) {
            let address = shorten(&address);
            return Err(Status::invalid_argument(format!(
                "{address:?} is no HOST:PORT at which a service is"
            )));
        }
        let mut entries = self.lock();
        let names = entries.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let Some(entry) = entries.get_mut(&participant) else {
            let participant = shorten(&participant);
            return Err(Status::not_found(format!("the run waits for no `{participant}`, but for {names}")));
        };
        if !entry.solver.is_empty() && entry.solver != solver {
            let (wanted, solver) = (&entry.solver, shorten(&solver));
            return Err(Status::failed_precondition(format!(
                "`{participant}` wants solver {wanted:?}, and not {solver:?}"
            )));
        }
        let is_same = |found: &Found| found.address == address && found.host == host;
        if let Some(found) = entry.found.as_ref().filter(|found| !is_same(found))
            && now.duration_since(found.last) < FORGOTTEN
        {
            let Found { address, host, process, .. } = found;
            return Err(Status::already_exists(format!(
                "`{participant}` is served at {address} already, by process {process} on {host}"
            )));
        }
        entry.found = Some(Found { address, host: shorten(&host), process, last: now });
        Ok(())
    }
}

#[tonic::async_trait]
impl registry_server::Registry for Book {
    async fn register(
        &self,
        request: Request<RegisterRequest>,
    ) -> Result<Response<RegisterResponse>, Status> {
        let caller = request.extensions().get::<Caller>().cloned();
        self.enter(request.into_inner(), Instant::now())?;
        // A service that has registered keeps its connection.
        caller.iter().for_each(Caller::is_of_run);
        Ok(Response::new(RegisterResponse { again_after_ms: AGAIN.as_millis() as u32 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> Book {
        let entry = |solver: &str| Entry { solver: solver.into(), found: None };
        Book(Mutex::new([("water".into(), entry("sea")), ("rock".into(), entry(""))].into()))
    }

    fn request(participant: &str, solver: &str, address: &str) -> RegisterRequest {
        RegisterRequest {
            participant: participant.into(),
            solver: solver.into(),
            address: address.into(),
            host: "node7".into(),
            process: 12,
            ..RegisterRequest::default()
        }
    }

    #[test]
    fn who_registers_is_checked() {
        let (book, now) = (book(), Instant::now());
        let refused = |request, code: tonic::Code, part: &str| {
            let status = book.enter(request, now).expect_err(part);
            assert!(status.code() == code && status.message().contains(part), "{status}");
        };
        refused(
            request("air", "sea", "a:1"),
            tonic::Code::NotFound,
            "waits for no `air`, but for `rock`, `water`",
        );
        refused(request("water", "sand", "a:1"), tonic::Code::FailedPrecondition, "wants solver \"sea\"");
        refused(request("water", "sea", "unix:/tmp/x"), tonic::Code::InvalidArgument, "is no HOST:PORT");
        book.enter(request("rock", "anything", "a:1"), now).expect("any program will do");
        book.enter(request("water", "sea", "a:1"), now).expect("fits");
        refused(request("water", "sea", "a:2"), tonic::Code::AlreadyExists, "is served at a:1 already");
        book.enter(request("water", "sea", "a:1"), now).expect("the same again");
        book.enter(request("water", "sea", "a:2"), now + FORGOTTEN).expect("the first is silent");
    }
}
