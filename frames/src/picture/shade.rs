//! Light on the surfaces that the samples see: a lamp with shadows, and light from the sky and the floor,
//! which reaches corners less.

mod water;

use std::f32::consts::{PI, TAU};

use glam::{DVec3, Vec3};
use rayon::prelude::*;

use super::camera::{Camera, View};
use super::colour::ToSrgb;
use super::raster::{BallHit, Drawn, Facet, FacetHit, GROUND, Geometry, LINE, NOTHING, Samples};

/// Light of the lamp, then light of the surroundings from above and from below.
pub(super) const LAMP: Vec3 = Vec3::new(0.86, 0.82, 0.75);
pub(super) const SKY: Vec3 = Vec3::new(0.46, 0.51, 0.58);
const BOUNCE: Vec3 = Vec3::new(0.24, 0.22, 0.20);
/// Strength and sharpness of the highlight.
const HIGHLIGHT: f32 = 0.22;
const HIGHLIGHT_POWER: i32 = 32;
/// Side of the lamp's view [samples].
const SHADOW_SIZE: u32 = 1024;
const SHADOW_TAPS: usize = 10;
/// Half-width of a shadow's soft edge, relative to the radius of the visible scene.
pub(super) const SHADOW_SOFTNESS: f32 = 0.006;
/// Half-width of a soft edge on the floor, which is farther from the objects that shade it.
const FLOOR_SHADOW_SOFTNESS: f32 = 0.022;
/// The part of the lamp's light that comes through water.
const THROUGH_WATER: f32 = 0.6;
const OCCLUSION_TAPS: usize = 14;
/// Distance within which objects shade each other from the surroundings, relative to the radius of the
/// visible scene.
const OCCLUSION_REACH: f32 = 0.15;
const OCCLUSION_STRENGTH: f32 = 1.8;
/// The pattern of taps is turned by one of this many angles, which differ from sample to sample.
const TURNS: usize = 32;
/// Colour and opacity of lines.
const LINE_COLOUR: Vec3 = Vec3::new(0.05, 0.06, 0.08);
const LINE_OPACITY: f32 = 0.55;

/// Draws all pixels of a picture; `view` has `samples` samples per pixel along each axis.
pub(super) fn draw(geometry: &Geometry, view: &View, background: [Vec3; 2], samples: u32) -> Vec<[u8; 3]> {
    let shader = Shader::new(geometry, *view, background);
    let width = (view.width / samples) as usize;
    let mut lights = vec![Vec3::ZERO; width * (view.height / samples) as usize];
    lights.par_chunks_mut(width).enumerate().for_each(|(row, lights)| {
        for (column, light) in lights.iter_mut().enumerate() {
            *light = shader.mean_light(places(column, row, samples));
        }
    });
    if !geometry.water.is_empty() {
        lights = water::before(&shader, &lights, samples);
    }
    let codes = ToSrgb::new();
    lights.par_iter().map(|&light| codes.code(light)).collect()
}

/// The samples of a pixel.
pub(super) fn places(column: usize, row: usize, samples: u32) -> impl Iterator<Item = (u32, u32)> {
    let (x, y) = (column as u32 * samples, row as u32 * samples);
    (0..samples * samples).map(move |i| (x + i % samples, y + i / samples))
}

/// Illumination of a point. It is computed once for all samples of a pixel that see the same primitive or
/// adjacent facets.
#[derive(Clone, Copy)]
struct Shade {
    primitive: u32,
    depth: f32,
    /// Visible part of the lamp, 0 to 1.
    lit: f32,
    /// Visible part of the surroundings, 0 to 1.
    open: f32,
}

pub(super) struct Shader<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) seen: Samples,
    pub(super) backdrop: [Vec3; 2],
    /// Depths as seen from the lamp: of opaque primitives, and of water.
    shadow: Option<(Samples, Option<Samples>)>,
    /// Towards the lamp, in camera coordinates.
    pub(super) to_lamp: Vec3,
    /// Up, in camera coordinates.
    pub(super) up: Vec3,
    /// Centre, in camera coordinates, and radius of what is seen [m].
    centre: Vec3,
    pub(super) extent: f32,
    /// Places on the unit disc for each turn: evenly spread ones, then ones that are denser towards the
    /// middle.
    even_taps: Vec<[(f32, f32); SHADOW_TAPS]>,
    central_taps: Vec<[(f32, f32); OCCLUSION_TAPS]>,
}

