//! Closed surfaces of triangles: their faults, and the volume that they enclose.

pub(crate) mod moving;

use glam::DVec3;

/// Bands across z in which triangles are looked up.
const BANDS: usize = 512;

/// A surface of triangles. Corners at the same position are one vertex.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surface {
    vertices: Vec<DVec3>,
    /// Counter-clockwise seen from outside.
    triangles: Vec<[u32; 3]>,
    low: DVec3,
    high: DVec3,
    /// The triangles that reach into each band.
    bands: Vec<Vec<u32>>,
}

impl Surface {
    /// A surface from corners and triangles of indices; triangles with two equal corners are left out, since
    /// they cover nothing.
    ///
    /// # Panics
    /// If a triangle names a corner that does not exist: the reader of a file checks that.
    pub fn new(corners: &[DVec3], triangles: &[[u32; 3]]) -> Self {
        let mut order: Vec<u32> = (0..corners.len() as u32).collect();
        // Plus zero: -0 and 0 are the same place.
        let key = |i: u32| (corners[i as usize] + 0.0).to_array();
        let compare = |a: &u32, b: &u32| {
            let (a, b) = (key(*a), key(*b));
            a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])).then(a[2].total_cmp(&b[2]))
        };
        order.sort_by(compare);
        let mut vertices = Vec::new();
        let mut vertex_of = vec![0; corners.len()];
        for (n, &corner) in order.iter().enumerate() {
            if n == 0 || compare(&order[n - 1], &corner).is_ne() {
                vertices.push(DVec3::from_array(key(corner)));
            }
            vertex_of[corner as usize] = vertices.len() as u32 - 1;
        }
        let welded = triangles.iter().map(|triangle| triangle.map(|corner| vertex_of[corner as usize]));
        let triangles: Vec<[u32; 3]> = welded.filter(|[a, b, c]| a != b && b != c && c != a).collect();
        let used = || triangles.iter().flatten().map(|&i| vertices[i as usize]);
        let low = used().reduce(DVec3::min).unwrap_or_default();
        let high = used().reduce(DVec3::max).unwrap_or_default();
        let mut surface = Self { vertices, triangles, low, high, bands: Vec::new() };
        surface.bands = vec![Vec::new(); BANDS];
        for t in 0..surface.triangles.len() {
            let z = surface.corners(t).map(|corner| corner.z);
            let ends = [
                z.into_iter().fold(f64::INFINITY, f64::min),
                z.into_iter().fold(f64::NEG_INFINITY, f64::max),
            ];
            let [first, last] = ends.map(|z| surface.band(z));
            surface.bands[first..=last].iter_mut().for_each(|band| band.push(t as u32));
        }
        surface
    }

    /// Lowest and highest corner of the box around the surface [m].
    pub fn bounds(&self) -> (DVec3, DVec3) {
        (self.low, self.high)
    }

    /// Vertices [m], and triangles of them, counter-clockwise seen from outside.
    pub fn mesh(&self) -> (&[DVec3], &[[u32; 3]]) {
        (&self.vertices, &self.triangles)
    }

    /// Volume that the surface encloses [m^3]; negative if its faces look inwards.
    pub fn volume(&self) -> f64 {
        let middle = 0.5 * (self.low + self.high);
        let pyramid = |t: usize| {
            let [a, b, c] = self.corners(t).map(|corner| corner - middle);
            a.dot(b.cross(c)) / 6.0
        };
        (0..self.triangles.len()).map(pyramid).sum()
    }

    /// The faults that keep the surface from enclosing a volume, each kind of fault once with the place of
    /// the first.
    pub fn faults(&self) -> Vec<String> {
        if self.triangles.is_empty() {
            return vec!["holds no triangle: write a file with a closed surface".into()];
        }
        if let Some(vertex) = self.vertices.iter().find(|vertex| !vertex.is_finite()) {
            return vec![format!("has a vertex at {vertex}: every coordinate must be a finite number")];
        }
        let faults = self.faults_of_edges();
        if !faults.is_empty() {
            return faults;
        }
        let volume = self.volume();
        if volume < 0.0 {
            return vec![format!(
                "is inside out: all faces look inwards (volume {volume:.3e} m^3): turn them around in the program that \
                 made the file"
            )];
        }
        if volume == 0.0 {
            return vec!["encloses no volume: write a file with a closed surface".into()];
        }
        Vec::new()
    }

    /// Every edge must belong to two triangles that run through it in opposite directions.
    fn faults_of_edges(&self) -> Vec<String> {
        let mut edges: Vec<([u32; 2], bool)> = Vec::with_capacity(3 * self.triangles.len());
        for &[a, b, c] in &self.triangles {
            let edge = |(a, b): (u32, u32)| ([a.min(b), a.max(b)], a < b);
            edges.extend([(a, b), (b, c), (c, a)].map(edge));
        }
        edges.sort_unstable();
        let mut open = Fault::default();
        let mut crowded = Fault::default();
        let mut inverted = Fault::default();
        for around in edges.chunk_by(|a, b| a.0 == b.0) {
            let forwards = around.iter().filter(|(_, forwards)| *forwards).count();
            match around.len() {
                1 => open.note(around[0].0),
                2 if forwards != 1 => inverted.note(around[0].0),
                2 => {}
                _ => crowded.note(around[0].0),
            }
        }
        let place = |edge: [u32; 2]| {
            let [a, b] = edge.map(|i| self.vertices[i as usize]);
            format!("the first from {a} to {b}")
        };
        let mut faults = Vec::new();
        if let Some((count, first)) = open.found {
            faults.push(format!(
                "has a hole: {count} edges belong to a single triangle, {}: close the surface",
                place(first)
            ));
        }
        if let Some((count, first)) = crowded.found {
            faults.push(format!(
                "is not a surface: {count} edges belong to three or more triangles, {}: take inner walls and doubled \
                 faces out",
                place(first)
            ));
        }
        if let Some((count, first)) = inverted.found {
            faults.push(format!(
                "has inverted faces: at {count} edges one triangle looks outwards and the other inwards, {}: make all \
                 faces look outwards",
                place(first)
            ));
        }
        faults
    }

    /// Intersections of the surface with the line along x through `point`.
    ///
    /// The side of an edge on which the line passes is decided once for the edge, not for each of its
    /// triangles. The ends of an edge count half-open, as if the line were moved by an infinitesimal
    /// distance. So a line never slips between two triangles, and the crossings of a closed surface always
    /// add up to zero.
    pub fn line(&self, point: DVec3) -> Line {
        let mut crossings = Vec::new();
        let beyond = point.z < self.low.z || point.z > self.high.z;
        let near =
            if beyond || self.triangles.is_empty() { &[][..] } else { &self.bands[self.band(point.z)] };
        for &t in near {
            let [a, b, c] = self.corners(t as usize);
            let turns = [(a, b), (b, c), (c, a)].map(|(from, to)| turn(point, from, to));
            let winding: i32 = turns.iter().sum();
            if winding != 0 {
                let normal = (b - a).cross(c - a);
                let (least, most) = (a.x.min(b.x).min(c.x), a.x.max(b.x).max(c.x));
                let offset = (point.y - a.y) * normal.y + (point.z - a.z) * normal.z;
                // A triangle parallel to the line has no single crossing: any of its points will do.
                let x = if normal.x == 0.0 { least } else { (a.x - offset / normal.x).clamp(least, most) };
                crossings.push((x, winding));
            }
        }
        Line { crossings }
    }

    fn corners(&self, t: usize) -> [DVec3; 3] {
        self.triangles[t].map(|i| self.vertices[i as usize])
    }

    fn band(&self, z: f64) -> usize {
        let height = self.high.z - self.low.z;
        if height > 0.0 { (((z - self.low.z) / height * BANDS as f64) as usize).min(BANDS - 1) } else { 0 }
    }
}

