//! Closed surfaces from OBJ, STL and PLY files, for bodies that are filled with particles, and distances from
//! obstacles.
//!
//! [`read_into`] reads the file that a shape names; everything that follows (is it closed? what is inside?)
//! is geometry and lives in `amalgam_particles::surface`.

mod obstacles;

pub use obstacles::faces::{Faces, faces};
pub use obstacles::{Beside, Obstacles};

use std::fs::{self, File};
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use amalgam_particles::DVec3;
use amalgam_particles::shapes::Shape;
use amalgam_particles::surface::Surface;
use ply_rs_bw::parser::Parser;
use ply_rs_bw::ply::{DefaultElement, Property};

/// Largest file [bytes].
pub const FILE_BYTES_MAX: u64 = 1 << 30;

/// Reason for which a file gives no surface, as a sentence that continues the name of its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MeshError {
    /// The key inside the shape that names the file, for example `file` or `subtract[0].file`.
    pub key: String,
    /// A sentence that goes on after the name of the key.
    message: String,
}

/// Reads the file of a [`Shape::Mesh`] into its surface, scaled and translated, and those of the parts of a
/// [`Shape::Difference`]; other shapes have no file. What the surface then encloses, or why it does not, the
/// shape says itself.
///
/// # Errors
/// A file that cannot be read or is none of the three formats.
pub fn read_into(shape: &mut Shape) -> Result<(), MeshError> {
    match shape {
        Shape::Mesh { file, scale, translation, surface } => {
            let (mut corners, triangles) = read(Path::new(file))?;
            corners.iter_mut().for_each(|corner| *corner = *corner * *scale + *translation);
            *surface = Some(Surface::new(&corners, &triangles));
            Ok(())
        }
        Shape::Difference { from, subtract } => {
            let within = |parent: String| {
                move |error: MeshError| MeshError { key: format!("{parent}.{}", error.key), ..error }
            };
            read_into(from).map_err(within("from".into()))?;
            let mut parts = subtract.iter_mut().enumerate();
            parts.try_for_each(|(n, part)| read_into(part).map_err(within(format!("subtract[{n}]"))))
        }
        _ => Ok(()),
    }
}

/// Corners in the file's own unit, and triangles of them.
type Triangles = (Vec<DVec3>, Vec<[u32; 3]>);

fn read(path: &Path) -> Result<Triangles, MeshError> {
    let fault = |what: String| MeshError {
        key: "file".into(),
        message: format!("is {}, which {what}", path.display()),
    };
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    if !["obj", "stl", "ply"].contains(&extension.as_str()) {
        return Err(fault("is neither OBJ, STL nor PLY by its name: write the path of such a file".into()));
    }
    let bytes = fs::metadata(path).map_err(|error| {
        fault(format!("cannot be read ({error}): write a path relative to the scene's file"))
    })?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(fault(format!(
            "holds {} bytes, more than {FILE_BYTES_MAX}: simplify the mesh",
            bytes.len()
        )));
    }
    let file = File::open(path).map_err(|error| fault(format!("cannot be opened: {error}")))?;
    let mut source = BufReader::new(file);
    let triangles = match extension.as_str() {
        "obj" => read_obj(&mut source),
        "stl" => read_stl(&mut source),
        _ => read_ply(&mut source),
    };
    let (corners, triangles) =
        triangles.map_err(|what| fault(format!("is no good {}: {what}", extension.to_uppercase())))?;
    if let Some(missing) = triangles.iter().flatten().find(|&&i| i as usize >= corners.len()) {
        return Err(fault(format!("names vertex {missing} of {}, counted from 0", corners.len())));
    }
    Ok((corners, triangles))
}

