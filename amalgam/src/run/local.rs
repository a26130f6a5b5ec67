//! Solvers of a run: processes that it starts here or elsewhere, threads of its own, services of others.

use std::{
    fs::OpenOptions,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

use amalgam_network::{Access, Role, Token};
use amalgam_solver_kit::{log, serve_in_process};
use tempfile::TempDir;

use super::{
    Options,
    deployment::{Deployment, Placement, StartedBy},
};
use crate::{
    cli::{RanksOf, Transport},
    console::Console,
    error::CommandError,
    scene::{Participant, Scene, Served, SolverKind, suggest},
};
use amalgam_coordinator::{Address, ParticipantPlan, Registry};

/// Longest time from starting a solver until it listens.
pub const START_DEADLINE: Duration = Duration::from_secs(30);

/// Longest time from Shutdown until a solver's process has ended; then it is killed.
pub const END_DEADLINE: Duration = Duration::from_secs(5);

/// Longest path of a Unix socket [bytes]: `sun_path` less its zero.
const SOCKET_PATH_MAX: usize = 107;

/// Reasons for which a solver could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refused.
    #[error("cannot start the solver of `{participant}`: {error}")]
    System {
        /// Name of the participant.
        participant: String,
        /// The system's error.
        error: io::Error,
    },
    /// The process ended at once.
    #[error("the solver of `{participant}` ended before it listened: {status}")]
    Ended {
        /// Name of the participant.
        participant: String,
        /// Exit status of the process.
        status: String,
    },
    /// The process does not answer.
    #[error("the solver of `{participant}` did not listen within {} s", START_DEADLINE.as_secs())]
    Deadline {
        /// Name of the participant.
        participant: String,
    },
    /// Temporary files have too long a path.
    #[error(
        "the socket {} has a path of more than {SOCKET_PATH_MAX} bytes; set TMPDIR to a shorter folder, or use --transport tcp",
        path.display()
    )]
    SocketPath {
        /// The path.
        path: PathBuf,
    },
    /// An address that nobody can dial.
    #[error("the address of `{participant}`: {message}")]
    Address {
        /// Name of the participant.
        participant: String,
        /// Description of the fault.
        message: String,
    },
}

/// Means by which a run starts and reaches its solvers.
#[derive(Default)]
pub struct Means {
    /// Transport to solvers that the run starts on this machine.
    pub transport: Transport,
    /// Threads of each solver that the run starts; one per core by default.
    pub threads: Option<usize>,
    /// Ranks of the solvers that are cut among several.
    pub ranks: Vec<RanksOf>,
    /// Credentials for calls of services that others started.
    pub access: Access,
    /// Registry at which solvers register, if there is one.
    pub registry: Option<Registry>,
    /// Machines of solvers that are not started on this one.
    pub deployment: Deployment,
    /// The folder of the run, below which ranks on this machine may write their parts of frames and checkpoints.
    pub files: Option<PathBuf>,
}

impl Means {
    /// Means that the command line gives.
    ///
    /// # Errors
    /// A deployment file, certificates or a token that are wrong; a registry that cannot listen.
    pub(crate) fn new(scene: &Scene, options: &Options) -> Result<Self, CommandError> {
        let Options { transport, threads, reach, .. } = options;
        let mut deployment = match &reach.deployment {
            Some(file) => Deployment::read(file, scene)?,
            None => Deployment::default(),
        };
        let security = &mut deployment.security;
        security.tls = reach.security.tls.clone().or(security.tls.take());
        security.token_file = reach.security.token_file.clone().or(security.token_file.take());
        security.insecure |= reach.security.insecure;
        let wrong = |error: anyhow::Error| CommandError::Usage(format!("{error:#}"));
        let access = security.access(Role::Coordinator, Role::Solver).map_err(wrong)?;
        let registry = match &reach.registry {
            Some(listen) => {
                let gate = security.gate(Role::Coordinator, &[Role::Solver]).map_err(wrong)?;
                let names = scene.participants.iter().map(|p| (p.name.clone(), p.solver.clone()));
                let registry = Registry::start(listen, gate, names);
                Some(registry.map_err(|error| CommandError::Failed(error.to_string()))?)
            }
            None => None,
        };
        let ranks = reach.ranks.clone();
        for RanksOf { participant, .. } in &ranks {
            let names: Vec<String> = scene.participants.iter().map(|p| p.name.clone()).collect();
            if !names.contains(participant) {
                let help = suggest(participant, &names, "participants of the scene");
                return Err(CommandError::Usage(format!(
                    "--ranks: the scene has no participant `{participant}`; {help}"
                )));
            }
        }
        let (transport, threads) = (*transport, *threads);
        Ok(Self { transport, threads, ranks, access, registry, deployment, files: None })
    }

