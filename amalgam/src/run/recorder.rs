//! Writes frames, pictures, surfaces and tables while a run goes on.

mod frames;
mod thread;
mod work;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use amalgam_coordinator::{FrameWish, ParticipantFrame, ProbeSample, Simulation, StepRecord};
use amalgam_frames::{CsvTable, FramesError};

use crate::folder::{FOLDERS, Folder, OutputError, make, sync};
use crate::{
    checkpoint::results::RecorderState,
    scene::{Compression, Scene, SurfaceOutput},
};
use frames::{FrameWriter, files_of};
use thread::FrameThread;
use work::WorkTable;

/// A frame of all participants.
struct Frame {
    number: u64,
    /// Time of the frame [s].
    time: f64,
    participants: Vec<ParticipantFrame>,
}

/// Files to write for each frame.
#[derive(Clone)]
struct Plan {
    vtk_every: Option<u64>,
    pictures_every: Option<u64>,
    /// Settings of surfaces by participant.
    surfaces: BTreeMap<String, SurfaceOutput>,
    compression: Compression,
}

impl Plan {
    fn new(scene: &Scene) -> Self {
        Self {
            vtk_every: scene.output.vtk.then_some(u64::from(scene.output.every)),
            pictures_every: scene.output.pictures.as_ref().map(|pictures| u64::from(pictures.every)),
            surfaces: scene.output.surfaces.clone(),
            compression: scene.output.compression,
        }
    }

    fn wants_vtk(&self, frame: u64) -> bool {
        self.vtk_every.is_some_and(|every| frame.is_multiple_of(every))
    }

    fn wants_picture(&self, frame: u64) -> bool {
        self.pictures_every.is_some_and(|every| frame.is_multiple_of(every))
    }

    fn wants_surface(&self, surface: &SurfaceOutput, frame: u64) -> bool {
        frame.is_multiple_of(u64::from(surface.every))
    }

    fn wants_anything(&self, frame: u64) -> bool {
        let wants_surface = |surface| self.wants_surface(surface, frame);
        self.wants_vtk(frame) || self.wants_picture(frame) || self.surfaces.values().any(wants_surface)
    }

    /// The surface of this participant, if it is to be written or drawn.
    fn surface_of(&self, participant: &str, frame: u64) -> Option<&SurfaceOutput> {
        let is_shown =
            |surface: &&SurfaceOutput| self.wants_picture(frame) || self.wants_surface(surface, frame);
        self.surfaces.get(participant).filter(is_shown)
    }
}

/// Writes the results of a run: frames on a thread of their own, so that the run goes on meanwhile, and
/// tables.
pub struct Recorder {
    folder: PathBuf,
    plan: Plan,
    frames: FrameThread,
    tables: Vec<CsvTable>,
    work: WorkTable,
    row: Vec<f64>,
    /// Number of the next frame.
    frame: u64,
}

impl Recorder {
    /// Recorder of a run whose folder has been claimed.
    ///
    /// # Errors
    /// An obstacle's file that has gone, or a thread that cannot be started.
    pub fn new(scene: &Scene, folder: &Folder) -> Result<Self, OutputError> {
        let plan = Plan::new(scene);
        let writer = FrameWriter::new(scene, plan.clone(), folder)?;
        Self::with(folder, plan, writer, 0)
    }

    fn with(folder: &Folder, plan: Plan, writer: FrameWriter, frame: u64) -> Result<Self, OutputError> {
        let (folder, frames) = (folder.path().to_path_buf(), FrameThread::start(writer)?);
        let work = WorkTable::new(&folder);
        Ok(Self { folder, plan, frames, tables: Vec::new(), work, row: Vec::new(), frame })
    }

    /// Extent of the results. They are on the disk when this returns.
    ///
    /// # Errors
    /// A failure of the file system, also one of a frame before.
    pub fn state(&mut self) -> Result<RecorderState, OutputError> {
        let table = |table: &CsvTable| Ok((name(&self.folder, table.path()), table.length()?));
        let tables = self.tables.iter().map(table).collect::<Result<_, FramesError>>()?;
        let work = self.work.length()?;
        let state = RecorderState { frame: self.frame, tables, work, ..self.frames.state()? };
        let folders = FOLDERS.iter().map(|name| self.folder.join(name)).filter(|folder| folder.exists());
        folders.chain([self.folder.clone()]).try_for_each(|folder| sync(&folder))?;
        Ok(state)
    }

