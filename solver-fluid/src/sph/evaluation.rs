//! Densities and accelerations of a fluid at one instant.
//!
//! Particles are sorted into cells of one support radius and handled in fixed chunks of that order. Within a chunk,
//! particles of one cell form a **block**; its **candidates** are copied once, relative to the block's cell: all
//! particles of the 27 cells around it and their mirror images that lie within reach of the block's bounding box.
//! Candidates outside of a particle's support contribute exactly zero, so that the inner loops have no branch.
//!
//! Positions are in support radii, rounded to 2^-22: relative to any cell nearby they are exact in f32, and so are
//! their differences. Hence both particles of a pair, or a particle and an image, see exactly opposite offsets.

use amalgam_particles::{CellGrid, DVec3, reduce};
use glam::{IVec3, Vec3};
use rayon::prelude::*;

use super::{Parameters, kernel::Kernel};

/// Particles of one task, whatever the number of threads.
const CHUNK: usize = 1024;
/// Candidates handled side by side. Sums run over lanes first, so this number is part of the result.
const LANES: usize = 8;
/// Fractions of a cell that positions are rounded to.
const FRACTIONS: f64 = (1u64 << 22) as f64;
/// The upper three bits of a candidate's source: whether it is mirrored along x, y, z.
const MIRROR_SHIFT: u32 = 29;
const INDEX_MASK: u32 = (1 << MIRROR_SHIFT) - 1;
/// Where unused lanes are put: out of everyone's reach [support radii].
const FAR: f32 = 1e3;

/// Densities and accelerations, with everything that is needed to find them; memory is kept from one use to the next.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    grid: CellGrid,
    folded: Vec<DVec3>,
    // In sorted order.
    places: Vec<Place>,
    chunks: Vec<Chunk>,
    compression: Vec<f64>,
    carried: Vec<Carried>,
    sorted_acceleration: Vec<Vec3>,
    // In particle order.
    rank: Vec<u32>,
    acceleration: Vec<DVec3>,
}

/// Where a particle is: its cell, and its position relative to the cell's corner [support radii].
#[derive(Clone, Copy, Debug)]
struct Place {
    cell: IVec3,
    fraction: Vec3,
}

/// What a particle brings into a pair's force beside its position.
#[derive(Clone, Copy, Debug)]
struct Carried {
    /// p / rho^2, times a constant that makes the pair's force an acceleration.
    pressure: f32,
    /// m / rho, times the square root of such a constant.
    volume: f32,
    velocity: Vec3,
}

/// The blocks of a chunk of particles and their candidates.
#[derive(Clone, Debug, Default)]
struct Chunk {
    blocks: Vec<Block>,
    x: Vec<f32>,
    y: Vec<f32>,
    z: Vec<f32>,
    source: Vec<u32>,
    carried: CarriedLanes,
}

/// What the candidates of one block carry.
#[derive(Clone, Debug, Default)]
struct CarriedLanes(Vec<CarriedLane>);

#[derive(Clone, Copy, Debug, Default)]
struct CarriedLane {
    pressure: [f32; LANES],
    volume: [f32; LANES],
    velocity_x: [f32; LANES],
    velocity_y: [f32; LANES],
    velocity_z: [f32; LANES],
}

/// Particles of one cell, and their candidates, a multiple of [`LANES`].
#[derive(Clone, Debug)]
struct Block {
    particles: std::ops::Range<usize>,
    candidates: std::ops::Range<usize>,
}

impl Evaluation {
    /// Finds neighbours and densities.
    pub fn find_densities(&mut self, parameters: &Parameters, positions: &[DVec3]) {
        let inverse = 1.0 / parameters.support_radius;
        let Self { grid, folded, places, chunks, compression, rank, .. } = self;
        if let Some(walls) = &parameters.walls {
            folded.clear();
            folded.par_extend(positions.par_iter().with_min_len(4096).map(|&x| walls.fold(x)));
        }
        let positions = if parameters.walls.is_some() { folded.as_slice() } else { positions };
        assert!(positions.len() <= INDEX_MASK as usize, "fewer than 2^29 particles");
        grid.rebuild(positions, parameters.support_radius);
        let order = grid.order();
        places.clear();
        places.par_extend(
            order.par_iter().with_min_len(4096).map(|&i| Place::new(positions[i as usize] * inverse)),
        );
        rank.resize(order.len(), 0);
        for (sorted, &i) in order.iter().enumerate() {
            rank[i as usize] = sorted as u32;
        }

        let planes = parameters
            .walls
            .map(|walls| (round_plane(walls.min * inverse), round_plane(walls.max * inverse)));
        let kernel = Kernel { support_radius: parameters.support_radius };
        let scale = 1.0 / kernel.lattice_sum(parameters.spacing);
        compression.resize(order.len(), 0.0);
        chunks.resize_with(order.len().div_ceil(CHUNK), Chunk::default);
        let (grid, places) = (&*grid, places.as_slice());
        chunks.par_iter_mut().zip(compression.par_chunks_mut(CHUNK)).enumerate().for_each(
            |(c, (chunk, compression))| {
                let begin = c * CHUNK;
                chunk.find_candidates(grid, positions, places, planes, begin..begin + compression.len());
                chunk.sum_densities(&places[begin..], scale, compression);
            },
        );
    }

