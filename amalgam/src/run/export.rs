//! `amalgam export`: the frames of a run as one animated scene for other programs.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use amalgam_frames::{
    Frame, FramesError, Mesh, PvdCollection, RADIUS, UsdMesh, UsdObject, UsdPoints, UsdScene, UsdShape,
    UsdStates, UsdWritten, read_ply, write_usd,
};

use crate::{
    cli::{ExportArgs, Frames},
    console::say,
    error::CommandError,
    folder::{OBSTACLES, SCENE},
    picture::{STONE, WATER, colours},
    scene::{Colour, PictureSettings, Scene, SolverKind, UsdOutput},
};

/// Colour of a solid that pictures colour by a field: pale clay.
const CLAY: [u8; 3] = [0xd8, 0xcb, 0xb8];

/// Writes what a run left in its folder as one file, and says what is in it.
///
/// # Errors
/// A folder without frames, frames that cannot be read, or a file that cannot be written.
pub fn export(args: &ExportArgs) -> Result<(), CommandError> {
    let file = args.folder.join(SCENE);
    if let Err(error) = std::fs::metadata(&file)
        && error.kind() == ErrorKind::NotFound
    {
        let folder = args.folder.display();
        return Err(CommandError::Usage(format!(
            "{folder} holds no results of a run: give the folder that `amalgam run` wrote to, out/NAME OF THE SCENE"
        )));
    }
    let path = &args.usd;
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    if !["usd", "usda"].contains(&extension.as_str()) {
        let written = path.with_extension("usda");
        return Err(CommandError::Usage(format!(
            "{} must end in .usda: write --usd {}",
            path.display(),
            written.display()
        )));
    }
    let scene = Scene::read(&file, &[])?;
    let settings = scene.output.usd.unwrap_or_default();
    let lines = write(&scene, &args.folder, path, settings, args.frames)?;
    lines.iter().try_for_each(say)?;
    say(format_args!("{}: in Blender, File, Import, Universal Scene Description", path.display()))
}

/// Writes the frames in the folder of a run as one file. Returns a line on each object.
pub(crate) fn write(
    scene: &Scene,
    folder: &Path,
    path: &Path,
    settings: UsdOutput,
    frames: Frames,
) -> Result<Vec<String>, CommandError> {
    let failed = |error: FramesError| CommandError::Failed(error.to_string());
    let frames_per_second = 1.0 / scene.time.frame_interval;
    let pictures = PictureSettings::default();
    let colours = colours(scene, scene.output.pictures.as_ref().unwrap_or(&pictures));
    let mut objects = Vec::new();
    for (participant, (_, colour)) in scene.participants.iter().zip(colours) {
        let name = &participant.name;
        let list = folder.join(format!("{name}.pvd"));
        if !list.exists() {
            return Err(CommandError::Usage(format!(
                "{} holds no frames of {name}: compute the scene with output.vtk = true, which is the default",
                folder.display()
            )));
        }
        let is_fluid = participant.solver == SolverKind::Fluid.name();
        let colour = match colour {
            Colour::Plain(rgb) => rgb,
            Colour::Field(_) if is_fluid => WATER,
            Colour::Field(_) => CLAY,
        };
        let colour = colour.map(|channel| linear(f32::from(channel) / 255.0));
        let object = |name: String, shape: UsdShape| UsdObject {
            name,
            colour,
            roughness: if is_fluid { 0.05 } else { 0.5 },
            is_guide: false,
            shape,
        };
        let surface = surface(folder, name, frames);
        if surface.is_none() || settings.particles {
            let shape = particles(folder, &list, frames_per_second, frames).map_err(failed)?;
            let object = object(name.clone(), shape);
            objects.push(UsdObject { is_guide: surface.is_some(), ..object });
        }
        if let Some(shape) = surface {
            objects.push(object(format!("{name}_surface"), shape));
        }
    }
    let obstacles = folder.join(OBSTACLES);
    if obstacles.exists() {
        let load = Box::new(move |_| Ok(mesh_of(read_ply(&obstacles)?)));
        let shape = UsdShape::Mesh(UsdStates { frames: vec![f64::from(frames.first())], load });
        let (name, colour) = ("obstacles".to_string(), STONE.map(linear));
        objects.push(UsdObject { name, colour, roughness: 0.8, is_guide: false, shape });
    }
    let description = match scene.header.description.is_empty() {
        true => scene.header.name.clone(),
        false => format!("{}: {}", scene.header.name, scene.header.description),
    };
    if objects.iter().all(|object| object.name == "obstacles" || is_empty(&object.shape)) {
        let folder = folder.display();
        return Err(CommandError::Usage(format!(
            "{folder} holds no frame {frames}: leave out --frames for all"
        )));
    }
    let written = write_usd(path, &UsdScene { description, frames_per_second, objects }).map_err(failed)?;
    let line =
        |UsdWritten { name, what, most, states }| format!("  {name}: {most} {what} in {states} states");
    Ok(written.into_iter().map(line).collect())
}

