//! Deployment files: where the participants of a scene run, and how their solvers are started there.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::scene::{Document, KeyPath, Part, Reader, Scene, SceneError, suggest};
use amalgam_coordinator::Address;
use amalgam_network::{Listen, SecurityOptions};

/// Default address of a solver elsewhere: a free port of all addresses of its machine.
const EVERYWHERE: &str = "*:0";

/// Default program of a solver elsewhere: the program of this name there.
const PROGRAM: &str = "amalgam";

/// A deployment file, read and checked.
#[derive(Clone, Debug, Default)]
pub struct Deployment {
    /// Options by which the run and its solvers authenticate each other.
    pub security: SecurityOptions,
    participants: BTreeMap<String, Placement>,
}

/// Machine of a participant, and the way to start its solver.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Placement {
    run: StartedBy,
    /// For ssh: `HOST` or `USER@HOST`.
    host: Option<String>,
    /// For an address: `HOST:PORT` or `unix:PATH`.
    pub(super) address: Option<String>,
    pub(super) threads: Option<u32>,
    /// Ranks among which its particles are cut, as threads of one process.
    pub(super) ranks: Option<u32>,
    /// The same as processes of an MPI job, which mpirun or srun starts.
    pub(super) mpi_ranks: Option<u32>,
    /// More options of mpirun.
    #[serde(default)]
    mpi_options: Vec<String>,
    /// Address at which the solver listens there.
    listen: Option<String>,
    /// The program there.
    program: Option<String>,
    /// More options of `amalgam serve`.
    #[serde(default)]
    options: Vec<String>,
    /// More options of ssh or srun.
    #[serde(default)]
    launcher_options: Vec<String>,
    /// The folder of certificates there.
    tls: Option<PathBuf>,
    /// The token's file there.
    token_file: Option<PathBuf>,
}

/// Way in which a solver is started.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StartedBy {
    /// On this machine, by the run.
    Local,
    /// On another one, by ssh.
    Ssh,
    /// By Slurm, in an allocation.
    Slurm,
    /// Somebody else starts the solver, at an address.
    Address,
    /// Somebody else starts the solver, which registers.
    Registry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    tls: Option<PathBuf>,
    token_file: Option<PathBuf>,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    participants: BTreeMap<String, Placement>,
}

impl Deployment {
    /// Reads a deployment file for a scene.
    ///
    /// # Errors
    /// All faults that could be found, each with its place and what to write.
    pub fn read(path: &Path, scene: &Scene) -> Result<Self, SceneError> {
        let text = std::fs::read_to_string(path).map_err(|error| SceneError::Read {
            what: "deployment file",
            path: path.into(),
            help: None,
            error,
        })?;
        Self::parse(&path.display().to_string(), &text, scene)
    }

    fn parse(name: &str, text: &str, scene: &Scene) -> Result<Self, SceneError> {
        let document = Document::parse(name, text)?;
        let tables = document.effective()?;
        let mut reader = Reader::new(&document);
        let raw = reader.table::<Raw>(&KeyPath::default(), toml::Value::Table(tables));
        if let Some(raw) = &raw {
            check(&mut reader, raw, scene);
        }
        let faults = reader.faults;
        match raw {
            Some(raw) if faults.is_empty() => {
                let folder = Path::new(name).parent().unwrap_or(Path::new(""));
                let from_folder = |path: PathBuf| std::path::absolute(folder.join(&path)).unwrap_or(path);
                let security = SecurityOptions {
                    tls: raw.tls.map(from_folder),
                    token_file: raw.token_file.map(from_folder),
                    insecure: raw.insecure,
                };
                Ok(Self { security, participants: raw.participants })
            }
            _ => Err(SceneError::faults(name, faults)),
        }
    }

    /// True if the file names no participant.
    pub(super) fn is_empty(&self) -> bool {
        self.participants.is_empty()
    }

    pub(super) fn of(&self, participant: &str) -> Option<&Placement> {
        self.participants.get(participant)
    }
}

