//! Particles of a fluid that is cut among ranks, whatever its method: the ranks that own them, and how far they
//! have left their rank's part of space.

use amalgam_particles::DVec3;
use amalgam_particles::reduce::CHUNK;
use amalgam_solver_kit::Ranks;
use rayon::prelude::*;

/// Ratio of the busiest rank's work to the mean work of ranks above which space is cut anew.
pub(crate) const UNBALANCED: f64 = 1.1;

/// Positions that are looked at together for whether any of them lies outside of a box.
const BLOCK: usize = 64;

/// True if a position is in a box [m].
#[inline(always)]
fn is_between(position: &DVec3, [low, high]: [DVec3; 2]) -> bool {
    (position.cmpge(low) & position.cmple(high)).all()
}

/// The positions that are not in a box [m], with their indices. Successive positions are mostly neighbours, so
/// that most blocks of them are passed over.
pub(crate) fn outside(positions: &[DVec3], within: [DVec3; 2]) -> impl ParallelIterator<Item = (u32, DVec3)> {
    let are_between = move |block: &[DVec3]| block.iter().fold(true, |all, x| all & is_between(x, within));
    let blocks = positions.par_chunks(BLOCK).with_min_len(CHUNK / BLOCK).enumerate();
    let blocks = blocks.filter(move |(_, block)| !are_between(block));
    blocks
        .flat_map_iter(|(k, block)| ((k * BLOCK) as u32..).zip(block.iter().copied()))
        .filter(move |(_, position)| !is_between(position, within))
}

/// The rank that each particle belongs to. Particles in the box `within` [m] belong to the rank `own`.
pub(crate) fn owners(
    positions: &[DVec3],
    (own, within): (usize, [DVec3; 2]),
    owner: impl Fn(DVec3) -> usize + Sync + Send,
) -> Vec<u32> {
    let mut owners = vec![own as u32; positions.len()];
    let others = outside(positions, within).map(|(i, position)| (i, owner(position) as u32));
    others.collect::<Vec<_>>().into_iter().for_each(|(i, owner)| owners[i as usize] = owner);
    owners
}

/// The largest distance of a particle, of any rank, from the part of space of its rank. A `distance` counts
/// cells, and is 0 in the box `within` [m]. Collective.
pub(crate) fn farthest(
    ranks: &Ranks,
    (positions, within): (&[DVec3], [DVec3; 2]),
    distance: impl Fn(DVec3) -> u32 + Sync + Send,
) -> u32 {
    let of_own = outside(positions, within).map(|(_, position)| distance(position)).max();
    let mut most = [f64::from(of_own.unwrap_or(0))];
    ranks.max(&mut most);
    most[0] as u32
}
