//! Frames read back with a reader that is not ours.

use std::path::Path;

use amalgam_frames::{Compression, DVec3, FrameData, FrameField, FrameValues, write_vtu};
use vtkio::model::{Attribute, CellType, DataSet, Piece, UnstructuredGridPiece, VertexNumbers};
use vtkio::{IOBuffer, Vtk};

fn read(path: &Path) -> UnstructuredGridPiece {
    let DataSet::UnstructuredGrid { mut pieces, .. } = Vtk::import(path).expect("vtkio reads it").data else {
        panic!("not an unstructured grid");
    };
    assert_eq!(pieces.len(), 1);
    match pieces.remove(0) {
        Piece::Inline(piece) => *piece,
        _ => panic!("the piece is not inside the file"),
    }
}

fn point_data<'a>(piece: &'a UnstructuredGridPiece, name: &str) -> &'a IOBuffer {
    let buffer = piece.data.point.iter().find_map(|attribute| match attribute {
        Attribute::DataArray(array) if array.name == name => Some(&array.data),
        _ => None,
    });
    buffer.unwrap_or_else(|| panic!("no point data {name}"))
}

/// Values for n particles.
struct Columns {
    positions: Vec<DVec3>,
    velocities: Vec<DVec3>,
    ids: Vec<u64>,
    groups: Vec<u32>,
    density: Vec<f32>,
    force: Vec<[f32; 3]>,
    bonds: Vec<u32>,
}

/// vtkio 0.6.3 takes raw data to end at a byte 0x3c, '<', which it must not: the next value without that
/// byte. The test of raw bytes below keeps it.
fn readable<const N: usize>(bytes: [u8; N]) -> [u8; N] {
    bytes.map(|byte| if byte == b'<' { byte + 1 } else { byte })
}

fn columns(n: u32) -> Columns {
    let x = |i: u32| f64::from_le_bytes(readable((f64::from(i) * 1.0e5 + 1.0 / 3.0).to_le_bytes()));
    let v = |i: u32| f32::from_le_bytes(readable((i as f32 * -123.4).to_le_bytes()));
    let whole = |i: u32| u32::from_le_bytes(readable(i.to_le_bytes()));
    Columns {
        positions: (0..n).map(|i| DVec3::new(x(i), -x(i), x(7 * i))).collect(),
        velocities: (0..n)
            .map(|i| DVec3::new(f64::from(-v(i)), 7.0, f64::from(v(i.wrapping_mul(i)))))
            .collect(),
        ids: (0..n).map(|i| u64::from(whole(i)) + (1 << 47)).collect(),
        groups: (0..n).map(|i| if i % 3 == 0 { i / 3 } else { u32::MAX }).collect(),
        density: (0..n).map(v).collect(),
        force: (0..n).map(|i| [v(i + 1000), -2.5, f32::MAX]).collect(),
        bonds: (0..n).map(|i| whole(i.wrapping_mul(i))).collect(),
    }
}

fn write(path: &Path, c: &Columns, time: f64, triangles: &[[u32; 3]]) {
    let fields = [
        FrameField { name: "density", values: FrameValues::Scalar(&c.density) },
        FrameField { name: "force", values: FrameValues::Vector(&c.force) },
        FrameField { name: "bonds", values: FrameValues::Unsigned(&c.bonds) },
    ];
    let frame = FrameData {
        time,
        positions: &c.positions,
        ids: &c.ids,
        velocities: &c.velocities,
        groups: &c.groups,
        triangles,
        fields: &fields,
        ..FrameData::default()
    };
    write_vtu(path, &frame, Compression::None).expect("writes");
}

fn flat<T: Copy>(values: &[[T; 3]]) -> Vec<T> {
    values.as_flattened().to_vec()
}