    /// Ranks of a participant's solver, if it is cut among several.
    fn ranks_of(&self, participant: &Participant) -> Option<usize> {
        let asked = self.ranks.iter().rfind(|ranks| ranks.participant == participant.name);
        let placed = || self.deployment.of(&participant.name).and_then(|placement| placement.ranks);
        asked.map(|ranks| ranks.ranks).or_else(|| placed().map(|ranks| ranks as usize))
    }

    /// Starter of a participant's solver, and its entry in the deployment file.
    fn placement(&self, participant: &Participant) -> (StartedBy, Option<&Placement>) {
        let placement = self.deployment.of(&participant.name);
        let by = match (&participant.served, placement) {
            (_, Some(placement)) => placement.started_by(),
            (Served::At(_), None) => StartedBy::Address,
            (Served::Registered, None) => StartedBy::Registry,
            (Served::Locally(_), None) if self.registry.is_some() && self.deployment.is_empty() => {
                StartedBy::Registry
            }
            (Served::Locally(_), None) => StartedBy::Local,
        };
        (by, placement)
    }
}

/// The solvers' processes. Dropping it kills and reaps the processes that still run, and removes the sockets.
pub struct Locals {
    children: Arc<Mutex<Vec<(String, Child)>>>,
    files: Option<TempDir>,
    means: Means,
    /// Token that solvers on this machine ask for if they listen at TCP, where other users can reach them.
    token: Option<Token>,
    console: Console,
}

impl Locals {
    /// Starts the solver of every participant that the run is to start, and returns where each participant
    /// is.
    ///
    /// # Errors
    /// The first solver that does not come up; those that did are ended.
    pub fn start(
        scene: &Scene,
        means: Means,
        console: &Console,
    ) -> Result<(Self, Vec<ParticipantPlan>), StartError> {
        let (children, console) = (Arc::default(), console.clone());
        let mut locals = Self { children, files: None, means, token: None, console };
        let mut waiting = Vec::new();
        for (index, participant) in scene.participants.iter().enumerate() {
            waiting.push((participant, locals.begin(index, participant)?));
        }
        let deadline = Instant::now() + START_DEADLINE;
        let plan = |(participant, start): (&Participant, Started)| {
            let address = match start {
                Started::Ready(address) => address,
                Started::Process(listening) => locals.wait(participant, &listening, deadline)?,
            };
            let (name, solver) = (participant.name.clone(), participant.solver.clone());
            let (section, access) = (participant.section.clone(), locals.access(participant));
            let elastic = solver != SolverKind::Fluid.name();
            Ok(ParticipantPlan { name, solver, elastic, section, address, access, wait: Duration::ZERO })
        };
        let plans = waiting.into_iter().map(plan).collect::<Result<Vec<_>, StartError>>()?;
        Ok((locals, plans))
    }

