//! Scene files: what happens where, for how long, and which solvers compute it.
//!
//! The participants' own settings are kept verbatim: only their solvers know what they mean.

mod document;
mod fault;
mod output;
mod path;
mod read;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use amalgam_coordinator::{
    Address, CouplingSettings, DomainSettings, PARTICIPANTS_MAX, Plan, ProbeSettings, Quantity, TimeSettings,
};
use document::SECTIONS;
pub(crate) use document::{Document, Part};
pub(crate) use fault::suggest;
pub(crate) use read::Reader;

pub use document::SCENE_BYTES_MAX;
pub use fault::{Fault, SceneError};
pub use output::{
    ClippingPlane, Colour, Compression, FieldColour, OutputSettings, PICTURE_SIDE_MAX, PictureSettings, Ramp,
    SurfaceOutput, UsdOutput,
};
pub use path::{KeyPath, Segment};

/// Longest name of a scene, a participant or a probe [characters].
pub const NAME_LENGTH_MAX: usize = 64;

/// A scene, read and checked, except for the sections that its solvers check.
#[derive(Debug)]
pub struct Scene {
    /// `[scene]`.
    pub header: Header,
    /// `[domain]`.
    pub domain: DomainSettings,
    /// `[time]`.
    pub time: TimeSettings,
    /// `[coupling]`.
    pub coupling: CouplingSettings,
    /// `[[participants]]`.
    pub participants: Vec<Participant>,
    /// `[[probes]]`.
    pub probes: Vec<ProbeSettings>,
    /// `[output]`.
    pub output: OutputSettings,
    document: Document,
}

/// `[scene]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Name of the scene, and of its folder below `out`.
    pub name: String,
    /// A sentence for people.
    #[serde(default)]
    pub description: String,
    /// Seed of all random numbers.
    #[serde(default)]
    pub seed: u64,
}

/// A solver that the command can start itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SolverKind {
    /// Solids: springs, peridynamics, grains, rigid bodies.
    Solid,
    /// Fluids: smoothed particle hydrodynamics or FLIP.
    Fluid,
}

impl SolverKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Solid, Self::Fluid];

    /// The name in a scene and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Solid => "solid",
            Self::Fluid => "fluid",
        }
    }
}

/// An entry of `[[participants]]`.
#[derive(Clone, Debug)]
pub struct Participant {
    /// Its name in this scene.
    pub name: String,
    /// The program expected to serve it; any if empty, which only goes with an address.
    pub solver: String,
    /// Service that computes the participant.
    pub served: Served,
    /// Its own section, TOML.
    pub section: String,
}

/// Service that computes a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// A solver that the run starts.
    Locally(SolverKind),
    /// A service that already listens at an address.
    At(String),
    /// A service that says where it is: `address = "registry"`.
    Registered,
}

/// Word in place of an address that the service itself announces.
const REGISTRY: &str = "registry";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawParticipant {
    name: String,
    #[serde(default)]
    solver: String,
    address: Option<String>,
    #[serde(default)]
    settings: toml::Table,
}

impl Scene {
    /// Reads and checks a scene file, with values replaced as by `--set KEY=VALUE`.
    ///
    /// # Errors
    /// All faults that could be found, each with its place and what to write.
    pub fn read(path: &Path, overrides: &[String]) -> Result<Self, SceneError> {
        Self::build(Document::read(path)?, overrides)
    }

