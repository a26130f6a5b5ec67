//! The picture of a case: the computed result (orange) over the reference (dark), seen from the front.

use std::path::Path;

use amalgam_frames::{Camera, Colour, ColourMap, FramesError, Layer, Radius, Rgb, Scene};
use glam::DVec3;

const WIDTH: u32 = 960;
const HEIGHT: u32 = 600;
/// Vertical field of view [degrees]: narrow, so that the picture is nearly a parallel projection.
const FIELD_OF_VIEW: f64 = 8.0;
const MEASURED: Rgb = [0.85, 0.32, 0.10];
const REFERENCE: Rgb = [0.10, 0.12, 0.16];

/// Points in space, or a chart with x to the right and z up.
#[derive(Clone, Debug, Default)]
pub(super) struct Sketch {
    dots: Vec<(Vec<DVec3>, f64, Rgb)>,
    balls: Vec<(Vec<DVec3>, Vec<f64>)>,
    fields: Vec<Field>,
}

/// Particles, coloured by a value each.
#[derive(Clone, Debug)]
struct Field {
    positions: Vec<DVec3>,
    values: Vec<f32>,
    range: [f32; 2],
    radius: f64,
}

impl Sketch {
    /// Adds the measured or computed result: large dots.
    pub(super) fn measured(mut self, points: impl IntoIterator<Item = DVec3>) -> Self {
        self.dots.push((points.into_iter().collect(), 1.2, MEASURED));
        self
    }

    /// Adds the measured or computed result: balls of their own radii [m].
    pub(super) fn balls(mut self, points: impl IntoIterator<Item = DVec3>, radii: &[f64]) -> Self {
        self.balls.push((points.into_iter().collect(), radii.to_vec()));
        self
    }

    /// Adds the reference: small dots, a little nearer to the eye.
    pub(super) fn reference(mut self, points: impl IntoIterator<Item = DVec3>) -> Self {
        self.dots.push((points.into_iter().collect(), 0.6, REFERENCE));
        self
    }

    /// Adds particles of this radius [m], coloured from dark to light by values in `range`.
    pub(super) fn coloured(
        mut self,
        points: impl IntoIterator<Item = DVec3>,
        values: Vec<f32>,
        range: [f32; 2],
        radius: f64,
    ) -> Self {
        self.fields.push(Field { positions: points.into_iter().collect(), values, range, radius });
        self
    }

    /// Draws into a PNG file.
    pub(super) fn write(&self, path: &Path) -> Result<(), FramesError> {
        let all = || {
            let fields = self.fields.iter().flat_map(|field| &field.positions);
            let balls = self.balls.iter().flat_map(|(points, _)| points);
            self.dots.iter().flat_map(|(points, ..)| points).chain(balls).chain(fields)
        };
        let low = all().copied().reduce(DVec3::min).unwrap_or(DVec3::NEG_ONE);
        let high = all().copied().reduce(DVec3::max).unwrap_or(DVec3::ONE);
        let extent = (high - low).max_element().max(f64::MIN_POSITIVE);
        let margin = DVec3::splat(0.04 * extent);
        let dot = 0.006 * extent;
        let shifted: Vec<Vec<DVec3>> = self
            .dots
            .iter()
            .map(|(points, size, _)| {
                points.iter().map(|x| *x - DVec3::Y * (1.0 - size) * 4.0 * dot).collect()
            })
            .collect();
        let layers = self.dots.iter().zip(&shifted).map(|((_, size, colour), positions)| Layer::Spheres {
            positions,
            radius: Radius::One(dot * size),
            colour: Colour::One(*colour),
        });
        let balls = self.balls.iter().map(|(positions, radii)| Layer::Spheres {
            positions,
            radius: Radius::Each(radii),
            colour: Colour::One(MEASURED),
        });
        let fields = self.fields.iter().map(|field| Layer::Spheres {
            positions: &field.positions,
            radius: Radius::One(field.radius),
            colour: Colour::Mapped { values: &field.values, range: field.range, map: ColourMap::Viridis },
        });
        let drawing = Scene {
            layers: layers.chain(balls).chain(fields).collect(),
            background: [[0.93, 0.94, 0.95], [0.97, 0.97, 0.98]],
            ..Scene::default()
        };
        let aspect = f64::from(WIDTH) / f64::from(HEIGHT);
        let camera =
            Camera::framing((low - margin, high + margin), DVec3::Y, DVec3::Z, FIELD_OF_VIEW, aspect);
        drawing.render(&camera, WIDTH, HEIGHT)?.write_png(path)
    }
}
