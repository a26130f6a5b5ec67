//! Surfaces as polygon files (`.ply`), which ParaView, Blender and Houdini open.

use std::io::{self, Write};
use std::path::Path;

use glam::DVec3;

use crate::{FramesError, atomic};

/// Writes a mesh of triangles, binary and little-endian: `vertices` [m] as f32, triangles as indices of vertices.
///
/// # Errors
/// A failure of the file system, or an index of no vertex.
pub fn write_ply(
    path: impl AsRef<Path>,
    vertices: &[DVec3],
    triangles: &[[u32; 3]],
) -> Result<(), FramesError> {
    let path = path.as_ref();
    let missing = triangles.iter().flatten().find(|&&index| index as usize >= vertices.len());
    if let Some(index) = missing {
        return Err(FramesError::data(path, format!("there is no vertex {index} of {}", vertices.len())));
    }
    atomic::write(path, |out| fill(out, vertices, triangles))
}

fn fill(out: &mut impl Write, vertices: &[DVec3], triangles: &[[u32; 3]]) -> io::Result<()> {
    write!(
        out,
        "ply\nformat binary_little_endian 1.0\nelement vertex {}\nproperty float x\nproperty float y\nproperty float \
         z\nelement face {}\nproperty list uchar int vertex_indices\nend_header\n",
        vertices.len(),
        triangles.len()
    )?;
    for vertex in vertices {
        for coordinate in vertex.to_array() {
            out.write_all(&(coordinate as f32).to_le_bytes())?;
        }
    }
    for triangle in triangles {
        out.write_all(&[3])?;
        for index in triangle {
            out.write_all(&index.to_le_bytes())?;
        }
    }
    Ok(())
}