#[test]
fn every_value_is_read_back() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("frame.vtu");
    for (n, triangles) in [(40, vec![[0, 1, 2], [2, 1, 39], [7, 8, 9]]), (6, vec![]), (0, vec![])] {
        let c = columns(n);
        write(&path, &c, 0.75, &triangles);
        let piece = read(&path);
        let positions: Vec<[f64; 3]> = c.positions.iter().map(|x| x.to_array()).collect();
        let velocities: Vec<[f32; 3]> = c.velocities.iter().map(|v| v.as_vec3().to_array()).collect();
        let groups: Vec<i32> = c.groups.iter().map(|&g| i32::try_from(g).unwrap_or(-1)).collect();
        assert_eq!(piece.points, IOBuffer::F64(flat(&positions)));
        assert_eq!(*point_data(&piece, "id"), IOBuffer::U64(c.ids));
        assert_eq!(*point_data(&piece, "velocity"), IOBuffer::F32(flat(&velocities)));
        assert_eq!(*point_data(&piece, "group"), IOBuffer::I32(groups));
        assert_eq!(*point_data(&piece, "density"), IOBuffer::F32(c.density));
        assert_eq!(*point_data(&piece, "force"), IOBuffer::F32(flat(&c.force)));
        assert_eq!(*point_data(&piece, "bonds"), IOBuffer::U32(c.bonds));
        let VertexNumbers::XML { connectivity, offsets } = piece.cells.cell_verts else {
            panic!("legacy cells")
        };
        let corners: Vec<u64> = (0..n).chain(triangles.iter().flatten().copied()).map(u64::from).collect();
        assert_eq!(connectivity, corners);
        let ends: Vec<u64> =
            (1..=u64::from(n)).chain((1..=triangles.len() as u64).map(|t| u64::from(n) + 3 * t)).collect();
        assert_eq!(offsets, ends);
        let mut types = vec![CellType::Vertex; n as usize];
        types.extend(triangles.iter().map(|_| CellType::Triangle));
        assert_eq!(piece.cells.types, types);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 1, "a temporary file is left");
}

