//! Reads frames and surfaces back that this crate has written.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use flate2::read::ZlibDecoder;
use glam::DVec3;

use crate::error::FramesError;
use crate::ply::COLUMNS;
use crate::pvtu::frame_parts;

/// A frame of one participant, as it stands in a `.vtu` file or in the parts of a `.pvtu` file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// Time [s].
    pub time: f64,
    /// Positions [m].
    pub positions: Vec<DVec3>,
    /// Stable ids.
    pub ids: Vec<u64>,
    /// Velocities [m/s].
    pub velocities: Vec<[f32; 3]>,
    /// The group that each particle moved with, `u32::MAX` for none.
    pub groups: Vec<u32>,
    /// Triangles between particles.
    pub triangles: Vec<[u32; 3]>,
    /// Fields of one number per particle, by name.
    pub scalars: Vec<(String, Vec<f32>)>,
}

impl Frame {
    /// Reads a file that [`write_vtu`](crate::write_vtu) wrote, or the parts that a file of
    /// [`write_pvtu`](crate::write_pvtu) joins. The particles of parts come in ascending order of id.
    ///
    /// # Errors
    /// A file that cannot be read, or that is none.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, FramesError> {
        let path = path.as_ref();
        let parts = frame_parts(path)?;
        if parts.is_empty() {
            return Self::read_part(path);
        }
        let mut joined = Self::default();
        for part in parts {
            joined.append(Self::read_part(&path.with_file_name(part))?);
        }
        Ok(joined.by_id())
    }

    /// Adds the particles of another part.
    fn append(&mut self, part: Self) {
        let first = self.positions.len() as u32;
        self.time = part.time;
        self.positions.extend(part.positions);
        self.ids.extend(part.ids);
        self.velocities.extend(part.velocities);
        self.groups.extend(part.groups);
        self.triangles.extend(part.triangles.iter().map(|corners| corners.map(|corner| first + corner)));
        for (name, values) in part.scalars {
            match self.scalars.iter_mut().find(|(other, _)| *other == name) {
                Some((_, all)) => all.extend(values),
                None => self.scalars.push((name, values)),
            }
        }
    }

    /// The particles in ascending order of id.
    fn by_id(self) -> Self {
        let Self { time, positions, ids, velocities, groups, triangles, scalars } = self;
        let mut order: Vec<u32> = (0..ids.len() as u32).collect();
        order.sort_unstable_by_key(|&i| ids[i as usize]);
        let mut place = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&i, at)| place[i as usize] = at);
        fn sorted<T: Copy>(values: &[T], order: &[u32]) -> Vec<T> {
            order.iter().map(|&i| values[i as usize]).collect()
        }
        let scalars = scalars.into_iter().map(|(name, values)| (name, sorted(&values, &order)));
        Self {
            time,
            positions: sorted(&positions, &order),
            ids: sorted(&ids, &order),
            velocities: sorted(&velocities, &order),
            groups: sorted(&groups, &order),
            triangles: triangles.iter().map(|corners| corners.map(|corner| place[corner as usize])).collect(),
            scalars: scalars.collect(),
        }
    }

    fn read_part(path: &Path) -> Result<Self, FramesError> {
        let bytes = fs::read(path).map_err(|source| FramesError::io("read", path, source))?;
        read_frame(&bytes).map_err(|what| not_ours(path, "frame", &what))
    }
}

/// A surface, as it stands in a `.ply` file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mesh {
    /// Vertices [m].
    pub vertices: Vec<[f32; 3]>,
    /// Normals of the vertices, or none.
    pub normals: Vec<[f32; 3]>,
    /// Velocities of the vertices [m/s], or none.
    pub velocities: Vec<[f32; 3]>,
    /// Indices of vertices.
    pub triangles: Vec<[u32; 3]>,
}

/// Reads a file that [`write_ply`](crate::write_ply) wrote.
///
/// # Errors
/// A file that cannot be read, or that is none.
pub fn read_ply(path: impl AsRef<Path>) -> Result<Mesh, FramesError> {
    let path = path.as_ref();
    let bytes = fs::read(path).map_err(|source| FramesError::io("read", path, source))?;
    read_mesh(&bytes).map_err(|what| not_ours(path, "surface", &what))
}

