//! Particles of a fluid that is cut among ranks, whatever its method: the ranks that own them, and how far they
//! have left their rank's part of space.

use amalgam_particles::DVec3;
use amalgam_particles::reduce::CHUNK;
use amalgam_solver_kit::Ranks;
use rayon::prelude::*;

/// Ratio of the busiest rank's work to the mean work of ranks above which space is cut anew.
pub(crate) const UNBALANCED: f64 = 1.1;

/// The rank that each particle belongs to.
pub(crate) fn owners(positions: &[DVec3], owner: impl Fn(DVec3) -> usize + Sync) -> Vec<u32> {
    positions.par_iter().with_min_len(CHUNK).map(|&position| owner(position) as u32).collect()
}

/// The largest distance of a particle, of any rank, from the part of space of its rank. A `distance` counts
/// cells. Collective.
pub(crate) fn farthest(ranks: &Ranks, positions: &[DVec3], distance: impl Fn(DVec3) -> u32 + Sync) -> u32 {
    let of_own = positions.par_iter().with_min_len(CHUNK).map(|&position| distance(position)).max();
    let mut most = [f64::from(of_own.unwrap_or(0))];
    ranks.max(&mut most);
    most[0] as u32
}
