//! The files of a frame.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use amalgam_coordinator::{FrameField, FrameFiles, ParticipantFrame};
use amalgam_frames::{
    FrameData, FrameField as VtkField, FrameValues, FramesError, PlyMesh, PvdCollection, creased, write_ply,
    write_pvtu, write_vtu,
};
use amalgam_particles::MovingSurface;
use amalgam_surfaces::{Surface, SurfaceError, SurfaceSettings, reconstruct};

use super::{Frame, Plan, name};
use crate::{
    checkpoint::results::RecorderState,
    folder::{Folder, OutputError, failed, make, obstacles},
    picture::Painter,
    scene::{Compression, Scene, SurfaceOutput},
};

/// Writes frames for ParaView, surfaces and pictures.
pub(super) struct FrameWriter {
    folder: PathBuf,
    plan: Plan,
    compression: Compression,
    painter: Option<Painter>,
    collections: Vec<PvdCollection>,
    /// Content of the last frame of each list, if nothing in it moves.
    at_rest: Vec<Option<String>>,
}

impl FrameWriter {
    /// Writer for a run whose folder has been claimed.
    ///
    /// # Errors
    /// An obstacle's file that has gone.
    pub(super) fn new(scene: &Scene, plan: Plan, folder: &Folder) -> Result<Self, OutputError> {
        let painter = match &scene.output.pictures {
            Some(settings) => Some(Painter::new(scene, settings, &obstacles(scene)?)),
            None => None,
        };
        Ok(Self {
            folder: folder.path().to_path_buf(),
            plan,
            compression: scene.output.compression,
            painter,
            collections: Vec::new(),
            at_rest: Vec::new(),
        })
    }

    /// Writer for a run that goes on. Frames later than `state` are dropped.
    ///
    /// # Errors
    /// A failure of the file system, or results of another run.
    pub(super) fn resume(
        scene: &Scene,
        plan: Plan,
        folder: &Folder,
        state: &RecorderState,
    ) -> Result<Self, OutputError> {
        let mut this = Self::new(scene, plan, folder)?;
        for (file, count) in &state.lists {
            this.collections.push(PvdCollection::resume(folder.path().join(file), *count)?);
        }
        // An older checkpoint does not have this: its bodies at rest are then written once more.
        this.at_rest.clone_from(&state.at_rest);
        this.at_rest.resize(this.collections.len(), None);
        if let Some(painter) = &mut this.painter {
            painter.go_on(state.framed.map(|[low, high]| (low.into(), high.into())));
        }
        Ok(this)
    }

    /// Extent of the lists.
    pub(super) fn state(&self) -> RecorderState {
        let list = |list: &PvdCollection| (name(&self.folder, list.path()), list.count());
        RecorderState {
            lists: self.collections.iter().map(list).collect(),
            at_rest: self.at_rest.clone(),
            framed: self
                .painter
                .as_ref()
                .and_then(Painter::framed)
                .map(|(low, high)| [low.into(), high.into()]),
            ..RecorderState::default()
        }
    }

    /// Writes the files that are wanted of a frame.
    ///
    /// # Errors
    /// A failure of the file system, or a surface that cannot be found.
    pub(super) fn write(&mut self, frame: &Frame) -> Result<(), OutputError> {
        if self.plan.wants_vtk(frame.number) {
            self.write_vtk(frame)?;
        }
        let surfaces = self.write_surfaces(frame)?;
        if let Some(painter) = self.painter.as_mut().filter(|_| self.plan.wants_picture(frame.number)) {
            make(&self.folder, "pictures")?;
            let file = self.folder.join(format!("pictures/{:06}.png", frame.number));
            painter.draw(&frame.participants, &surfaces, &file)?;
        }
        Ok(())
    }

    fn write_vtk(&mut self, frame: &Frame) -> Result<(), OutputError> {
        let Frame { number, time, participants } = frame;
        make(&self.folder, FOLDER)?;
        if self.collections.is_empty() {
            let create = |frame: &ParticipantFrame| {
                PvdCollection::create(self.folder.join(format!("{}.pvd", frame.name)))
            };
            self.collections = participants.iter().map(create).collect::<Result<_, _>>()?;
            self.at_rest = vec![None; participants.len()];
        }
        let lists = self.collections.iter_mut().zip(&mut self.at_rest);
        for (participant, (collection, last)) in participants.iter().zip(lists) {
            let at_rest = shown_at_rest(participant);
            // A body that does not move is written once.
            let same = collection.last().filter(|_| at_rest.is_some() && at_rest == *last);
            let file = match same {
                Some(file) => file.to_owned(),
                None if participant.parts > 0 => join_parts(&self.folder, participant, *number)?,
                None => {
                    let file = format!("frames/{}.vtu", stem(&participant.name, *number));
                    write_participant(&self.folder.join(&file), *time, participant, self.compression)?;
                    file
                }
            };
            collection.push(*time, &file)?;
            *last = at_rest;
        }
        Ok(())
    }

    /// Finds the surfaces that are written or drawn, and writes the ones that are to be written.
    fn write_surfaces(&self, frame: &Frame) -> Result<BTreeMap<String, Surface>, OutputError> {
        let mut surfaces = BTreeMap::new();
        for participant in &frame.participants {
            let Some(&output) = self.plan.surface_of(&participant.name, frame.number) else { continue };
            let surface = surface_of(participant, output)?;
            if self.plan.wants_surface(&output, frame.number) {
                make(&self.folder, "surfaces")?;
                let file = format!("surfaces/{}_{:06}.ply", participant.name, frame.number);
                let Surface { vertices, normals, velocities, triangles } = &surface;
                write_ply(self.folder.join(file), &PlyMesh { vertices, normals, velocities, triangles })?;
            }
            surfaces.insert(participant.name.clone(), surface);
        }
        Ok(surfaces)
    }
}