/// Surface that a sample sees, in camera coordinates.
pub(super) struct Surface {
    pub(super) position: Vec3,
    pub(super) normal: Vec3,
    pub(super) colour: Vec3,
}

impl<'a> Shader<'a> {
    fn new(geometry: &'a Geometry, view: View, background: [Vec3; 2]) -> Self {
        let seen = Samples::draw(geometry, view, Drawn::WithBackdrop);
        // The lamp stands to the left, above and a little behind the camera.
        let up = geometry.ground.map_or(-view.down, |ground| ground.up);
        let to_lamp = (up - 0.55 * view.right - 0.45 * view.forward).normalize();
        let bounds = bounds_of_seen(geometry, view);
        let shadow = bounds.map(|(centre, radius)| {
            const DISTANCE: f32 = 6.0;
            let camera = Camera {
                eye: centre.as_dvec3() + f64::from(DISTANCE * radius) * to_lamp.as_dvec3(),
                target: centre.as_dvec3(),
                up: to_lamp.any_orthogonal_vector().as_dvec3(),
                vertical_fov_degrees: 2.0 * f64::from((1.0 / DISTANCE).asin().to_degrees()),
            };
            let view =
                View::new(&camera, DVec3::ZERO, SHADOW_SIZE, SHADOW_SIZE).expect("the lamp has a direction");
            let of_water = (!geometry.water.is_empty()).then(|| Samples::draw(geometry, view, Drawn::Water));
            (Samples::draw(geometry, view, Drawn::Opaque), of_water)
        });
        let turn = |i: usize| TAU * i as f32 / TURNS as f32;
        Self {
            geometry,
            seen,
            backdrop: background,
            shadow,
            to_lamp: view.rotate(to_lamp),
            up: view.rotate(up),
            centre: bounds.map_or(Vec3::ZERO, |(centre, _)| view.to_camera(centre)),
            extent: bounds.map_or(1.0, |(_, radius)| radius),
            even_taps: (0..TURNS).map(|i| spiral(turn(i), |t| t.sqrt())).collect(),
            central_taps: (0..TURNS).map(|i| spiral(turn(i), |t| 0.03f32.powf(1.0 - t))).collect(),
        }
    }

    /// Mean light of the samples of a pixel. Samples that see the same surface share the light.
    fn mean_light(&self, samples: impl Iterator<Item = (u32, u32)>) -> Vec3 {
        let (mut sum, mut count, mut shade) = (Vec3::ZERO, 0.0, None);
        let mut last = None;
        for (x, y) in samples {
            let marked = self.seen.primitive(self.seen.index(x, y));
            let light = match last {
                Some((primitive, light)) if primitive == marked => light,
                // Clipped before the mean is taken, so that the edge of a highlight stays smooth.
                _ => self.light(x, y, &mut shade).min(Vec3::ONE),
            };
            last = Some((marked, light));
            sum += light;
            count += 1.0;
        }
        sum / count
    }

    /// Light that a sample receives. `shade` is that of the pixel's last sample.
    fn light(&self, x: u32, y: u32, shade: &mut Option<Shade>) -> Vec3 {
        let view = &self.seen.view;
        let index = self.seen.index(x, y);
        let marked = self.seen.primitive(index);
        let primitive = marked & !LINE;
        let position = view.ray(x, y) * self.seen.depth(index);
        let light = if primitive == NOTHING {
            self.backdrop(y)
        } else {
            let surface = self.surface(primitive, x, y, position);
            let shade = match *shade {
                Some(shade) if self.is_shared(&shade, primitive, position.z) => shade,
                _ => *shade.insert(self.shade(primitive, &surface, x, y)),
            };
            if primitive == GROUND {
                // The floor takes the colour of the backdrop, so that its end does not show. Only shadows and
                // objects close to it darken it.
                self.backdrop(y) * (0.45 + 0.55 * shade.lit) * (0.3 + 0.7 * shade.open)
            } else {
                self.reflected(&surface, shade)
            }
        };
        if marked & LINE == 0 { light } else { light.lerp(LINE_COLOUR, LINE_OPACITY) }
    }

    fn backdrop(&self, y: u32) -> Vec3 {
        self.backdrop[0].lerp(self.backdrop[1], (y as f32 + 0.5) / self.seen.view.height as f32)
    }

