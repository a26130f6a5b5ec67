//! Serving a solver: sockets, limits, health, reflection and an orderly end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use amalgam_particles::text::wall_time;
use amalgam_proto::v1::solver_server::SolverServer;
use amalgam_proto::{DESCRIPTORS, TransportLimits, message_limit};
use anyhow::{Context as _, bail};
use futures_util::{Stream, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, DuplexStream};
use tokio::sync::mpsc;
use tonic::server::NamedService as _;
use tonic::service::Routes;
use tonic::transport::server::{Connected, TcpIncoming};

use crate::log::{LogFormat, log_to_standard_error};
use crate::service::{Service, Serving};
use crate::solver::SolverProgram;

/// Where a service listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket; a stale one of a dead process is replaced.
    Unix(PathBuf),
    /// `HOST:PORT`, a name or an IP address of this machine; port 0 takes a free one.
    Tcp(String),
}

/// How to serve: the arguments of every solver's program.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeOptions {
    /// Where to listen: unix:PATH or HOST:PORT, port 0 for any free one
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Listen,
    /// Threads for physics; results do not depend on it [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// End when standard input does, so that the service does not outlive who started it
    #[arg(long)]
    pub exit_with_stdin: bool,
    /// End when a run was left in the middle and no coordinator has been connected for this long: 90s, 10m, 2h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = wall_time)]
    pub orphan_timeout: Duration,
    /// Listen beyond this machine without encryption; anyone who reaches the address can use the solver
    #[arg(long)]
    pub insecure: bool,
    /// How the log on standard error is written; AMALGAM_LOG or RUST_LOG says what is logged
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// The `main` of a solver's own program: reads [`ServeOptions`] from the command line and serves.
pub fn main(program: impl SolverProgram) -> std::process::ExitCode {
    use clap::{Args as _, Command, FromArgMatches as _};
    let description = program.describe();
    let command = Command::new(description.name)
        .version(description.version)
        .about("A particle solver as a service, for amalgam scenes that give its address");
    let matches = ServeOptions::augment_args(command).get_matches();
    let options = ServeOptions::from_arg_matches(&matches).map_err(anyhow::Error::from);
    log_to_standard_error(options.as_ref().map(|options| options.log_format).unwrap_or_default());
    match options.and_then(|options| serve(Arc::new(program), options)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

impl std::str::FromStr for Listen {
    type Err = String;

    /// Reads `unix:PATH` or `HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err("write a path after unix:, for example unix:/tmp/cloth.sock".into());
            }
            return Ok(Self::Unix(path.into()));
        }
        let is_name = |host: &str| {
            !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c))
        };
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        let named = text.rsplit_once(':').is_some_and(|(host, port)| is_name(host) && is_port(port));
        if named || text.parse::<SocketAddr>().is_ok() {
            return Ok(Self::Tcp(text.into()));
        }
        Err(format!(
            "{text:?} is no address to listen on: write unix:PATH or HOST:PORT, for example 127.0.0.1:7401, \
             node7:0 or [::1]:7401"
        ))
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// Serves a solver until SIGTERM, SIGINT or (if asked for) the end of standard input. Prints `listening ADDRESS` on
/// standard output once connections are accepted. A call in progress is finished first.
///
/// # Errors
/// If the address cannot be listened on, or is beyond loopback without `insecure`; and at the orphan timeout.
pub fn serve(program: Arc<dyn SolverProgram>, options: ServeOptions) -> anyhow::Result<()> {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.map_or_else(all, |threads| threads as usize);
    let service = Service::start(program, threads).context("the solver's threads could not be started")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let end = end_of_service(options.exit_with_stdin)?;
        let (serving, open) = (service.serving(), Arc::new(AtomicUsize::new(0)));
        let orphan = OnceLock::new();
        let end = async {
            tokio::select! {
                () = end => {}
                run_id = orphaned(&serving, &open, options.orphan_timeout) => {
                    orphan.set(run_id).expect("it ends once");
                }
            }
        };
        let routes = solver_routes(service).await?;
        serve_routes(&options.listen, options.insecure, routes, Arc::clone(&open), end).await?;
        if let Some(run_id) = orphan.get() {
            let seconds = options.orphan_timeout.as_secs_f64();
            bail!("run {run_id} was left in the middle, and no coordinator came for {seconds} s (--orphan-timeout)");
        }
        Ok(())
    });
    // Standard input may still be read by a blocking thread that nothing can wake.
    runtime.shutdown_background();
    served
}

