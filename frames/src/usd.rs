//! Scenes over time in Universal Scene Description (`.usda`), which Blender, Houdini and Omniverse open.
//!
//! Everything lies below `/World`, in metres, with Z up. A time code is a frame. The form with text is written here since no
//! library in Rust writes a binary one that Pixar's own reads.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::path::Path;

use glam::{DVec3, Vec3};

use crate::picture::creased_normals;
use crate::{FramesError, atomic};

/// What a file shows.
#[derive(Clone, Debug)]
pub struct UsdScene {
    /// What the scene is: a sentence for whoever opens the file.
    pub description: String,
    /// Frames per second of the scene's own time.
    pub frames_per_second: f64,
    /// What there is.
    pub objects: Vec<UsdObject>,
}

/// An object of one material.
#[derive(Clone, Debug)]
pub struct UsdObject {
    /// What it is called; what a name of USD cannot hold becomes `_`.
    pub name: String,
    /// Red, green and blue, linear, from 0 to 1.
    pub colour: [f32; 3],
    /// From 0, a mirror, to 1.
    pub roughness: f32,
    /// Whether renderers leave it out, because another object shows the same.
    pub is_guide: bool,
    /// What it is, by frame, ascending.
    pub shape: UsdShape,
}

/// What an object consists of, with the frame of each state.
#[derive(Clone, Debug)]
pub enum UsdShape {
    /// Balls.
    Points(Vec<(f64, UsdPoints)>),
    /// Triangles.
    Mesh(Vec<(f64, UsdMesh)>),
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
    /// Normals of the vertices; without, edges are sharp where triangles meet at an angle.
    pub normals: Vec<[f32; 3]>,
    /// Vertices of each triangle, anticlockwise seen from outside.
    pub triangles: Vec<[u32; 3]>,
}

/// Writes a scene as text; the file appears whole or not at all.
///
/// # Errors
/// A failure of the file system.
pub fn write_usd(path: impl AsRef<Path>, scene: &UsdScene) -> Result<(), FramesError> {
    atomic::write(path.as_ref(), |out| write(out, scene))
}

fn write(out: &mut impl Write, scene: &UsdScene) -> io::Result<()> {
    let last = |object: &UsdObject| match &object.shape {
        UsdShape::Points(states) => states.last().map_or(0.0, |state| state.0),
        UsdShape::Mesh(states) => states.last().map_or(0.0, |state| state.0),
    };
    let end = scene.objects.iter().map(last).fold(0.0, f64::max);
    let rate = scene.frames_per_second;
    writeln!(out, "#usda 1.0\n(")?;
    writeln!(out, "    defaultPrim = \"World\"\n    doc = {}", quoted(&scene.description))?;
    writeln!(out, "    startTimeCode = 0\n    endTimeCode = {end}")?;
    writeln!(out, "    timeCodesPerSecond = {rate}\n    framesPerSecond = {rate}")?;
    writeln!(out, "    metersPerUnit = 1\n    upAxis = \"Z\"\n)\n\ndef Xform \"World\"\n{{")?;
    let mut names = BTreeSet::from([MATERIALS.to_string()]);
    let named: Vec<(String, &UsdObject)> =
        scene.objects.iter().map(|object| (unique(&object.name, &mut names), object)).collect();
    for (name, object) in &named {
        write_object(out, name, object)?;
    }
    writeln!(out, "    def Scope \"{MATERIALS}\"\n    {{")?;
    for (name, object) in &named {
        write_material(out, name, object)?;
    }
    writeln!(out, "    }}\n}}")
}

/// Where materials lie.
const MATERIALS: &str = "materials";

