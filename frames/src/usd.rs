//! Scenes over time in Universal Scene Description (`.usda`), which Blender, Houdini and Omniverse open.
//!
//! Everything lies below `/World`, in metres, with Z up. A time code is a frame. The text form is written
//! here, since no library in Rust writes a binary form that Pixar's own library reads.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::path::Path;

use glam::{DVec3, Vec3};

use crate::atomic;
use crate::error::FramesError;
use crate::picture::{Creased, creased};

/// Content of a USD file.
pub struct UsdScene {
    /// Description of the scene, one sentence, stored as documentation of the file.
    pub description: String,
    /// Frames per second of the scene's own time.
    pub frames_per_second: f64,
    /// Objects of the scene.
    pub objects: Vec<UsdObject>,
}

/// An object of one material.
pub struct UsdObject {
    /// Name of the object. A character that a name in USD cannot hold becomes `_`.
    pub name: String,
    /// Red, green and blue, linear, from 0 to 1.
    pub colour: [f32; 3],
    /// Roughness, from 0 (a mirror) to 1.
    pub roughness: f32,
    /// True if renderers leave the object out, because another object shows the same.
    pub is_guide: bool,
    /// Shape by frame, ascending.
    pub shape: UsdShape,
}

/// Elements of an object.
pub enum UsdShape {
    /// Balls.
    Points(UsdStates<UsdPoints>),
    /// Triangles.
    Mesh(UsdStates<UsdMesh>),
}

impl UsdShape {
    fn frames(&self) -> &[f64] {
        match self {
            Self::Points(states) => &states.frames,
            Self::Mesh(states) => &states.frames,
        }
    }
}

/// States of an object by frame. One at a time is in memory, and each is loaded once for each attribute.
pub struct UsdStates<S> {
    /// Frames, ascending.
    pub frames: Vec<f64>,
    /// The state of a frame, by its place in `frames`.
    pub load: Load<S>,
}

/// Loads the state at a place in a list of frames.
pub type Load<S> = Box<dyn Fn(usize) -> Result<S, FramesError>>;

/// Record of an object that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdWritten {
    /// The object's name, as it was given.
    pub name: String,
    /// Kind of elements: `points` or `triangles`.
    pub what: &'static str,
    /// Largest number of elements in a state.
    pub most: usize,
    /// Number of states.
    pub states: usize,
}

/// Particles at one time.
#[derive(Clone, Debug, Default)]
pub struct UsdPoints {
    /// Positions [m].
    pub positions: Vec<[f32; 3]>,
    /// Velocities [m/s].
    pub velocities: Vec<[f32; 3]>,
    /// Diameters [m].
    pub widths: Vec<f32>,
    /// Ids.
    pub ids: Vec<i64>,
}

/// A surface at one time.
#[derive(Clone, Debug, Default)]
pub struct UsdMesh {
    /// Vertices [m].
    pub positions: Vec<[f32; 3]>,
    /// Velocities [m/s], or none.
    pub velocities: Vec<[f32; 3]>,
    /// Normals of the vertices. Without normals, edges are sharp where triangles meet at an angle.
    pub normals: Vec<[f32; 3]>,
    /// Vertices of each triangle, anticlockwise seen from outside.
    pub triangles: Vec<[u32; 3]>,
}

/// Writes a scene as text; the file appears whole or not at all.
///
/// # Errors
/// A failure of the file system, or of loading a state.
pub fn write_usd(path: impl AsRef<Path>, scene: &UsdScene) -> Result<Vec<UsdWritten>, FramesError> {
    let surveyed = scene.objects.iter().map(Surveyed::new).collect::<Result<Vec<_>, FramesError>>()?;
    atomic::write(path.as_ref(), |out| write(out, scene, &surveyed))?;
    Ok(surveyed.into_iter().map(|object| object.written).collect())
}

