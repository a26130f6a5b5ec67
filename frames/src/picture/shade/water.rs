//! Water in front of the rest of a picture: it mirrors the surroundings, refracts the light from behind, and
//! absorbs part of it.

use glam::Vec3;
use rayon::prelude::*;

use super::{LAMP, SHADOW_SOFTNESS, SKY, Shader, Surface, places, turn_of};
use crate::picture::raster::{Drawn, Samples};

/// Refractive index.
const INDEX: f32 = 1.33;
/// Reflectance at normal incidence: ((n - 1) / (n + 1))^2.
const MIRRORED: f32 = 0.02;
/// Thickness at which water takes its full colour, relative to the radius of the visible scene.
const THICK: f32 = 0.25;
/// The part of the light of thick water that the water scatters itself.
const MILKY: f32 = 0.55;
/// Light that mirrors from straight above and from the side.
const ZENITH: Vec3 = Vec3::new(0.75, 0.88, 1.0);
const HORIZON: Vec3 = Vec3::new(0.80, 0.83, 0.85);
/// Strength and sharpness of the lamp's mirror image.
const GLINT: f32 = 3.0;
const GLINT_POWER: i32 = 350;

/// The light of each pixel with water in front of it; `behind` is the light without water.
pub(super) fn before(shader: &Shader<'_>, behind: &[Vec3], samples: u32) -> Vec<Vec3> {
    let front = Samples::draw(shader.geometry, shader.seen.view, Drawn::Water);
    let thickness = shader.seen.water_before(shader.geometry);
    let water = Water { shader, behind, front, thickness, samples };
    let width = water.width();
    let mut lights = behind.to_vec();
    lights.par_chunks_mut(width).enumerate().for_each(|(row, lights)| {
        for (column, light) in lights.iter_mut().enumerate() {
            if let Some((part, before)) = water.pixel(column, row) {
                *light = light.lerp(before, part);
            }
        }
    });
    lights
}

struct Water<'a> {
    shader: &'a Shader<'a>,
    behind: &'a [Vec3],
    /// Depth at which each ray first meets water.
    front: Samples,
    /// Water on the way of each sample, by difference of depth.
    thickness: Vec<f32>,
    /// Samples per pixel along each axis.
    samples: u32,
}

impl Water<'_> {
    fn width(&self) -> usize {
        (self.shader.seen.view.width / self.samples) as usize
    }

    /// The part of a pixel that shows water, and the light that comes from there; none if it shows none.
    fn pixel(&self, column: usize, row: usize) -> Option<(f32, Vec3)> {
        let view = &self.shader.seen.view;
        let (mut count, mut thickness, mut normal) = (0, 0.0, Vec3::ZERO);
        let mut first: Option<(u32, u32, u32, Surface)> = None;
        for (x, y) in places(column, row, self.samples) {
            let index = self.front.index(x, y);
            if self.front.depth(index) >= self.shader.seen.depth(index) {
                continue;
            }
            count += 1;
            thickness += self.thickness[index].max(0.0);
            let id = self.front.primitive(index);
            match &first {
                Some((seen, .., surface)) if *seen == id => normal += surface.normal,
                _ => {
                    let facet = self.shader.geometry.water[id as usize];
                    let position = view.ray(x, y) * self.front.depth(index);
                    let surface = self.shader.surface_of(facet, x, y, position);
                    normal += surface.normal;
                    first.get_or_insert((id, x, y, surface));
                }
            }
        }
        let (_, x, y, surface) = first?;
        let surface = Surface { normal: normal.normalize_or(surface.normal), ..surface };
        let length = thickness / count as f32 * view.ray(x, y).length();
        let part = count as f32 / (self.samples * self.samples) as f32;
        Some((part, self.light(&surface, length, (x, y))))
    }

    /// Light from a place on water of this thickness along the ray [m].
    fn light(&self, surface: &Surface, thickness: f32, (x, y): (u32, u32)) -> Vec3 {
        let shader = self.shader;
        let &Surface { position, normal, colour } = surface;
        let ray = position.normalize();
        let facing = (-ray.dot(normal)).clamp(0.0, 1.0);
        // Schlick's approximation of Fresnel reflectance [Schlick1994].
        let mirrored = MIRRORED + (1.0 - MIRRORED) * (1.0 - facing).powi(5);
        let lit = if normal.dot(shader.to_lamp) > 0.0 {
            shader.lit(position, normal, SHADOW_SOFTNESS * shader.extent, turn_of(x, y))
        } else {
            0.0
        };
        let depth = thickness / (THICK * shader.extent);
        let through = colour.max(Vec3::splat(1e-3)).powf(depth);
        let within = colour * (SKY + LAMP * lit * normal.dot(shader.to_lamp).max(0.0)) * MILKY;
        let bent = self.behind(position, ray, normal, thickness);
        let refracted = bent * through + within * (Vec3::ONE - through);
        let mirror = ray - 2.0 * ray.dot(normal) * normal;
        let glint = GLINT * lit * mirror.dot(shader.to_lamp).max(0.0).powi(GLINT_POWER);
        refracted.lerp(self.surroundings(mirror), mirrored) + LAMP * glint
    }

    /// Light from behind the water at the point where a ray, refracted at the surface, leaves it. If a nearer
    /// primitive covers this point in the picture, the ray goes straight on.
    fn behind(&self, position: Vec3, ray: Vec3, normal: Vec3, thickness: f32) -> Vec3 {
        let view = &self.shader.seen.view;
        let bent = ray.refract(normal, 1.0 / INDEX);
        let pixel = |point: Vec3| {
            let (x, y) = view.project(point);
            let inside = x >= 0.0 && y >= 0.0 && x < view.width as f32 && y < view.height as f32;
            inside.then_some((x as u32, y as u32))
        };
        let is_behind =
            |&(x, y): &(u32, u32)| self.shader.seen.depth(self.shader.seen.index(x, y)) >= position.z;
        let place = pixel(position + thickness * bent).filter(is_behind).or_else(|| pixel(position));
        let light = |(x, y): (u32, u32)| {
            self.behind[(y / self.samples) as usize * self.width() + (x / self.samples) as usize]
        };
        place.map_or(Vec3::ZERO, light)
    }

    fn surroundings(&self, direction: Vec3) -> Vec3 {
        let height = direction.dot(self.shader.up);
        if height > 0.0 {
            HORIZON.lerp(ZENITH, height)
        } else {
            HORIZON.lerp(self.shader.backdrop[1] * 0.5, -height)
        }
    }
}