fn not_ours(path: &Path, kind: &str, what: &str) -> FramesError {
    FramesError::data(path, format!("this is no {kind} as amalgam writes it: {what}"))
}

/// The text before a mark, and the bytes after it.
fn parted<'a>(bytes: &'a [u8], mark: &str) -> Result<(&'a str, &'a [u8]), String> {
    let at = bytes.windows(mark.len()).position(|window| window == mark.as_bytes());
    let at = at.ok_or_else(|| format!("{mark:?} is missing"))?;
    let text = std::str::from_utf8(&bytes[..at]).map_err(|_| "its header is no text".to_string())?;
    Ok((text, &bytes[at + mark.len()..]))
}

fn read_frame(bytes: &[u8]) -> Result<Frame, String> {
    let (header, data) = parted(bytes, r#"<AppendedData encoding="raw">_"#)?;
    let arrays: Vec<&str> = header.lines().filter(|line| line.starts_with("<DataArray ")).collect();
    let is_compressed = header.contains("vtkZLibDataCompressor");
    let values = |kind: &str, name: &str| -> Result<Vec<u8>, String> {
        let is_it = |line: &&&str| attribute(line, "Name") == Some(name);
        let line = arrays.iter().find(is_it).ok_or_else(|| format!("the array {name} is missing"))?;
        if attribute(line, "type") != Some(kind) {
            return Err(format!("the array {name} is not of type {kind}"));
        }
        let offset = attribute(line, "offset").and_then(|offset| offset.parse::<usize>().ok());
        let at = offset.and_then(|offset| data.get(offset..));
        let at = at.ok_or_else(|| format!("the array {name} lies beyond the end"))?;
        let values = if is_compressed { inflated(at) } else { plain(at) };
        values.ok_or_else(|| format!("the array {name} is cut"))
    };
    let positions: Vec<DVec3> =
        vectors(&values("Float64", "Points")?, f64::from_le_bytes).map(DVec3::from).collect();
    let counted = |name: &str, got: usize| match got == positions.len() {
        true => Ok(()),
        false => Err(format!("{name} holds {got} values for {} particles", positions.len())),
    };
    let ids: Vec<u64> = numbers(&values("UInt64", "id")?, u64::from_le_bytes).collect();
    let velocities: Vec<[f32; 3]> = vectors(&values("Float32", "velocity")?, f32::from_le_bytes).collect();
    let groups: Vec<u32> = numbers(&values("Int32", "group")?, u32::from_le_bytes).collect();
    counted("group", groups.len())?;
    counted("id", ids.len())?;
    counted("velocity", velocities.len())?;
    // A vertex for each particle, then the triangles.
    let corners: Vec<u32> =
        numbers(&values("Int32", "connectivity")?, u32::from_le_bytes).skip(positions.len()).collect();
    let triangles: Vec<[u32; 3]> = corners.chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect();
    if let Some(corner) = corners.iter().find(|&&corner| corner as usize >= positions.len()) {
        return Err(format!("a triangle names particle {corner} of {}", positions.len()));
    }
    let mut scalars = Vec::new();
    for line in &arrays {
        let is_scalar =
            attribute(line, "type") == Some("Float32") && attribute(line, "NumberOfComponents") == Some("1");
        if let (true, Some(name)) = (is_scalar, attribute(line, "Name")) {
            let column: Vec<f32> = numbers(&values("Float32", name)?, f32::from_le_bytes).collect();
            counted(name, column.len())?;
            scalars.push((name.to_string(), column));
        }
    }
    let time = numbers(&values("Float64", "TimeValue")?, f64::from_le_bytes).next();
    let time = time.ok_or("the time is missing")?;
    Ok(Frame { time, positions, ids, velocities, groups, triangles, scalars })
}

fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

fn numbers<T, const N: usize>(bytes: &[u8], number: fn([u8; N]) -> T) -> impl Iterator<Item = T> {
    bytes.as_chunks::<N>().0.iter().map(move |bytes| number(*bytes))
}

fn vectors<T, const N: usize>(bytes: &[u8], number: fn([u8; N]) -> T) -> impl Iterator<Item = [T; 3]> {
    let whole = bytes.chunks_exact(3 * N);
    whole.map(move |bytes| std::array::from_fn(|k| number(std::array::from_fn(|i| bytes[k * N + i]))))
}

fn length(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(8 * at..8 * at + 8)?;
    usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}

/// An array as its length and its bytes.
fn plain(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(bytes.get(8..)?.get(..length(bytes, 0)?)?.to_vec())
}

/// An array as zlib blocks: their number, the bytes of one, those of a last one that is shorter, the
/// compressed bytes of each.
fn inflated(bytes: &[u8]) -> Option<Vec<u8>> {
    let blocks = length(bytes, 0)?;
    let mut rest = bytes.get(blocks.checked_add(3)?.checked_mul(8)?..)?;
    let mut values = Vec::new();
    for block in 0..blocks {
        let (compressed, others) = rest.split_at_checked(length(bytes, 3 + block)?)?;
        ZlibDecoder::new(compressed).read_to_end(&mut values).ok()?;
        rest = others;
    }
    Some(values)
}

fn read_mesh(bytes: &[u8]) -> Result<Mesh, String> {
    let (header, data) = parted(bytes, "end_header\n")?;
    let count = |element: &str| {
        let mut lines = header.lines();
        let found =
            lines.find_map(|line| line.strip_prefix(element)?.strip_prefix(' ')?.parse::<usize>().ok());
        found.ok_or_else(|| format!("{element:?} has no number"))
    };
    let (vertices, faces) = (count("element vertex")?, count("element face")?);
    if !header.contains("format binary_little_endian") {
        return Err("it is not binary and little-endian".to_string());
    }
    let cut = || "it is cut".to_string();
    let columns =
        COLUMNS.map(|names| names.iter().all(|name| header.contains(&format!("property float {name}\n"))));
    let stride = 12 * columns.iter().filter(|is_there| **is_there).count();
    let (vertex_bytes, rest) = data.split_at_checked(vertices.saturating_mul(stride)).ok_or_else(cut)?;
    let face_bytes = rest.get(..faces.saturating_mul(13)).ok_or_else(cut)?;
    let mut triangles = Vec::with_capacity(faces);
    for face in face_bytes.chunks_exact(13) {
        let triangle: [u32; 3] = vectors(&face[1..], u32::from_le_bytes).next().ok_or_else(cut)?;
        if face[0] != 3 || triangle.iter().any(|&corner| corner as usize >= vertices) {
            return Err(format!("face {} is no triangle of its {vertices} vertices", triangles.len()));
        }
        triangles.push(triangle);
    }
    let mut read: [Vec<[f32; 3]>; 3] = Default::default();
    let there: Vec<usize> = (0..columns.len()).filter(|&column| columns[column]).collect();
    for (at, vector) in vectors(vertex_bytes, f32::from_le_bytes).enumerate() {
        read[there[at % there.len()]].push(vector);
    }
    let [vertices, normals, velocities] = read;
    Ok(Mesh { vertices, normals, velocities, triangles })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ply::{PlyMesh, write_ply};
    use crate::pvtu::write_pvtu;
    use crate::vtu::{Compression, FrameData, FrameField, FrameValues, write_vtu};

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.vtu");
        let positions: Vec<DVec3> =
            (0..30_000).map(|i| DVec3::new(f64::from(i).sqrt(), 0.1, -f64::from(i))).collect();
        let ids: Vec<u64> = (0..30_000).map(|i| i * 7).collect();
        let velocities: Vec<DVec3> = positions.iter().map(|x| 0.5 * x).collect();
        let density: Vec<f32> = (0..30_000).map(|i| 1000.0 + i as f32).collect();
        let fields = [FrameField { name: "density", values: FrameValues::Scalar(&density) }];
        let triangles = [[0, 1, 2], [2, 1, 29_999]];
        let data = FrameData {
            time: 0.25,
            positions: &positions,
            ids: &ids,
            velocities: &velocities,
            groups: &vec![u32::MAX; 30_000],
            triangles: &triangles,
            fields: &fields,
            ..FrameData::default()
        };
        for compression in [Compression::None, Compression::Zlib] {
            write_vtu(&path, &data, compression).expect("writes");
            let frame = Frame::read(&path).expect("reads");
            assert_eq!((frame.time, &frame.positions, &frame.ids), (0.25, &positions, &ids));
            assert_eq!(
                frame.velocities,
                velocities.iter().map(|v| v.as_vec3().to_array()).collect::<Vec<_>>()
            );
            assert_eq!((frame.triangles, frame.groups), (triangles.to_vec(), vec![u32::MAX; 30_000]));
            assert_eq!(frame.scalars, [("density".to_string(), density.clone())]);
            let whole = fs::read(&path).expect("bytes");
            fs::write(&path, &whole[..whole.len() / 2]).expect("cuts");
            let error = Frame::read(&path).expect_err("it is cut").to_string();
            assert!(error.contains("no frame as amalgam writes it"), "{error}");
        }
    }

    #[test]
    fn parts_are_read_as_one_frame() {
        let folder = tempfile::tempdir().expect("a folder");
        let positions: Vec<DVec3> = (0..7).map(|i| DVec3::splat(f64::from(i))).collect();
        let (ids, radii): (Vec<u64>, Vec<f64>) = ([5, 0, 3, 6, 1, 4, 2].into(), vec![0.25; 7]);
        let groups: Vec<u32> = ids.iter().map(|&id| 10 + id as u32).collect();
        let density: Vec<f32> = ids.iter().map(|&id| 100.0 + id as f32).collect();
        // The middle part has no particles.
        for (k, range) in [0..3, 3..3, 3..7].into_iter().enumerate() {
            let values = FrameValues::Scalar(&density[range.clone()]);
            let data = FrameData {
                time: 0.5,
                positions: &positions[range.clone()],
                ids: &ids[range.clone()],
                velocities: &positions[range.clone()],
                groups: &groups[range.clone()],
                radii: Some(&radii[range]),
                fields: &[FrameField { name: "density", values }],
                ..FrameData::default()
            };
            write_vtu(folder.path().join(format!("a_{k}.vtu")), &data, Compression::Zlib).expect("writes");
        }
        let parts: Vec<String> = (0..3).map(|k| format!("a_{k}.vtu")).collect();
        let path = folder.path().join("a.pvtu");
        write_pvtu(&path, &parts, &[("density", 1)]).expect("writes");
        let frame = Frame::read(&path).expect("reads");
        assert_eq!((frame.time, frame.ids), (0.5, (0..7).collect()));
        assert_eq!((frame.positions[0], frame.groups), (positions[1], (10..17).collect()));
        let expected = (0..7).map(|id| 100.0 + id as f32).collect();
        let scalars = [("radius".to_string(), vec![0.25; 7]), ("density".to_string(), expected)];
        assert_eq!(frame.scalars, scalars);
        fs::remove_file(folder.path().join("a_1.vtu")).expect("removes");
        assert!(Frame::read(&path).expect_err("a part is missing").to_string().contains("a_1.vtu"));
        for wrong in ["id", "a b"] {
            assert!(write_pvtu(&path, &parts, &[(wrong, 1)]).is_err());
        }
    }

    #[test]
    fn a_surface_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.ply");
        let vertices = [DVec3::ZERO, DVec3::X, DVec3::Y, DVec3::Z];
        let (normals, velocities) = ([[0.0, 0.0, 1.0]; 4], [[1.0, 2.0, 3.0]; 4]);
        let triangles = [[0, 1, 2], [0, 2, 3]];
        for (normals, velocities) in [(&normals[..], &velocities[..]), (&[], &[]), (&[], &velocities)] {
            write_ply(&path, &PlyMesh { vertices: &vertices, normals, velocities, triangles: &triangles })
                .expect("writes");
            let vertices = vertices.map(|v| v.as_vec3().to_array()).to_vec();
            let (normals, velocities) = (normals.to_vec(), velocities.to_vec());
            let mesh = Mesh { vertices, normals, velocities, triangles: triangles.to_vec() };
            assert_eq!(read_ply(&path).expect("reads"), mesh);
        }
        let mesh = PlyMesh { vertices: &vertices, normals: &normals[..3], ..PlyMesh::default() };
        assert!(write_ply(&path, &mesh).is_err());
        let whole = fs::read(&path).expect("bytes");
        fs::write(&path, &whole[..whole.len() - 1]).expect("cuts");
        assert!(read_ply(&path).expect_err("it is cut").to_string().contains("it is cut"));
    }
}
