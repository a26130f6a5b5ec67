//! The files of a frame.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use amalgam_coordinator::{FrameField, ParticipantFrame};
use amalgam_frames::{
    FrameData, FrameField as VtkField, FrameValues, FramesError, PlyMesh, PvdCollection, creased, write_ply,
    write_vtu,
};
use amalgam_particles::MovingSurface;
use amalgam_surfaces::{Surface, SurfaceError, SurfaceSettings, reconstruct};

use super::{Frame, Plan, name};
use crate::{
    checkpoint::results::RecorderState,
    folder::{Folder, OutputError, RADIUS, make, obstacles},
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
        make(&self.folder, "frames")?;
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
                None => {
                    let file = format!("frames/{}_{number:06}.vtu", participant.name);
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
    if frame.velocities.iter().any(|velocity| velocity.to_array() != [0.0; 3]) {
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

fn write_participant(
    path: &Path,
    time: f64,
    frame: &ParticipantFrame,
    compression: Compression,
) -> Result<(), FramesError> {
    let radius: Vec<f32> = frame.radius.iter().map(|&radius| radius as f32).collect();
    let mut fields: Vec<VtkField<'_>> = frame
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
    if frame.fields.iter().all(|(name, _)| name != RADIUS) {
        fields.insert(0, VtkField { name: RADIUS, values: FrameValues::Scalar(&radius) });
    }
    let data = FrameData {
        time,
        positions: &frame.positions,
        ids: &frame.id,
        velocities: &frame.velocities,
        groups: &frame.group,
        triangles: &frame.triangles,
        fields: &fields,
    };
    let compression = match compression {
        Compression::None => amalgam_frames::Compression::None,
        Compression::Zlib => amalgam_frames::Compression::Zlib,
    };
    write_vtu(path, &data, compression)
}
