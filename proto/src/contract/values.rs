//! The checked conversion of single values: what headers hold, and columns of flags and tuples.

use amalgam_particles::text::{number, vector};
use amalgam_particles::{DMat3, DVec3, Lattice, MovingSurface, ParticleId};

use crate::columns::{Columns, POSITIONS, VELOCITIES, WireError, check, check_count};
use crate::generated::v1;

/// A vector for a header.
pub fn vec3_to_wire(v: DVec3) -> v1::Vec3 {
    v1::Vec3 { x: v.x, y: v.y, z: v.z }
}

/// A finite vector from a header.
///
/// # Errors
/// If it is absent or not finite.
pub fn vec3_from_wire(name: &'static str, v: Option<v1::Vec3>) -> Result<DVec3, WireError> {
    let v1::Vec3 { x, y, z } = v.ok_or(WireError::Missing(name))?;
    let v = DVec3::new(x, y, z);
    if v.abs().cmplt(DVec3::splat(SUM_LIMIT)).all() {
        return Ok(v);
    }
    Err(WireError::Rule(format!("{name} is {}, but must be finite and below {SUM_LIMIT:e}", vector(v))))
}

/// Every sum over particles is smaller than this, in any SI unit: its square is finite in f64.
pub const SUM_LIMIT: f64 = 1e100;

/// Shortest and longest step [s]: quotients by dt, and the path of the fastest particle in dt, are finite in
/// f64.
pub const DT_RANGE: (f64, f64) = (1e-30, 1e15);

/// Largest number of sub-steps in a step in which a participant integrates once.
const SUBSTEPS_ONCE_MAX: u32 = 1000;

/// Every slope and every inertia is smaller than this [kg].
pub const SLOPE_LIMIT: f64 = 1e62;

/// Bytes of a name: of a program, its version, a participant or a run.
pub const NAME_BYTES_MAX: usize = 512;

/// Checks a name before anybody keeps it or prints it.
///
/// # Errors
/// If it is longer than [`NAME_BYTES_MAX`].
pub fn check_name(what: &'static str, name: &str) -> Result<(), WireError> {
    if name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(WireError::Rule(format!("{what} has {} bytes, but at most {NAME_BYTES_MAX} are allowed", name.len())))
}

pub(super) fn lattice_to_wire(lattice: Lattice) -> v1::Lattice {
    v1::Lattice { origin: Some(vec3_to_wire(lattice.origin)), cell_size: lattice.cell_size }
}

pub(super) fn lattice_from_wire(lattice: v1::Lattice) -> Result<Lattice, WireError> {
    let cell_size = lattice.cell_size;
    if !(cell_size > 0.0 && cell_size.is_finite()) {
        return Err(WireError::Rule(format!(
            "cell_size is {}, but must be positive and finite",
            number(cell_size)
        )));
    }
    Ok(Lattice { origin: vec3_from_wire("origin", lattice.origin)?, cell_size })
}

/// A sphere counts as larger by at most this part of its radius, which bounds the cells that it touches.
const MARGIN_MAX: f64 = 4.0;

pub(super) fn margin_from_wire(margin: f64) -> Result<f64, WireError> {
    if (0.0..=MARGIN_MAX).contains(&margin) {
        Ok(margin)
    } else {
        Err(WireError::Rule(format!("margin is {}, but must be from 0 to {MARGIN_MAX}", number(margin))))
    }
}

pub(super) fn not_negative(name: &str, value: f64) -> Result<f64, WireError> {
    if value >= 0.0 {
        Ok(value)
    } else {
        Err(WireError::Rule(format!("{name} is {}, but must not be negative", number(value))))
    }
}

pub(super) fn positive_time(name: &str, value: f64) -> Result<f64, WireError> {
    if value >= DT_RANGE.0 {
        Ok(value)
    } else {
        let shortest = DT_RANGE.0;
        Err(WireError::Rule(format!("{name} is {}, but must be at least {shortest:e} s", number(value))))
    }
}

pub(super) fn substeps_once(value: u32) -> Result<u32, WireError> {
    if value <= SUBSTEPS_ONCE_MAX {
        Ok(value)
    } else {
        Err(WireError::Rule(format!("substeps_once is {value}, but must be at most {SUBSTEPS_ONCE_MAX}")))
    }
}

