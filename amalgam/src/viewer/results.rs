//! Results of a run for a page: small enough to be sent for every frame.

use std::{
    fs,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
};

use amalgam_frames::{Frame, FramesError, Mesh, PvdCollection, RADIUS, frame_parts, read_ply};
use serde_json::{Value, json};

use super::source::Source;
use crate::{
    folder::{OBSTACLES, SCENE, SUMMARY, WORK},
    picture::{WATER, colours},
    scene::{Colour, PictureSettings, Scene, SolverKind},
};

/// Bytes of a table that are sent at once.
const TABLE_BYTES_MAX: u64 = 4 << 20;

/// An answer.
pub(super) enum Shown {
    New(Vec<u8>),
    /// The page has the current state already.
    Same,
}

/// The results of a run that may go on.
pub(super) struct Results<'a> {
    source: &'a Source,
}

impl<'a> Results<'a> {
    pub(super) fn new(source: &'a Source) -> Self {
        Self { source }
    }

    /// Description of the run: the scene, participants, frames, probes, and how the run ended.
    ///
    /// # Errors
    /// A folder that is not a run's yet.
    pub(super) fn run(&self) -> Result<Value, String> {
        let scene = self.scene()?;
        let default = PictureSettings::default();
        let colours = colours(&scene, scene.output.pictures.as_ref().unwrap_or(&default));
        let participants = scene.participants.iter().zip(colours).map(|(participant, (name, colour))| {
            let frames = self.list(&name).map_or(0, |frames| frames.len());
            let is_fluid = participant.solver == SolverKind::Fluid.name();
            let (colour, field) = match colour {
                Colour::Plain(colour) => (colour, None),
                Colour::Field(field) => (WATER, Some(field.field)),
            };
            let surface = scene.output.surfaces.get(&name).map(|surface| surface.every);
            json!({ "name": name, "is_fluid": is_fluid, "colour": colour, "field": field, "frames": frames, "surface": surface })
        });
        let participants: Vec<Value> = participants.collect();
        let counts = participants.iter().filter_map(|participant| participant["frames"].as_u64());
        Ok(json!({
            "name": scene.header.name,
            "description": scene.header.description,
            "domain": [scene.domain.min.to_array(), scene.domain.max.to_array()],
            "gravity": scene.domain.gravity.to_array(),
            "duration": scene.time.duration,
            "frames": counts.min().unwrap_or(0),
            "participants": participants,
            "obstacles": self.has(OBSTACLES),
            "probes": self.probes(),
            "work": self.has(WORK),
            "end": self.end(),
        }))
    }

    fn scene(&self) -> Result<Scene, String> {
        let not_begun = |_| "the run has not begun".to_string();
        Scene::read(&self.source.file(SCENE)?, &[]).map_err(not_begun)
    }

    fn has(&self, path: &str) -> bool {
        self.source.file(path).is_ok_and(|file| file.exists())
    }

    /// Times [s] and files of the frames of a participant.
    fn list(&self, participant: &str) -> Result<Vec<(f64, String)>, String> {
        let list = self.source.file(&format!("{participant}.pvd"))?;
        PvdCollection::read(&list).map_err(|error| error.to_string())
    }

    /// Names of probes and of their columns.
    fn probes(&self) -> Vec<Value> {
        let probe = |path: &String| {
            let file = self.source.file(path).ok()?;
            let name = file.file_stem()?.to_string_lossy().into_owned();
            let mut head = vec![0; 8 << 10];
            let read = fs::File::open(file).ok()?.read(&mut head).ok()?;
            let text = String::from_utf8_lossy(&head[..read]).into_owned();
            let columns: Vec<String> = text.lines().next()?.split(',').map(String::from).collect();
            Some(json!({ "name": name, "columns": columns }))
        };
        self.source.probes().iter().filter_map(probe).collect()
    }

    /// End of the run, from its summary.
    fn end(&self) -> Option<Value> {
        let text = fs::read_to_string(self.source.file(SUMMARY).ok()?).ok()?;
        let summary: Value = serde_json::from_str(&text).ok()?;
        let keys = ["error", "interrupted", "cautions", "steps", "simulated_s", "wall_s"];
        Some(keys.iter().map(|&key| (key.to_string(), summary[key].clone())).collect())
    }