/// Follows name, offset and length as the format says, for what vtkio does not read: field data and any
/// bytes.
#[test]
fn the_header_leads_to_the_bytes() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("frame.vtu");
    let mut c = columns(70);
    c.ids = (0..70).map(|i| 0x3c3c_3c00 + i).collect();
    write(&path, &c, 1.0 / 3.0, &[[0, 1, 2]]);
    let file = std::fs::read(&path).expect("reads");
    let begin = b"<AppendedData encoding=\"raw\">_";
    let data = file.windows(begin.len()).position(|w| w == begin).expect("appended data");
    let header = std::str::from_utf8(&file[..data]).expect("text");
    let data = &file[data + begin.len()..];
    let bytes = |name: &str| {
        let entry = header.lines().find(|line| line.contains(&format!("Name=\"{name}\""))).expect("entry");
        let offset =
            entry.split_once("offset=\"").and_then(|(_, rest)| rest.split_once('"')).expect("offset").0;
        let (length, values) = data[offset.parse().expect("a number")..].split_at(8);
        &values[..u64::from_le_bytes(length.try_into().expect("8 bytes")) as usize]
    };
    assert_eq!(bytes("TimeValue"), (1.0f64 / 3.0).to_le_bytes());
    assert_eq!(bytes("id"), c.ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>());
    assert_eq!(bytes("bonds"), c.bonds.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<_>>());
    assert_eq!(bytes("types"), [vec![1; 70], vec![5]].concat());
    // meshio drops the last line of the data.
    assert!(data.ends_with(b"\n</AppendedData>\n</VTKFile>\n"));
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("frame.vtu");
    let (positions, velocities) = ([DVec3::X; 2], [DVec3::Y; 2]);
    let frame = FrameData {
        positions: &positions,
        ids: &[1, 2],
        velocities: &velocities,
        groups: &[0, 0],
        ..Default::default()
    };
    let field = |name| [FrameField { name, values: FrameValues::Scalar(&[1.0, 2.0]) }];
    let cases = [
        (FrameData { ids: &[1], ..frame }, "field `id` holds 1 values for 2 particles"),
        (FrameData { triangles: &[[0, 1, 2]], ..frame }, "triangle [0, 1, 2] names a particle beyond the 2"),
        (FrameData { fields: &field("a\"b"), ..frame }, "letters, digits and underscores"),
        (FrameData { fields: &field("group"), ..frame }, "stands twice"),
    ];
    for (frame, expected) in cases {
        let error = write_vtu(&path, &frame, Compression::Zlib).expect_err("must be refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
    let elsewhere = folder.path().join("missing/frame.vtu");
    let error = write_vtu(&elsewhere, &frame, Compression::None).expect_err("no such folder").to_string();
    assert!(error.starts_with("cannot create ") && error.contains("missing"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
}

/// Follows the blocks as the format says: all values are those of the file without compression.
#[test]
fn compressed_values_are_the_plain_ones() {
    use std::io::Read;

    let folder = tempfile::tempdir().expect("temporary folder");
    for n in [0, 5, 70_000] {
        let c = columns(n);
        let (positions, velocities) = (&c.positions, &c.velocities);
        let fields = [FrameField { name: "force", values: FrameValues::Vector(&c.force) }];
        let (ids, groups) = (&c.ids, &c.groups);
        let frame = FrameData { positions, velocities, ids, groups, fields: &fields, ..Default::default() };
        let read = |name: &str, compression| {
            let path = folder.path().join(name);
            write_vtu(&path, &frame, compression).expect("writes");
            std::fs::read(&path).expect("reads")
        };
        let (plain, small) = (read("plain", Compression::None), read("small", Compression::Zlib));
        assert!(n < 1000 || small.len() < plain.len() / 2, "{} of {} bytes", small.len(), plain.len());
        let (plain, small) = (Parts::of(&plain), Parts::of(&small));
        assert!(small.header.contains(" compressor=\"vtkZLibDataCompressor\""));
        assert_eq!(plain.offsets.len(), 9);
        for (&(_, at), &(ref name, begin)) in plain.offsets.iter().zip(&small.offsets) {
            let expected = &plain.data[at + 8..][..number(plain.data, at)];
            let [blocks, block_bytes, last] = [0, 8, 16].map(|field| number(small.data, begin + field));
            let mut place = begin + 24 + 8 * blocks;
            let mut values = Vec::new();
            for block in 0..blocks {
                let length = number(small.data, begin + 24 + 8 * block);
                let before = values.len();
                let decoder = flate2::read::ZlibDecoder::new(&small.data[place..place + length]);
                std::io::BufReader::new(decoder).read_to_end(&mut values).expect("a zlib stream");
                let full = block + 1 < blocks || last == 0;
                assert_eq!(values.len() - before, if full { block_bytes } else { last }, "{name}");
                place += length;
            }
            assert!(values == expected, "{name} of {n} particles");
        }
    }
}

fn number(data: &[u8], at: usize) -> usize {
    u64::from_le_bytes(data[at..at + 8].try_into().expect("8 bytes")) as usize
}

/// A file's header, the names and places of its arrays, and its appended data.
struct Parts<'a> {
    header: &'a str,
    offsets: Vec<(String, usize)>,
    data: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(file: &'a [u8]) -> Self {
        let begin = b"<AppendedData encoding=\"raw\">_";
        let at = file.windows(begin.len()).position(|w| w == begin).expect("appended data");
        let header = std::str::from_utf8(&file[..at]).expect("text");
        let value = |line: &str, key: &str| {
            let rest = line.split_once(&format!(" {key}=\"")).expect("the attribute").1;
            rest.split_once('"').expect("a value").0.to_string()
        };
        let arrays = header.lines().filter(|line| line.starts_with("<DataArray"));
        let offset = |line: &str| value(line, "offset").parse().expect("a number");
        let offsets = arrays.map(|line| (value(line, "Name"), offset(line))).collect();
        Self { header, offsets, data: &file[at + begin.len()..] }
    }
}