pub(super) fn flags(values: Vec<u8>) -> Result<Vec<bool>, WireError> {
    check("immovable", &values, None, "0 or 1", |&flag| flag <= 1)?;
    Ok(values.into_iter().map(|flag| flag == 1).collect())
}

pub(super) fn tuples<const N: usize>(
    name: &'static str,
    count: u64,
    columns: &mut Columns,
) -> Result<Vec<[ParticleId; N]>, WireError> {
    let ids = columns.take_ids(name, check_count(name, count)? * N as u64)?;
    Ok(ids.chunks_exact(N).map(|chunk| std::array::from_fn(|k| chunk[k])).collect())
}

/// The surface of a frame.
pub(super) fn take_surface(
    surface: &v1::SurfaceInfo,
    columns: &mut Columns,
) -> Result<MovingSurface, WireError> {
    let count = check_count("vertices", surface.vertices)?;
    let vertices = columns.take_vec3("surface_vertices", count, POSITIONS)?;
    let velocities = match surface.velocities {
        true => columns.take_vec3("surface_velocity", count, VELOCITIES)?,
        false => Vec::new(),
    };
    let triangles: Vec<[u32; 3]> =
        columns.take("surface_triangles", check_count("triangles", surface.triangles)?)?;
    match triangles.as_flattened().iter().find(|&&corner| corner as usize >= vertices.len()) {
        None => Ok(MovingSurface { vertices, velocities, triangles }),
        Some(corner) => Err(WireError::Rule(format!(
            "a triangle names vertex {corner} of a surface of {} vertices",
            vertices.len()
        ))),
    }
}

/// The entries xx, yy, zz, yz, xz, xy.
pub(super) fn symmetric_to_wire(matrix: &DMat3) -> [f64; 6] {
    let [x, y, z] = matrix.to_cols_array_2d();
    [x[0], y[1], z[2], z[1], z[0], y[0]]
}

pub(super) fn symmetric_from_wire([xx, yy, zz, yz, xz, xy]: [f64; 6]) -> DMat3 {
    DMat3::from_cols_array(&[xx, xy, xz, xy, yy, yz, xz, yz, zz])
}

/// A negative eigenvalue below this part of a slope's trace counts as rounding.
const SLOPE_ROUNDING: f64 = 1e-6;

/// True if the matrix is positive semidefinite up to the rounding of f32, in which a solver may compute. The
/// matrix is divided by its trace, and SLOPE_ROUNDING is added to its diagonal. The result must have positive
/// pivots in Gaussian elimination. The largest pivot comes first, so that rounding stays below the addition
/// even if the matrix has rank one.
pub(super) fn is_positive_semidefinite(matrix: &DMat3) -> bool {
    let [xx, yy, zz, ..] = symmetric_to_wire(matrix);
    let size = xx + yy + zz;
    if !matrix.is_finite() || xx < 0.0 || yy < 0.0 || zz < 0.0 {
        return false;
    }
    if size == 0.0 {
        return *matrix == DMat3::ZERO;
    }
    let larger = *matrix * (1.0 / size) + DMat3::from_diagonal(DVec3::splat(SLOPE_ROUNDING));
    let mut rest = larger.to_cols_array_2d();
    let mut order = [0, 1, 2];
    for done in 0..3 {
        let diagonal = |at: &usize| rest[order[*at]][order[*at]];
        let largest = (done..3).max_by(|a, b| diagonal(a).total_cmp(&diagonal(b))).unwrap_or(done);
        order.swap(done, largest);
        let pivot = order[done];
        if rest[pivot][pivot] <= 0.0 {
            return false;
        }
        for &i in &order[done + 1..] {
            for &j in &order[done + 1..] {
                rest[i][j] -= rest[i][pivot] * rest[pivot][j] / rest[pivot][pivot];
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_spring_in_any_direction_is_a_slope() {
        let unit = |k: u64| amalgam_particles::random::uniform_f64(&[k]) - 0.5;
        for k in 0..10_000 {
            let n = DVec3::new(unit(3 * k), unit(3 * k + 1), unit(3 * k + 2));
            let spring = DMat3::from_cols(n * n.x, n * n.y, n * n.z);
            assert!(is_positive_semidefinite(&spring), "{n}");
            let size = n.length_squared();
            let pushing = spring - DMat3::from_diagonal(DVec3::splat(10.0 * SLOPE_ROUNDING * size));
            assert!(!is_positive_semidefinite(&pushing), "{n}");
        }
    }
}
