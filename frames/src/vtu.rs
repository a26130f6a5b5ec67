//! A frame of a participant as a VTK unstructured grid (`.vtu`).
//!
//! Format: the XML file format of "VTK File Formats" (Kitware), raw appended data, little-endian, 64-bit
//! lengths. Compressed data stands in blocks, each of them a zlib stream.

use std::io::{self, Write};
use std::path::Path;

use flate2::write::ZlibEncoder;
use glam::DVec3;
use rayon::prelude::*;

use crate::atomic;
use crate::error::FramesError;

/// Content of a frame. Each column has one value per particle.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameData<'a> {
    /// Time of the frame [s]: field data `TimeValue`.
    pub time: f64,
    /// Positions [m]; written as Float64, so that equal files mean equal states.
    pub positions: &'a [DVec3],
    /// Stable ids: point data `id`, UInt64.
    pub ids: &'a [u64],
    /// Velocities [m/s]: point data `velocity`, Float32.
    pub velocities: &'a [DVec3],
    /// The group that each particle moved with, `u32::MAX` for none: point data `group`, Int32 with -1 for
    /// none.
    pub groups: &'a [u32],
    /// Radii [m]: point data `radius`, Float32, unless a further field has this name.
    pub radii: Option<&'a [f64]>,
    /// Triangles between particles, as indices into the columns.
    pub triangles: &'a [[u32; 3]],
    /// Further fields.
    pub fields: &'a [FrameField<'a>],
}

/// A named field of a frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameField<'a> {
    /// Letters, digits and underscores; not `id`, `velocity` or `group`.
    pub name: &'a str,
    /// One value per particle.
    pub values: FrameValues<'a>,
}

/// Values of a [`FrameField`].
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum FrameValues<'a> {
    Scalar(&'a [f32]),
    Vector(&'a [[f32; 3]]),
    Unsigned(&'a [u32]),
}

/// Compression of the values of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// Compression by zlib, in blocks.
    Zlib,
}

/// Bytes of values in a compressed block: large enough for zlib's window of 32 KiB, small enough to give all
/// processors work.
const BLOCK_BYTES: usize = 256 << 10;

/// Writes a frame: one VTK_VERTEX cell per particle, in order, then one VTK_TRIANGLE per triangle. The file
/// appears whole or not at all. No particles at all give a valid file.
///
/// # Errors
/// Columns of different lengths, a triangle that names no particle, a bad or repeated field name, more than
/// 2^31 cell corners (VTK's 32-bit connectivity), or a failure of the file system.
pub fn write_vtu(
    path: impl AsRef<Path>,
    frame: &FrameData<'_>,
    compression: Compression,
) -> Result<(), FramesError> {
    let path = path.as_ref();
    check(frame).map_err(|what| FramesError::data(path, what))?;
    atomic::write(path, |out| write(out, frame, compression))
}

/// Name of the field of radii [m].
pub const RADIUS: &str = "radius";

const RESERVED: [&str; 3] = ["id", "velocity", "group"];

/// Checks the names of further fields.
pub(crate) fn check_names(names: &[&str]) -> Result<(), String> {
    for (i, name) in names.iter().enumerate() {
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("field name `{name}` must be made of letters, digits and underscores"));
        }
        if RESERVED.contains(name) || names[..i].contains(name) {
            return Err(format!("field name `{name}` stands twice; choose another one"));
        }
    }
    Ok(())
}

fn check(frame: &FrameData<'_>) -> Result<(), String> {
    let expected = frame.positions.len();
    let same = |name: &str, got: usize| match got == expected {
        true => Ok(()),
        false => Err(format!("field `{name}` holds {got} values for {expected} particles")),
    };
    same("id", frame.ids.len())?;
    same("velocity", frame.velocities.len())?;
    same("group", frame.groups.len())?;
    same(RADIUS, frame.radii.map_or(expected, <[f64]>::len))?;
    check_names(&frame.fields.iter().map(|field| field.name).collect::<Vec<_>>())?;
    for &FrameField { name, values } in frame.fields {
        match values {
            FrameValues::Scalar(values) => same(name, values.len())?,
            FrameValues::Vector(values) => same(name, values.len())?,
            FrameValues::Unsigned(values) => same(name, values.len())?,
        }
    }
    if let Some(triangle) = frame.triangles.iter().find(|t| t.iter().any(|&i| i as usize >= expected)) {
        return Err(format!("triangle {triangle:?} names a particle beyond the {expected} of the frame"));
    }
    match i32::try_from(expected + 3 * frame.triangles.len()) {
        Ok(_) => Ok(()),
        Err(_) => Err(format!(
            "{expected} particles are too many for one file; write partitions of fewer than 2^31"
        )),
    }
}

