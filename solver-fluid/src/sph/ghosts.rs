//! A fluid cut among ranks: the particles that a rank owns, and the particles of other ranks that it sees.
//!
//! Space is cut into boxes of whole cells, one per rank ([`Decomposition`]). A rank owns the particles in its box.
//! Particles of other ranks within a support radius of the box are its **ghosts**. Own particles meet ghosts
//! in sums, but the owners of the ghosts find the ghosts' densities and forces. On every rank a particle
//! meets its neighbours in the order of rows, bins and ids, so that no sum depends on the cut by a bit.

use std::time::{Duration, Instant};

use amalgam_particles::{DVec3, ParticleId};
use amalgam_solver_kit::{Cell, Decomposition, Ranks};
use bytemuck::{Pod, Zeroable};
use glam::{IVec3, Vec3};
use rayon::prelude::*;

use super::neighbours::{FixedPointGrid, Points};
use crate::ranks::{self, UNBALANCED};

/// The part of a fluid that this rank owns.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) ranks: Ranks,
    cut: Decomposition,
    /// Time spent on finding and copying particles that others see, and on copying received ghosts.
    pub(super) packing: Duration,
}

impl Default for Share {
    /// The whole fluid.
    fn default() -> Self {
        Self { ranks: Ranks::alone(), cut: Decomposition::whole(), packing: Duration::ZERO }
    }
}

impl Share {
    /// The part of this rank, where each rank has some of the particles, wherever they are. Collective.
    pub(super) fn new(ranks: &Ranks, grid: &FixedPointGrid, positions: &[DVec3]) -> Self {
        let mut share = Self { ranks: ranks.clone(), ..Self::default() };
        share.recut(grid, positions, 1);
        share
    }

    /// Cuts space anew if the busiest rank has worked more than [`UNBALANCED`] times the mean. This one was `busy`
    /// for some time. Collective.
    pub(super) fn balance(&mut self, grid: &FixedPointGrid, positions: &[DVec3], busy: Duration) {
        let nanoseconds = busy.as_nanos() as i64;
        let (mut sum, mut most) = ([nanoseconds, positions.len() as i64], [nanoseconds as f64]);
        self.ranks.sum(&mut sum);
        self.ranks.max(&mut most);
        let mean = sum[0] as f64 / self.ranks.size() as f64;
        if most[0] > UNBALANCED * mean {
            let weight = |time: i64, particles: i64| (time / particles.max(1)).max(1) as u64;
            let weight = match positions.is_empty() {
                true => weight(sum[0], sum[1]),
                false => weight(nanoseconds, positions.len() as i64),
            };
            self.recut(grid, positions, weight);
        }
    }

    /// Cuts space anew, where an own particle costs `weight` [ns]. Collective.
    pub(super) fn recut(&mut self, grid: &FixedPointGrid, positions: &[DVec3], weight: u64) {
        self.cut =
            Decomposition::balanced(&self.ranks, |i| cell(grid, positions[i]), positions.len(), weight);
    }

    /// The rank that each own particle belongs to now.
    pub(super) fn owners(&self, grid: &FixedPointGrid, positions: &[DVec3]) -> Vec<u32> {
        let own = self.ranks.rank();
        let within = grid.box_within(self.cut.region(own), 0);
        ranks::owners(positions, (own, within), |x| self.cut.owner(cell(grid, x)))
    }

    /// The largest distance [cells] of a particle, of any rank, from its rank's box. Collective.
    fn strayed(&self, grid: &FixedPointGrid, positions: &[DVec3]) -> u32 {
        let region = self.cut.region(self.ranks.rank());
        let (low, high) = (IVec3::from_array(region.0), IVec3::from_array(region.1));
        ranks::farthest(&self.ranks, (positions, grid.box_within(region, 0)), |x| {
            let cell = IVec3::from_array(cell(grid, x));
            // Differences saturate, since a box may reach to the largest integer.
            let below = IVec3::select(cell.cmplt(low), low.saturating_sub(cell), IVec3::ZERO);
            let above = IVec3::select(cell.cmpgt(high), cell.saturating_sub(high), IVec3::ZERO);
            below.max(above).max_element() as u32
        })
    }
}

/// The cell of a position [m].
fn cell(grid: &FixedPointGrid, position: DVec3) -> Cell {
    grid.locate(position).cell().to_array()
}

