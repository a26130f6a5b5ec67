//! Rasteriser: finds the primitive that each sample sees, and its depth.

use glam::Vec3;
use rayon::prelude::*;

use super::camera::View;

/// A sphere, relative to the scene's origin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ball {
    pub(super) centre: Vec3,
    pub(super) radius: f32,
    /// Linear light.
    pub(super) colour: Vec3,
}

/// A vertex of a surface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vertex {
    pub(super) position: Vec3,
    pub(super) normal: Vec3,
    /// Linear light.
    pub(super) colour: Vec3,
}

/// A triangle of a surface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facet {
    pub(super) vertices: [u32; 3],
    /// True if only the side is drawn from which the vertices are counter-clockwise.
    pub(super) is_one_sided: bool,
}

/// A floor: the points x with x.up = height.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground {
    pub(super) up: Vec3,
    pub(super) height: f32,
}

/// Primitives of a picture. Opaque primitives are numbered balls first, then facets; facets of water have
/// numbers of their own.
#[derive(Debug, Default)]
pub(super) struct Geometry {
    pub(super) balls: Vec<Ball>,
    pub(super) vertices: Vec<Vertex>,
    pub(super) facets: Vec<Facet>,
    pub(super) water: Vec<Facet>,
    pub(super) lines: Vec<[Vec3; 2]>,
    pub(super) ground: Option<Ground>,
}

/// Primitive of a sample that sees nothing.
pub(super) const NOTHING: u32 = 0x7fff_ffff;
/// Primitive of a sample that sees the floor.
pub(super) const GROUND: u32 = 0x7fff_fffe;
/// Added to the primitive of a sample that has a line before it.
pub(super) const LINE: u32 = 0x8000_0000;

/// Tiles are squares of 2^6 samples.
const TILE_BITS: u32 = 6;
const TILE: u32 = 1 << TILE_BITS;
/// Half the width of a line [samples].
const LINE_HALF_WIDTH: f32 = 1.1;

/// Kinds of primitives to draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Drawn {
    /// Balls and facets.
    Opaque,
    /// Balls, facets, the floor and the lines.
    WithBackdrop,
    /// Facets of water.
    Water,
}

/// Depth and primitive of each sample, stored tile by tile so that threads write apart and neighbours lie
/// close.
pub(super) struct Samples {
    pub(super) view: View,
    tiles_x: u32,
    depth: Vec<f32>,
    primitive: Vec<u32>,
}

impl Samples {
    /// Index of a sample.
    #[inline]
    pub(super) fn index(&self, x: u32, y: u32) -> usize {
        let tile = (y >> TILE_BITS) * self.tiles_x + (x >> TILE_BITS);
        (tile << (2 * TILE_BITS) | (y & (TILE - 1)) << TILE_BITS | (x & (TILE - 1))) as usize
    }

    /// Depth of a sample; infinite where nothing is seen.
    #[inline]
    pub(super) fn depth(&self, index: usize) -> f32 {
        self.depth[index]
    }

    /// Primitive of a sample.
    #[inline]
    pub(super) fn primitive(&self, index: usize) -> u32 {
        self.primitive[index]
    }

    /// Draws into the samples of a view.
    pub(super) fn draw(geometry: &Geometry, view: View, drawn: Drawn) -> Self {
        let (tiles_x, tiles) = tiles(view);
        let (balls, facets) = geometry.drawn(drawn);
        let keys = bin(geometry, view, drawn);
        let backdrop = drawn == Drawn::WithBackdrop;
        let size = (TILE * TILE) as usize;
        let mut depth = vec![f32::INFINITY; tiles * size];
        let mut primitive = vec![NOTHING; tiles * size];
        let lines = if backdrop { project_lines(geometry, view) } else { Vec::new() };
        depth.par_chunks_mut(size).zip(primitive.par_chunks_mut(size)).enumerate().for_each(
            |(tile, (depth, primitive))| {
                let corner = (tile as u32 % tiles_x * TILE, tile as u32 / tiles_x * TILE);
                let mut tile_samples = Tile { view, corner, depth, primitive };
                if backdrop && let Some(ground) = geometry.ground {
                    tile_samples.draw_ground(ground);
                }
                for id in primitives_of(&keys, tile) {
                    match balls.get(id as usize) {
                        Some(ball) => tile_samples.draw_ball(ball, id),
                        None => {
                            let facet = facets[id as usize - balls.len()];
                            tile_samples.draw_facet(geometry.corners(facet), facet.is_one_sided, id);
                        }
                    }
                }
                lines.iter().for_each(|line| tile_samples.draw_line(line));
            },
        );
        Self { view, tiles_x, depth, primitive }
    }