fn write(out: &mut dyn Write, scene: &UsdScene, surveyed: &[Surveyed]) -> io::Result<()> {
    let frames = || scene.objects.iter().flat_map(|object| object.shape.frames());
    let start = frames().copied().reduce(f64::min).unwrap_or(0.0);
    let end = frames().copied().fold(start, f64::max);
    let rate = scene.frames_per_second;
    writeln!(out, "#usda 1.0\n(")?;
    writeln!(out, "    defaultPrim = \"World\"\n    doc = {}", quoted(&scene.description))?;
    writeln!(out, "    startTimeCode = {start}\n    endTimeCode = {end}")?;
    writeln!(out, "    timeCodesPerSecond = {rate}\n    framesPerSecond = {rate}")?;
    writeln!(out, "    metersPerUnit = 1\n    upAxis = \"Z\"\n)\n\ndef Xform \"World\"\n{{")?;
    let mut names = BTreeSet::from([MATERIALS.to_string()]);
    let named: Vec<(String, &UsdObject)> =
        scene.objects.iter().map(|object| (unique(&object.name, &mut names), object)).collect();
    for ((name, object), surveyed) in named.iter().zip(surveyed) {
        write_object(out, name, object, surveyed)?;
    }
    writeln!(out, "    def Scope \"{MATERIALS}\"\n    {{")?;
    for (name, object) in &named {
        write_material(out, name, object)?;
    }
    writeln!(out, "    }}\n}}")
}

/// Prim that holds the materials.
const MATERIALS: &str = "materials";

/// A material that every renderer knows.
fn write_material(out: &mut dyn Write, name: &str, object: &UsdObject) -> io::Result<()> {
    let [red, green, blue] = object.colour;
    writeln!(out, "        def Material \"{name}\"\n        {{")?;
    writeln!(
        out,
        "            token outputs:surface.connect = </World/{MATERIALS}/{name}/surface.outputs:surface>"
    )?;
    writeln!(out, "            def Shader \"surface\"\n            {{")?;
    writeln!(out, "                uniform token info:id = \"UsdPreviewSurface\"")?;
    writeln!(out, "                color3f inputs:diffuseColor = ({red:?}, {green:?}, {blue:?})")?;
    writeln!(out, "                float inputs:roughness = {:?}", object.roughness)?;
    writeln!(out, "                token outputs:surface\n            }}\n        }}")
}

fn write_object(out: &mut dyn Write, name: &str, object: &UsdObject, surveyed: &Surveyed) -> io::Result<()> {
    let kind = match object.shape {
        UsdShape::Points(_) => "Points",
        UsdShape::Mesh(_) => "Mesh",
    };
    writeln!(
        out,
        "    def {kind} \"{name}\" (\n        prepend apiSchemas = [\"MaterialBindingAPI\"]\n    )\n    {{"
    )?;
    match &object.shape {
        UsdShape::Points(states) => write_attributes(out, states, &POINTS, surveyed)?,
        UsdShape::Mesh(states) => {
            writeln!(
                out,
                "        uniform token subdivisionScheme = \"none\"\n        uniform bool doubleSided = 1"
            )?;
            write_attributes(out, states, &MESH, surveyed)?;
        }
    }
    let [red, green, blue] = object.colour;
    writeln!(
        out,
        "        color3f[] primvars:displayColor = [({red:?}, {green:?}, {blue:?})] (interpolation = \"constant\")"
    )?;
    if object.is_guide {
        writeln!(out, "        uniform token purpose = \"guide\"")?;
    }
    writeln!(out, "        rel material:binding = </World/{MATERIALS}/{name}>\n    }}")
}

/// Findings about the states of an object before they are written.
struct Surveyed {
    written: UsdWritten,
    /// For each attribute, true if it is the same in all states.
    is_same: Vec<bool>,
    /// For each attribute, true if all states have it.
    is_there: Vec<bool>,
}

impl Surveyed {
    fn new(object: &UsdObject) -> Result<Self, FramesError> {
        let name = object.name.clone();
        match &object.shape {
            UsdShape::Points(states) => {
                Self::of(name, "points", states, &POINTS, |state| state.positions.len())
            }
            UsdShape::Mesh(states) => {
                Self::of(name, "triangles", states, &MESH, |state| state.triangles.len())
            }
        }
    }