    /// True if the illumination found for one primitive of a pixel can be used for another.
    fn is_shared(&self, shade: &Shade, primitive: u32, depth: f32) -> bool {
        let is_facet = |id: u32| id < GROUND && id as usize >= self.geometry.balls.len();
        let are_near = (shade.depth - depth).abs() < 0.002 * depth;
        shade.primitive == primitive || (are_near && is_facet(shade.primitive) && is_facet(primitive))
    }

    fn shade(&self, primitive: u32, surface: &Surface, x: u32, y: u32) -> Shade {
        let turn = turn_of(x, y);
        let &Surface { position, normal, .. } = surface;
        // Far from everything, no object takes light away.
        let far = (1.0 + OCCLUSION_REACH) * self.extent;
        let open = if position.distance_squared(self.centre) > far * far {
            1.0
        } else {
            self.openness(position, normal, x, y, turn)
        };
        let softness =
            if primitive == GROUND { FLOOR_SHADOW_SOFTNESS } else { SHADOW_SOFTNESS } * self.extent;
        let lit =
            if normal.dot(self.to_lamp) > 0.0 { self.lit(position, normal, softness, turn) } else { 0.0 };
        Shade { primitive, depth: position.z, lit, open }
    }

    fn surface(&self, id: u32, x: u32, y: u32, position: Vec3) -> Surface {
        let view = &self.seen.view;
        if id == GROUND {
            return Surface { position, normal: self.up, colour: Vec3::ZERO };
        }
        if let Some(ball) = self.geometry.balls.get(id as usize) {
            // The normal comes from the ray's passage. The position is too coarse in single precision for a
            // small ball far away.
            let c = view.to_camera(ball.centre);
            let ray = view.ray(x, y);
            let hit = BallHit::new(c, ray);
            let to_ray = ray * hit.middle - c;
            let half_chord = (ball.radius * ball.radius - hit.distance_squared).max(0.0).sqrt();
            let normal = to_ray - ray * (half_chord * hit.inverse_ray_squared.sqrt());
            return Surface { position, normal: normal / ball.radius, colour: ball.colour };
        }
        let facet = self.geometry.facets[id as usize - self.geometry.balls.len()];
        self.surface_of(facet, x, y, position)
    }

    pub(super) fn surface_of(&self, facet: Facet, x: u32, y: u32, position: Vec3) -> Surface {
        let view = &self.seen.view;
        let vertices = facet.vertices.map(|i| self.geometry.vertices[i as usize]);
        let corners = vertices.map(|v| view.to_camera(v.position));
        let shares = FacetHit::new(*view, corners).map_or([1.0 / 3.0; 3], |hit| hit.shares(x, y));
        let mix = |of: [Vec3; 3]| shares[0] * of[0] + shares[1] * of[1] + shares[2] * of[2];
        let normal = view.rotate(mix(vertices.map(|v| v.normal))).normalize_or(-Vec3::Z);
        // Both sides are lit as front sides: the normal is turned to the camera.
        let normal = if normal.dot(position) > 0.0 { -normal } else { normal };
        Surface { position, normal, colour: mix(vertices.map(|v| v.colour)) }
    }

    fn reflected(&self, surface: &Surface, shade: Shade) -> Vec3 {
        let Surface { position, normal, colour } = *surface;
        let surroundings = BOUNCE.lerp(SKY, 0.5 + 0.5 * normal.dot(self.up)) * shade.open;
        let facing = normal.dot(self.to_lamp).max(0.0);
        let half_way = (self.to_lamp - position.normalize()).normalize();
        let highlight = HIGHLIGHT * normal.dot(half_way).max(0.0).powi(HIGHLIGHT_POWER);
        colour * surroundings + LAMP * shade.lit * (colour * facing + highlight)
    }