fn read_obj(source: &mut BufReader<File>) -> Result<Triangles, String> {
    let options = tobj::LoadOptions { triangulate: true, ..Default::default() };
    // Materials do not matter, and their files may be anywhere.
    let no_materials = |_: &Path| Ok(Default::default());
    let (models, _) =
        tobj::load_obj_buf(source, &options, no_materials).map_err(|error| error.to_string())?;
    let (mut corners, mut triangles) = (Vec::new(), Vec::new());
    for mesh in models.into_iter().map(|model| model.mesh) {
        let first = corners.len() as u32;
        corners.extend(mesh.positions.chunks_exact(3).map(|x| DVec3::new(x[0], x[1], x[2])));
        triangles.extend(mesh.indices.chunks_exact(3).map(|t| [first + t[0], first + t[1], first + t[2]]));
    }
    Ok((corners, triangles))
}

fn read_stl(source: &mut (impl Read + Seek)) -> Result<Triangles, String> {
    let mesh = stl_io::read_stl(source).map_err(|error| error.to_string())?;
    let corners = mesh.vertices.iter().map(|vertex| DVec3::from_array(vertex.0.map(f64::from)));
    let triangles = mesh.faces.iter().map(|face| face.vertices.map(|i| i as u32));
    Ok((corners.collect(), triangles.collect()))
}

fn read_ply(source: &mut impl Read) -> Result<Triangles, String> {
    let ply = Parser::<DefaultElement>::new().read_ply(source).map_err(|error| error.to_string())?;
    let element = |name: &str| ply.payload.get(name).ok_or(format!("it has no element `{name}`"));
    let coordinate = |vertex: &DefaultElement, name: &str| match vertex.get(name) {
        Some(Property::Float(value)) => Ok(f64::from(*value)),
        Some(Property::Double(value)) => Ok(*value),
        _ => Err(format!("its vertices have no coordinate `{name}`")),
    };
    let corner = |vertex: &DefaultElement| {
        Ok(DVec3::new(coordinate(vertex, "x")?, coordinate(vertex, "y")?, coordinate(vertex, "z")?))
    };
    let corners = element("vertex")?.iter().map(corner).collect::<Result<Vec<DVec3>, String>>()?;
    let mut triangles = Vec::new();
    for face in element("face")? {
        let indices = face.get("vertex_indices").or_else(|| face.get("vertex_index"));
        let indices = indices.and_then(indices_of).ok_or("its faces have no list `vertex_indices`")?;
        // A fan: polygons of scanned and modelled surfaces are convex.
        triangles.extend(indices.windows(2).skip(1).map(|pair| [indices[0], pair[0], pair[1]]));
    }
    Ok((corners, triangles))
}