/// A data array: its entry in the header, and how to write its values.
struct Array<'a> {
    name: &'a str,
    kind: &'static str,
    components: u32,
    /// Bytes that `write` writes.
    bytes: u64,
    write: WriteValues<'a>,
}

type WriteValues<'a> = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + 'a>;

impl<'a> Array<'a> {
    /// The array as it stands in the appended data: its length first, or its blocks' lengths.
    fn encoded(self, compression: Compression) -> io::Result<Self> {
        let Self { name, kind, components, bytes: plain_bytes, write: values } = self;
        let (bytes, write): (u64, WriteValues<'a>) = match compression {
            Compression::None => {
                let length = plain_bytes.to_le_bytes();
                let write = move |out: &mut dyn Write| {
                    out.write_all(&length)?;
                    values(out)
                };
                (plain_bytes + length.len() as u64, Box::new(write))
            }
            Compression::Zlib => {
                let mut plain = Vec::with_capacity(plain_bytes as usize);
                values(&mut plain)?;
                let bytes = compress(&plain)?;
                (bytes.len() as u64, Box::new(move |out: &mut dyn Write| out.write_all(&bytes)))
            }
        };
        Ok(Self { name, kind, components, bytes, write })
    }
}

fn encode(arrays: Vec<Array<'_>>, compression: Compression) -> io::Result<Vec<Array<'_>>> {
    arrays.into_iter().map(|array| array.encoded(compression)).collect()
}

/// Compressed values: the number of blocks, the bytes of a block, the bytes of a last block that is shorter
/// or 0, the compressed bytes of each block, then the blocks.
fn compress(values: &[u8]) -> io::Result<Vec<u8>> {
    let blocks = values.par_chunks(BLOCK_BYTES).map(|block| {
        let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(block)?;
        encoder.finish()
    });
    let blocks = blocks.collect::<io::Result<Vec<Vec<u8>>>>()?;
    let header = [blocks.len(), BLOCK_BYTES, values.len() % BLOCK_BYTES].into_iter();
    let header = header.chain(blocks.iter().map(Vec::len));
    let mut bytes: Vec<u8> = header.flat_map(|number| (number as u64).to_le_bytes()).collect();
    blocks.iter().for_each(|block| bytes.extend_from_slice(block));
    Ok(bytes)
}

/// An array of `tuples` values of N bytes each.
fn array<'a, const N: usize>(
    name: &'a str,
    kind: &'static str,
    components: u32,
    tuples: usize,
    values: impl Iterator<Item = [u8; N]> + 'a,
) -> Array<'a> {
    let write = move |out: &mut dyn Write| { values }.try_for_each(|value| out.write_all(&value));
    Array { name, kind, components, bytes: (tuples * N) as u64, write: Box::new(write) }
}