/// Signed number of times that the edge, seen along x, turns around the point: 1 if it passes upwards on the
/// side of larger y, -1 downwards, 0 elsewhere.
fn turn(point: DVec3, from: DVec3, to: DVec3) -> i32 {
    let upwards = from.z <= point.z && point.z < to.z;
    let downwards = to.z <= point.z && point.z < from.z;
    if !upwards && !downwards {
        return 0;
    }
    // The same arithmetic in the same order for both triangles of the edge.
    let (low, high) = if upwards { (from, to) } else { (to, from) };
    let side = (high.y - low.y) * (point.z - low.z) - (high.z - low.z) * (point.y - low.y);
    match (side > 0.0, upwards) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => -1,
    }
}

/// A kind of fault: how many edges have it, and the first.
#[derive(Default)]
struct Fault {
    found: Option<(usize, [u32; 2])>,
}

impl Fault {
    fn note(&mut self, edge: [u32; 2]) {
        let (count, _) = self.found.get_or_insert((0, edge));
        *count += 1;
    }
}

/// A line along x through a surface.
#[derive(Clone, Debug)]
pub struct Line {
    /// Position of each crossing [m], and 1 where the line leaves, -1 where it enters.
    crossings: Vec<(f64, i32)>,
}

impl Line {
    /// True if the point of the line at `x` is inside: beyond it, the line leaves more often than it enters.
    pub fn is_inside(&self, x: f64) -> bool {
        self.crossings.iter().filter(|(at, _)| *at > x).map(|(_, winding)| winding).sum::<i32>() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cube from 0 to 1, each corner once for each face as in an STL file.
    fn cube() -> (Vec<DVec3>, Vec<[u32; 3]>) {
        let (mut corners, mut triangles) = (Vec::new(), Vec::new());
        for axis in 0..3 {
            for side in [0.0, 1.0] {
                let first = corners.len() as u32;
                for (u, v) in [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)] {
                    let mut corner = DVec3::ZERO;
                    (corner[axis], corner[(axis + 1) % 3], corner[(axis + 2) % 3]) = (side, u, v);
                    corners.push(corner);
                }
                let quad = [[0, 1, 2], [0, 2, 3]].map(|t| t.map(|i| first + i));
                triangles.extend(quad.map(|[a, b, c]| if side == 0.0 { [a, c, b] } else { [a, b, c] }));
            }
        }
        (corners, triangles)
    }