    fn of<S>(
        name: String,
        what: &'static str,
        states: &UsdStates<S>,
        attributes: &[Attribute<S>],
        count: impl Fn(&S) -> usize,
    ) -> Result<Self, FramesError> {
        let written = UsdWritten { name, what, most: 0, states: states.frames.len() };
        let all = vec![true; attributes.len()];
        let mut this = Self { written, is_same: all.clone(), is_there: all };
        let mut first: Option<S> = None;
        for place in 0..states.frames.len() {
            let state = (states.load)(place)?;
            this.written.most = this.written.most.max(count(&state));
            for ((attribute, is_same), is_there) in
                attributes.iter().zip(&mut this.is_same).zip(&mut this.is_there)
            {
                *is_there &= (attribute.is_there)(&state);
                *is_same &= first.as_ref().is_none_or(|first| (attribute.is_same)(first, &state));
            }
            first.get_or_insert(state);
        }
        Ok(this)
    }
}

/// An attribute of an object whose states are `S`.
struct Attribute<S> {
    declaration: &'static str,
    /// USD's name of the interpolation, where the file must state it.
    interpolation: Option<&'static str>,
    is_there: fn(&S) -> bool,
    is_same: fn(&S, &S) -> bool,
    write: fn(&S, &mut dyn Write) -> io::Result<()>,
}

impl<S> Attribute<S> {
    /// An attribute that all states have.
    const fn new(
        declaration: &'static str,
        is_same: fn(&S, &S) -> bool,
        write: fn(&S, &mut dyn Write) -> io::Result<()>,
    ) -> Self {
        Self { declaration, interpolation: None, is_there: |_| true, is_same, write }
    }
}

const POINTS: [Attribute<UsdPoints>; 5] = [
    Attribute::new(
        "float3[] extent",
        |a, b| a.positions == b.positions && a.widths == b.widths,
        |state, out| {
            let widest = state.widths.iter().copied().fold(0.0, f32::max);
            write_array(out, extent(&state.positions, widest))
        },
    ),
    Attribute::new("int64[] ids", |a, b| a.ids == b.ids, |state, out| write_array(out, &state.ids)),
    Attribute::new(
        "point3f[] points",
        |a, b| a.positions == b.positions,
        |state, out| write_vectors(out, &state.positions),
    ),
    Attribute::new(
        "vector3f[] velocities",
        |a, b| a.velocities == b.velocities,
        |state, out| write_vectors(out, &state.velocities),
    ),
    Attribute {
        interpolation: Some("vertex"),
        ..Attribute::new(
            "float[] widths",
            |a, b| a.widths == b.widths,
            |state, out| write_array(out, state.widths.iter().copied().map(Number)),
        )
    },
];

const MESH: [Attribute<UsdMesh>; 7] = [
    Attribute::new(
        "float3[] extent",
        |a, b| a.positions == b.positions,
        |state, out| write_array(out, extent(&state.positions, 0.0)),
    ),
    Attribute::new(
        "int[] faceVertexCounts",
        |a, b| a.triangles.len() == b.triangles.len(),
        |state, out| write_array(out, state.triangles.iter().map(|_| 3)),
    ),
    Attribute::new(
        "int[] faceVertexIndices",
        |a, b| a.triangles == b.triangles,
        |state, out| write_array(out, state.triangles.as_flattened()),
    ),
    Attribute {
        interpolation: Some("vertex"),
        is_there: has_normals,
        ..Attribute::new(
            "normal3f[] normals",
            |a, b| a.normals == b.normals,
            |state, out| write_vectors(out, &state.normals),
        )
    },
    Attribute {
        interpolation: Some("faceVarying"),
        is_there: |state| state.positions.is_empty() || !has_normals(state),
        ..Attribute::new(
            "normal3f[] normals",
            |a, b| a.triangles == b.triangles && sharp_normals(a) == sharp_normals(b),
            |state, out| write_vectors(out, &sharp_normals(state)),
        )
    },
    Attribute::new(
        "point3f[] points",
        |a, b| a.positions == b.positions,
        |state, out| write_vectors(out, &state.positions),
    ),
    Attribute {
        is_there: |state| state.velocities.len() == state.positions.len(),
        ..Attribute::new(
            "vector3f[] velocities",
            |a, b| a.velocities == b.velocities,
            |state, out| write_vectors(out, &state.velocities),
        )
    },
];