    /// The particles of a frame. `field` gives their colours, and `have` is what the page shows already.
    ///
    /// # Errors
    /// A frame that is not there.
    pub(super) fn particles(
        &self,
        participant: &str,
        entry: usize,
        field: &str,
        have: &str,
    ) -> Result<Shown, String> {
        self.knows(participant)?;
        let frames = self.list(participant)?;
        let (time, file) = frames.get(entry).ok_or("no such frame")?;
        let key = format!("{}:{field}", file.rsplit('/').next().unwrap_or(file));
        if key == have {
            return Ok(Shown::Same);
        }
        let path = self.source.file(file)?;
        let told = |error: FramesError| error.to_string();
        let folder = file.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
        // A service sends each file when it is asked for.
        for part in frame_parts(&path).map_err(told)? {
            self.source.file(&format!("{folder}{part}"))?;
        }
        let frame = Frame::read(path).map_err(told)?;
        let radius = values(&frame, RADIUS).unwrap_or_default();
        let coloured = values(&frame, field);
        let mut packing = Packing::new(frame.positions.iter().map(|x| x.as_vec3().to_array()).collect());
        let names = frame.scalars.iter().map(|(name, _)| name.as_str()).filter(|name| *name != RADIUS);
        let coloured = coloured.map(|values| packing.numbers(&values));
        let radii = range(&radius);
        if radii[0] < radii[1] {
            packing.numbers(&radius);
        }
        packing.triangles(&frame.triangles);
        Ok(Shown::New(packing.finish(json!({
            "key": key,
            "time": time,
            "points": frame.positions.len(),
            "triangles": frame.triangles.len(),
            "fields": std::iter::once("speed").chain(names).collect::<Vec<_>>(),
            "range": coloured,
            "radii": radii,
        }))))
    }

    /// The surface of a participant.
    ///
    /// # Errors
    /// A surface that is not there.
    pub(super) fn surface(&self, participant: &str, entry: usize) -> Result<Shown, String> {
        self.knows(participant)?;
        let frame = entry * self.scene()?.output.every as usize;
        mesh(&self.source.file(&format!("surfaces/{participant}_{frame:06}.ply"))?)
    }

    /// The obstacles.
    ///
    /// # Errors
    /// If there are none.
    pub(super) fn obstacles(&self) -> Result<Shown, String> {
        mesh(&self.source.file(OBSTACLES)?)
    }

    /// The whole rows of a probe's table from a byte on.
    ///
    /// # Errors
    /// A probe that is not there.
    pub(super) fn probe(&self, name: &str, from: usize) -> Result<Shown, String> {
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) || name.starts_with('.') {
            return Err("no such probe".into());
        }
        self.table(&format!("probes/{name}.csv"), from)
    }

    /// The whole rows of counts and wall times from a byte on.
    ///
    /// # Errors
    /// A run that has none yet.
    pub(super) fn work(&self, from: usize) -> Result<Shown, String> {
        self.table(WORK, from)
    }

    fn table(&self, path: &str, from: usize) -> Result<Shown, String> {
        let path = self.source.file(path)?;
        let mut bytes = Vec::new();
        let mut read = || {
            let mut file = fs::File::open(&path)?;
            if file.metadata()?.len() < from as u64 {
                return Ok(false);
            }
            file.seek(SeekFrom::Start(from as u64))?;
            file.take(TABLE_BYTES_MAX).read_to_end(&mut bytes).map(|_| true)
        };
        let read: std::io::Result<bool> = read();
        if !read.map_err(|error| format!("no such table: {error}"))? {
            return Err("the table is shorter: the run has gone back".into());
        }
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        bytes.truncate(whole);
        Ok(Shown::New(bytes))
    }

    /// Refuses names that no participant has, such as paths out of the folder.
    fn knows(&self, participant: &str) -> Result<(), String> {
        let scene = self.scene()?;
        let is_known = scene.participants.iter().any(|known| known.name == participant);
        is_known.then_some(()).ok_or_else(|| "no such participant".to_string())
    }
}

/// The values of a field, or speeds.
fn values(frame: &Frame, field: &str) -> Option<Vec<f32>> {
    if field == "speed" {
        return Some(frame.velocities.iter().map(|v| glam::Vec3::from(*v).length()).collect());
    }
    frame.scalars.iter().find(|(name, _)| name == field).map(|(_, values)| values.clone())
}

