//! Differences: shapes from which other shapes are taken away.

use glam::DVec3;

use super::{CellSample, Layers, Shape, ShapeError};

impl Shape {
    /// The shape from which a difference takes away; other shapes are their own outline.
    pub fn outline(&self) -> &Self {
        match self {
            Self::Difference { from, .. } => from.outline(),
            _ => self,
        }
    }

    /// True if a point of the outline is in a shape that is subtracted.
    pub fn is_cut_away(&self, point: DVec3) -> bool {
        match self {
            Self::Difference { from, subtract } => {
                from.is_cut_away(point) || subtract.iter().any(|shape| shape.contains(point))
            }
            _ => false,
        }
    }

    /// The cells of some layers of the shape that loses, less those whose centres are cut away.
    pub(super) fn cells_left(
        &self,
        cells: Result<CellSample, Vec<ShapeError>>,
        layers: Layers,
    ) -> Result<CellSample, Vec<ShapeError>> {
        let mut sample = cells.map_err(|faults| within("from", faults))?;
        let centres = sample.centres();
        let mut is_left = centres.iter().map(|&centre| !self.is_cut_away(centre));
        sample.cells.retain(|_| is_left.next().unwrap_or(false));
        if sample.cells.is_empty() && layers == Layers::ALL {
            let message = "takes everything away: write smaller shapes, or move them";
            return Err(vec![ShapeError::new("subtract", message)]);
        }
        Ok(sample)
    }

    /// Every fault of the parts of a difference, with its key.
    pub(super) fn faults_of_difference(from: &Self, subtract: &[Self]) -> Vec<ShapeError> {
        let of = |key: String, shape: &Self| {
            let mut faults = within(&key, shape.faults());
            if matches!(shape, Self::Points { .. }) {
                faults.push(ShapeError::new(
                    key,
                    "are single points, which hold no volume: write a solid shape",
                ));
            }
            faults
        };
        let mut faults = of("from".into(), from);
        if subtract.is_empty() {
            let message = "must hold at least one shape: write e.g. subtract = [{ type = \"sphere\", center = [0, 0, \
                           0], radius = 0.1 }]";
            faults.push(ShapeError::new("subtract", message));
        }
        faults.extend(subtract.iter().enumerate().flat_map(|(n, shape)| of(format!("subtract[{n}]"), shape)));
        faults
    }
}

/// Faults of a part, with the key of the part before their own keys.
fn within(parent: &str, faults: Vec<ShapeError>) -> Vec<ShapeError> {
    faults.into_iter().map(|fault| ShapeError { key: fault.path(parent), ..fault }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::{MovingShape, Rotation};

    fn block(min: DVec3, max: DVec3) -> Shape {
        Shape::Box { min, max }
    }

    fn less(from: Shape, subtract: Vec<Shape>) -> Shape {
        Shape::Difference { from: Box::new(from), subtract }
    }

    #[test]
    fn a_box_with_a_hole_lacks_the_cells_of_the_hole() {
        let (from, hole) =
            (block(DVec3::ZERO, DVec3::ONE), block(DVec3::splat(0.3), DVec3::new(0.6, 0.7, 1.0)));
        let shape = less(from.clone(), vec![hole.clone()]);
        let points = shape.sample(0.1).expect("a good shape");
        assert_eq!(points.len(), 1000 - 3 * 4 * 7);
        // What is left lies where it was, in the same order.
        let whole = from.sample(0.1).expect("a good box");
        let left: Vec<DVec3> = whole.into_iter().filter(|&point| !hole.contains(point)).collect();
        assert_eq!(points, left);
        assert!(shape.contains(DVec3::splat(0.1)) && !shape.contains(DVec3::splat(0.5)));
        assert!(!shape.contains(DVec3::splat(1.5)));
    }

    #[test]
    fn a_ball_without_a_smaller_one_is_a_shell() {
        let ball = |radius| Shape::Sphere { center: DVec3::X, radius };
        let above = block(DVec3::new(-1.0, -2.0, 0.0), DVec3::splat(3.0));
        // A bowl, in one go and as a difference of a difference.
        let bowls = [
            less(ball(1.0), vec![ball(0.7), above.clone()]),
            less(less(ball(1.0), vec![ball(0.7)]), vec![above]),
        ];
        let bowl = Shape::Shell {
            center: DVec3::X,
            radius: 1.0,
            thickness: 0.3,
            axis: DVec3::NEG_Z,
            half_angle: 90.0,
        };
        for shape in bowls {
            let points = shape.sample(0.05).expect("a bowl");
            let ratio = points.len() as f64 * 0.05f64.powi(3) / bowl.volume();
            assert!((ratio - 1.0).abs() < 0.015, "{ratio}");
            assert!(points.iter().all(|&point| bowl.contains(point)));
            assert_eq!(*shape.outline(), ball(1.0));
        }
    }

    #[test]
    fn a_body_turns_with_what_it_lacks() {
        let shape = less(
            block(DVec3::ZERO, DVec3::new(2.0, 1.0, 1.0)),
            vec![block(DVec3::new(1.0, 0.0, 0.0), DVec3::new(2.0, 1.0, 1.0))],
        );
        let rotation = Some(Rotation { axis: DVec3::Z, degrees: 90.0 });
        let body = MovingShape { shape, rotation, velocity: DVec3::ZERO, angular_velocity: DVec3::ZERO };
        let points = body.sample(0.5).expect("a good body");
        // The half at small x turns about the middle of the whole to small y.
        assert_eq!(points.len(), 8);
        assert!(points.iter().all(|point| point.y < 0.5 && point.x > 0.5 && point.x < 1.5), "{points:?}");
    }

    #[test]
    fn faults_name_the_part() {
        let keys = |shape: &Shape| -> Vec<String> {
            shape.sample(0.1).expect_err("a fault").into_iter().map(|fault| fault.key).collect()
        };
        let (whole, flat) = (block(DVec3::ZERO, DVec3::ONE), block(DVec3::ONE, DVec3::ONE));
        let points = Shape::Points { positions: vec![DVec3::ZERO] };
        assert_eq!(keys(&less(flat.clone(), vec![])), ["from.max", "subtract"]);
        assert_eq!(keys(&less(whole.clone(), vec![whole.clone(), flat])), ["subtract[1].max"]);
        assert_eq!(keys(&less(points.clone(), vec![points])), ["from", "subtract[0]"]);
        assert_eq!(keys(&less(whole.clone(), vec![whole.clone()])), ["subtract"]);
        let thin = block(DVec3::ZERO, DVec3::new(1.0, 1.0, 0.01));
        assert_eq!(keys(&less(thin, vec![whole])), ["from"]);
    }
}