/// Normals of the corners of triangles, with edges where triangles meet at an angle.
fn sharp_normals(state: &UsdMesh) -> Vec<[f32; 3]> {
    let positions: Vec<DVec3> = state.positions.iter().map(|&x| Vec3::from(x).as_dvec3()).collect();
    let Creased { normals, triangles, .. } = creased(&positions, &state.triangles);
    triangles.as_flattened().iter().map(|&corner| normals[corner as usize]).collect()
}

fn has_normals(state: &UsdMesh) -> bool {
    state.normals.len() == state.positions.len()
}

fn write_attributes<S>(
    out: &mut dyn Write,
    states: &UsdStates<S>,
    attributes: &[Attribute<S>],
    surveyed: &Surveyed,
) -> io::Result<()> {
    let load = |place: usize| (states.load)(place).map_err(io::Error::other);
    let there = attributes.iter().zip(&surveyed.is_same).zip(&surveyed.is_there);
    let mut declared = BTreeSet::new();
    for ((attribute, is_same), _) in there.filter(|(_, is_there)| **is_there) {
        let declaration = attribute.declaration;
        // A surface that is empty in all states has both attributes of normals; only the first is written.
        if !declared.insert(declaration) {
            continue;
        }
        let metadata = attribute.interpolation.map(|name| format!(" (interpolation = \"{name}\")"));
        let metadata = metadata.unwrap_or_default();
        if *is_same {
            write!(out, "        {declaration} = ")?;
            match states.frames.is_empty() {
                true => out.write_all(b"[]")?,
                false => (attribute.write)(&load(0)?, out)?,
            }
            writeln!(out, "{metadata}")?;
            continue;
        }
        if !metadata.is_empty() {
            writeln!(out, "        {declaration}{metadata}")?;
        }
        writeln!(out, "        {declaration}.timeSamples = {{")?;
        for (place, frame) in states.frames.iter().enumerate() {
            write!(out, "            {frame}: ")?;
            (attribute.write)(&load(place)?, out)?;
            writeln!(out, ",")?;
        }
        writeln!(out, "        }}")?;
    }
    Ok(())
}

fn write_vectors(out: &mut dyn Write, values: &[[f32; 3]]) -> io::Result<()> {
    write_array(out, values.iter().copied().map(Vector))
}

fn write_array(out: &mut dyn Write, values: impl IntoIterator<Item: Display>) -> io::Result<()> {
    out.write_all(b"[")?;
    for (at, value) in values.into_iter().enumerate() {
        let comma = if at > 0 { ", " } else { "" };
        write!(out, "{comma}{value}")?;
    }
    out.write_all(b"]")
}

/// A number with the fewest digits that read back to the same bits.
#[derive(Clone, Copy, PartialEq)]
struct Number(f32);

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Small whole numbers are written without `.0`.
        if self.0.fract() == 0.0 && self.0.abs() < 1e6 {
            write!(f, "{}", self.0)
        } else {
            write!(f, "{:?}", self.0)
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
struct Vector([f32; 3]);

impl Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0.map(Number);
        write!(f, "({x}, {y}, {z})")
    }
}

/// Lowest and highest corner of balls.
fn extent(positions: &[[f32; 3]], width: f32) -> [Vector; 2] {
    let start = (Vec3::INFINITY, Vec3::NEG_INFINITY);
    let (low, high) =
        positions.iter().fold(start, |(low, high), x| (low.min((*x).into()), high.max((*x).into())));
    let (low, high) = if positions.is_empty() { (Vec3::ZERO, Vec3::ZERO) } else { (low, high) };
    [low - 0.5 * width, high + 0.5 * width].map(|x| Vector(x.to_array()))
}

/// A text as USD writes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted += "\\n",
            letter if letter.is_control() => (),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

