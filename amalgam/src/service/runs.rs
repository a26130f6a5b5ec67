//! The runs of a service: those that wait, those that are computed, and those that are over.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use amalgam_proto::coordinator::{self as v1, follow_response::Event};
use tokio::sync::broadcast;
use tonic::Status;

use super::{
    feed::{EVENTS_MAX, Feed, Sender, event},
    incoming::{Incoming, Submission},
    record::{RESULTS, Record, SUBMITTED, State},
};
use crate::{
    checkpoint::Store,
    cli::Reach,
    console::{self, Console},
    error::{CommandError, ending::Ending},
    folder::{Folder, OutputError, SCENE, lock::Lock},
    observers::Watch,
    run::{
        Outcome, Run,
        control::Control,
        metrics::{Metrics, RunMetrics},
    },
    scene::Scene,
};

/// Largest numbers of runs.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Runs at once.
    pub running: usize,
    /// Runs that wait.
    pub queued: usize,
    /// Runs in whatever state.
    pub stored: usize,
}

/// All runs of a service.
pub struct Runs {
    folder: PathBuf,
    limits: Limits,
    threads: Option<usize>,
    reach: Reach,
    metrics: Metrics,
    inner: Mutex<RunTable>,
    /// Signals that a run has ended.
    ended: Condvar,
    _lock: Lock,
}

#[derive(Default)]
struct RunTable {
    /// Runs, in the order in which they were submitted.
    entries: Vec<Entry>,
    /// Number of the next run in the queue.
    ticket: u64,
    is_ending: bool,
}

struct Entry {
    record: Record,
    control: Control,
    is_paused: bool,
    /// Its place in the queue.
    ticket: u64,
    feed: Sender,
    metrics: Option<RunMetrics>,
}

impl Entry {
    fn new(record: Record) -> Self {
        let (control, feed) = (Control::default(), broadcast::Sender::new(EVENTS_MAX));
        Self { record, control, is_paused: false, ticket: 0, feed, metrics: None }
    }

    fn to_wire(&self) -> v1::Run {
        self.record.to_wire(self.is_paused)
    }

    /// Tells followers of the state.
    fn tell(&self) {
        let _ = self.feed.send(event(Event::Run(self.to_wire())));
    }
}

impl RunTable {
    fn entry(&mut self, id: &str) -> Result<&mut Entry, Status> {
        let found = self.entries.iter_mut().find(|entry| entry.record.id == id);
        let shown = amalgam_particles::text::shorten(id);
        found.ok_or_else(|| Status::not_found(format!("there is no run {shown:?}")))
    }

    fn count(&self, state: State) -> usize {
        self.entries.iter().filter(|entry| entry.record.state == state).count()
    }
}

fn refused(id: &str, state: State, what: &str) -> Status {
    let is = match state {
        State::Queued => "waits for others to end",
        State::Running => "is being computed",
        State::Finished => "is finished",
        State::Stopped => "is stopped",
        State::Failed => "has failed",
    };
    Status::failed_precondition(format!("run {id} {is}: {what}"))
}