    /// Recorder of a run that goes on in a folder with results. Results beyond `state` are dropped.
    ///
    /// # Errors
    /// A failure of the file system, or results of another run.
    pub fn resume(
        scene: &Scene,
        folder: &Folder,
        state: &RecorderState,
        simulation: &Simulation,
    ) -> Result<Self, OutputError> {
        let plan = Plan::new(scene);
        let writer = FrameWriter::resume(scene, plan.clone(), folder, state)?;
        let mut this = Self::with(folder, plan, writer, state.frame)?;
        for ((file, length), sample) in state.tables.iter().zip(simulation.probes()) {
            this.tables.push(CsvTable::resume(folder.path().join(file), &header(sample), *length)?);
        }
        this.work = WorkTable::resume(folder.path(), simulation, state.work)?;
        Ok(this)
    }

    /// True if anything is to be written for the next frame.
    pub fn wants_frame(&self) -> bool {
        self.plan.wants_anything(self.frame)
    }

    /// Wishes for the next frame, at a time [s], by the name of a participant. A solver may write its particles
    /// itself if they are neither drawn nor within a surface.
    ///
    /// # Errors
    /// A failure of the file system.
    pub fn wishes(&self, time: f64) -> Result<impl Fn(&str) -> FrameWish, OutputError> {
        let number = self.frame;
        let offers = self.plan.wants_vtk(number) && !self.plan.wants_picture(number);
        if offers {
            make(&self.folder, frames::FOLDER)?;
        }
        Ok(move |participant: &str| {
            let surface = self.plan.surface_of(participant, number).is_some();
            let offers = offers && !surface;
            let files = || files_of(&self.folder, participant, (number, time), self.plan.compression);
            FrameWish { surface, files: offers.then(files).flatten() }
        })
    }

    /// Records the next frame; `participants` is empty if [`Self::wants_frame`] was false. Returns before the
    /// frame is written, unless other frames wait for it.
    ///
    /// # Errors
    /// A failure of the file system, also one of a frame before; earlier files stay readable.
    pub fn frame(&mut self, time: f64, participants: Vec<ParticipantFrame>) -> Result<(), OutputError> {
        let number = self.frame;
        self.frame += 1;
        if self.plan.wants_anything(number) {
            self.frames.write(Frame { number, time, participants })?;
        }
        Ok(())
    }

    /// Appends a row to the table of counts and wall times, at the end of a frame's last step.
    ///
    /// # Errors
    /// A failure of the file system.
    pub fn work(&mut self, record: &StepRecord, simulation: &Simulation) -> Result<(), OutputError> {
        Ok(self.work.append(record, simulation)?)
    }

    /// Waits until all frames are written.
    ///
    /// # Errors
    /// A failure of the file system.
    pub fn finish(&mut self) -> Result<(), OutputError> {
        self.frames.finish()
    }

    /// Appends a row to the table of each probe.
    ///
    /// # Errors
    /// A failure of the file system.
    pub fn probes(&mut self, time: f64, samples: &[ProbeSample]) -> Result<(), OutputError> {
        if self.tables.is_empty() && !samples.is_empty() {
            make(&self.folder, "probes")?;
            for sample in samples {
                let path = self.folder.join(format!("probes/{}.csv", sample.name));
                self.tables.push(CsvTable::create(path, &header(sample))?);
            }
        }
        for (sample, table) in samples.iter().zip(&mut self.tables) {
            self.row.clear();
            self.row.push(time);
            self.row.extend_from_slice(&sample.values);
            table.append(&self.row)?;
        }
        Ok(())
    }
}

/// The name of a file of a run's folder.
fn name(folder: &Path, path: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).display().to_string()
}

/// Names of the columns of a probe's table.
fn header(sample: &ProbeSample) -> Vec<&str> {
    std::iter::once("time [s]").chain(sample.columns.iter().map(String::as_str)).collect()
}