    /// Reads a scene as [`Self::read`] does, but from text. Errors show `name` as the file.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(name: &str, text: &str, overrides: &[String]) -> Result<Self, SceneError> {
        Self::build(Document::parse(name, text)?, overrides)
    }

    /// Reads a scene as [`Self::parse`] does. The files that the scene names are in `folder`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse_within(folder: &Path, name: &str, text: &str) -> Result<Self, SceneError> {
        Self::build(Document::parse(name, text)?.within(folder), &[])
    }

    fn build(mut document: Document, overrides: &[String]) -> Result<Self, SceneError> {
        let wrong: Vec<Fault> = overrides
            .iter()
            .filter_map(|argument| document.set(argument).err().map(|fault| *fault))
            .collect();
        if !wrong.is_empty() {
            return Err(SceneError::faults("the command line", wrong));
        }
        document.resolve_files();
        let mut tables = document.effective()?;
        let mut reader = Reader::new(&document);
        unknown_sections(&mut reader, &tables);
        let mut take = |name: &str| tables.remove(name);
        let header = required(&mut reader, "scene", take("scene"), "name = \"my-scene\"");
        let domain = required(&mut reader, "domain", take("domain"), "min = [-1, -1, 0] and max = [1, 1, 2]");
        let time = required(&mut reader, "time", take("time"), "duration = 1.0");
        let coupling = optional(&mut reader, "coupling", take("coupling"));
        let output = optional(&mut reader, "output", take("output"));
        let before = reader.faults.len();
        let participants = participants(&mut reader, take("participants"));
        let all_participants_are_known = reader.faults.len() == before;
        let probes = probes(&mut reader, take("probes"));
        check_values(
            &mut reader,
            header.as_ref(),
            domain.as_ref(),
            time.as_ref(),
            coupling.as_ref(),
            output.as_ref(),
        );
        if all_participants_are_known {
            check_references(&mut reader, &participants, &probes, output.as_ref());
        }
        let faults = reader.faults;
        match (header, domain, time, coupling, output) {
            (Some(header), Some(domain), Some(time), Some(coupling), Some(output)) if faults.is_empty() => {
                Ok(Self { header, domain, time, coupling, participants, probes, output, document })
            }
            _ => Err(SceneError::faults(document.name(), faults)),
        }
    }

    /// The same scene, over after `frames` frames if it is not before: as `--set time.duration=...` would do.
    ///
    /// # Errors
    /// None that a scene which has been read can have.
    pub fn limited_to(mut self, frames: Option<u32>) -> Result<Self, SceneError> {
        let end = frames.map(|frames| f64::from(frames) * self.time.frame_interval);
        if let Some(end) = end.filter(|end| *end < self.time.duration) {
            let set = self.document.set(&format!("time.duration={end:?}"));
            set.map_err(|fault| SceneError::faults(self.document.name(), vec![*fault]))?;
            self.time.duration = end;
        }
        Ok(self)
    }

    /// The scene as it runs, `--set` applied, TOML with the file's comments.
    pub fn effective_text(&self) -> String {
        self.document.effective_text()
    }

    /// The scene's file.
    pub fn file(&self) -> &str {
        self.document.name()
    }

    /// The scene as text for another machine, and the files that it names there, with where they are here.
    pub fn portable(&self) -> (String, Vec<(String, PathBuf)>) {
        let mut files: Vec<(String, PathBuf)> = Vec::new();
        let text = self.document.with_files(&mut |file| {
            let path = PathBuf::from(file);
            if let Some((name, _)) = files.iter().find(|(_, known)| *known == path) {
                return name.clone();
            }
            let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
            let last = path.file_name().unwrap_or_default().to_string_lossy();
            let name = format!("files/{}-{}", files.len(), last.chars().map(plain).collect::<String>());
            files.push((name.clone(), path));
            name
        });
        (text, files)
    }

    /// The files that a scene names for its obstacles and for solvers that a run would start, as the text has
    /// them.
    ///
    /// # Errors
    /// A text that is not TOML.
    pub fn files_named(name: &str, text: &str) -> Result<Vec<String>, SceneError> {
        Ok(Document::parse(name, text)?.files())
    }

    /// The part of the scene that the coordinator reads.
    pub fn plan(&self) -> Plan {
        Plan {
            scene: self.header.name.clone(),
            seed: self.header.seed,
            domain: self.domain.clone(),
            time: self.time.clone(),
            coupling: self.coupling.clone(),
            probes: self.probes.clone(),
        }
    }

    /// Shows a solver's faults of its section (key and message) in the scene's file.
    pub fn section_error(&self, participant: &str, faults: &[(String, String)]) -> SceneError {
        let index = self.participants.iter().position(|one| one.name == participant);
        let base = KeyPath::default().key("participants");
        let base = index.map_or(base.clone(), |index| base.index(index).key("settings"));
        let show = |(key, message): &(String, String)| read::key_fault(&self.document, &base, key, message);
        SceneError::faults(self.file(), faults.iter().map(show).collect())
    }

    /// Shows the coordinator's fault of a probe in the scene's file.
    pub fn probe_error(&self, probe: &str, reason: &str) -> SceneError {
        let index = self.probes.iter().position(|one| one.name == probe);
        let base = index.map_or(root("probes"), |index| root("probes").index(index));
        SceneError::faults(self.file(), vec![read::key_fault(&self.document, &base, "", reason)])
    }

    /// Shows a fault of a participant's colour in the scene's file.
    pub fn colour_error(&self, participant: &str, reason: &str) -> SceneError {
        let base = root("output").key("pictures").key("colours").key(participant);
        SceneError::faults(self.file(), vec![read::key_fault(&self.document, &base, "", reason)])
    }
}