    #[test]
    fn a_cube_encloses_its_volume() {
        let (corners, triangles) = cube();
        let surface = Surface::new(&corners, &triangles);
        assert_eq!(surface.vertices.len(), 8);
        assert_eq!(surface.faults(), [] as [String; 0]);
        assert!((surface.volume() - 1.0).abs() < 1e-15);
        // Lines along edges and diagonals of faces included.
        for z in [0.0, 0.25, 0.5, 0.75] {
            for y in [0.0, 0.25, 0.5, 0.75] {
                let line = surface.line(DVec3::new(0.0, y, z));
                assert_eq!(line.crossings.iter().map(|c| c.1).sum::<i32>(), 0);
                assert!(line.is_inside(0.5) && !line.is_inside(-0.1) && !line.is_inside(1.1), "{y} {z}");
            }
        }
        assert!(!surface.line(DVec3::new(0.0, 1.5, 0.5)).is_inside(0.5));
    }

    #[test]
    fn faults_say_what_and_where() {
        let (corners, triangles) = cube();
        let of = |triangles: &[[u32; 3]]| Surface::new(&corners, triangles).faults().join("; ");
        assert!(of(&[]).contains("no triangle"));
        let hole = of(&triangles[1..]);
        assert!(
            hole.contains("has a hole: 3 edges") && hole.contains("the first from [0, 0, 0] to [0, 1, 0]"),
            "{hole}"
        );
        let mut turned = triangles.clone();
        turned[5].swap(0, 1);
        assert!(of(&turned).contains("inverted faces: at 3 edges"), "{}", of(&turned));
        let all: Vec<_> = triangles.iter().map(|&[a, b, c]| [a, c, b]).collect();
        assert!(of(&all).contains("inside out"));
        let doubled: Vec<_> = triangles.iter().chain(&triangles[..1]).copied().collect();
        assert!(of(&doubled).contains("three or more"));
        let mut lost = corners.clone();
        lost[0].x = f64::NAN;
        assert!(Surface::new(&lost, &triangles).faults()[0].contains("finite"));
    }
}