    /// Accelerations [m/s^2] by pressure and viscosity, gravity not included, at the densities found last.
    pub fn find_accelerations(&mut self, parameters: &Parameters, velocities: &[DVec3]) {
        let Parameters { support_radius, mass, state, viscosity, .. } = *parameters;
        let kernel = Kernel { support_radius };
        // The kernel as calibrated, C t^4 (1 + 4 s): C makes a full lattice have rest density. Then
        // dW/dr / r = -20 C t^3 / H^2, and an offset in support radii brings a factor H.
        let peak = state.rest_density / (mass * kernel.lattice_sum(parameters.spacing));
        // Eq. 3.3 [Monaghan1992]: a_i = -sum m (p_i / rho_i^2 + p_j / rho_j^2) grad W.
        let of_pressure = mass * 20.0 * peak / support_radius;
        // Eq. 22 [Morris1997] with the volumes m / rho: m a_i = sum 2 mu V_i V_j (dW/dr / r) (v_i - v_j).
        let of_volume = (40.0 * viscosity * peak / (mass * support_radius * support_radius)).sqrt();
        let Self {
            grid, places, chunks, compression, carried, sorted_acceleration, rank, acceleration, ..
        } = self;
        let order = grid.order();
        carried.clear();
        carried.par_extend(order.par_iter().zip(compression.par_iter()).with_min_len(4096).map(
            |(&i, &x)| {
                let density = x * state.rest_density;
                Carried {
                    pressure: (of_pressure * state.pressure(x) / (density * density)) as f32,
                    volume: (of_volume * mass / density) as f32,
                    velocity: velocities[i as usize].as_vec3(),
                }
            },
        ));
        sorted_acceleration.resize(order.len(), Vec3::ZERO);
        let (places, carried) = (places.as_slice(), carried.as_slice());
        chunks.par_iter_mut().zip(sorted_acceleration.par_chunks_mut(CHUNK)).enumerate().for_each(
            |(c, (chunk, accelerations))| {
                chunk.sum_forces(&places[c * CHUNK..], &carried[c * CHUNK..], carried, accelerations);
            },
        );
        let sorted = sorted_acceleration.as_slice();
        acceleration.clear();
        acceleration.par_extend(rank.par_iter().with_min_len(4096).map(|&r| sorted[r as usize].as_dvec3()));
    }

    /// Accelerations found last [m/s^2], one per particle.
    pub fn accelerations(&self) -> &[DVec3] {
        &self.acceleration
    }

    /// Density over rest density, one per particle.
    pub fn compressions(&self) -> impl Iterator<Item = f64> + '_ {
        self.rank.iter().map(|&r| self.compression[r as usize])
    }

    /// The largest density over rest density, at least 1.
    pub fn largest_compression(&self) -> f64 {
        reduce::max(self.compression.len(), 1.0, |k| self.compression[k])
    }

    /// Energy of compression [J].
    pub fn compression_energy(&self, parameters: &Parameters) -> f64 {
        let energy = |k| parameters.state.energy(self.compression[k]);
        parameters.mass * reduce::sum(self.compression.len(), 0.0, energy)
    }
}

impl Place {
    /// The place of a position in support radii.
    fn new(scaled: DVec3) -> Self {
        // The cell as `CellGrid` finds it.
        let cell = scaled.floor();
        let fraction = ((scaled - cell) * FRACTIONS).round() / FRACTIONS;
        Self { cell: cell.as_ivec3(), fraction: fraction.as_vec3() }
    }
}

/// A wall's position in support radii, rounded so that images fall on the positions' own raster.
fn round_plane(scaled: DVec3) -> DVec3 {
    (scaled * (2.0 * FRACTIONS)).round() / (2.0 * FRACTIONS)
}

