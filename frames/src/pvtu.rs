//! A frame of a participant in several files, one per rank of its solver (`.pvtu`).
//!
//! Format: parallel files of the XML file format of "VTK File Formats" (Kitware).

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::atomic;
use crate::error::FramesError;
use crate::vtu::{RADIUS, check_names};

/// Writes the file that joins the parts of a frame, which [`write_vtu`](crate::write_vtu) has written with
/// radii, without triangles, and all with the same further fields: their names and components (1 or 3), of
/// Float32. `parts` are names of files in the folder of `path`.
///
/// # Errors
/// A bad or repeated field name, a file name with one of `" < > &`, or a failure of the file system.
pub fn write_pvtu(
    path: impl AsRef<Path>,
    parts: &[String],
    fields: &[(&str, u32)],
) -> Result<(), FramesError> {
    let path = path.as_ref();
    let names: Vec<&str> = fields.iter().map(|&(name, _)| name).collect();
    check_names(&names).map_err(|what| FramesError::data(path, what))?;
    if let Some(part) = parts.iter().find(|part| part.contains(['"', '<', '>', '&'])) {
        return Err(FramesError::data(path, format!("file name {part} must not hold any of \" < > &")));
    }
    let radius = (!names.contains(&RADIUS)).then_some((RADIUS, 1));
    let point_data = [("id", "UInt64", 1), ("velocity", "Float32", 3), ("group", "Int32", 1)];
    let further = radius.into_iter().chain(fields.iter().copied());
    let point_data = point_data.into_iter().chain(further.map(|(name, n)| (name, "Float32", n)));
    let array = |out: &mut dyn Write, (name, kind, components): (&str, &str, u32)| {
        writeln!(out, r#"<PDataArray type="{kind}" Name="{name}" NumberOfComponents="{components}"/>"#)
    };
    atomic::write(path, |out| {
        writeln!(out, r#"<?xml version="1.0"?>"#)?;
        writeln!(
            out,
            r#"<VTKFile type="PUnstructuredGrid" version="1.0" byte_order="LittleEndian" header_type="UInt64">"#
        )?;
        writeln!(out, "<PUnstructuredGrid GhostLevel=\"0\">\n<PPointData>")?;
        point_data.into_iter().try_for_each(|entry| array(out, entry))?;
        writeln!(out, "</PPointData>\n<PPoints>")?;
        array(out, ("Points", "Float64", 3))?;
        writeln!(out, "</PPoints>")?;
        for part in parts {
            writeln!(out, r#"<Piece Source="{part}"/>"#)?;
        }
        writeln!(out, "</PUnstructuredGrid>\n</VTKFile>")
    })
}

/// Names of the files, in the folder of a frame, that hold its parts, if it is a file of [`write_pvtu`]. A frame in
/// one file has none.
///
/// # Errors
/// A file that cannot be read, or that is no list of parts.
pub fn frame_parts(path: impl AsRef<Path>) -> Result<Vec<String>, FramesError> {
    let path = path.as_ref();
    if path.extension().is_none_or(|extension| extension != "pvtu") {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path).map_err(|source| FramesError::io("read", path, source))?;
    if !text.trim_end().ends_with("</VTKFile>") {
        return Err(FramesError::data(path, "this is no list of a frame's parts"));
    }
    let sources = text.lines().filter_map(|line| line.strip_prefix("<Piece Source=\"")?.split_once('"'));
    Ok(sources.map(|(source, _)| source.to_string()).collect())
}