fn check(reader: &mut Reader<'_>, raw: &Raw, scene: &Scene) {
    let names: Vec<String> = scene.participants.iter().map(|participant| participant.name.clone()).collect();
    let root = KeyPath::default().key("participants");
    for (name, placement) in &raw.participants {
        let base = root.key(name);
        if !names.contains(name) {
            let help = suggest(name, &names, "participants of the scene");
            let message = format!("the scene has no participant `{name}`");
            reader.faults.push(reader.document.fault(&base, Part::Key, &message, Some(help)));
        }
        let has = [
            ("host", placement.host.is_some(), placement.run == StartedBy::Ssh, "host = \"node7\""),
            (
                "address",
                placement.address.is_some(),
                placement.run == StartedBy::Address,
                "address = \"node7:7401\"",
            ),
        ];
        for (key, is_there, is_wanted, example) in has {
            match (is_there, is_wanted) {
                (false, true) => {
                    let message = format!("`{name}` needs a key `{key}`");
                    reader.fault(&base, &message, Some(&format!("write for example {example}")));
                }
                (true, false) => {
                    let message = format!("`{key}` has no meaning for a solver that is started this way");
                    reader.fault(&base.key(key), &message, Some("leave it out, or change `run`"));
                }
                _ => (),
            }
        }
        // ssh takes a word that begins with a dash for an option.
        if placement.host.as_ref().is_some_and(|host| host.is_empty() || host.starts_with('-')) {
            reader.fault(&base.key("host"), "this is no host", Some("write for example host = \"node7\""));
        }
        if placement.threads.is_some_and(|threads| !(1..=1024).contains(&threads)) {
            reader.fault(&base.key("threads"), "threads must be 1 to 1024", None);
        }
        if placement.ranks.is_some_and(|ranks| !(1..=1024).contains(&ranks)) {
            reader.fault(&base.key("ranks"), "ranks must be 1 to 1024", None);
        }
        if placement.mpi_ranks == Some(0) {
            reader.fault(&base.key("mpi_ranks"), "mpi_ranks must be at least 1", None);
        }
        if placement.mpi_ranks.is_some() && placement.ranks.is_some() {
            let message = "ranks are threads, mpi_ranks are processes: write one of them";
            reader.fault(&base.key("mpi_ranks"), message, None);
        }
        if let Some(Err(error)) = placement.listen.as_ref().map(|listen| listen.parse::<Listen>()) {
            reader.fault(&base.key("listen"), &error, None);
        }
        if let Some(Err(error)) = placement.address.as_ref().map(|address| Address::parse(address)) {
            reader.fault(&base.key("address"), &error, None);
        }
    }
}

impl Placement {
    pub(super) fn started_by(&self) -> StartedBy {
        self.run
    }

    /// The command that starts the solver elsewhere and ends it when its standard input ends.
    pub(super) fn command(
        &self,
        solver: &str,
        (threads, ranks): (Option<usize>, Option<usize>),
        security: &SecurityOptions,
    ) -> Vec<String> {
        let mut serve = vec![self.program.clone().unwrap_or(PROGRAM.into()), "serve".into(), solver.into()];
        let mut option = |name: &str, value: String| serve.extend([name.to_string(), value]);
        option("--listen", self.listen.clone().unwrap_or(EVERYWHERE.into()));
        if let Some(threads) = self.threads.map(|threads| threads as usize).or(threads) {
            option("--threads", threads.to_string());
        }
        match (self.mpi_ranks, ranks) {
            (Some(_), _) => option("--ranks", "mpi".into()),
            (None, Some(ranks)) => option("--ranks", ranks.to_string()),
            (None, None) => {}
        }
        if let Some(folder) = self.tls.as_ref().or(security.tls.as_ref()) {
            option("--tls", folder.display().to_string());
        }
        if let Some(file) = self.token_file.as_ref().or(security.token_file.as_ref()) {
            option("--token-file", file.display().to_string());
        }
        if security.insecure {
            serve.push("--insecure".into());
        }
        serve.push("--exit-with-stdin".into());
        serve.extend_from_slice(&self.options);
        let mut command: Vec<String> = match (self.run, &self.host) {
            (StartedBy::Ssh, Some(host)) => {
                serve.splice(0..0, self.mpirun());
                let quoted = serve.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
                serve = vec!["--".into(), host.clone(), format!("exec {quoted}")];
                ["ssh", "-T", "-o", "BatchMode=yes"].map(String::from).into()
            }
            _ => {
                let tasks = self.mpi_ranks.unwrap_or(1);
                let mut srun = vec!["srun".to_string()];
                srun.extend(self.mpi_ranks.is_none().then(|| "--nodes=1".into()));
                srun.extend([format!("--ntasks={tasks}"), "--overlap".into(), "--unbuffered".into()]);
                srun
            }
        };
        command.extend_from_slice(&self.launcher_options);
        command.extend(serve);
        command
    }

    /// The words before the program that start it as an MPI job, if it is one.
    pub(super) fn mpirun(&self) -> Vec<String> {
        let start = |ranks: u32| ["mpirun".to_string(), "-np".into(), ranks.to_string()];
        let words = self.mpi_ranks.map(start);
        words.into_iter().flatten().chain(self.mpi_options.iter().cloned()).collect()
    }