    /// Length of water before the primitive that each sample sees, as a difference of depths: the depths at
    /// which the ray leaves water, less the depths at which it enters.
    pub(super) fn water_before(&self, geometry: &Geometry) -> Vec<f32> {
        let view = self.view;
        let keys = bin(geometry, view, Drawn::Water);
        let size = (TILE * TILE) as usize;
        let mut thickness = vec![0.0; self.depth.len()];
        thickness.par_chunks_mut(size).zip(self.depth.par_chunks(size)).enumerate().for_each(
            |(tile, (thickness, seen))| {
                let corner = (tile as u32 % self.tiles_x * TILE, tile as u32 / self.tiles_x * TILE);
                for id in primitives_of(&keys, tile) {
                    let corners = geometry.corners(geometry.water[id as usize]);
                    each_of_facet(view, corner, corners, |index, depth, is_front| {
                        let depth = depth.min(seen[index]);
                        thickness[index] += if is_front { -depth } else { depth };
                    });
                }
            },
        );
        thickness
    }
}

impl Geometry {
    fn corners(&self, facet: Facet) -> [Vec3; 3] {
        facet.vertices.map(|i| self.vertices[i as usize].position)
    }

    fn drawn(&self, drawn: Drawn) -> (&[Ball], &[Facet]) {
        if drawn == Drawn::Water { (&[], &self.water) } else { (&self.balls, &self.facets) }
    }
}

/// Number of tiles in a row of a view, and in the whole view.
fn tiles(view: View) -> (u32, usize) {
    let tiles_x = view.width.div_ceil(TILE);
    (tiles_x, (tiles_x * view.height.div_ceil(TILE)) as usize)
}

/// Primitives that may show in a tile.
fn primitives_of(keys: &[u64], tile: usize) -> impl Iterator<Item = u32> {
    let first = keys.partition_point(|key| (key >> 32) < tile as u64);
    keys[first..].iter().take_while(move |&key| key >> 32 == tile as u64).map(|&key| key as u32)
}

/// For each tile the primitives that may show in it, as sorted keys: tile in the high half, primitive in the
/// low one.
fn bin(geometry: &Geometry, view: View, drawn: Drawn) -> Vec<u64> {
    let (tiles_x, _) = tiles(view);
    let (balls, facets) = geometry.drawn(drawn);
    assert!(balls.len() + facets.len() < GROUND as usize, "too many primitives for a picture");
    let tiles_of = |id: usize, rectangle: Option<[u32; 4]>| {
        let [x0, y0, x1, y1] = rectangle.map_or([0; 4], |[x0, y0, x1, y1]| {
            [x0 >> TILE_BITS, y0 >> TILE_BITS, x1.div_ceil(TILE), y1.div_ceil(TILE)]
        });
        (y0..y1).flat_map(move |y| (x0..x1).map(move |x| u64::from(y * tiles_x + x) << 32 | id as u64))
    };
    let of_balls = balls.par_iter().enumerate().flat_map_iter(|(id, ball)| {
        tiles_of(id, view.rectangle_of_ball(view.to_camera(ball.centre), ball.radius))
    });
    let of_facets = facets.par_iter().enumerate().flat_map_iter(|(i, facet)| {
        let corners = geometry.corners(*facet).map(|corner| view.to_camera(corner));
        tiles_of(balls.len() + i, rectangle_of_facet(view, corners))
    });
    let mut keys: Vec<u64> = of_balls.chain(of_facets).collect();
    keys.par_sort_unstable();
    keys
}

/// A facet that reaches behind the near plane is not drawn.
fn rectangle_of_facet(view: View, corners: [Vec3; 3]) -> Option<[u32; 4]> {
    if corners.iter().any(|c| c.z < view.near) {
        return None;
    }
    let slopes = corners.map(|c| c * (view.focal / c.z));
    let low = slopes[0].min(slopes[1]).min(slopes[2]);
    let high = slopes[0].max(slopes[1]).max(slopes[2]);
    view.rectangle(low.x, low.y, high.x, high.y)
}

/// A line on the image plane: ends (x, y, 1 / depth), x and y in samples.
type Segment = [Vec3; 2];

fn project_lines(geometry: &Geometry, view: View) -> Vec<Segment> {
    let project = |c: Vec3| {
        let (x, y) = view.project(c);
        Vec3::new(x, y, 1.0 / c.z)
    };
    let clipped = |line: &[Vec3; 2]| {
        let [a, b] = line.map(|end| view.to_camera(end));
        let [a, b] = if a.z < b.z { [a, b] } else { [b, a] };
        if b.z <= view.near {
            return None;
        }
        let a = if a.z < view.near { a.lerp(b, (view.near - a.z) / (b.z - a.z)) } else { a };
        Some([project(a), project(b)])
    };
    geometry.lines.iter().filter_map(clipped).collect()
}

