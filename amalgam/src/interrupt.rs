//! Ctrl-C and SIGTERM: the first ends the run after its step, a later one at once.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use tokio::signal::unix::{SignalKind, signal};

use crate::error::CommandError;
use amalgam_coordinator::Cancel;

/// Exit code of an interrupted run: 128 + SIGINT.
pub const EXIT_INTERRUPTED: u8 = 130;

/// Signals closer together than this are one: `timeout` signals a process and then its whole group.
const SAME_SIGNAL: Duration = Duration::from_millis(300);

/// Whether the run was asked to end.
#[derive(Clone)]
pub struct Interrupt(Arc<Inner>);

struct Inner {
    requested: OnceLock<Instant>,
    cancel: Cancel,
    at_end: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
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
        let inner = Inner { requested: OnceLock::new(), cancel: Cancel::new(), at_end: Mutex::default() };
        let this = Self(Arc::new(inner));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (mut interrupt, mut terminate) = {
            let _guard = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let listener = this.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
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
            // Somebody does not want to wait, or waits in vain for a step to end.
            if let Ok(mut at_end) = self.0.at_end.lock() {
                at_end.drain(..).for_each(|action| action());
            }
            std::process::exit(i32::from(EXIT_INTERRUPTED));
        }
        self.0.cancel.cancel();
    }

    /// What to do, too, if the process must end at once.
    pub fn at_end(&self, action: impl FnOnce() + Send + 'static) {
        if let Ok(mut at_end) = self.0.at_end.lock() {
            at_end.push(Box::new(action));
        }
    }

    /// Whether the run was asked to end.
    pub fn is_requested(&self) -> bool {
        self.0.requested.get().is_some()
    }

    /// What makes the coordinator stop waiting for connections.
    pub fn cancel(&self) -> &Cancel {
        &self.0.cancel
    }
}