/// A material that every renderer knows.
fn write_material(out: &mut impl Write, name: &str, object: &UsdObject) -> io::Result<()> {
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

fn write_object(out: &mut impl Write, name: &str, object: &UsdObject) -> io::Result<()> {
    let kind = match object.shape {
        UsdShape::Points(_) => "Points",
        UsdShape::Mesh(_) => "Mesh",
    };
    writeln!(
        out,
        "    def {kind} \"{name}\" (\n        prepend apiSchemas = [\"MaterialBindingAPI\"]\n    )\n    {{"
    )?;
    match &object.shape {
        UsdShape::Points(states) => write_points(out, states)?,
        UsdShape::Mesh(states) => write_mesh(out, states)?,
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

fn write_points(out: &mut impl Write, states: &[(f64, UsdPoints)]) -> io::Result<()> {
    let widest = |state: &UsdPoints| state.widths.iter().copied().fold(0.0, f32::max);
    attribute(out, "float3[] extent", "", states, |state| extent(&state.positions, widest(state)))?;
    attribute(out, "int64[] ids", "", states, |state| state.ids.iter())?;
    attribute(out, "point3f[] points", "", states, |state| state.positions.iter().copied().map(Vector))?;
    attribute(out, "vector3f[] velocities", "", states, |state| {
        state.velocities.iter().copied().map(Vector)
    })?;
    attribute(out, "float[] widths", " (interpolation = \"vertex\")", states, |state| {
        state.widths.iter().copied().map(Number)
    })
}

fn write_mesh(out: &mut impl Write, states: &[(f64, UsdMesh)]) -> io::Result<()> {
    let vectors = |values: &[[f32; 3]]| values.iter().copied().map(Vector).collect::<Vec<_>>();
    writeln!(
        out,
        "        uniform token subdivisionScheme = \"none\"\n        uniform bool doubleSided = 1"
    )?;
    attribute(out, "float3[] extent", "", states, |state| extent(&state.positions, 0.0))?;
    attribute(out, "int[] faceVertexCounts", "", states, |state| state.triangles.iter().map(|_| 3))?;
    attribute(out, "int[] faceVertexIndices", "", states, |state| state.triangles.as_flattened().iter())?;
    let is_round = states.iter().all(|state| state.1.normals.len() == state.1.positions.len());
    let interpolation = if is_round { "vertex" } else { "faceVarying" };
    let metadata = format!(" (interpolation = \"{interpolation}\")");
    attribute(out, "normal3f[] normals", &metadata, states, |state| {
        if is_round {
            return vectors(&state.normals);
        }
        let positions: Vec<DVec3> = state.positions.iter().map(|&x| Vec3::from(x).as_dvec3()).collect();
        vectors(&creased_normals(&positions, &state.triangles))
    })?;
    attribute(out, "point3f[] points", "", states, |state| vectors(&state.positions))?;
    if states.iter().all(|state| !state.1.velocities.is_empty()) {
        attribute(out, "vector3f[] velocities", "", states, |state| vectors(&state.velocities))?;
    }
    Ok(())
}

/// An attribute by frame, or with one value if it has the same in all states.
fn attribute<'s, S, I>(
    out: &mut impl Write,
    declaration: &str,
    metadata: &str,
    states: &'s [(f64, S)],
    values: impl Fn(&'s S) -> I,
) -> io::Result<()>
where
    I: IntoIterator<Item: Display + PartialEq>,
{
    let is_same = states.windows(2).all(|pair| values(&pair[0].1).into_iter().eq(values(&pair[1].1)));
    if is_same {
        let value = states.first().map(|state| values(&state.1));
        write!(out, "        {declaration} = ")?;
        write_array(out, value.into_iter().flatten())?;
        return writeln!(out, "{metadata}");
    }
    if !metadata.is_empty() {
        writeln!(out, "        {declaration}{metadata}")?;
    }
    writeln!(out, "        {declaration}.timeSamples = {{")?;
    for (frame, state) in states {
        write!(out, "            {frame}: ")?;
        write_array(out, values(state))?;
        writeln!(out, ",")?;
    }
    writeln!(out, "        }}")
}

fn write_array(out: &mut impl Write, values: impl IntoIterator<Item: Display>) -> io::Result<()> {
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
        // Small whole numbers without their `.0`.
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

/// A name that USD takes and that nobody has.
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
                object("my-water", UsdShape::Points(vec![(0.0, balls(0.0)), (1.0, balls(0.5))])),
                object("my.water", UsdShape::Mesh(vec![(0.0, triangle(0.0)), (1.0, triangle(2.0))])),
            ],
        }
    }

    #[test]
    fn what_moves_has_a_value_by_frame_and_the_rest_one() {
        let mut bytes = Vec::new();
        write(&mut bytes, &two_states()).expect("writes");
        let text = String::from_utf8(bytes).expect("text");
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
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.usda");
        write_usd(&path, &two_states()).expect("writes");
        let text = std::fs::read_to_string(&path).expect("is there");
        assert!(text.starts_with("#usda 1.0\n") && text.ends_with("}\n"), "{text}");
        let nowhere = folder.path().join("none/a.usda");
        assert!(write_usd(&nowhere, &two_states()).expect_err("no folder").to_string().contains("none"));
    }
}