/// A list of indices; one that is negative becomes one that no file can have.
fn indices_of(list: &Property) -> Option<Vec<u32>> {
    fn all<T: Copy + TryInto<u32>>(list: &[T]) -> Vec<u32> {
        list.iter().map(|&i| i.try_into().unwrap_or(u32::MAX)).collect()
    }
    match list {
        Property::ListChar(list) => Some(all(list)),
        Property::ListUChar(list) => Some(all(list)),
        Property::ListShort(list) => Some(all(list)),
        Property::ListUShort(list) => Some(all(list)),
        Property::ListInt(list) => Some(all(list)),
        Property::ListUInt(list) => Some(all(list)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OCTAHEDRON: [[i32; 3]; 6] = [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]];
    const FACES: [[usize; 3]; 8] =
        [[0, 2, 4], [2, 1, 4], [1, 3, 4], [3, 0, 4], [2, 0, 5], [1, 2, 5], [3, 1, 5], [0, 3, 5]];

    fn lines<T>(items: &[T], line: impl Fn(&T) -> String) -> String {
        items.iter().map(|item| line(item) + "\n").collect()
    }

    fn xyz(x: [i32; 3]) -> String {
        format!("{} {} {}", x[0], x[1], x[2])
    }

    fn obj(faces: &[[usize; 3]]) -> String {
        let vertices = lines(&OCTAHEDRON, |&x| format!("v {}", xyz(x)));
        vertices + &lines(faces, |[a, b, c]| format!("f {} {} {}", a + 1, b + 1, c + 1))
    }

    fn stl() -> String {
        let corner = |i: usize| format!("vertex {}\n", xyz(OCTAHEDRON[i]));
        let facet = |[a, b, c]: &[usize; 3]| {
            format!(
                "facet normal 0 0 0\nouter loop\n{}{}{}endloop\nendfacet",
                corner(*a),
                corner(*b),
                corner(*c)
            )
        };
        format!("solid octahedron\n{}endsolid octahedron\n", lines(&FACES, facet))
    }

    fn ply() -> String {
        let header = "ply\nformat ascii 1.0\nelement vertex 6\nproperty float x\nproperty float y\nproperty float z\n\
                      element face 8\nproperty list uchar int vertex_indices\nend_header\n";
        header.to_string()
            + &lines(&OCTAHEDRON, |&x| xyz(x))
            + &lines(&FACES, |[a, b, c]| format!("3 {a} {b} {c}"))
    }

    fn mesh(name: &str, text: &str) -> (tempfile::TempDir, Shape) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join(name);
        fs::write(&file, text).expect("writes");
        let file = file.display().to_string();
        (folder, Shape::Mesh { file, scale: 0.5, translation: DVec3::X, surface: None })
    }

    #[test]
    fn each_format_gives_the_same_body() {
        for (name, text) in [("a.obj", obj(&FACES)), ("a.STL", stl()), ("a.ply", ply())] {
            let (_folder, mut shape) = mesh(name, &text);
            read_into(&mut shape).unwrap_or_else(|error| panic!("{name}: {error}"));
            // An octahedron with half-diagonal a has the volume 4/3 a^3.
            assert!((shape.volume() - 4.0 / 3.0 * 0.125).abs() < 1e-7, "{name}: {}", shape.volume());
            assert!(shape.middle().distance(DVec3::X) < 1e-7);
            let points = shape.sample(0.02).expect("a closed surface");
            let volume = points.len() as f64 * 0.02f64.powi(3);
            assert!((volume / shape.volume() - 1.0).abs() < 0.01, "{name}: {volume}");
            let outside = |x: &DVec3| (*x - DVec3::X).abs().element_sum() > 0.5 + 1e-9;
            assert!(!points.iter().any(outside), "{name}");
        }
    }

    #[test]
    fn faults_say_what_is_wrong() {
        let of = |name: &str, text: &str| {
            let (_folder, mut shape) = mesh(name, text);
            let read = read_into(&mut shape).map_err(|error| error.to_string());
            read.and_then(|()| shape.sample(0.05).map_err(|faults| faults[0].to_string()))
                .expect_err("a fault")
        };
        assert!(of("a.obj", &obj(&FACES[1..])).contains("has a hole: 3 edges"));
        let inverted: Vec<[usize; 3]> =
            FACES.iter().map(|&[a, b, c]| if a == 1 { [a, c, b] } else { [a, b, c] }).collect();
        assert!(of("a.obj", &obj(&inverted)).contains("inverted faces"));
        assert!(of("a.obj", "v 0 0 0\n").contains("holds no triangle"));
        assert!(of("a.obj", &obj(&[[0, 1, 7]])).contains("is no good OBJ"));
        assert!(of("a.stl", "solid x\nfacet nonsense\n").contains("is no good STL"));
        assert!(of("a.ply", "ply\nformat ascii 1.0\nend_header\n").contains("no element `vertex`"));
        assert!(of("a.ply", &ply().replace("3 0 2 4", "3 0 2 -4")).contains("names vertex"));
        assert!(of("a.off", "").contains("neither OBJ, STL nor PLY"));
        let mut missing =
            Shape::Mesh { file: "missing.obj".into(), scale: 1.0, translation: DVec3::ZERO, surface: None };
        let error = read_into(&mut missing).expect_err("no file").to_string();
        assert!(error.contains("missing.obj") && error.contains("relative to the scene's file"), "{error}");
    }
}