/// The least and the greatest number.
fn range(values: &[f32]) -> [f32; 2] {
    let finite = values.iter().copied().filter(|value| value.is_finite());
    let (low, high) = finite.fold((f32::INFINITY, f32::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
    if low > high { [0.0, 0.0] } else { [low, high] }
}

fn mesh(file: &Path) -> Result<Shown, String> {
    let Mesh { vertices, normals, triangles, .. } = read_ply(file).map_err(|error| error.to_string())?;
    let head =
        json!({ "points": vertices.len(), "triangles": triangles.len(), "normals": !normals.is_empty() });
    let mut packing = Packing::new(vertices);
    packing.triangles(&triangles);
    packing.normals(&normals);
    Ok(Shown::New(packing.finish(head)))
}

/// Columns of numbers as the page reads them: the length of a head, the head, then the columns, each padded
/// to a multiple of four bytes. Positions have 16 bits for each axis, values 8.
struct Packing {
    low: [f32; 3],
    high: [f32; 3],
    columns: Vec<u8>,
}

impl Packing {
    fn new(positions: Vec<[f32; 3]>) -> Self {
        let fold = |start: f32, pick: fn(f32, f32) -> f32| {
            [0, 1, 2].map(|axis| positions.iter().map(|x| x[axis]).fold(start, pick))
        };
        let (low, high) = (fold(f32::INFINITY, f32::min), fold(f32::NEG_INFINITY, f32::max));
        let mut this = Self { low, high, columns: Vec::with_capacity(8 * positions.len()) };
        for position in &positions {
            for axis in 0..3 {
                let part = (position[axis] - low[axis]) / (high[axis] - low[axis]).max(f32::MIN_POSITIVE);
                this.columns.extend(((part * 65535.0).round() as u16).to_le_bytes());
            }
        }
        this.fill();
        this
    }

    /// Adds numbers, scaled to the range from the least to the greatest. Returns this range.
    fn numbers(&mut self, values: &[f32]) -> [f32; 2] {
        let [low, high] = range(values);
        let part = |value: &f32| ((value - low) / (high - low).max(f32::MIN_POSITIVE) * 255.0).round() as u8;
        self.columns.extend(values.iter().map(part));
        self.fill();
        [low, high]
    }

    fn triangles(&mut self, triangles: &[[u32; 3]]) {
        self.columns.extend(triangles.as_flattened().iter().flat_map(|index| index.to_le_bytes()));
    }

    fn normals(&mut self, normals: &[[f32; 3]]) {
        self.columns.extend(normals.as_flattened().iter().map(|part| (part * 127.0).round() as i8 as u8));
        self.fill();
    }

    fn fill(&mut self) {
        self.columns.resize(self.columns.len().next_multiple_of(4), 0);
    }

    fn finish(self, mut head: Value) -> Vec<u8> {
        let finite = |corner: [f32; 3]| corner.map(|part| if part.is_finite() { part } else { 0.0 });
        head["low"] = json!(finite(self.low));
        head["high"] = json!(finite(self.high));
        let mut head = head.to_string().into_bytes();
        head.resize(head.len().next_multiple_of(4), b' ');
        let mut bytes = (head.len() as u32).to_le_bytes().to_vec();
        bytes.extend(head);
        bytes.extend(self.columns);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_a_million_particles_take_less_than_eight_megabytes() {
        let positions: Vec<[f32; 3]> = (0..1_000_001).map(|i| [i as f32, -1.0, 0.5]).collect();
        let speeds: Vec<f32> = (0..1_000_001).map(|i| i as f32).collect();
        let mut packing = Packing::new(positions);
        assert_eq!(packing.numbers(&speeds), [0.0, 1e6]);
        let bytes = packing.finish(json!({ "points": 1_000_001 }));
        assert!(bytes.len() < 8_000_000, "{} bytes", bytes.len());
        let head = u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes")) as usize;
        assert_eq!((head % 4, bytes.len() % 4), (0, 0));
        let read: Value = serde_json::from_slice(&bytes[4..4 + head]).expect("a head");
        assert_eq!(read["high"], json!([1e6, -1.0, 0.5]));
        let last = 4 + head + 6 * 1_000_000;
        assert_eq!(bytes[last..last + 6], [255, 255, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_not_of_the_run_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = Source::Folder(folder.path().into());
        let results = Results::new(&source);
        assert!(results.run().is_err());
        for name in ["../../etc/passwd", "..", ".lock", ""] {
            assert!(results.probe(name, 0).is_err(), "{name}");
            assert!(results.particles(name, 0, "", "").is_err(), "{name}");
        }
    }
}