    /// Starts a solver, or finds where somebody else started it.
    fn begin(&mut self, index: usize, participant: &Participant) -> Result<Started, StartError> {
        let wrong = |message: &str| StartError::Address {
            participant: participant.name.clone(),
            message: message.to_string(),
        };
        let (by, placement) = self.means.placement(participant);
        Ok(match (by, &participant.served) {
            (StartedBy::Address, served) => {
                let address = placement.and_then(|placement| placement.address.as_ref());
                let Some(address) =
                    address.or(if let Served::At(address) = served { Some(address) } else { None })
                else {
                    return Err(wrong("there is none"));
                };
                Started::Ready(address_of(participant, address)?)
            }
            (StartedBy::Registry, _) => {
                let Some(registry) = &self.means.registry else {
                    return Err(wrong(
                        "its solver registers itself: let the run listen for it with --registry HOST:PORT",
                    ));
                };
                Started::Ready(Address::Registered(registry.clone(), participant.name.clone()))
            }
            (StartedBy::Local, Served::Locally(kind)) if self.means.transport == Transport::InProcess => {
                let threads = self.means.threads.unwrap_or_else(rayon::current_num_threads);
                let ranks = self.means.ranks_of(participant).unwrap_or(1);
                let service = serve_in_process(
                    kind.program(),
                    (threads / ranks).max(1),
                    ranks,
                    self.means.files.clone(),
                );
                let system = |error| StartError::System { participant: participant.name.clone(), error };
                Started::Ready(Address::InProcess(service.map_err(system)?))
            }
            (StartedBy::Local, Served::At(_) | Served::Registered) => {
                return Err(wrong(
                    "the scene says that it is served elsewhere: leave its `address` out to start its solver here",
                ));
            }
            (StartedBy::Local | StartedBy::Ssh | StartedBy::Slurm, _) => {
                Started::Process(self.spawn(index, participant)?)
            }
        })
    }

    /// Credentials for calls of a participant's service.
    fn access(&self, participant: &Participant) -> Access {
        match self.means.placement(participant).0 {
            StartedBy::Local => self.token.clone().map(Access::with_token).unwrap_or_default(),
            _ => self.means.access.clone(),
        }
    }

    /// True if somebody else starts the solver of a participant.
    pub(super) fn is_of_others(&self, participant: &Participant) -> bool {
        matches!(self.means.placement(participant).0, StartedBy::Address | StartedBy::Registry)
    }

    /// Says where the registry listens, if there is one: its port may have been any free one.
    pub(super) fn tell_where_to_register(&self, tell: &dyn Fn(&str)) {
        if let Some(registry) = &self.means.registry {
            tell(&format!("solvers register at {}", registry.address()));
        }
    }

    /// Starts a new process for each that has ended. The process of participant `lost` is ended first, if
    /// there is one here. Returns the names of their participants.
    ///
    /// # Errors
    /// The first solver that does not come up.
    pub fn restart(
        &mut self,
        scene: &Scene,
        plans: &mut [ParticipantPlan],
        lost: &str,
    ) -> Result<Vec<String>, StartError> {
        let ended = self.take_ended(lost);
        for (index, (participant, plan)) in scene.participants.iter().zip(plans).enumerate() {
            if ended.contains(&participant.name) {
                let listening = self.spawn(index, participant)?;
                plan.address = self.wait(participant, &listening, Instant::now() + START_DEADLINE)?;
            }
        }
        Ok(ended)
    }

    /// Forgets the processes that have ended and that of `lost`, and returns whose they were.
    fn take_ended(&self, lost: &str) -> Vec<String> {
        let has_ended = |(name, child): &mut (String, Child)| {
            if name == lost {
                // Killing fails only for a process that has ended.
                let _ = child.kill();
                let _ = child.wait();
            }
            matches!(child.try_wait(), Ok(Some(_)))
        };
        self.lock().extract_if(.., has_ended).map(|(name, _)| name).collect()
    }

    /// The folder of sockets and of the token.
    fn folder(&mut self) -> io::Result<PathBuf> {
        if self.files.is_none() {
            self.files = Some(tempfile::Builder::new().prefix("amalgam-").tempdir()?);
        }
        Ok(self.files.as_ref().map(|folder| folder.path().to_path_buf()).unwrap_or_default())
    }