impl Runs {
    /// The runs that a folder holds; the folder is made if it does not exist. Runs that were computed or
    /// queued when an earlier service ended count as stopped.
    ///
    /// # Errors
    /// A folder that cannot be used, or that another service uses.
    pub fn open(
        folder: &Path,
        limits: Limits,
        threads: Option<usize>,
        reach: Reach,
        metrics: Metrics,
    ) -> Result<Arc<Self>, CommandError> {
        let wrong = |error: io::Error| {
            CommandError::Usage(format!("runs cannot be kept in {}: {error}", folder.display()))
        };
        fs::create_dir_all(folder).map_err(wrong)?;
        let folder = folder.canonicalize().map_err(wrong)?;
        let lock = Lock::take(&folder).map_err(|error| match error {
            OutputError::InUse { .. } => CommandError::Usage(format!(
                "another service keeps its runs in {}: choose another folder with --dir",
                folder.display()
            )),
            other => CommandError::Failed(other.to_string()),
        })?;
        let mut records = Vec::new();
        for entry in fs::read_dir(&folder).map_err(wrong)? {
            let path = entry.map_err(wrong)?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".incoming-")) {
                fs::remove_dir_all(&path).map_err(wrong)?;
            } else if path.is_dir() {
                let record = Record::read(&path);
                let record = record.map_err(|error| {
                    CommandError::Usage(format!("{} holds no run of a service: {error}", path.display()))
                })?;
                records.push(record);
            }
        }
        records.sort_by_key(|record| record.number);
        for record in records.iter_mut().filter(|record| !record.state.is_over()) {
            record.state = State::Stopped;
            record.write(&folder.join(&record.id)).map_err(wrong)?;
        }
        let inner =
            RunTable { entries: records.into_iter().map(Entry::new).collect(), ..RunTable::default() };
        let (inner, ended) = (Mutex::new(inner), Condvar::new());
        Ok(Arc::new(Self { folder, limits, threads, reach, metrics, inner, ended, _lock: lock }))
    }

    /// Begins to receive a scene.
    pub(super) fn receive(&self) -> Result<Incoming, Status> {
        // Refused early, so that nothing is sent in vain.
        self.check_room(&self.lock())?;
        Incoming::begin(&self.folder)
    }

    fn check_room(&self, inner: &RunTable) -> Result<(), Status> {
        let Limits { queued, stored, running } = self.limits;
        let full = |what: String| Err(Status::resource_exhausted(what));
        match () {
            () if inner.is_ending => Err(Status::unavailable("the service is about to end")),
            () if inner.entries.len() >= stored => full(format!(
                "{stored} runs are kept, which is the most (--stored): remove some that are over"
            )),
            () if inner.count(State::Queued) >= queued && inner.count(State::Running) >= running => {
                full(format!("{queued} runs wait, which is the most (--queued): submit it later"))
            }
            () => Ok(()),
        }
    }

    /// Makes a run of a submission.
    pub(super) fn submit(self: &Arc<Self>, submission: Submission) -> Result<v1::Run, Status> {
        let mut inner = self.lock();
        let id = self.check_room(&inner).and_then(|()| {
            let number = inner.entries.iter().map(|entry| entry.record.number).max().unwrap_or(0) + 1;
            let id = format!("{}-{number}", submission.name);
            let record = Record {
                id: id.clone(),
                number,
                scene: submission.name.clone(),
                state: State::Queued,
                steps: 0,
                time: 0.0,
                duration: submission.duration,
                submitted: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
                error: String::new(),
                state_hash: String::new(),
                wanted: submission.wanted,
            };
            let written = record.write(&submission.folder);
            let kept = written.and_then(|()| fs::rename(&submission.folder, self.folder.join(&id)));
            kept.map_err(|error| Status::internal(format!("the run cannot be kept: {error}")))?;
            inner.entries.push(Entry::new(record));
            Ok(id)
        });
        let id = id.inspect_err(|_| {
            // The submission did not become a run. Files that stay are removed at the next start of the
            // service.
            let _ = fs::remove_dir_all(&submission.folder);
        })?;
        self.enqueue(&mut inner, &id)
    }

    fn enqueue(self: &Arc<Self>, inner: &mut RunTable, id: &str) -> Result<v1::Run, Status> {
        inner.ticket += 1;
        let ticket = inner.ticket;
        let entry = inner.entry(id)?;
        (entry.ticket, entry.is_paused, entry.control) = (ticket, false, Control::default());
        self.keep(entry, State::Queued, "", "");
        self.start_next(inner);
        Ok(inner.entry(id)?.to_wire())
    }

    /// Sets the state of a run, on disk too, and tells followers.
    fn keep(&self, entry: &mut Entry, state: State, error: &str, state_hash: &str) {
        let record = &mut entry.record;
        (record.state, record.error, record.state_hash) = (state, error.into(), state_hash.into());
        if let Err(error) = record.write(&self.folder.join(&record.id)) {
            tracing::error!(run = record.id, %error, "the state of a run cannot be written");
        }
        entry.tell();
    }

    /// Starts runs that wait, as many as may be computed at once.
    fn start_next(self: &Arc<Self>, inner: &mut RunTable) {
        while !inner.is_ending && inner.count(State::Running) < self.limits.running {
            let waiting = inner.entries.iter_mut().filter(|entry| entry.record.state == State::Queued);
            let Some(entry) = waiting.min_by_key(|entry| entry.ticket) else { return };
            let metrics = self.metrics.of_run(&entry.record.id);
            entry.metrics = Some(metrics.clone());
            self.keep(entry, State::Running, "", "");
            let job = Job {
                runs: Arc::clone(self),
                id: entry.record.id.clone(),
                options: entry.record.wanted.options(self.threads, self.reach.clone()),
                control: entry.control.clone(),
                feed: entry.feed.clone(),
                metrics,
            };
            let started = std::thread::Builder::new().name("run".into()).spawn(move || job.carry_out());
            if let Err(error) = started {
                self.keep(entry, State::Failed, &format!("its thread cannot be started: {error}"), "");
            }
        }
    }

    /// All runs, in the order in which they were submitted.
    pub(super) fn list(&self) -> Vec<v1::Run> {
        self.lock().entries.iter().map(Entry::to_wire).collect()
    }

    /// The state of a run, and its events from now on.
    pub(super) fn follow(
        &self,
        id: &str,
    ) -> Result<(v1::Run, broadcast::Receiver<v1::FollowResponse>), Status> {
        let mut inner = self.lock();
        let entry = inner.entry(id)?;
        Ok((entry.to_wire(), entry.feed.subscribe()))
    }

    /// Holds a run after its current step.
    pub(super) fn pause(&self, id: &str) -> Result<(), Status> {
        let mut inner = self.lock();
        let entry = inner.entry(id)?;
        if entry.record.state != State::Running {
            return Err(refused(id, entry.record.state, "only a run that is being computed can be paused"));
        }
        entry.control.pause();
        entry.is_paused = true;
        entry.tell();
        Ok(())
    }

    /// Lets a run go on, or queues it again.
    pub(super) fn go_on(self: &Arc<Self>, id: &str) -> Result<(), Status> {
        let mut inner = self.lock();
        let entry = inner.entry(id)?;
        match entry.record.state {
            State::Running => {
                entry.control.go_on();
                entry.is_paused = false;
                entry.tell();
                Ok(())
            }
            State::Queued => Ok(()),
            State::Finished => Err(refused(id, State::Finished, "there is nothing to go on with")),
            State::Stopped | State::Failed => {
                if inner.is_ending {
                    return Err(Status::unavailable("the service is about to end"));
                }
                let Limits { queued, running, .. } = self.limits;
                if inner.count(State::Queued) >= queued && inner.count(State::Running) >= running {
                    return Err(Status::resource_exhausted(format!(
                        "{queued} runs wait, which is the most (--queued): continue it later"
                    )));
                }
                self.enqueue(&mut inner, id).map(|_| ())
            }
        }
    }

    /// Has a checkpoint written.
    pub(super) fn save(&self, id: &str) -> Result<(), Status> {
        let mut inner = self.lock();
        let entry = inner.entry(id)?;
        if entry.record.state != State::Running {
            return Err(refused(id, entry.record.state, "only a run that is being computed can be saved"));
        }
        entry.control.save();
        Ok(())
    }

    /// Ends a run.
    pub(super) fn stop(&self, id: &str) -> Result<(), Status> {
        let mut inner = self.lock();
        let entry = inner.entry(id)?;
        match entry.record.state {
            State::Running => entry.control.stop(),
            State::Queued => self.keep(entry, State::Stopped, "", ""),
            state => return Err(refused(id, state, "there is nothing to stop")),
        }
        Ok(())
    }

    /// Forgets a run that is over and deletes its folder.
    pub(super) fn remove(&self, id: &str) -> Result<(), Status> {
        let mut inner = self.lock();
        let state = inner.entry(id)?.record.state;
        if !state.is_over() {
            return Err(refused(id, state, "stop it first"));
        }
        let removed = fs::remove_dir_all(self.folder.join(id));
        removed.map_err(|error| Status::internal(format!("run {id} cannot be removed: {error}")))?;
        inner.entries.retain(|entry| entry.record.id != id);
        Ok(())
    }

    /// The folder of a run's results.
    pub(super) fn results(&self, id: &str) -> Result<PathBuf, Status> {
        let mut inner = self.lock();
        let id = &inner.entry(id)?.record.id;
        Ok(self.folder.join(id).join(RESULTS))
    }

    /// Notes the progress of a run. A time that is not a number leaves the last one.
    fn note_progress(&self, id: &str, steps: u64, time: f64) {
        if let Ok(entry) = self.lock().entry(id) {
            entry.record.steps = steps;
            if time.is_finite() {
                entry.record.time = time;
            }
        }
    }

    /// Stops all runs and waits until they have ended. No more are started.
    pub fn end(&self) {
        let mut inner = self.lock();
        inner.is_ending = true;
        for entry in &mut inner.entries {
            match entry.record.state {
                State::Queued => self.keep(entry, State::Stopped, "", ""),
                State::Running => entry.control.stop(),
                _ => {}
            }
        }
        while inner.count(State::Running) > 0 {
            inner = self.ended.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, RunTable> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run that is computed, on a thread of its own.
struct Job {
    runs: Arc<Runs>,
    id: String,
    options: crate::run::Options,
    control: Control,
    feed: Sender,
    metrics: RunMetrics,
}

impl Job {
    fn carry_out(self) {
        let computed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.compute()));
        let (state, error, hash) = match computed {
            Ok(Ok(outcome)) => match outcome.ending {
                Ending::Finished => (State::Finished, String::new(), outcome.state_hash),
                Ending::Interrupted => (State::Stopped, String::new(), outcome.state_hash),
            },
            Ok(Err(CommandError::Scene(error))) => {
                (State::Failed, console::render(&error, false), String::new())
            }
            Ok(Err(error)) => (State::Failed, error.to_string(), String::new()),
            Err(_) => (State::Failed, "a fault of the service, see its log".into(), String::new()),
        };
        let mut inner = self.runs.lock();
        if let Ok(entry) = inner.entry(&self.id) {
            entry.is_paused = false;
            self.runs.keep(entry, state, &error, &hash);
        }
        self.runs.start_next(&mut inner);
        self.runs.ended.notify_all();
    }

    fn compute(&self) -> Result<Outcome, CommandError> {
        // Each run has its own pools: a run that waits for its solvers does not block the others.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.options.threads.unwrap_or(0)).build();
        let pool = pool.map_err(|error| CommandError::Failed(format!("cannot start threads: {error}")))?;
        pool.install(|| {
            let folder = self.runs.folder.join(&self.id);
            let results = folder.join(RESULTS);
            let store = Store::new(&results);
            if store.steps().is_ok_and(|steps| !steps.is_empty()) {
                let scene = Scene::read(&results.join(SCENE), &[])?;
                let held = Folder::look_at(results)?;
                store.tidy()?;
                let newest = store.newest(&scene);
                let (saved, skipped) = newest.map_err(|error| CommandError::Failed(error.to_string()))?;
                skipped.iter().for_each(|reason| self.line(&format!("a checkpoint is left out: {reason}")));
                self.run(&scene).go_on(held, &saved)
            } else {
                let scene = Scene::read(&folder.join(SUBMITTED).join(SCENE), &[])?;
                self.run(&scene).compute(Folder::look_at(results)?)
            }
        })
    }

    fn run<'a>(&'a self, scene: &'a Scene) -> Run<'a> {
        let (id, sender) = (self.id.clone(), self.feed.clone());
        let (runs, named) = (Arc::downgrade(&self.runs), id.clone());
        let note = move |steps: u64, time: f64| {
            if let Some(runs) = runs.upgrade() {
                runs.note_progress(&named, steps, time);
            }
        };
        let feed = Feed { note: Box::new(note), sender: sender.clone() };
        let watchers: Vec<Box<dyn Watch>> = vec![Box::new(feed), Box::new(self.metrics.clone())];
        let console = Console::to(move |text| tell(&id, &sender, text));
        Run { scene, options: &self.options, control: self.control.clone(), console, watchers }
    }

    fn line(&self, text: &str) {
        tell(&self.id, &self.feed, text);
    }
}

/// A line about a run, for followers and for the log.
fn tell(run: &str, feed: &Sender, text: &str) {
    tracing::info!(run, "{text}");
    let _ = feed.send(event(Event::Line(text.into())));
}