fn write(out: &mut impl Write, frame: &FrameData<'_>, compression: Compression) -> io::Result<()> {
    let (points, triangles) = (frame.positions.len(), frame.triangles.len());
    let time = vec![array("TimeValue", "Float64", 1, 1, std::iter::once(frame.time.to_le_bytes()))];
    let mut point_data = vec![
        array("id", "UInt64", 1, points, frame.ids.iter().map(|id| id.to_le_bytes())),
        array(
            "velocity",
            "Float32",
            3,
            points,
            frame.velocities.iter().map(|v| bytes_of_vec3(v.as_vec3().into())),
        ),
        // `u32::MAX` has the bits of -1.
        array("group", "Int32", 1, points, frame.groups.iter().map(|group| group.to_le_bytes())),
    ];
    if let Some(radii) = frame.radii
        && frame.fields.iter().all(|field| field.name != RADIUS)
    {
        let radii = radii.iter().map(|&radius| (radius as f32).to_le_bytes());
        point_data.push(array(RADIUS, "Float32", 1, points, radii));
    }
    point_data.extend(frame.fields.iter().map(|field| match field.values {
        FrameValues::Scalar(v) => array(field.name, "Float32", 1, points, v.iter().map(|v| v.to_le_bytes())),
        FrameValues::Vector(v) => {
            array(field.name, "Float32", 3, points, v.iter().map(|&v| bytes_of_vec3(v)))
        }
        FrameValues::Unsigned(v) => array(field.name, "UInt32", 1, points, v.iter().map(|v| v.to_le_bytes())),
    }));
    let positions = vec![array("Points", "Float64", 3, points, frame.positions.iter().map(bytes_of_dvec3))];
    // This fits: `check` has counted the corners.
    let vertices = 0..points as u32;
    let corners = vertices.chain(frame.triangles.as_flattened().iter().copied()).map(u32::to_le_bytes);
    let ends = (1..=points as u32).chain((1..=triangles as u32).map(move |t| points as u32 + 3 * t));
    let types =
        std::iter::repeat_n([VTK_VERTEX], points).chain(std::iter::repeat_n([VTK_TRIANGLE], triangles));
    let cells = vec![
        array("connectivity", "Int32", 1, points + 3 * triangles, corners),
        array("offsets", "Int32", 1, points + triangles, ends.map(u32::to_le_bytes)),
        array("types", "UInt8", 1, points + triangles, types),
    ];

    let [time, point_data, positions, cells] =
        [time, point_data, positions, cells].map(|arrays| encode(arrays, compression));
    let (time, point_data, positions, cells) = (time?, point_data?, positions?, cells?);

    let mut offset = 0;
    let compressor = match compression {
        Compression::None => "",
        Compression::Zlib => r#" compressor="vtkZLibDataCompressor""#,
    };
    writeln!(out, r#"<?xml version="1.0"?>"#)?;
    writeln!(
        out,
        r#"<VTKFile type="UnstructuredGrid" version="1.0" byte_order="LittleEndian" header_type="UInt64"{compressor}>"#
    )?;
    writeln!(out, "<UnstructuredGrid>")?;
    write_entries(out, "FieldData", &time, &mut offset)?;
    writeln!(out, r#"<Piece NumberOfPoints="{points}" NumberOfCells="{}">"#, points + triangles)?;
    write_entries(out, "PointData", &point_data, &mut offset)?;
    write_entries(out, "Points", &positions, &mut offset)?;
    write_entries(out, "Cells", &cells, &mut offset)?;
    writeln!(out, "</Piece>\n</UnstructuredGrid>")?;
    // The data begins after the underscore.
    write!(out, r#"<AppendedData encoding="raw">_"#)?;
    for array in time.into_iter().chain(point_data).chain(positions).chain(cells) {
        (array.write)(out)?;
    }
    // The line feed before the end tag is for meshio, which drops the last line of the data.
    writeln!(out, "\n</AppendedData>\n</VTKFile>")
}

const VTK_VERTEX: u8 = 1;
const VTK_TRIANGLE: u8 = 5;

/// The header's entries of some arrays, which stand in the appended data from `offset` on.
fn write_entries(
    out: &mut impl Write,
    element: &str,
    arrays: &[Array<'_>],
    offset: &mut u64,
) -> io::Result<()> {
    writeln!(out, "<{element}>")?;
    for Array { name, kind, components, bytes, .. } in arrays {
        write!(out, r#"<DataArray type="{kind}" Name="{name}" NumberOfComponents="{components}""#)?;
        if element == "FieldData" {
            write!(out, r#" NumberOfTuples="1""#)?;
        }
        writeln!(out, r#" format="appended" offset="{offset}"/>"#)?;
        *offset += bytes;
    }
    writeln!(out, "</{element}>")
}

fn bytes_of_vec3(v: [f32; 3]) -> [u8; 12] {
    let mut bytes = [0; 12];
    for (bytes, value) in bytes.chunks_exact_mut(4).zip(v) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn bytes_of_dvec3(v: &DVec3) -> [u8; 24] {
    let mut bytes = [0; 24];
    for (bytes, value) in bytes.chunks_exact_mut(8).zip(v.to_array()) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}
