//! Surfaces as polygon files (`.ply`), which ParaView, Blender and Houdini open.

use std::io::{self, Write};
use std::path::Path;

use glam::DVec3;

use crate::atomic;
use crate::error::FramesError;

/// A mesh of triangles.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlyMesh<'a> {
    /// Vertices [m].
    pub vertices: &'a [DVec3],
    /// Outward normals of the vertices, or none.
    pub normals: &'a [[f32; 3]],
    /// Velocities of the vertices [m/s], or none.
    pub velocities: &'a [[f32; 3]],
    /// Indices of vertices, anticlockwise seen from outside.
    pub triangles: &'a [[u32; 3]],
}

/// Columns of vectors in a file.
pub(crate) const COLUMNS: [[&str; 3]; 3] = [["x", "y", "z"], ["nx", "ny", "nz"], ["vx", "vy", "vz"]];

/// Writes a mesh, binary and little-endian: vertices and what they have as f32, triangles as indices of
/// vertices.
///
/// # Errors
/// A failure of the file system, an index of no vertex, or columns of different lengths.
pub fn write_ply(path: impl AsRef<Path>, mesh: &PlyMesh<'_>) -> Result<(), FramesError> {
    let (path, count) = (path.as_ref(), mesh.vertices.len());
    let missing = mesh.triangles.iter().flatten().find(|&&index| index as usize >= count);
    if let Some(index) = missing {
        return Err(FramesError::data(path, format!("there is no vertex {index} of {count}")));
    }
    let wrong = |column: &[[f32; 3]]| !column.is_empty() && column.len() != count;
    if wrong(mesh.normals) || wrong(mesh.velocities) {
        let (normals, velocities) = (mesh.normals.len(), mesh.velocities.len());
        return Err(FramesError::data(
            path,
            format!("{normals} normals and {velocities} velocities for {count} vertices"),
        ));
    }
    atomic::write(path, |out| fill(out, mesh))
}

fn fill(out: &mut impl Write, mesh: &PlyMesh<'_>) -> io::Result<()> {
    let further = [mesh.normals, mesh.velocities];
    write!(out, "ply\nformat binary_little_endian 1.0\nelement vertex {}\n", mesh.vertices.len())?;
    let is_there = [true, !mesh.normals.is_empty(), !mesh.velocities.is_empty()];
    for (names, _) in COLUMNS.iter().zip(is_there).filter(|column| column.1) {
        names.iter().try_for_each(|name| writeln!(out, "property float {name}"))?;
    }
    write!(
        out,
        "element face {}\nproperty list uchar int vertex_indices\nend_header\n",
        mesh.triangles.len()
    )?;
    for (at, vertex) in mesh.vertices.iter().enumerate() {
        let rest = further.iter().filter_map(|column| column.get(at));
        for vector in [vertex.as_vec3().to_array()].iter().chain(rest) {
            vector.iter().try_for_each(|number| out.write_all(&number.to_le_bytes()))?;
        }
    }
    for triangle in mesh.triangles {
        out.write_all(&[3])?;
        for index in triangle {
            out.write_all(&index.to_le_bytes())?;
        }
    }
    Ok(())
}