/// A tile while it is drawn.
struct Tile<'a> {
    view: View,
    corner: (u32, u32),
    depth: &'a mut [f32],
    primitive: &'a mut [u32],
}

impl Tile<'_> {
    #[inline]
    fn index(&self, x: u32, y: u32) -> usize {
        index_in_tile(self.corner, x, y)
    }

    /// Keeps the nearest primitive; of equally near ones, the one with the lowest number.
    #[inline]
    fn put(&mut self, index: usize, depth: f32, id: u32) {
        if depth < self.depth[index] {
            self.depth[index] = depth;
            self.primitive[index] = id;
        }
    }

    fn draw_ball(&mut self, ball: &Ball, id: u32) {
        let view = self.view;
        let c = view.to_camera(ball.centre);
        let Some(rectangle) = view.rectangle_of_ball(c, ball.radius) else { return };
        let [x0, y0, x1, y1] = clip(self.corner, rectangle);
        let radius_squared = ball.radius * ball.radius;
        for y in y0..y1 {
            let row = self.index(x0, y)..self.index(x0, y) + (x1 - x0) as usize;
            let row = self.depth[row.clone()].iter_mut().zip(&mut self.primitive[row]);
            // Without branches, so that one instruction handles many samples.
            for (x, (depth, primitive)) in (x0..x1).zip(row) {
                let hit = BallHit::new(c, view.ray(x, y));
                let half_chord_squared = radius_squared - hit.distance_squared;
                // Beside the ball this is NaN, and NaN is not less than any depth.
                let new = hit.middle - (half_chord_squared * hit.inverse_ray_squared).sqrt();
                let is_nearer = (half_chord_squared > 0.0) & (new < *depth);
                *depth = if is_nearer { new } else { *depth };
                *primitive = if is_nearer { id } else { *primitive };
            }
        }
    }

    fn draw_facet(&mut self, corners: [Vec3; 3], is_one_sided: bool, id: u32) {
        each_of_facet(self.view, self.corner, corners, |index, depth, is_front| {
            if is_front || !is_one_sided {
                self.put(index, depth, id);
            }
        });
    }

    fn draw_ground(&mut self, ground: Ground) {
        let above = self.view.eye.dot(ground.up) - ground.height;
        if above <= 0.0 {
            return;
        }
        let up = self.view.rotate(ground.up);
        let (x0, y0) = self.corner;
        for y in y0..y0 + TILE {
            for x in x0..x0 + TILE {
                let descent = -self.view.ray(x, y).dot(up);
                if descent > 0.0 {
                    self.put(self.index(x, y), above / descent, GROUND);
                }
            }
        }
    }

    fn draw_line(&mut self, &[a, b]: &Segment) {
        let along = (b - a).truncate();
        let length_squared = along.length_squared().max(f32::MIN_POSITIVE);
        // The nearest point of the line to a sample, and the squared distance to it.
        let nearest = |x: f32, y: f32| {
            let from_a = glam::Vec2::new(x, y) - a.truncate();
            let t = (from_a.dot(along) / length_squared).clamp(0.0, 1.0);
            (t, from_a.distance_squared(t * along))
        };
        let (x0, y0) = self.corner;
        let half = 0.5 * TILE as f32;
        let reach = std::f32::consts::SQRT_2 * half + LINE_HALF_WIDTH;
        if nearest(x0 as f32 + half, y0 as f32 + half).1 > reach * reach {
            return;
        }
        for y in y0..y0 + TILE {
            for x in x0..x0 + TILE {
                let (t, distance_squared) = nearest(x as f32 + 0.5, y as f32 + 0.5);
                let index = self.index(x, y);
                // A thousandth nearer, so that an edge that lies on the floor shows.
                let nearness = (a.z + t * (b.z - a.z)) * 1.001;
                if distance_squared < LINE_HALF_WIDTH * LINE_HALF_WIDTH && nearness * self.depth[index] > 1.0
                {
                    self.primitive[index] |= LINE;
                }
            }
        }
    }
}

/// The part of a rectangle of samples that lies in the tile with this corner.
fn clip((x, y): (u32, u32), [x0, y0, x1, y1]: [u32; 4]) -> [u32; 4] {
    [x0.max(x), y0.max(y), x1.min(x + TILE), y1.min(y + TILE)]
}