/// Serves calls at an address until `end`, with the limits that every service has. Prints `listening ADDRESS` on standard output
/// once connections are accepted. `open` counts the connections. Calls in progress are finished first.
///
/// # Errors
/// If the address cannot be listened on, or is beyond loopback without `insecure`.
pub async fn serve_routes(
    listen: &Listen,
    insecure: bool,
    routes: Routes,
    open: Arc<AtomicUsize>,
    end: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    match listen {
        Listen::Unix(path) => {
            remove_stale(path).await?;
            let listener = tokio::net::UnixListener::bind(path)
                .with_context(|| format!("cannot listen on unix:{}", path.display()))?;
            announce(&format!("unix:{}", path.display()));
            let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
            let served = run(routes, incoming, open, end).await;
            let _ = std::fs::remove_file(path);
            served
        }
        Listen::Tcp(address) => {
            let (listener, announced) = bind(address, insecure).await?;
            announce(&announced);
            let incoming = TcpIncoming::from(listener)
                .with_nodelay(Some(true))
                .with_keepalive(Some(TransportLimits::KEEPALIVE))
                .with_keepalive_interval(Some(TransportLimits::KEEPALIVE_INTERVAL))
                .with_keepalive_retries(Some(TransportLimits::KEEPALIVE_TRIES));
            run(routes, incoming, open, end).await
        }
    }
}

/// Adds what every service answers besides its own calls: health, of the service of this name, and reflection.
///
/// # Errors
/// Descriptors that are none.
pub async fn with_health_and_reflection(
    routes: Routes,
    name: &str,
    descriptors: &'static [u8],
) -> anyhow::Result<Routes> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_service_status(name, tonic_health::ServingStatus::Serving).await;
    let reflection =
        || tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(descriptors);
    let routes = routes.add_service(health_service).add_service(reflection().build_v1()?);
    Ok(routes.add_service(reflection().build_v1alpha()?))
}

async fn solver_routes(service: Service) -> anyhow::Result<Routes> {
    let solver = SolverServer::new(service)
        .max_decoding_message_size(message_limit())
        .max_encoding_message_size(message_limit());
    with_health_and_reflection(Routes::new(solver), SolverServer::<Service>::NAME, DESCRIPTORS).await
}

/// Serves a solver inside this process, on threads of its own: a connection is a pipe sent into the returned queue.
/// The service ends when the queue's senders and its connections are gone.
///
/// # Errors
/// If threads cannot be started.
pub fn serve_in_process(
    program: Arc<dyn SolverProgram>,
    threads: usize,
) -> std::io::Result<mpsc::Sender<DuplexStream>> {
    let (connections, inbox) = mpsc::channel(4);
    let service = Service::start(program, threads)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("solver-io".into()).spawn(move || {
        let incoming = tokio_stream::wrappers::ReceiverStream::new(inbox).map(Ok::<_, std::io::Error>);
        let served = runtime.block_on(async {
            run(solver_routes(service).await?, incoming, Arc::default(), std::future::pending()).await
        });
        if let Err(error) = served {
            tracing::error!(%error, "in-process service");
        }
    })?;
    Ok(connections)
}

async fn run<IO>(
    routes: Routes,
    incoming: impl Stream<Item = std::io::Result<IO>> + Send,
    open: Arc<AtomicUsize>,
    end: impl Future<Output = ()>,
) -> anyhow::Result<()>
where
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let mut refused = Refused::default();
    let incoming = incoming.filter_map(move |stream| {
        let place = limited(stream, &open, &mut refused);
        async move { Some(place) }
    });
    tonic::transport::Server::builder()
        .initial_stream_window_size(TransportLimits::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(TransportLimits::CONNECTION_WINDOW_BYTES)
        .max_frame_size(TransportLimits::FRAME_BYTES)
        .max_concurrent_streams(TransportLimits::STREAMS_MAX)
        .http2_max_header_list_size(TransportLimits::HEADER_LIST_BYTES)
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, end)
        .await
        .context("the service failed")
}

/// Waits until nobody has been connected for `longest` while a run is served, and says which.
async fn orphaned(serving: &Serving, open: &AtomicUsize, longest: Duration) -> String {
    let mut alone_since = None;
    loop {
        let run = serving
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(|(run, _)| run.run_id.clone());
        match run.filter(|_| open.load(Ordering::Relaxed) == 0) {
            None => alone_since = None,
            Some(run_id) if alone_since.get_or_insert_with(Instant::now).elapsed() >= longest => {
                return run_id;
            }
            Some(_) => (),
        }
        tokio::time::sleep((longest / 10).min(ORPHAN_INTERVAL)).await;
    }
}

/// A connection that gives its place back when it is dropped.
struct Place<IO> {
    stream: IO,
    open: Arc<AtomicUsize>,
}