impl Chunk {
    fn find_candidates(
        &mut self,
        grid: &CellGrid,
        positions: &[DVec3],
        places: &[Place],
        planes: Option<(DVec3, DVec3)>,
        range: std::ops::Range<usize>,
    ) {
        self.blocks.clear();
        let mut end = 0;
        let mut first = range.start;
        while first < range.end {
            let home = places[first].cell;
            let count = places[first..range.end].iter().take_while(|place| place.cell == home).count();
            let (mut low, mut high) = (places[first].fraction, places[first].fraction);
            for place in &places[first..first + count] {
                low = low.min(place.fraction);
                high = high.max(place.fraction);
            }
            let begin = end;
            for &(run_begin, run_end) in grid.runs(positions[grid.order()[first] as usize]).as_slice() {
                end = self.append_near(places, run_begin as usize..run_end as usize, home, (low, high), end);
            }
            if let Some(planes) = planes {
                end = self.append_images(home, (low, high), planes, begin..end);
            }
            end = self.fill_lanes(end);
            let local = first - range.start;
            self.blocks.push(Block { particles: local..local + count, candidates: begin..end });
            first += count;
        }
    }

    /// Makes room for candidates up to `end`.
    fn reserve(&mut self, end: usize) {
        if self.x.len() < end {
            let end = end.next_power_of_two();
            self.x.resize(end, FAR);
            self.y.resize(end, FAR);
            self.z.resize(end, FAR);
            self.source.resize(end, 0);
        }
    }

    /// Appends the particles of a run that are within reach of the block's bounding box; returns the new end.
    fn append_near(
        &mut self,
        places: &[Place],
        run: std::ops::Range<usize>,
        home: IVec3,
        (low, high): (Vec3, Vec3),
        begin: usize,
    ) -> usize {
        self.reserve(begin + run.len());
        let (x, y, z) = (&mut self.x[begin..], &mut self.y[begin..], &mut self.z[begin..]);
        let source = &mut self.source[begin..];
        let mut kept = 0;
        for (index, place) in run.clone().zip(&places[run]) {
            // Cells that only share a slot of the grid are farther away than this.
            let offset = place.cell.wrapping_sub(home);
            let near = offset.x.unsigned_abs().max(offset.y.unsigned_abs()).max(offset.z.unsigned_abs()) <= 1;
            let position = place.fraction + offset.as_vec3();
            (x[kept], y[kept], z[kept]) = position.into();
            source[kept] = index as u32;
            // Written whether kept or not: a branch here would be mispredicted often.
            kept += usize::from(near & within_reach(position, low, high));
        }
        begin + kept
    }

    /// Appends mirror images of the candidates in `range`, wall after wall so that edges and corners get theirs;
    /// returns the new end. An image is never nearer than its original, so every image in reach is an image of a
    /// candidate.
    fn append_images(
        &mut self,
        home: IVec3,
        (low, high): (Vec3, Vec3),
        (min, max): (DVec3, DVec3),
        range: std::ops::Range<usize>,
    ) -> usize {
        let mut end = range.end;
        for axis in 0..3 {
            for plane in [min, max] {
                let plane = (plane[axis] - f64::from(home[axis])) as f32;
                if low[axis] - plane >= 1.0 || plane - high[axis] >= 1.0 {
                    continue;
                }
                let originals = range.start..end;
                self.reserve(end + originals.len());
                for candidate in originals {
                    let mut image = Vec3::new(self.x[candidate], self.y[candidate], self.z[candidate]);
                    image[axis] = 2.0 * plane - image[axis];
                    (self.x[end], self.y[end], self.z[end]) = image.into();
                    self.source[end] = self.source[candidate] ^ (1 << (MIRROR_SHIFT + axis as u32));
                    end += usize::from(within_reach(image, low, high));
                }
            }
        }
        end
    }

    /// Fills the last lanes up with nothing.
    fn fill_lanes(&mut self, end: usize) -> usize {
        let full = end.next_multiple_of(LANES);
        self.reserve(full);
        self.x[end..full].fill(FAR);
        self.y[end..full].fill(FAR);
        self.z[end..full].fill(FAR);
        self.source[end..full].fill(0);
        full
    }

    /// Density over rest density of the chunk's particles; `places` begins with the first of them.
    fn sum_densities(&self, places: &[Place], scale: f64, compression: &mut [f64]) {
        for Block { particles, candidates } in &self.blocks {
            let (x, y, z) =
                (&self.x[candidates.clone()], &self.y[candidates.clone()], &self.z[candidates.clone()]);
            for i in particles.clone() {
                compression[i] = scale * kernel_sum(places[i].fraction, lanes(x), lanes(y), lanes(z));
            }
        }
    }