#[inline]
fn index_in_tile(corner: (u32, u32), x: u32, y: u32) -> usize {
    ((y - corner.1) << TILE_BITS | (x - corner.0)) as usize
}

/// Calls for each sample of a tile that a facet covers: with its index in the tile, the depth, and whether
/// the facet is seen from the side from which its corners are counter-clockwise.
#[inline]
fn each_of_facet(view: View, corner: (u32, u32), corners: [Vec3; 3], mut call: impl FnMut(usize, f32, bool)) {
    let corners = corners.map(|p| view.to_camera(p));
    let Some(rectangle) = rectangle_of_facet(view, corners) else { return };
    let [x0, y0, x1, y1] = clip(corner, rectangle);
    let Some(edges) = FacetHit::new(view, corners) else { return };
    let is_front = edges.is_front();
    for y in y0..y1 {
        for x in x0..x1 {
            if let Some(depth) = edges.depth(x, y) {
                call(index_in_tile(corner, x, y), depth, is_front);
            }
        }
    }
}

/// Position of a ray relative to a ball's centre.
pub(super) struct BallHit {
    /// Depth of the point of the ray that is nearest to the centre.
    pub(super) middle: f32,
    /// Squared distance of that point from the centre.
    pub(super) distance_squared: f32,
    /// 1 / |ray|^2.
    pub(super) inverse_ray_squared: f32,
}

impl BallHit {
    /// The distance from the centre is not taken from the discriminant of the quadratic equation of ray and
    /// ball, which cancels badly when the ball is small and far. With d the ray, c the centre and e = d - c /
    /// c_z, the vector from the centre to the nearest point of the ray is c_z (e - d (d.e) / (d.d)). This
    /// does not cancel.
    #[inline]
    pub(super) fn new(c: Vec3, ray: Vec3) -> Self {
        let inverse_z = 1.0 / c.z;
        let (ex, ey) = (ray.x - c.x * inverse_z, ray.y - c.y * inverse_z);
        let inverse_ray_squared = 1.0 / (ray.x * ray.x + ray.y * ray.y + 1.0);
        let along = (ray.x * ex + ray.y * ey) * inverse_ray_squared;
        let (qx, qy) = (ex - ray.x * along, ey - ray.y * along);
        let distance_squared = c.z * c.z * (qx * qx + qy * qy + along * along);
        Self { middle: c.z * (1.0 - along), distance_squared, inverse_ray_squared }
    }
}

/// A facet on the image plane.
pub(super) struct FacetHit {
    corners: [(f64, f64); 3],
    inverse_depth: [f64; 3],
    inverse_area: f64,
}

impl FacetHit {
    /// None if the facet is seen edge-on. Double precision, so that no sample falls between two neighbours.
    pub(super) fn new(view: View, corners: [Vec3; 3]) -> Option<Self> {
        let inverse_depth = corners.map(|c| 1.0 / f64::from(c.z));
        let corners = corners.map(|c| view.project(c)).map(|(x, y)| (f64::from(x), f64::from(y)));
        let area = cross(corners[0], corners[1], corners[2]);
        (area != 0.0).then(|| Self { corners, inverse_depth, inverse_area: 1.0 / area })
    }

    /// True if the corners are counter-clockwise as the camera sees them. On the image plane y points down.
    fn is_front(&self) -> bool {
        self.inverse_area < 0.0
    }

    /// The share of each corner in a sample on the image plane, over the corner's depth; all positive inside.
    #[inline]
    fn weights(&self, x: u32, y: u32) -> [f64; 3] {
        let p = (f64::from(x) + 0.5, f64::from(y) + 0.5);
        let [a, b, c] = self.corners;
        let [za, zb, zc] = self.inverse_depth;
        let s = self.inverse_area;
        [cross(b, c, p) * s * za, cross(c, a, p) * s * zb, cross(a, b, p) * s * zc]
    }

    #[inline]
    fn depth(&self, x: u32, y: u32) -> Option<f32> {
        let [a, b, c] = self.weights(x, y);
        (a >= 0.0 && b >= 0.0 && c >= 0.0).then(|| (1.0 / (a + b + c)) as f32)
    }

    /// The shares of the corners at the point of the facet that a sample sees.
    pub(super) fn shares(&self, x: u32, y: u32) -> [f32; 3] {
        let weights = self.weights(x, y);
        let sum: f64 = weights.iter().sum();
        weights.map(|w| (w / sum) as f32)
    }
}

#[inline]
fn cross(a: (f64, f64), b: (f64, f64), p: (f64, f64)) -> f64 {
    (b.0 - a.0) * (p.1 - a.1) - (b.1 - a.1) * (p.0 - a.0)
}