    /// Part of the lamp that is visible from a point, 0 to 1.
    pub(super) fn lit(&self, position: Vec3, normal: Vec3, softness: f32, turn: usize) -> f32 {
        let Some((shadow, water)) = &self.shadow else { return 1.0 };
        let view = &self.seen.view;
        // The point is moved off the surface by as far as taps reach, so that a plane does not shade itself.
        let point = view.eye + view.rotate_back(position + 1.5 * softness * normal);
        let c = shadow.view.to_camera(point);
        let (px, py) = shadow.view.project(c);
        let reach = softness * shadow.view.focal / c.z;
        let mut open = 0.0;
        for (dx, dy) in self.even_taps[turn] {
            let (x, y) = (px + reach * dx, py + reach * dy);
            let inside = x >= 0.0 && y >= 0.0 && x < SHADOW_SIZE as f32 && y < SHADOW_SIZE as f32;
            if !inside {
                open += 1.0;
                continue;
            }
            let index = shadow.index(x as u32, y as u32);
            if shadow.depth(index) >= c.z {
                let is_clear = water.as_ref().is_none_or(|water| water.depth(index) >= c.z);
                open += if is_clear { 1.0 } else { THROUGH_WATER };
            }
        }
        open / SHADOW_TAPS as f32
    }

    /// Part of the surroundings that is visible from a point, 0 to 1. Objects above the tangent plane of the
    /// point shade it, in the manner of [McGuire2011]; taps are spread over all scales up to the reach.
    fn openness(&self, position: Vec3, normal: Vec3, x: u32, y: u32, turn: usize) -> f32 {
        let view = &self.seen.view;
        let reach = OCCLUSION_REACH * self.extent;
        let on_screen = reach * view.focal / position.z;
        let inverse_reach_squared = 1.0 / (reach * reach);
        let mut closed = 0.0;
        for (dx, dy) in self.central_taps[turn] {
            let tap_x =
                (x as i32).saturating_add((dx * on_screen) as i32).clamp(0, view.width as i32 - 1) as u32;
            let tap_y =
                (y as i32).saturating_add((dy * on_screen) as i32).clamp(0, view.height as i32 - 1) as u32;
            let depth = self.seen.depth(self.seen.index(tap_x, tap_y));
            if depth.is_infinite() {
                continue;
            }
            let to_tap = view.ray(tap_x, tap_y) * depth - position;
            let squared = to_tap.length_squared();
            let height = to_tap.dot(normal) / squared.max(f32::MIN_POSITIVE).sqrt();
            let fade = (1.0 - squared * inverse_reach_squared).max(0.0);
            closed += (height - 0.08).max(0.0) * fade;
        }
        (1.0 - OCCLUSION_STRENGTH * closed / OCCLUSION_TAPS as f32).max(0.0)
    }
}

/// Places on a disc along a golden spiral. `first` is the first angle; `radius` maps 0 to 1 to the distance
/// from the middle.
fn spiral<const N: usize>(first: f32, radius: impl Fn(f32) -> f32) -> [(f32, f32); N] {
    let golden = PI * (3.0 - 5f32.sqrt());
    std::array::from_fn(|i| {
        let r = radius((i as f32 + 0.5) / N as f32);
        let angle = first + golden * i as f32;
        (r * angle.cos(), r * angle.sin())
    })
}

/// Interleaved gradient noise [Jimenez2014]: neighbours get very different turns, evenly spread.
pub(super) fn turn_of(x: u32, y: u32) -> usize {
    let noise = (52.982_918 * (0.067_110_56 * x as f32 + 0.005_837_15 * y as f32).fract()).fract();
    ((noise * TURNS as f32) as usize).min(TURNS - 1)
}

/// Centre and radius of a ball around what the camera sees, relative to the scene's origin.
fn bounds_of_seen(geometry: &Geometry, view: View) -> Option<(Vec3, f32)> {
    let in_picture =
        |point: Vec3, radius: f32| view.rectangle_of_ball(view.to_camera(point), radius).is_some();
    let union = |a: (Vec3, Vec3), b: (Vec3, Vec3)| (a.0.min(b.0), a.1.max(b.1));
    // Least and greatest values do not depend on the order.
    let balls = geometry
        .balls
        .par_iter()
        .filter(|ball| in_picture(ball.centre, ball.radius))
        .map(|ball| (ball.centre - ball.radius, ball.centre + ball.radius))
        .reduce_with(union);
    let vertices = geometry.vertices.par_iter().filter(|v| in_picture(v.position, 0.0));
    let vertices = vertices.map(|v| (v.position, v.position)).reduce_with(union);
    let (low, high) = balls.into_iter().chain(vertices).reduce(union)?;
    let centre = 0.5 * (low + high);
    // At least as large as single precision resolves at this distance.
    let radius = (0.5 * (high - low).length()).max(1e-4 * centre.length()).max(f32::MIN_POSITIVE);
    Some((centre, radius))
}
