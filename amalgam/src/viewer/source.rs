//! Results that a page shows: those of a folder, or of a coordinator as a service.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    path::{Path, PathBuf},
    sync::mpsc,
    time::{Duration, Instant},
};

use amalgam_coordinator::Address;
use amalgam_network::{Access, Role, SecurityOptions};
use amalgam_proto::coordinator as v1;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    at::{self, Client, transfer},
    error::CommandError,
    folder::{WORK, plain_path},
};

/// Age of a list of files until it is asked for again.
const LIST_AGE_MAX: Duration = Duration::from_millis(500);

/// Files of results, on this machine when they are asked for.
#[derive(Clone)]
pub enum Source {
    /// A folder of this machine.
    Folder(PathBuf),
    /// A run of a coordinator as a service.
    Service(Remote),
}

impl Source {
    /// A run of the service at an address: the one with this id, or the one that was submitted last.
    ///
    /// # Errors
    /// A service that cannot be reached, or that has no such run.
    pub fn service(
        address: &Address,
        security: &SecurityOptions,
        run: Option<&str>,
    ) -> Result<Self, CommandError> {
        let access = security.access(Role::Operator, Role::Coordinator);
        let access = access.map_err(|error| CommandError::Usage(format!("{error:#}")))?;
        Remote::start(Mirror::new(address.clone(), access, run)?).map(Self::Service)
    }

    /// Path at which a file of the results can be read.
    ///
    /// # Errors
    /// A file that cannot be fetched. One that is not there may be found only when it is opened.
    pub(super) fn file(&self, path: &str) -> Result<PathBuf, String> {
        match self {
            Self::Folder(folder) => Ok(folder.join(path)),
            Self::Service(remote) => {
                let path = path.to_string();
                remote.ask(move |mirror| mirror.file(&path))
            }
        }
    }

    /// Paths of the tables of probes, in order.
    pub(super) fn probes(&self) -> Vec<String> {
        let is_table = |path: &String| path.starts_with("probes/") && path.ends_with(".csv");
        match self {
            Self::Folder(folder) => {
                let entries = fs::read_dir(folder.join("probes")).into_iter().flatten().flatten();
                let names = entries.map(|entry| format!("probes/{}", entry.file_name().to_string_lossy()));
                names.filter(is_table).collect::<BTreeSet<_>>().into_iter().collect()
            }
            Self::Service(remote) => {
                let listed = remote.ask(|mirror| mirror.list().map(|files| files.into_keys().collect()));
                let listed: Vec<String> = listed.unwrap_or_default();
                listed.into_iter().filter(is_table).collect()
            }
        }
    }
}

type Task = Box<dyn FnOnce(&mut Mirror) + Send>;

/// A thread that copies files of a run: a page is answered by code that must not wait for a network.
#[derive(Clone)]
pub struct Remote(mpsc::Sender<Task>);

impl Remote {
    fn start(mut mirror: Mirror) -> Result<Self, CommandError> {
        let (sender, tasks) = mpsc::channel::<Task>();
        let work = move || tasks.into_iter().for_each(|task| task(&mut mirror));
        let started = std::thread::Builder::new().name("mirror".into()).spawn(work);
        started.map_err(|error| CommandError::Failed(error.to_string()))?;
        Ok(Self(sender))
    }

    fn ask<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Mirror) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let (sender, answer) = mpsc::sync_channel(1);
        let gone = "the thread that copies results has ended";
        let task = Box::new(move |mirror: &mut Mirror| {
            // The page may be closed.
            let _ = sender.send(task(mirror));
        });
        self.0.send(task).map_err(|_| gone)?;
        answer.recv().map_err(|_| gone)?
    }
}

/// Copies of the files of a run that were asked for, in a folder that the program removes at its end.
struct Mirror {
    runtime: Runtime,
    address: Address,
    access: Access,
    client: Client,
    run: String,
    folder: TempDir,
    listed: Option<(Instant, BTreeMap<String, u64>)>,
    /// Files that have not changed since the list was taken.
    fresh: BTreeSet<String>,
}

impl Mirror {
    fn new(address: Address, access: Access, run: Option<&str>) -> Result<Self, CommandError> {
        let failed = |error: std::io::Error| CommandError::Failed(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let mut client = runtime.block_on(at::connect(&address, &access))?;
        let runs = runtime.block_on(client.list(v1::ListRequest {}));
        let runs = runs.map_err(|status| at::refused(&status))?.into_inner().runs;
        let found = match run {
            Some(id) => runs.iter().find(|run| run.id == id),
            None => runs.last(),
        };
        let Some(found) = found else {
            return Err(CommandError::Usage(match run {
                Some(id) => {
                    format!("the service at {address} has no run {id:?}; amalgam at {address} runs lists all")
                }
                None => format!(
                    "the service at {address} has no run; amalgam at {address} submit SCENE sends one"
                ),
            }));
        };
        let (run, folder) = (found.id.clone(), tempfile::tempdir().map_err(failed)?);
        Ok(Self { runtime, address, access, client, run, folder, listed: None, fresh: BTreeSet::new() })
    }

    /// The files of the run with their lengths [bytes], as of a moment ago.
    fn list(&mut self) -> Result<BTreeMap<String, u64>, String> {
        if let Some((when, files)) = &self.listed
            && when.elapsed() < LIST_AGE_MAX
        {
            return Ok(files.clone());
        }
        let mut listed = self.runtime.block_on(transfer::files(&mut self.client, &self.run));
        if listed.is_err() {
            // The service may have been restarted.
            self.client = self.runtime.block_on(at::connect(&self.address, &self.access)).map_err(told)?;
            listed = self.runtime.block_on(transfer::files(&mut self.client, &self.run));
        }
        let files: BTreeMap<String, u64> = listed.map_err(told)?.into_iter().collect();
        self.listed = Some((Instant::now(), files.clone()));
        self.fresh.clear();
        Ok(files)
    }

    /// The copy of a file, made or brought up to date.
    fn file(&mut self, path: &str) -> Result<PathBuf, String> {
        let files = self.list()?;
        let (Some(&bytes), Some(below)) = (files.get(path), plain_path(path)) else {
            return Err("no such file".into());
        };
        let copy = self.folder.path().join(below);
        let held = fs::metadata(&copy).map_or(0, |metadata| metadata.len());
        let is_whole = [".vtu", ".ply"].iter().any(|end| path.ends_with(end)) && held == bytes;
        if is_whole || self.fresh.contains(path) {
            return Ok(copy);
        }
        let (client, run) = (&mut self.client, &self.run);
        let is_table = path == WORK || path.ends_with(".csv");
        let fetched = if is_table && held > 0 && held <= bytes {
            self.runtime.block_on(append(client, run, path, held, &copy))
        } else {
            self.runtime.block_on(transfer::fetch_one(client, run, path, &copy))
        };
        fetched.map_err(told)?;
        self.fresh.insert(path.into());
        Ok(copy)
    }
}

async fn append(
    client: &mut Client,
    run: &str,
    path: &str,
    from: u64,
    copy: &Path,
) -> Result<(), CommandError> {
    let opened = File::options().append(true).open(copy);
    let mut file = opened.map_err(|error| CommandError::Failed(error.to_string()))?;
    transfer::fetch_rest(client, run, path, from, copy, &mut file).await
}

fn told(error: CommandError) -> String {
    error.to_string()
}