/// The surface of a participant: its solver's own, whose edges and cracks stay sharp, or one around its
/// particles.
fn surface_of(frame: &ParticipantFrame, output: SurfaceOutput) -> Result<Surface, SurfaceError> {
    if let Some(MovingSurface { vertices, velocities, triangles }) = &frame.surface {
        let sharp = creased(vertices, triangles);
        let velocities: Vec<[f32; 3]> = velocities.iter().map(|v| v.as_vec3().to_array()).collect();
        return Ok(Surface {
            vertices: sharp.each(vertices),
            velocities: if velocities.is_empty() { velocities } else { sharp.each(&velocities) },
            normals: sharp.normals,
            triangles: sharp.triangles,
        });
    }
    // Particles of one fluid have one radius.
    let radius = frame.radius.first().copied().unwrap_or(1.0);
    let SurfaceOutput { cell, smoothing, .. } = output;
    let settings = SurfaceSettings { cell, smoothing, ..SurfaceSettings::new(radius) };
    reconstruct(&frame.positions, &frame.velocities, settings)
}

/// A digest of everything that a frame shows of a participant, if no particle of it moves. Groups are left
/// out: they change where other bodies press against it. A file that stands for several frames shows the
/// groups of its first frame.
fn shown_at_rest(frame: &ParticipantFrame) -> Option<String> {
    if frame.parts > 0 || frame.velocities.iter().any(|velocity| velocity.to_array() != [0.0; 3]) {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    let mut column = |name: &str, bytes: &mut dyn Iterator<Item = [u8; 8]>| {
        hasher.update(name.as_bytes()).update(&[0]);
        for bytes in bytes {
            hasher.update(&bytes);
        }
    };
    column("id", &mut frame.id.iter().map(|id| id.to_le_bytes()));
    column("position", &mut frame.positions.iter().flat_map(|x| x.to_array()).map(f64::to_le_bytes));
    column("triangle", &mut frame.triangles.as_flattened().iter().map(|&i| u64::from(i).to_le_bytes()));
    let bits = |value: &f32| u64::from(value.to_bits()).to_le_bytes();
    for (name, values) in &frame.fields {
        match values {
            FrameField::Scalar(values) => column(name, &mut values.iter().map(bits)),
            FrameField::Vector(values) => column(name, &mut values.as_flattened().iter().map(bits)),
        }
    }
    Some(hasher.finalize().to_hex().to_string())
}

/// The files of a frame that a solver may write itself, in the folder of a run. A path that is no text cannot be
/// told to a solver.
pub(super) fn files_of(
    folder: &Path,
    participant: &str,
    (number, time): (u64, f64),
    compression: Compression,
) -> Option<FrameFiles> {
    // An absolute path, since the solver's process may be in another folder.
    let folder = folder.join(FOLDER).canonicalize().ok()?;
    Some(FrameFiles {
        folder: folder.to_str()?.to_string(),
        stem: stem(participant, number),
        time,
        compressed: compression == Compression::Zlib,
    })
}

/// The folder of frames in the folder of a run.
pub(super) const FOLDER: &str = "frames";

/// Start of the names of a frame's files.
fn stem(participant: &str, number: u64) -> String {
    format!("{participant}_{number:06}")
}

/// Writes the file that joins the parts that a solver has written, and removes further ones of an earlier try
/// with more ranks. Returns the file.
fn join_parts(folder: &Path, frame: &ParticipantFrame, number: u64) -> Result<String, OutputError> {
    let files = FrameFiles { stem: stem(&frame.name, number), ..FrameFiles::default() };
    let path = |part: &String| folder.join(FOLDER).join(part);
    let parts: Vec<String> = (0..frame.parts).map(|part| files.name_of(part)).collect();
    if let Some(part) = parts.iter().find(|part| !path(part).exists()) {
        let (name, part) = (&frame.name, path(part).display().to_string());
        return Err(OutputError::Part(format!(
            "the solver of {name} says that it has written {part}, which is not there: serve it without --files, or with a \
             folder that both machines see"
        )));
    }
    for part in (frame.parts..).map(|part| path(&files.name_of(part))).take_while(|part| part.exists()) {
        std::fs::remove_file(&part).map_err(failed("remove the old", &part))?;
    }
    let components = |values: &FrameField| match values {
        FrameField::Scalar(_) => 1,
        FrameField::Vector(_) => 3,
    };
    let fields: Vec<(&str, u32)> =
        frame.fields.iter().map(|(name, values)| (name.as_str(), components(values))).collect();
    let file = format!("{FOLDER}/{}.pvtu", files.stem);
    write_pvtu(folder.join(&file), &parts, &fields)?;
    Ok(file)
}

fn write_participant(
    path: &Path,
    time: f64,
    frame: &ParticipantFrame,
    compression: Compression,
) -> Result<(), FramesError> {
    let fields: Vec<VtkField<'_>> = frame
        .fields
        .iter()
        .map(|(name, values)| VtkField {
            name,
            values: match values {
                FrameField::Scalar(values) => FrameValues::Scalar(values),
                FrameField::Vector(values) => FrameValues::Vector(values),
            },
        })
        .collect();
    let data = FrameData {
        time,
        positions: &frame.positions,
        ids: &frame.id,
        velocities: &frame.velocities,
        groups: &frame.group,
        radii: Some(&frame.radius),
        triangles: &frame.triangles,
        fields: &fields,
    };
    let compression = match compression {
        Compression::None => amalgam_frames::Compression::None,
        Compression::Zlib => amalgam_frames::Compression::Zlib,
    };
    write_vtu(path, &data, compression)
}