impl<IO> Drop for Place<IO> {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Longest time between two looks whether anybody is connected.
const ORPHAN_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two lines of the log about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Connections that were refused and not yet told of.
#[derive(Default)]
struct Refused {
    count: u64,
    told: Option<Instant>,
}

impl Refused {
    /// Counts one more; the number to tell of, if it is time to.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.told.is_some_and(|told| now.duration_since(told) < LOG_INTERVAL) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

fn limited<IO>(
    stream: std::io::Result<IO>,
    open: &Arc<AtomicUsize>,
    refused: &mut Refused,
) -> std::io::Result<Place<IO>> {
    let place = Place { stream: stream?, open: Arc::clone(open) };
    if place.open.fetch_add(1, Ordering::Relaxed) >= TransportLimits::CONNECTIONS_MAX {
        if let Some(count) = refused.count(Instant::now()) {
            tracing::warn!("refused {count} connections: {} are open", TransportLimits::CONNECTIONS_MAX);
        }
        return Err(std::io::Error::other("too many connections"));
    }
    Ok(place)
}

impl<IO: AsyncRead + Unpin> AsyncRead for Place<IO> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Place<IO> {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::pin::Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::pin::Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl<IO: Connected> Connected for Place<IO> {
    type ConnectInfo = IO::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

/// A future that ends when a service should: at SIGTERM, SIGINT or, if asked for, the end of standard input.
///
/// # Errors
/// If the system refuses to tell of signals.
pub fn end_of_service(with_stdin: bool) -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let stdin_closed = async {
            if !with_stdin {
                return std::future::pending().await;
            }
            let mut stdin = tokio::io::stdin();
            let mut ignored = [0; 64];
            while stdin.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
        };
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM"),
            // A child of `amalgam run` gets the terminal's Ctrl-C too; its parent decides when it ends.
            () = async { loop { interrupt.recv().await; if !with_stdin { break; } } } => tracing::info!("SIGINT"),
            () = stdin_closed => tracing::info!("standard input closed"),
        }
    })
}

/// Listens at `HOST:PORT`; the second value is what others write to reach it.
async fn bind(address: &str, insecure: bool) -> anyhow::Result<(tokio::net::TcpListener, String)> {
    let found = tokio::net::lookup_host(address).await;
    let found = found.with_context(|| format!("cannot listen on {address}: no address has this name"))?;
    let found: Vec<SocketAddr> = found.collect();
    if !insecure && found.iter().any(|address| !address.ip().is_loopback()) {
        bail!(
            "{address} can be reached from other machines, and this release has no encryption: \
             listen on 127.0.0.1, or say --insecure on a network you trust"
        );
    }
    let listener = tokio::net::TcpListener::bind(&found[..]).await;
    let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
    let local = listener.local_addr()?;
    let announced = match address.rsplit_once(':') {
        Some((name, _)) if address.parse::<SocketAddr>().is_err() => format!("{name}:{}", local.port()),
        _ => local.to_string(),
    };
    Ok((listener, announced))
}

fn announce(address: &str) {
    use std::io::Write as _;
    let mut output = std::io::stdout();
    // Nobody reading is no reason to stop.
    let _ = writeln!(output, "listening {address}").and_then(|()| output.flush());
}

/// Removes the socket of a process that is gone; a live one stays, and listening fails.
async fn remove_stale(path: &std::path::Path) -> anyhow::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        bail!("{} exists and is no socket: choose another path", path.display());
    }
    if tokio::net::UnixStream::connect(path).await.is_ok() {
        bail!("another service listens on unix:{}: stop it or choose another path", path.display());
    }
    std::fs::remove_file(path).with_context(|| format!("cannot replace the stale socket {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_connections_are_told_of_now_and_then() {
        let (mut refused, start) = (Refused::default(), Instant::now());
        assert_eq!(refused.count(start), Some(1));
        for _ in 0..1000 {
            assert_eq!(refused.count(start + LOG_INTERVAL / 2), None);
        }
        assert_eq!(refused.count(start + LOG_INTERVAL), Some(1001));
    }

    #[test]
    fn names_and_addresses_can_be_listened_at() {
        for text in ["127.0.0.1:0", "[::1]:7401", "localhost:0", "node-7.cluster:7401", "unix:/tmp/x.sock"] {
            let listen: Listen = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(listen.to_string(), text);
        }
        for text in
            ["", "7401", ":7401", "host", "host:70000", "::1:7401", "http://host:7401", "a b:1", "unix:"]
        {
            let error = text.parse::<Listen>().expect_err(text);
            assert!(
                error.contains("write unix:PATH or HOST:PORT") || error.contains("write a path"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_port_that_was_free_is_announced() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            for (address, name) in [("127.0.0.1:0", "127.0.0.1"), ("localhost:0", "localhost")] {
                let (listener, announced) = bind(address, false).await.expect("listens");
                let port = listener.local_addr().expect("an address").port();
                assert_eq!(announced, format!("{name}:{port}"));
                assert!(port > 0);
            }
            let error = bind("0.0.0.0:0", false).await.expect_err("is open to others").to_string();
            assert!(error.contains("say --insecure"), "{error}");
            let error = bind("nobody.invalid:0", true).await.expect_err("has no address").to_string();
            assert!(error.contains("no address has this name"), "{error}");
        });
    }
}