    /// Arguments for a process on this machine: where to listen, and for whom.
    fn listen(&mut self, index: usize, participant: &Participant) -> Result<Vec<String>, StartError> {
        let system = |error| StartError::System { participant: participant.name.clone(), error };
        let folder = self.folder().map_err(system)?;
        if self.means.transport == Transport::Tcp {
            let file = folder.join("token");
            if self.token.is_none() {
                let token = Token::random().map_err(system)?;
                write_private(&file, token.word()).map_err(system)?;
                self.token = Some(token);
            }
            let file = file.display().to_string();
            return Ok(vec!["--listen".into(), "127.0.0.1:0".into(), "--token-file".into(), file]);
        }
        let path = folder.join(format!("{index}.sock"));
        if path.as_os_str().as_bytes().len() > SOCKET_PATH_MAX {
            return Err(StartError::SocketPath { path });
        }
        Ok(vec!["--listen".into(), format!("unix:{}", path.display())])
    }

    /// The command that starts the solver of a participant, here or elsewhere.
    fn command(&mut self, index: usize, participant: &Participant) -> Result<Command, StartError> {
        let (by, placement) = self.means.placement(participant);
        let threads = placement.and_then(|placement| placement.threads).map(|threads| threads as usize);
        let threads = threads.or(self.means.threads);
        if by != StartedBy::Local
            && let Some(placement) = placement
        {
            let workers = (threads, self.means.ranks_of(participant));
            let words = placement.command(&participant.solver, workers, &self.means.deployment.security);
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            return Ok(command);
        }
        let listen = self.listen(index, participant)?;
        let system = |error| StartError::System { participant: participant.name.clone(), error };
        let program = std::env::current_exe().map_err(system)?;
        let placement = self.means.placement(participant).1;
        let mpirun = placement.map(Placement::mpirun).unwrap_or_default();
        let mut command = match mpirun.split_first() {
            Some((mpirun, options)) => {
                let mut command = Command::new(mpirun);
                command.args(options).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.args(["serve", &participant.solver]).args(listen).arg("--exit-with-stdin");
        if log::is_json() {
            command.args(["--log-format", "json"]);
        }
        if let Some(threads) = threads {
            command.args(["--threads", &threads.to_string()]);
        }
        if let Some(folder) = &self.means.files {
            command.arg("--files").arg(folder);
        }
        match self.means.ranks_of(participant) {
            _ if !mpirun.is_empty() => {
                command.args(["--ranks", "mpi"]);
            }
            Some(ranks) => {
                command.args(["--ranks", &ranks.to_string()]);
            }
            None => {}
        }
        Ok(command)
    }

    /// Starts a process. It ends when its standard input does, so that it ends even if this process is
    /// killed. The same holds for a process that ssh or Slurm starts elsewhere.
    fn spawn(
        &mut self,
        index: usize,
        participant: &Participant,
    ) -> Result<mpsc::Receiver<String>, StartError> {
        let mut command = self.command(index, participant)?;
        let system = |error| StartError::System { participant: participant.name.clone(), error };
        // A process group of its own: Ctrl-C reaches only the run, which then ends its solvers in order.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(system)?;
        let (sender, listening) = mpsc::channel();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        self.lock().push((participant.name.clone(), child));
        let (name, to) = (participant.name.clone(), self.console.clone());
        relay(stdout, move |line| match line.strip_prefix("listening ") {
            // Sending fails only if the run was given up.
            Some(address) => drop(sender.send(address.to_string())),
            None => to.line_of(&name, line),
        })
        .map_err(system)?;
        let (name, to) = (participant.name.clone(), self.console.clone());
        relay(stderr, move |line| to.line_of(&name, line)).map_err(system)?;
        Ok(listening)
    }

    fn wait(
        &self,
        participant: &Participant,
        listening: &mpsc::Receiver<String>,
        deadline: Instant,
    ) -> Result<Address, StartError> {
        let name = &participant.name;
        match listening.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(address) => {
                let placement = self.means.deployment.of(name);
                let address = placement.map_or(address.clone(), |placement| placement.reached_at(&address));
                address_of(participant, &address)
            }
            Err(mpsc::RecvTimeoutError::Timeout) => Err(StartError::Deadline { participant: name.clone() }),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                self.wait_for_end(Duration::from_secs(1));
                let status = self.ended().into_iter().find(|(ended, _)| ended == name);
                let status =
                    status.map_or("it closed its output".to_string(), |(_, status)| status.to_string());
                Err(StartError::Ended { participant: name.clone(), status })
            }
        }
    }

