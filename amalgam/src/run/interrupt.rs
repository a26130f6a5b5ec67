//! Ctrl-C, SIGTERM and SIGHUP: the first ends the run after its step, a later one at once.

use std::{
    fs, io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    error::{CommandError, ending::EXIT_INTERRUPTED},
    run::control::Control,
};

/// Signals closer together than this are one: `timeout` signals a process and then its whole group.
const SAME_SIGNAL: Duration = Duration::from_millis(300);

/// Signals to this process, as a request to end the run.
#[derive(Clone)]
pub struct Interrupt(Arc<Signals>);

struct Signals {
    requested: OnceLock<Instant>,
    control: Control,
    hung_up: AtomicBool,
}

impl Interrupt {
    /// Listens for signals from now on.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn listen() -> Result<Self, CommandError> {
        let failed = |error| CommandError::Failed(format!("cannot listen for signals: {error}"));
        Self::install().map_err(failed)
    }

    fn install() -> io::Result<Self> {
        let inner = Signals {
            requested: OnceLock::new(),
            control: Control::default(),
            hung_up: AtomicBool::new(false),
        };
        let this = Self(Arc::new(inner));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut interrupt, mut terminate, mut hangup) = {
            let _guard = runtime.enter();
            let hangup = hangup_ends().then(|| signal(SignalKind::hangup())).transpose()?;
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, hangup)
        };
        let listener = this.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                        () = hung_up(&mut hangup) => listener.0.hung_up.store(true, Ordering::Relaxed),
                    }
                    listener.signalled();
                }
            });
        })?;
        Ok(this)
    }

    fn signalled(&self) {
        let first = *self.0.requested.get_or_init(Instant::now);
        if first.elapsed() > SAME_SIGNAL {
            // The user does not want to wait, or a step does not end.
            self.0.control.end();
            std::process::exit(i32::from(EXIT_INTERRUPTED));
        }
        self.0.control.stop();
    }

    /// True if the run was asked to end.
    pub fn is_requested(&self) -> bool {
        self.0.requested.get().is_some()
    }

    /// Waits for the first signal.
    pub fn wait(&self) {
        self.0.requested.wait();
    }

    /// True if the terminal was closed: nobody reads what is printed.
    pub fn is_hung_up(&self) -> bool {
        self.0.hung_up.load(Ordering::Relaxed)
    }

    /// Handle of the runs, which the first signal ends.
    pub fn control(&self) -> &Control {
        &self.0.control
    }
}

/// Waits until the terminal is closed; for ever if SIGHUP does not end this process.
async fn hung_up(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}

/// True if SIGHUP ends this process. `nohup` makes a process ignore it. Where the system does not tell, the
/// signal's handling at the start of the process is kept.
fn hangup_ends() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The first bit is signal 1, SIGHUP.
    ignored.is_some_and(|mask| mask & 1 == 0)
}
