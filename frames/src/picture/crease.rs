//! Surfaces that are drawn smooth and keep their sharp edges.

use glam::DVec3;

/// Triangles whose normals differ by less than this angle belong to one round face.
const ANGLE_DEGREES: f64 = 35.0;

/// A surface whose vertices have one normal each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Creased {
    /// For each vertex, the vertex of the original surface that it copies.
    pub vertex: Vec<u32>,
    /// Normal of each vertex, of length 1.
    pub normals: Vec<[f32; 3]>,
    /// Indices of vertices.
    pub triangles: Vec<[u32; 3]>,
}

impl Creased {
    /// Values of the copies, from the values `of` of the original vertices.
    pub fn each<T: Copy>(&self, of: &[T]) -> Vec<T> {
        self.vertex.iter().map(|&i| of[i as usize]).collect()
    }
}

/// Gives each vertex of a surface one copy for each round face around it, so that edges between faces stay
/// sharp in smooth drawing. Triangles keep their order and the order of their corners.
///
/// # Panics
/// If a triangle names no vertex.
pub fn creased(positions: &[DVec3], triangles: &[[u32; 3]]) -> Creased {
    let least = ANGLE_DEGREES.to_radians().cos();
    // The copies of each vertex: the normal of a copy's first triangle, and the copy's number.
    let mut copies: Vec<Vec<(DVec3, u32)>> = vec![Vec::new(); positions.len()];
    let (mut vertex, mut normals): (Vec<u32>, Vec<DVec3>) = (Vec::new(), Vec::new());
    let copied = |t: &[u32; 3]| {
        let [a, b, c] = t.map(|i| positions[i as usize]);
        // Its length is twice the triangle's area, so that large triangles count more.
        let area = (b - a).cross(c - a);
        let normal = area.normalize_or_zero();
        t.map(|i| {
            let copies = &mut copies[i as usize];
            let known = copies.iter().find(|(other, _)| normal.dot(*other) >= least);
            let number = known.map(|&(_, number)| number).unwrap_or_else(|| {
                vertex.push(i);
                normals.push(DVec3::ZERO);
                copies.push((normal, vertex.len() as u32 - 1));
                vertex.len() as u32 - 1
            });
            normals[number as usize] += area;
            number
        })
    };
    let triangles = triangles.iter().map(copied).collect();
    let unit = |normal: &DVec3| normal.normalize_or(DVec3::Z).as_vec3().to_array();
    Creased { normals: normals.iter().map(unit).collect(), vertex, triangles }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sharp_edges_are_split() {
        let positions = [DVec3::ZERO, DVec3::X, DVec3::Y, DVec3::new(1.0, 1.0, 0.2), DVec3::Z];
        // Two triangles that are almost flat, and one that stands upright on an edge of the first.
        let found = creased(&positions, &[[0, 1, 2], [1, 3, 2], [1, 0, 4]]);
        assert_eq!(found.triangles, [[0, 1, 2], [1, 3, 2], [4, 5, 6]]);
        assert_eq!(found.vertex, [0, 1, 2, 3, 1, 0, 4]);
        assert_eq!(found.each(&positions)[4..], [DVec3::X, DVec3::ZERO, DVec3::Z]);
        let normals = &found.normals;
        assert_eq!((normals.len(), normals[0], normals[4]), (7, [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]));
    }
}