    /// Participants whose process has ended, and how.
    pub fn ended(&self) -> Vec<(String, ExitStatus)> {
        let mut children = self.lock();
        let ended = |(name, child): &mut (String, Child)| {
            let status = child.try_wait().ok().flatten()?;
            Some((name.clone(), status))
        };
        children.iter_mut().filter_map(ended).collect()
    }

    /// Lets the processes end in order: closes their standard input and waits, at most [`END_DEADLINE`].
    /// Reports the ones that have not ended by then.
    pub fn end(&self) {
        for (_, child) in self.lock().iter_mut() {
            drop(child.stdin.take());
        }
        self.wait_for_end(END_DEADLINE);
        let ended: Vec<String> = self.ended().into_iter().map(|(name, _)| name).collect();
        for (name, _) in self.lock().iter().filter(|(name, _)| !ended.contains(name)) {
            let seconds = END_DEADLINE.as_secs();
            self.console
                .line(&format!("warning: the solver of {name} did not end within {seconds} s and is killed"));
        }
    }

    /// Waits until all processes have ended, at most `longest`.
    fn wait_for_end(&self, longest: Duration) {
        let deadline = Instant::now() + longest;
        while self.ended().len() < self.lock().len() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends everything at once, for when the process ends without unwinding.
    pub fn ender(&self) -> impl FnOnce() + Send + use<> {
        let children = Arc::clone(&self.children);
        let folder = self.files.as_ref().map(|folder| folder.path().to_path_buf());
        move || {
            kill(&children);
            if let Some(folder) = folder {
                // The process ends, so nobody could act on a failure to remove the folder.
                let _ = std::fs::remove_dir_all(folder);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(String, Child)>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Locals {
    fn drop(&mut self) {
        kill(&self.children);
    }
}

fn kill(children: &Mutex<Vec<(String, Child)>>) {
    let mut children = children.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, child) in children.iter_mut() {
        // Killing fails only for a process that has ended.
        let _ = child.kill();
    }
    for (_, child) in children.iter_mut() {
        let _ = child.wait();
    }
}

/// Writes a file that only its owner can read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

enum Started {
    Ready(Address),
    Process(mpsc::Receiver<String>),
}

fn address_of(participant: &Participant, address: &str) -> Result<Address, StartError> {
    Address::parse(address).map_err(|error| StartError::Address {
        participant: participant.name.clone(),
        message: error.to_string(),
    })
}

/// Calls `each` with every line, on a thread that ends with the stream.
fn relay<R: Read + Send + 'static>(
    stream: Option<R>,
    mut each: impl FnMut(&str) + Send + 'static,
) -> io::Result<()> {
    let Some(stream) = stream else { return Ok(()) };
    std::thread::Builder::new().name("relay".into()).spawn(move || {
        for line in BufReader::new(stream).split(b'\n') {
            let Ok(line) = line else { break };
            each(String::from_utf8_lossy(&line).trim_end());
        }
    })?;
    Ok(())
}

impl From<StartError> for CommandError {
    fn from(error: StartError) -> Self {
        Self::Failed(error.to_string())
    }
}
