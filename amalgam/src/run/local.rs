//! Solvers that a run starts itself: processes of this same program, or threads of this one.

use std::{
    io::{self, BufRead, BufReader, Read},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

use amalgam_solver_kit::{log, serve_in_process};
use tempfile::TempDir;

use crate::{
    console::Console,
    error::CommandError,
    scene::{Participant, Scene, Served, SolverKind},
};
use amalgam_coordinator::{Address, ParticipantPlan};

/// Longest time from starting a solver until it listens.
pub const START_DEADLINE: Duration = Duration::from_secs(30);

/// Longest time from Shutdown until a solver's process has ended; then it is killed.
pub const END_DEADLINE: Duration = Duration::from_secs(5);

/// Longest path of a Unix socket [bytes]: `sun_path` less its zero.
const SOCKET_PATH_MAX: usize = 107;

/// What carries the messages between coordinator and solvers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    /// A process per solver, Unix sockets.
    Unix,
    /// A process per solver, TCP on the loopback interface.
    Tcp,
    /// Threads of one process, no sockets.
    InProcess,
}

/// Why a solver could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refused.
    #[error("cannot start the solver of `{participant}`: {error}")]
    System {
        /// Whose solver.
        participant: String,
        /// Why.
        error: io::Error,
    },
    /// The process ended at once.
    #[error("the solver of `{participant}` ended before it listened: {status}")]
    Ended {
        /// Whose solver.
        participant: String,
        /// How.
        status: String,
    },
    /// The process does not answer.
    #[error("the solver of `{participant}` did not listen within {} s", START_DEADLINE.as_secs())]
    Deadline {
        /// Whose solver.
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
        /// Whose.
        participant: String,
        /// What is wrong.
        message: String,
    },
}

/// The solvers' processes. Dropping it kills and reaps what still runs, and removes the sockets.
pub struct Locals {
    children: Arc<Mutex<Vec<(String, Child)>>>,
    sockets: Option<TempDir>,
    transport: Transport,
    threads: Option<usize>,
    console: Console,
}

impl Locals {
    /// Starts a solver for every participant without an address, and says where each participant is.
    ///
    /// # Errors
    /// The first solver that does not come up; those that did are ended.
    pub fn start(
        scene: &Scene,
        transport: Transport,
        threads: Option<usize>,
        console: &Console,
    ) -> Result<(Self, Vec<ParticipantPlan>), StartError> {
        let (children, console) = (Arc::default(), console.clone());
        let mut locals = Self { children, sockets: None, transport, threads, console };
        let mut waiting = Vec::new();
        for (index, participant) in scene.participants.iter().enumerate() {
            let start = match &participant.served {
                Served::At(address) => Started::Ready(address_of(participant, address)?),
                Served::Locally(kind) if transport == Transport::InProcess => {
                    let threads = threads.unwrap_or_else(rayon::current_num_threads);
                    let service = serve_in_process(kind.program(), threads);
                    let system = |error| StartError::System { participant: participant.name.clone(), error };
                    Started::Ready(Address::InProcess(service.map_err(system)?))
                }
                Served::Locally(kind) => Started::Process(locals.spawn(index, participant, *kind)?),
            };
            waiting.push((participant, start));
        }
        let deadline = Instant::now() + START_DEADLINE;
        let plan = |(participant, start): (&Participant, Started)| {
            let address = match start {
                Started::Ready(address) => address,
                Started::Process(listening) => locals.wait(participant, &listening, deadline)?,
            };
            let (name, solver) = (participant.name.clone(), participant.solver.clone());
            let section = participant.section.clone();
            Ok(ParticipantPlan { name, solver, section, address, wait: Duration::ZERO })
        };
        let plans = waiting.into_iter().map(plan).collect::<Result<Vec<_>, StartError>>()?;
        Ok((locals, plans))
    }

    /// Starts a process anew for each that has ended; that of participant `lost` is ended first, if it has one here. Says which
    /// were started.
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
            if let Served::Locally(kind) = &participant.served
                && ended.contains(&participant.name)
            {
                let listening = self.spawn(index, participant, *kind)?;
                plan.address = self.wait(participant, &listening, Instant::now() + START_DEADLINE)?;
            }
        }
        Ok(ended)
    }

    /// Forgets the processes that have ended, that of `lost` among them, and says whose they were.
    fn take_ended(&self, lost: &str) -> Vec<String> {
        let has_ended = |(name, child): &mut (String, Child)| {
            if name == lost {
                // Fails only for a process that has ended.
                let _ = child.kill();
                let _ = child.wait();
            }
            matches!(child.try_wait(), Ok(Some(_)))
        };
        self.lock().extract_if(.., has_ended).map(|(name, _)| name).collect()
    }

    /// What a process is told to listen at.
    fn listen(&mut self, index: usize, participant: &Participant) -> Result<String, StartError> {
        if self.transport == Transport::Tcp {
            return Ok("127.0.0.1:0".to_string());
        }
        let system = |error| StartError::System { participant: participant.name.clone(), error };
        if self.sockets.is_none() {
            self.sockets = Some(tempfile::Builder::new().prefix("amalgam-").tempdir().map_err(system)?);
        }
        let folder = self.sockets.as_ref().map(|folder| folder.path().to_path_buf()).unwrap_or_default();
        let path = folder.join(format!("{index}.sock"));
        if path.as_os_str().as_bytes().len() > SOCKET_PATH_MAX {
            return Err(StartError::SocketPath { path });
        }
        Ok(format!("unix:{}", path.display()))
    }

    /// Starts a process. It ends when its standard input does, so not even killing this process leaves it behind.
    fn spawn(
        &mut self,
        index: usize,
        participant: &Participant,
        kind: SolverKind,
    ) -> Result<mpsc::Receiver<String>, StartError> {
        let listen = self.listen(index, participant)?;
        let system = |error| StartError::System { participant: participant.name.clone(), error };
        let mut command = Command::new(std::env::current_exe().map_err(system)?);
        command.args(["serve", kind.name(), "--listen", &listen, "--exit-with-stdin"]);
        if log::is_json() {
            command.args(["--log-format", "json"]);
        }
        if let Some(threads) = self.threads {
            command.args(["--threads", &threads.to_string()]);
        }
        // A process group of its own: Ctrl-C is for the run, which then ends its solvers in order.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(system)?;
        let (sender, listening) = mpsc::channel();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        self.lock().push((participant.name.clone(), child));
        let (name, to) = (participant.name.clone(), self.console.clone());
        relay(stdout, move |line| match line.strip_prefix("listening ") {
            // Nobody waits any more if the run has been given up.
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
            Ok(address) => address_of(participant, &address),
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

    /// Lets the processes end in order: closes their standard input and waits, at most [`END_DEADLINE`]. Says who has not
    /// ended by then.
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
        let folder = self.sockets.as_ref().map(|folder| folder.path().to_path_buf());
        move || {
            kill(&children);
            if let Some(folder) = folder {
                // The process ends: whatever keeps the folder from being removed, nobody can act on it.
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
        // Fails only for a process that has ended.
        let _ = child.kill();
    }
    for (_, child) in children.iter_mut() {
        let _ = child.wait();
    }
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