/// A particle as it is sent to a rank that sees it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Seen {
    id: u64,
    position: DVec3,
    /// Velocity [m/s] in f32, as loops over pairs read it.
    velocity: Vec3,
    unused: u32,
}

/// Pressure and volume of a particle, as loops over pairs read them.
pub(super) type PressureAndVolume = [i32; 2];

/// Particles of other ranks that own particles may see.
#[derive(Clone, Debug, Default)]
pub(super) struct Ghosts {
    ids: Vec<ParticleId>,
    positions: Vec<DVec3>,
    velocities: Vec<DVec3>,
    /// Neighbouring ranks, which see own particles and whose particles are seen.
    with: Vec<usize>,
    /// The own particles that each neighbouring rank sees.
    seen: Vec<Vec<u32>>,
    /// The number of ghosts from each neighbouring rank.
    from: Vec<usize>,
}

impl Ghosts {
    /// Sends own particles to the ranks that see them, and receives the ghosts that own particles see.
    /// `may_stray` is true if particles may have left their rank's box. Collective.
    pub(super) fn exchange(
        &mut self,
        share: &mut Share,
        grid: &FixedPointGrid,
        own: Points<'_>,
        may_stray: bool,
    ) {
        if share.ranks.is_alone() {
            return;
        }
        // A particle sees no farther than the next cell. If both particles of a pair may have strayed by s
        // cells, their boxes may be 1 + 2 s cells apart.
        let depth = 1 + if may_stray { 2 * share.strayed(grid, own.positions) as i32 } else { 0 };
        let start = Instant::now();
        let Share { ranks: here, cut, packing } = share;
        let (here, cut) = (&*here, &*cut);
        self.with = cut.neighbours(here.rank(), depth);
        let with = &self.with;
        self.seen.resize_with(with.len(), Vec::new);
        self.seen.iter_mut().for_each(Vec::clear);
        let border = ranks::outside(own.positions, grid.box_within(cut.region(here.rank()), depth));
        let border: Vec<(u32, Cell)> = border.map(|(i, position)| (i, cell(grid, position))).collect();
        // Successive particles mostly lie in one cell, so that the ranks that see it are found once.
        let (mut last, mut seers) = (None, Vec::new());
        for (i, cell) in border {
            if last != Some(cell) {
                last = Some(cell);
                seers.clear();
                seers.extend((0..with.len()).filter(|&k| cut.is_near(with[k], cell, depth)));
            }
            seers.iter().for_each(|&k| self.seen[k].push(i));
        }
        let see = |&i: &u32| {
            let i = i as usize;
            let (position, velocity) = (own.positions[i], own.velocities[i].as_vec3());
            Seen { id: own.ids[i].0, position, velocity, unused: 0 }
        };
        let sent = self.seen.par_iter().map(|seen| seen.iter().map(see).collect()).collect();
        *packing += start.elapsed();
        let arrived: Vec<Vec<Seen>> = here.exchange(&self.with, sent);
        let start = Instant::now();
        self.from = arrived.iter().map(Vec::len).collect();
        self.ids.clear();
        self.positions.clear();
        self.velocities.clear();
        for ghosts in &arrived {
            self.ids.extend(ghosts.iter().map(|ghost| ParticleId(ghost.id)));
            self.positions.extend(ghosts.iter().map(|ghost| ghost.position));
            self.velocities.extend(ghosts.iter().map(|ghost| ghost.velocity.as_dvec3()));
        }
        *packing += start.elapsed();
    }

    /// The ghosts.
    pub(super) fn points(&self) -> Points<'_> {
        Points { ids: &self.ids, positions: &self.positions, velocities: &self.velocities }
    }

    /// The pressures and volumes of the ghosts, in their order. Each rank sends those of its `own` particles
    /// that others see. Collective.
    pub(super) fn ask(
        &self,
        ranks: &Ranks,
        own: impl Fn(u32) -> PressureAndVolume,
    ) -> Vec<PressureAndVolume> {
        let of = |seen: &Vec<u32>| seen.iter().map(|&i| own(i)).collect();
        let arrived = ranks.exchange(&self.with, self.seen.iter().map(of).collect());
        debug_assert!(arrived.iter().map(Vec::len).eq(self.from.iter().copied()));
        arrived.concat()
    }
}