fn root(section: &str) -> KeyPath {
    KeyPath::default().key(section)
}

fn unknown_sections(reader: &mut Reader<'_>, tables: &toml::Table) {
    for key in tables.keys().filter(|key| !SECTIONS.contains(&key.as_str())) {
        let help = suggest(key, &SECTIONS.map(str::to_string), "tables of a scene");
        let fault =
            reader.document.fault(&root(key), Part::Key, &format!("unknown table `{key}`"), Some(help));
        reader.faults.push(fault);
    }
}

fn required<T: serde::de::DeserializeOwned>(
    reader: &mut Reader<'_>,
    section: &str,
    value: Option<toml::Value>,
    example: &str,
) -> Option<T> {
    let Some(value) = value else {
        let help = format!("write [{section}] and below it {example}");
        reader.fault(&root(section), &format!("the scene has no [{section}]"), Some(&help));
        return None;
    };
    reader.table(&root(section), value)
}

fn optional<T: serde::de::DeserializeOwned>(
    reader: &mut Reader<'_>,
    section: &str,
    value: Option<toml::Value>,
) -> Option<T> {
    reader.table(&root(section), value.unwrap_or_else(|| toml::Value::Table(toml::Table::new())))
}

/// The entries of `[[section]]`.
fn entries(reader: &mut Reader<'_>, section: &str, value: Option<toml::Value>) -> Vec<toml::Value> {
    match value {
        None => Vec::new(),
        Some(toml::Value::Array(entries)) => entries,
        Some(_) => {
            let help = format!("write [[{section}]], with double brackets, above each of them");
            reader.fault(&root(section), &format!("`{section}` must be a list of tables"), Some(&help));
            Vec::new()
        }
    }
}

fn participants(reader: &mut Reader<'_>, value: Option<toml::Value>) -> Vec<Participant> {
    let absent = value.is_none();
    let entries = entries(reader, "participants", value);
    if absent {
        let help = "write [[participants]] and below it name = \"water\" and solver = \"fluid\"";
        reader.fault(&root("participants"), "the scene has no participants", Some(help));
    }
    if entries.len() > PARTICIPANTS_MAX {
        let message = format!("a scene has at most {PARTICIPANTS_MAX} participants, not {}", entries.len());
        reader.fault(&root("participants"), &message, None);
    }
    let mut names = BTreeSet::new();
    let mut participants = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let base = root("participants").index(index);
        let Some(raw) = reader.table::<RawParticipant>(&base, entry) else { continue };
        check_name(reader, &base.key("name"), "a participant's name", &raw.name);
        if !names.insert(raw.name.clone()) {
            let message = format!("two participants are called `{}`", raw.name);
            reader.fault(&base.key("name"), &message, Some("give each participant a name of its own"));
        }
        if let Some(served) = served(reader, &base, &raw) {
            // Text and numbers are read back as the same bits; comments and the order of keys are lost.
            match toml::to_string(&raw.settings) {
                Ok(section) => {
                    participants.push(Participant { name: raw.name, solver: raw.solver, served, section })
                }
                Err(error) => reader.fault(&base.key("settings"), &error.to_string(), None),
            }
        }
    }
    participants
}

fn served(reader: &mut Reader<'_>, base: &KeyPath, raw: &RawParticipant) -> Option<Served> {
    if raw.address.as_deref() == Some(REGISTRY) {
        return Some(Served::Registered);
    }
    if let Some(address) = &raw.address {
        if let Err(error) = Address::parse(address) {
            reader.values(base, [("address".to_string(), error)]);
            return None;
        }
        return Some(Served::At(address.clone()));
    }
    let kind = SolverKind::ALL.into_iter().find(|kind| kind.name() == raw.solver);
    if kind.is_none() {
        let names = SolverKind::ALL.map(|kind| kind.name().to_string());
        let message = match raw.solver.as_str() {
            "" => "the participant has neither a solver nor an address".to_string(),
            other => format!("there is no solver `{other}` to start"),
        };
        let help = format!(
            "{}; a solver that runs elsewhere needs its address, for example address = \"127.0.0.1:50051\"",
            suggest(&raw.solver, &names, "solvers")
        );
        reader.fault(&base.key("solver"), &message, Some(&help));
    }
    kind.map(Served::Locally)
}