    /// Accelerations of the chunk's particles; `places` and `own` begin with the first of them.
    fn sum_forces(&mut self, places: &[Place], own: &[Carried], all: &[Carried], accelerations: &mut [Vec3]) {
        let Self { blocks, x, y, z, source, carried, .. } = self;
        for Block { particles, candidates } in blocks.iter() {
            carried.gather(&source[candidates.clone()], all);
            let (x, y, z) = (&x[candidates.clone()], &y[candidates.clone()], &z[candidates.clone()]);
            for i in particles.clone() {
                accelerations[i] =
                    force_sum(places[i].fraction, &own[i], lanes(x), lanes(y), lanes(z), carried);
            }
        }
    }
}

impl CarriedLanes {
    /// Copies what the candidates from `source` carry.
    fn gather(&mut self, source: &[u32], all: &[Carried]) {
        self.0.resize(source.len() / LANES, Default::default());
        for (lanes, source) in self.0.iter_mut().zip(lanes(source)) {
            for l in 0..LANES {
                let Carried { pressure, volume, velocity } = all[(source[l] & INDEX_MASK) as usize];
                let mirrored = |axis: u32, v: f32| {
                    // The sign bit of a mirrored velocity is flipped.
                    f32::from_bits(v.to_bits() ^ (source[l] >> (MIRROR_SHIFT + axis) & 1) << 31)
                };
                lanes.pressure[l] = pressure;
                lanes.volume[l] = volume;
                lanes.velocity_x[l] = mirrored(0, velocity.x);
                lanes.velocity_y[l] = mirrored(1, velocity.y);
                lanes.velocity_z[l] = mirrored(2, velocity.z);
            }
        }
    }
}

/// A column of candidates, as many full lanes as [`Chunk::fill_lanes`] made.
fn lanes<T>(column: &[T]) -> &[[T; LANES]] {
    column.as_chunks::<LANES>().0
}

/// Whether a candidate is within one support radius of a bounding box, up to rounding.
#[inline]
fn within_reach(position: Vec3, low: Vec3, high: Vec3) -> bool {
    let gap = (low - position).max(position - high).max(Vec3::ZERO);
    gap.length_squared() < 1.000_01
}

/// Sum of t^4 (1 + 4 s) over the candidates, with s the distance in support radii and t = 1 - s where positive.
#[inline]
fn kernel_sum(at: Vec3, x: &[[f32; LANES]], y: &[[f32; LANES]], z: &[[f32; LANES]]) -> f64 {
    let mut sum = [0.0f32; LANES];
    for ((x, y), z) in x.iter().zip(y).zip(z) {
        for l in 0..LANES {
            let (dx, dy, dz) = (at.x - x[l], at.y - y[l], at.z - z[l]);
            let t = positive(1.0 - (dx * dx + dy * dy + dz * dz).sqrt());
            let t2 = t * t;
            sum[l] += t2 * t2 * (5.0 - 4.0 * t);
        }
    }
    sum.iter().map(|&part| f64::from(part)).sum()
}

/// Sum of t^3 ((P_i + P_j) (x_i - x_j) - V_i V_j (v_i - v_j)) over the candidates. Every product and sum of two
/// particles' values is symmetric in them, or changes sign with their order.
#[inline]
fn force_sum(
    at: Vec3,
    own: &Carried,
    x: &[[f32; LANES]],
    y: &[[f32; LANES]],
    z: &[[f32; LANES]],
    carried: &CarriedLanes,
) -> Vec3 {
    let mut sum = [[0.0f32; LANES]; 3];
    for (((x, y), z), other) in x.iter().zip(y).zip(z).zip(&carried.0) {
        for l in 0..LANES {
            let (dx, dy, dz) = (at.x - x[l], at.y - y[l], at.z - z[l]);
            let t = positive(1.0 - (dx * dx + dy * dy + dz * dz).sqrt());
            let t3 = t * t * t;
            let push = t3 * (own.pressure + other.pressure[l]);
            let drag = t3 * (own.volume * other.volume[l]);
            sum[0][l] += push * dx - drag * (own.velocity.x - other.velocity_x[l]);
            sum[1][l] += push * dy - drag * (own.velocity.y - other.velocity_y[l]);
            sum[2][l] += push * dz - drag * (own.velocity.z - other.velocity_z[l]);
        }
    }
    Vec3::from_array(sum.map(|lanes| lanes.iter().sum()))
}

/// `value` where positive, else 0; one instruction, which `f32::max` is not.
#[inline]
fn positive(value: f32) -> f32 {
    if value > 0.0 { value } else { 0.0 }
}
