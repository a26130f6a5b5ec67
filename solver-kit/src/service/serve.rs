//! Serving a solver: admission, health, reflection, registration and an orderly end.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use amalgam_network::{Gate, Line, Lines, Listen, Listening, Role, SecurityOptions, listen, through};
use amalgam_particles::text::wall_time;
use amalgam_proto::{DESCRIPTORS, TransportLimits};
use amalgam_ranks::Ranks;
use anyhow::{Context as _, anyhow, bail};
use futures_util::StreamExt as _;
use tokio::io::{AsyncReadExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::server::NamedService as _;
use tonic::service::{InterceptorLayer, Routes};

use crate::log::{LogFormat, log_to_standard_error};
use crate::service::rank_choice::RankChoice;
use crate::service::register::{Registration, register};
use crate::service::{Service, Serving, follow};
use crate::solver::SolverProgram;

/// Roles that may call a solver.
const CALLERS: &[Role] = &[Role::Coordinator];

/// Arguments of every solver's program.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeOptions {
    /// Address to listen at: unix:PATH or HOST:PORT, port 0 for any free one.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Listen,
    /// Threads for physics of all ranks of this process; results do not depend on it [default: one per core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Cut the particles among N ranks, each with its own threads and memory, or among the processes that
    /// mpirun started; results do not depend on it [default: 1].
    #[arg(long, value_name = "N|mpi")]
    pub ranks: Option<RankChoice>,
    /// Let ranks write their parts of frames and checkpoints below this folder, if the run's folder is there:
    /// then they do not pass the first rank and the coordinator, which must see the same folder at the same path.
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// End when standard input does, so that the service does not outlive who started it.
    #[arg(long)]
    pub exit_with_stdin: bool,
    /// End when a run was left in the middle and no coordinator has been connected for this long: 90s, 10m,
    /// 2h.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = wall_time)]
    pub orphan_timeout: Duration,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the help says it")]
    pub security: SecurityOptions,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the help says it")]
    pub registration: Registration,
    /// Format of the log on standard error; AMALGAM_LOG or RUST_LOG says what is logged.
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

/// Serves a solver until SIGTERM, SIGINT or (if asked for) the end of standard input. Prints `listening
/// ADDRESS` on standard output once connections are accepted. A call in progress is finished first.
///
/// # Errors
/// If the address cannot be listened on, or is beyond loopback without certificates and without `insecure`;
/// if certificates or a token cannot be used; and at the orphan timeout.
pub fn serve(program: Arc<dyn SolverProgram>, options: ServeOptions) -> anyhow::Result<()> {
    let gate = options.security.gate(Role::Solver, CALLERS)?;
    let registration = options.registration.plan(&options.security)?;
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.map_or_else(all, |threads| threads as usize);
    let description = program.describe();
    let ranks = options.ranks.unwrap_or_default().ranks()?;
    let threads = (threads / ranks.len()).max(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // MPI ends with the thread that began it: this one.
    let first = ranks[0].clone();
    if !first.is_first() {
        // The first rank decides when the service ends. A signal to all processes is meant for the first
        // rank.
        let _deaf = runtime.block_on(async { end_of_service(false) })?;
        follow(&program, threads, &first, options.files);
        return Ok(());
    }
    let (service, solver) = Service::start(program, threads, ranks, options.files)
        .context("the solver's threads could not be started")?;
    let served = runtime.block_on(async {
        let end = end_of_service(options.exit_with_stdin)?;
        let listening = listen(&options.listen, &gate).await?;
        let (serving, lines) = (service.serving(), listening.lines.clone());
        let orphan = OnceLock::new();
        let end = async {
            tokio::select! {
                () = end => {}
                run_id = orphaned(&serving, &lines, options.orphan_timeout) => {
                    orphan.set(run_id).expect("it ends once");
                }
            }
        };
        if let Some(plan) = registration {
            tokio::spawn(register(plan, description, listening.address.clone()));
        }
        serve_routes(listening, &gate, solver_routes(service).await?, end).await?;
        if let Some(run_id) = orphan.get() {
            let seconds = options.orphan_timeout.as_secs_f64();
            bail!("run {run_id} was left in the middle, and no coordinator came for {seconds} s (--orphan-timeout)");
        }
        Ok(())
    });
    // Standard input may still be read by a blocking thread that nothing can wake.
    runtime.shutdown_background();
    if !first.is_alone() {
        // The end of the first rank's service tells the other ranks to end.
        solver.join().map_err(|_| anyhow!("the solver panicked"))?;
    }
    served
}

/// Serves calls where a service listens, until `end`, with the limits that every service has. Prints
/// `listening ADDRESS` on standard output at first. Calls in progress are finished first.
///
/// # Errors
/// The system's error.
pub async fn serve_routes(
    listening: Listening,
    gate: &Gate,
    routes: Routes,
    end: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let Listening { address, incoming, socket, .. } = listening;
    announce(&address);
    let served = run(routes, incoming, gate, end).await;
    drop(socket);
    served
}

/// Adds the standard calls of every service: health, of the service of this name, and reflection.
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
    with_health_and_reflection(Routes::new(service), Service::NAME, DESCRIPTORS).await
}

/// Serves a solver inside this process, cut among `ranks` of `threads` threads each, which may write files below
/// a folder: a connection is a pipe sent into the returned queue. The service ends when the queue's senders and
/// its connections are gone.
///
/// # Errors
/// If threads cannot be started.
pub fn serve_in_process(
    program: Arc<dyn SolverProgram>,
    threads: usize,
    ranks: usize,
    files: Option<PathBuf>,
) -> std::io::Result<mpsc::Sender<DuplexStream>> {
    let (connections, inbox) = mpsc::channel(4);
    let (service, _) = Service::start(program, threads, Ranks::threads(ranks), files)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("solver-io".into()).spawn(move || {
        let served = runtime.block_on(async {
            let (incoming, _) = through(ReceiverStream::new(inbox).map(Ok::<_, std::io::Error>), None);
            run(solver_routes(service).await?, incoming, &Gate::default(), std::future::pending()).await
        });
        if let Err(error) = served {
            tracing::error!(%error, "in-process service");
        }
    })?;
    Ok(connections)
}

async fn run(
    routes: Routes,
    incoming: ReceiverStream<std::io::Result<Line>>,
    gate: &Gate,
    end: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    tonic::transport::Server::builder()
        .initial_stream_window_size(TransportLimits::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(TransportLimits::CONNECTION_WINDOW_BYTES)
        .max_frame_size(TransportLimits::FRAME_BYTES)
        .max_concurrent_streams(TransportLimits::STREAMS_MAX)
        .http2_max_header_list_size(TransportLimits::HEADER_LIST_BYTES)
        .layer(InterceptorLayer::new(gate.checks()))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, end)
        .await
        .context("the service failed")
}

/// Waits until no coordinator has been connected for `longest` while a run is served. Returns the run.
async fn orphaned(serving: &Serving, lines: &Lines, longest: Duration) -> String {
    let mut alone_since = None;
    loop {
        let run = serving
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(|(run, _)| run.run_id.clone());
        match run.filter(|_| lines.count() == 0) {
            None => alone_since = None,
            Some(run_id) if alone_since.get_or_insert_with(Instant::now).elapsed() >= longest => {
                return run_id;
            }
            Some(_) => (),
        }
        tokio::time::sleep((longest / 10).min(ORPHAN_INTERVAL)).await;
    }
}

/// Longest time between two looks whether anybody is connected.
const ORPHAN_INTERVAL: Duration = Duration::from_secs(1);

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

fn announce(address: &str) {
    use std::io::Write as _;
    let mut output = std::io::stdout();
    // A closed standard output is no reason to stop.
    let _ = writeln!(output, "listening {address}").and_then(|()| output.flush());
}