    /// Address at which the run reaches a solver that announces `announced`: by ssh, at the host that the
    /// file names.
    pub(super) fn reached_at(&self, announced: &str) -> String {
        let host =
            self.host.as_ref().map(|host| host.rsplit_once('@').map_or(host.as_str(), |(_, host)| host));
        match (host, announced.rsplit_once(':')) {
            (Some(host), Some((_, port))) if self.listen.is_none() => match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            },
            _ => announced.to_string(),
        }
    }
}

/// Quotes a word so that a shell reads it back unchanged.
fn quoted(word: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+%".contains(c);
    if !word.is_empty() && word.chars().all(harmless) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENE: &str = "[scene]\nname = 'two'\n[domain]\nmin = [0, 0, 0]\nmax = [1, 1, 1]\n[time]\nduration = 1.0\n\
                         [[participants]]\nname = 'water'\nsolver = 'fluid'\n\
                         [[participants]]\nname = 'cloth'\nsolver = 'solid'\n";

    fn parse(text: &str) -> Result<Deployment, SceneError> {
        Deployment::parse("there/where.toml", text, &Scene::parse("two.toml", SCENE, &[]).expect("a scene"))
    }

    #[test]
    fn solvers_are_started_by_the_file() {
        let deployment = parse(
            "tls = 'certs'\n[participants.water]\nrun = 'ssh'\nhost = 'ann@node7'\nthreads = 8\nprogram = '/opt/my programs/amalgam'\n\
             launcher_options = ['-p', '2222']\n[participants.cloth]\nrun = 'slurm'\ntls = '/there'\n",
        )
        .expect("is right");
        let command = |name, kind| {
            deployment
                .of(name)
                .expect("is there")
                .command(kind, (Some(2), None), &deployment.security)
                .join(" ")
        };
        let certificates = std::path::absolute("there/certs").expect("a path");
        assert_eq!(
            command("water", "fluid"),
            format!(
                "ssh -T -o BatchMode=yes -p 2222 -- ann@node7 exec '/opt/my programs/amalgam' serve fluid --listen '*:0' --threads 8 --tls {} --exit-with-stdin",
                certificates.display()
            )
        );
        assert_eq!(
            command("cloth", "solid"),
            "srun --nodes=1 --ntasks=1 --overlap --unbuffered amalgam serve solid --listen *:0 --threads 2 --tls /there --exit-with-stdin"
        );
        let reached = |name: &str| deployment.of(name).expect("is there").reached_at("inside:41");
        assert_eq!((reached("water"), reached("cloth")), ("node7:41".into(), "inside:41".into()));
    }

    #[test]
    fn faults_stand_at_their_place() {
        let faults = |text: &str| match parse(text) {
            Err(SceneError::Faults { faults, .. }) => faults
                .iter()
                .map(|fault| format!("{}: {}", fault.label, fault.message))
                .collect::<Vec<_>>()
                .join("; "),
            other => panic!("{other:?}"),
        };
        let text = "[participants.watr]\nrun = 'local'\n[participants.water]\nrun = 'ssh'\naddress = 'a:1'\nthreads = 0\n";
        assert_eq!(
            faults(text),
            "participants.watr: the scene has no participant `watr`; participants.water: `water` needs a key `host`; \
             participants.water.address: `address` has no meaning for a solver that is started this way; \
             participants.water.threads: threads must be 1 to 1024"
        );
        assert!(faults("[participants.water]\nrun = 'rsh'\n").contains("unknown choice \"rsh\""));
        assert!(faults("[participants.water]\nrun = 'local'\nthread = 1\n").contains("unknown key `thread`"));
        assert!(
            faults("[participants.water]\nrun = 'ssh'\nhost = '-oProxyCommand=x'\n")
                .contains("this is no host")
        );
    }

    #[test]
    fn files_that_are_shown_are_right() {
        let guide = include_str!("../../../docs/guide/machines.md");
        let (_, shown) = guide.split_once("```toml deployment\n").expect("it is shown");
        let (shown, _) = shown.split_once("```").expect("it ends");
        let files = [
            include_str!("../../../deploy/ssh/where.toml"),
            include_str!("../../../deploy/slurm/where.toml"),
        ];
        for text in files.into_iter().chain([shown]) {
            parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        }
    }

    #[test]
    fn a_shell_reads_back_what_is_quoted() {
        for word in ["plain", "two words", "it's", "$(hostname):0", "", "a\\b\"c", "*:0"] {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &format!("printf %s {}", quoted(word))]);
            let output = shell.output().expect("runs").stdout;
            assert_eq!(String::from_utf8(output).expect("UTF-8"), word);
        }
    }
}