fn probes(reader: &mut Reader<'_>, value: Option<toml::Value>) -> Vec<ProbeSettings> {
    let entries = entries(reader, "probes", value);
    let mut names = BTreeSet::new();
    let mut probes = Vec::new();
    for (index, mut entry) in entries.into_iter().enumerate() {
        let base = root("probes").index(index);
        // The quantity's keys stand beside `name`. They are read apart, since serde cannot refuse unknown
        // keys in a flattened table.
        let name = entry.as_table_mut().and_then(|table| table.remove("name"));
        let Some(toml::Value::String(name)) = name else {
            reader.fault(&base.key("name"), "the probe has no name", Some("add name = \"my-probe\" here"));
            continue;
        };
        check_name(reader, &base.key("name"), "a probe's name", &name);
        if !names.insert(name.clone()) {
            let message = format!("two probes are called `{name}`");
            reader.fault(&base.key("name"), &message, Some("give each probe a name of its own"));
        }
        let Some(quantity) = reader.table::<Quantity>(&base, entry) else { continue };
        probes.push(ProbeSettings { name, quantity });
    }
    probes
}

/// Checks a name: names become file names and parts of paths.
fn check_name(reader: &mut Reader<'_>, path: &KeyPath, what: &str, name: &str) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > NAME_LENGTH_MAX || !name.chars().all(allowed) {
        let message = format!("{what} has 1 to {NAME_LENGTH_MAX} of the characters A-Z a-z 0-9 _ -");
        let fitting: String =
            name.chars().map(|c| if allowed(c) { c } else { '-' }).take(NAME_LENGTH_MAX).collect();
        let help = (!name.is_empty()).then(|| format!("write for example \"{fitting}\""));
        reader.fault(path, &message, help.as_deref());
    }
}

fn check_values(
    reader: &mut Reader<'_>,
    header: Option<&Header>,
    domain: Option<&DomainSettings>,
    time: Option<&TimeSettings>,
    coupling: Option<&CouplingSettings>,
    output: Option<&OutputSettings>,
) {
    if let Some(header) = header {
        check_name(reader, &root("scene").key("name"), "a scene's name", &header.name);
    }
    let checked = [
        ("domain", domain.map(DomainSettings::faults)),
        ("time", time.map(TimeSettings::faults)),
        ("coupling", coupling.map(CouplingSettings::faults)),
    ];
    for (section, faults) in checked {
        let pairs = faults.into_iter().flatten().map(|fault| (fault.key, fault.message));
        reader.values(&root(section), pairs);
    }
    reader.values(&root("output"), output.map(OutputSettings::faults).unwrap_or_default());
}

/// Checks that probes and colours name participants that exist.
fn check_references(
    reader: &mut Reader<'_>,
    participants: &[Participant],
    probes: &[ProbeSettings],
    output: Option<&OutputSettings>,
) {
    let names: Vec<String> = participants.iter().map(|participant| participant.name.clone()).collect();
    let check = |reader: &mut Reader<'_>, path: &KeyPath, part: Part, name: &String| {
        if !names.contains(name) {
            let help = suggest(name, &names, "participants");
            let fault =
                reader.document.fault(path, part, &format!("no participant is called `{name}`"), Some(help));
            reader.faults.push(fault);
        }
    };
    for (index, probe) in probes.iter().enumerate() {
        let base = root("probes").index(index);
        let named: Vec<(&str, &String)> = match &probe.quantity {
            Quantity::Momentum { participant }
            | Quantity::AngularMomentum { participant }
            | Quantity::Speed { participant } => {
                participant.iter().map(|name| ("participant", name)).collect()
            }
            Quantity::Displacement { participant, .. } => vec![("participant", participant)],
            Quantity::Crossings { sheet, of } => vec![("sheet", sheet), ("of", of)],
            _ => Vec::new(),
        };
        for (key, name) in named {
            check(reader, &base.key(key), Part::Value, name);
        }
    }
    for name in output.iter().flat_map(|output| output.surfaces.keys()) {
        check(reader, &root("output").key("surfaces").key(name), Part::Key, name);
    }
    let pictures = output.and_then(|output| output.pictures.as_ref());
    for name in pictures.iter().flat_map(|pictures| pictures.colours.keys()) {
        check(reader, &root("output").key("pictures").key("colours").key(name), Part::Key, name);
    }
}