/// A name that USD accepts and that is not taken.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let mut plain: String = name.chars().map(letter).collect();
    if !plain.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        plain.insert(0, '_');
    }
    let numbered = (2..).map(|number| format!("{plain}_{number}"));
    let mut free = std::iter::once(plain.clone()).chain(numbered);
    loop {
        if let Some(name) = free.next()
            && taken.insert(name.clone())
        {
            return name;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states<S: Clone + 'static>(states: [S; 2]) -> UsdStates<S> {
        UsdStates { frames: vec![0.0, 1.0], load: Box::new(move |place| Ok(states[place].clone())) }
    }

    fn two_states() -> UsdScene {
        let balls = |x: f32| UsdPoints {
            positions: vec![[x, 0.0, 0.0], [x, 1.0, 0.0]],
            velocities: vec![[1.0, 0.0, 0.0]; 2],
            widths: vec![0.2; 2],
            ids: vec![3, 8],
        };
        let triangle = |z: f32| UsdMesh {
            positions: vec![[0.0, 0.0, z], [1.0, 0.0, z], [0.0, 1.0, z]],
            velocities: Vec::new(),
            normals: Vec::new(),
            triangles: vec![[0, 1, 2]],
        };
        let object = |name: &str, shape| UsdObject {
            name: name.into(),
            colour: [0.1, 0.2, 0.3],
            roughness: 0.4,
            is_guide: false,
            shape,
        };
        UsdScene {
            description: "two \"states\"".into(),
            frames_per_second: 25.0,
            objects: vec![
                object("my-water", UsdShape::Points(states([balls(0.0), balls(0.5)]))),
                object("my.water", UsdShape::Mesh(states([triangle(0.0), triangle(2.0)]))),
            ],
        }
    }

    #[test]
    fn what_moves_has_a_value_by_frame_and_the_rest_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.usda");
        let written = write_usd(&path, &two_states()).expect("writes");
        let water = UsdWritten { name: "my-water".into(), what: "points", most: 2, states: 2 };
        assert_eq!(written[0], water);
        assert_eq!((written[1].what, written[1].most), ("triangles", 1));
        let text = std::fs::read_to_string(&path).expect("is there");
        for part in [
            "endTimeCode = 1\n    timeCodesPerSecond = 25\n",
            "    def Points \"my_water\" (",
            "int64[] ids = [3, 8]\n",
            "point3f[] points.timeSamples = {\n            0: [(0, 0, 0), (0, 1, 0)],\n            1: [(0.5, 0, 0), (0.5, 1, 0)],\n",
            "float[] widths = [0.2, 0.2] (interpolation = \"vertex\")\n",
            "    def Mesh \"my_water_2\" (",
            "int[] faceVertexIndices = [0, 1, 2]\n",
            "normal3f[] normals = [(0, 0, 1), (0, 0, 1), (0, 0, 1)] (interpolation = \"faceVarying\")\n",
            "doc = \"two \\\"states\\\"\"\n",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn a_surface_that_is_empty_at_first_keeps_its_normals() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.usda");
        let mut full =
            UsdMesh { positions: vec![[0.0; 3]; 3], triangles: vec![[0, 1, 2]], ..UsdMesh::default() };
        full.normals = vec![[0.0, 0.0, 1.0]; 3];
        for later in [full, UsdMesh::default()] {
            let mut scene = two_states();
            scene.objects.truncate(1);
            scene.objects[0].shape = UsdShape::Mesh(states([UsdMesh::default(), later]));
            write_usd(&path, &scene).expect("writes");
            let text = std::fs::read_to_string(&path).expect("is there");
            assert_eq!(text.matches("(interpolation = \"vertex\")").count(), 1, "{text}");
            assert!(!text.contains("faceVarying"), "{text}");
        }
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.usda");
        write_usd(&path, &two_states()).expect("writes");
        let text = std::fs::read_to_string(&path).expect("is there");
        assert!(text.starts_with("#usda 1.0\n") && text.ends_with("}\n"), "{text}");
        let mut scene = two_states();
        let lost =
            UsdStates { frames: vec![0.0, 1.0], load: Box::new(|_| Err(FramesError::Scene("lost".into()))) };
        scene.objects[1].shape = UsdShape::Mesh(lost);
        let other = folder.path().join("b.usda");
        assert!(write_usd(&other, &scene).expect_err("a state that is lost").to_string().contains("lost"));
        assert!(!other.exists());
        let nowhere = folder.path().join("none/a.usda");
        assert!(write_usd(&nowhere, &two_states()).expect_err("no folder").to_string().contains("none"));
    }
}
