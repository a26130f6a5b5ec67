//! Convex polygons that planes cut.

use glam::DVec3;

/// The part of a convex polygon on the side of a plane that `normal` points away from; empty if there is
/// none.
pub fn clip(polygon: &[DVec3], point: DVec3, normal: DVec3) -> Vec<DVec3> {
    let height = |x: DVec3| (x - point).dot(normal);
    let mut kept = Vec::with_capacity(polygon.len() + 1);
    for (i, &a) in polygon.iter().enumerate() {
        let b = polygon[(i + 1) % polygon.len()];
        let (above, next_above) = (height(a), height(b));
        if above <= 0.0 {
            kept.push(a);
        }
        if (above <= 0.0) != (next_above <= 0.0) {
            kept.push(a.lerp(b, above / (above - next_above)));
        }
    }
    if kept.len() < 3 { Vec::new() } else { kept }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(polygon: &[DVec3]) -> f64 {
        let fan = polygon.windows(2).skip(1).map(|pair| (pair[0] - polygon[0]).cross(pair[1] - polygon[0]));
        0.5 * fan.sum::<DVec3>().length()
    }

    #[test]
    fn planes_cut_a_square() {
        let square = [DVec3::ZERO, DVec3::X, DVec3::new(1.0, 1.0, 0.0), DVec3::Y];
        for (point, normal, expected) in [
            (DVec3::X * 0.25, DVec3::X, 0.25),
            (DVec3::X * 0.25, DVec3::NEG_X * 3.0, 0.75),
            (DVec3::X * 0.5, DVec3::new(1.0, 1.0, 0.0), 0.125),
            (DVec3::X, DVec3::X, 1.0),
            (DVec3::ZERO, DVec3::Z, 1.0),
            (DVec3::X * 2.0, DVec3::NEG_X, 0.0),
        ] {
            assert!((area(&clip(&square, point, normal)) - expected).abs() < 1e-15, "{point} {normal}");
        }
        assert!(clip(&[], DVec3::ZERO, DVec3::X).is_empty());
    }
}