fn is_empty(shape: &UsdShape) -> bool {
    match shape {
        UsdShape::Points(states) => states.frames.is_empty(),
        UsdShape::Mesh(states) => states.frames.is_empty(),
    }
}

/// File of a run's scene over time.
pub(crate) fn file_of(scene: &Scene, folder: &Path) -> PathBuf {
    folder.join(format!("{}.usda", scene.header.name))
}

/// The particles of a participant by frame, or the triangles between them if there are any.
fn particles(
    folder: &Path,
    list: &Path,
    frames_per_second: f64,
    wanted: Frames,
) -> Result<UsdShape, FramesError> {
    let (mut frames, mut files, mut is_mesh) = (Vec::new(), Vec::new(), false);
    for (time, file) in PvdCollection::read(list)? {
        let frame = (time * frames_per_second).round();
        let file = folder.join(file);
        // Nothing moves while one file stands for several times.
        if !wanted.has(frame) || files.last() == Some(&file) {
            continue;
        }
        // A sheet whose last triangle is torn stays a mesh without triangles.
        is_mesh = is_mesh || !Frame::read(&file)?.triangles.is_empty();
        frames.push(frame);
        files.push(file);
    }
    if is_mesh {
        let load = Box::new(move |place: usize| {
            let Frame { positions, velocities, triangles, .. } = Frame::read(&files[place])?;
            let positions = positions.iter().map(|x| x.as_vec3().to_array()).collect();
            Ok(UsdMesh { positions, velocities, triangles, ..UsdMesh::default() })
        });
        return Ok(UsdShape::Mesh(UsdStates { frames, load }));
    }
    let load = Box::new(move |place: usize| {
        let frame = Frame::read(&files[place])?;
        let radius = frame.scalars.into_iter().find(|(name, _)| name == RADIUS).map(|(_, values)| values);
        Ok(UsdPoints {
            positions: frame.positions.iter().map(|x| x.as_vec3().to_array()).collect(),
            velocities: frame.velocities,
            widths: radius.unwrap_or_default().into_iter().map(|radius| 2.0 * radius).collect(),
            ids: frame.ids.into_iter().map(|id| id as i64).collect(),
        })
    });
    Ok(UsdShape::Points(UsdStates { frames, load }))
}

/// The surface of a participant by frame, if the run wrote any.
fn surface(folder: &Path, participant: &str, wanted: Frames) -> Option<UsdShape> {
    let mut files = Vec::new();
    // A run without surfaces has no such folder.
    for entry in std::fs::read_dir(folder.join("surfaces")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number =
            name.strip_prefix(participant).and_then(|rest| rest.strip_prefix('_')?.strip_suffix(".ply"));
        let number = number.filter(|digits| digits.len() >= 6).and_then(|digits| digits.parse::<u32>().ok());
        if let Some(frame) = number.map(f64::from).filter(|&frame| wanted.has(frame)) {
            files.push((frame, entry.path()));
        }
    }
    files.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (frames, files): (Vec<f64>, Vec<PathBuf>) = files.into_iter().unzip();
    let load = |files: Vec<PathBuf>| Box::new(move |place: usize| Ok(mesh_of(read_ply(&files[place])?)));
    (!frames.is_empty()).then(|| UsdShape::Mesh(UsdStates { frames, load: load(files) }))
}

fn mesh_of(Mesh { vertices, normals, velocities, triangles }: Mesh) -> UsdMesh {
    UsdMesh { positions: vertices, velocities, normals, triangles }
}

/// A channel of a colour as linear light, from its sRGB value (IEC 61966-2-1).
fn linear(channel: f32) -> f32 {
    if channel <= 0.04045 { channel / 12.92 } else { ((channel + 0.055) / 1.055).powf(2.4) }
}
