//! `amalgam export`: the frames of a run as one animated scene for other programs.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use amalgam_frames::{
    Frame, Mesh, PvdCollection, UsdMesh, UsdObject, UsdPoints, UsdScene, UsdShape, read_ply, write_usd,
};

use crate::{
    cli::ExportArgs,
    console::say,
    error::CommandError,
    run::output::{OBSTACLES, RADIUS, SCENE},
    run::picture::{STONE, colours},
    scene::{Colour, PictureSettings, Scene, SolverKind, UsdOutput},
};

/// Linear colour of what is coloured by a field in pictures: deep water.
const WATER: [f32; 3] = [0.02, 0.12, 0.32];

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
    let lines = write(&scene, &args.folder, path, settings)?;
    lines.iter().try_for_each(say)?;
    say(format_args!("{}: in Blender, File, Import, Universal Scene Description", path.display()))
}

/// Writes the frames in the folder of a run as one file; a line on each object comes back.
pub(crate) fn write(
    scene: &Scene,
    folder: &Path,
    path: &Path,
    settings: UsdOutput,
) -> Result<Vec<String>, CommandError> {
    let failed = |error: amalgam_frames::FramesError| CommandError::Failed(error.to_string());
    let frames_per_second = 1.0 / scene.time.frame_interval;
    let pictures = PictureSettings::default();
    let colours = colours(scene, scene.output.pictures.as_ref().unwrap_or(&pictures));
    let (mut objects, mut lines) = (Vec::new(), Vec::new());
    for (participant, (_, colour)) in scene.participants.iter().zip(colours) {
        let name = &participant.name;
        let list = folder.join(format!("{name}.pvd"));
        if !list.exists() {
            return Err(CommandError::Usage(format!(
                "{} holds no frames of {name}: compute the scene with output.vtk = true, which is the default",
                folder.display()
            )));
        }
        let colour = match colour {
            Colour::Plain(rgb) => rgb.map(|channel| linear(f32::from(channel) / 255.0)),
            Colour::Field(_) => WATER,
        };
        let is_fluid = participant.solver == SolverKind::Fluid.name();
        let object = |name: String, shape: UsdShape| UsdObject {
            name,
            colour,
            roughness: if is_fluid { 0.05 } else { 0.5 },
            is_guide: false,
            shape,
        };
        let surface = surface(folder, name).map_err(failed)?;
        if surface.is_none() || settings.particles {
            let shape = particles(folder, &list, frames_per_second).map_err(failed)?;
            lines.push(told(name, &shape));
            let object = object(name.clone(), shape);
            objects.push(UsdObject { is_guide: surface.is_some(), ..object });
        }
        if let Some(shape) = surface {
            let name = format!("{name}_surface");
            lines.push(told(&name, &shape));
            objects.push(object(name, shape));
        }
    }
    let obstacles = folder.join(OBSTACLES);
    if obstacles.exists() {
        let state = mesh_of(read_ply(obstacles).map_err(failed)?);
        let shape = UsdShape::Mesh(vec![(0.0, state)]);
        lines.push(told("obstacles", &shape));
        let (name, colour) = ("obstacles".to_string(), STONE.map(linear));
        objects.push(UsdObject { name, colour, roughness: 0.8, is_guide: false, shape });
    }
    let description = match scene.header.description.is_empty() {
        true => scene.header.name.clone(),
        false => format!("{}: {}", scene.header.name, scene.header.description),
    };
    write_usd(path, &UsdScene { description, frames_per_second, objects }).map_err(failed)?;
    Ok(lines)
}

/// Where a run writes its scene over time.
pub(crate) fn file_of(scene: &Scene, folder: &Path) -> PathBuf {
    folder.join(format!("{}.usda", scene.header.name))
}

/// The particles of a participant by frame, or the triangles between them if there are any.
fn particles(
    folder: &Path,
    list: &Path,
    frames_per_second: f64,
) -> Result<UsdShape, amalgam_frames::FramesError> {
    let (mut points, mut mesh, mut last) = (Vec::new(), Vec::new(), None);
    for (time, file) in PvdCollection::read(list)? {
        // Nothing moves while the same file stands for several times.
        if last.as_ref() == Some(&file) {
            continue;
        }
        let frame = Frame::read_vtu(folder.join(&file))?;
        last = Some(file);
        let code = (time * frames_per_second).round();
        let positions = frame.positions.iter().map(|x| x.as_vec3().to_array()).collect();
        if frame.triangles.is_empty() {
            let radius = frame.scalars.into_iter().find(|(name, _)| name == RADIUS).map(|(_, values)| values);
            let state = UsdPoints {
                positions,
                velocities: frame.velocities,
                widths: radius.unwrap_or_default().into_iter().map(|radius| 2.0 * radius).collect(),
                ids: frame.ids.into_iter().map(|id| id as i64).collect(),
            };
            points.push((code, state));
        } else {
            let (velocities, triangles) = (frame.velocities, frame.triangles);
            mesh.push((code, UsdMesh { positions, velocities, triangles, ..UsdMesh::default() }));
        }
    }
    // A sheet whose last triangle is torn stays a mesh, of none.
    if mesh.is_empty() { Ok(UsdShape::Points(points)) } else { Ok(UsdShape::Mesh(mesh)) }
}

/// The surface of a participant by frame, if the run wrote any.
fn surface(folder: &Path, participant: &str) -> Result<Option<UsdShape>, amalgam_frames::FramesError> {
    let mut files = Vec::new();
    // A run without surfaces has no such folder.
    for entry in std::fs::read_dir(folder.join("surfaces")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number =
            name.strip_prefix(participant).and_then(|rest| rest.strip_prefix('_')?.strip_suffix(".ply"));
        if let Some(frame) =
            number.filter(|digits| digits.len() >= 6).and_then(|digits| digits.parse::<u32>().ok())
        {
            files.push((frame, entry.path()));
        }
    }
    files.sort();
    let state = |(frame, path): (u32, PathBuf)| Ok((f64::from(frame), mesh_of(read_ply(path)?)));
    let states = files.into_iter().map(state).collect::<Result<Vec<_>, _>>()?;
    Ok((!states.is_empty()).then_some(UsdShape::Mesh(states)))
}

fn mesh_of(Mesh { vertices, normals, velocities, triangles }: Mesh) -> UsdMesh {
    UsdMesh { positions: vertices, velocities, normals, triangles }
}

fn told(name: &str, shape: &UsdShape) -> String {
    match shape {
        UsdShape::Points(states) => {
            let most = states.iter().map(|(_, state)| state.positions.len()).max().unwrap_or(0);
            format!("  {name}: {most} points in {} states", states.len())
        }
        UsdShape::Mesh(states) => {
            let most = states.iter().map(|(_, state)| state.triangles.len()).max().unwrap_or(0);
            format!("  {name}: {most} triangles in {} states", states.len())
        }
    }
}

/// A channel of a colour as light, from what screens are sent (IEC 61966-2-1).
fn linear(channel: f32) -> f32 {
    if channel <= 0.04045 { channel / 12.92 } else { ((channel + 0.055) / 1.055).powf(2.4) }
}
