//! Densities: the sum of the kernel over all neighbours of a particle.

#![allow(
    clippy::needless_range_loop,
    reason = "iterators with closures are not compiled for the vector width"
)]

use std::marker::PhantomData;

use amalgam_particles::lanes::{LANES, Lanes, Register, Task};

use super::neighbours::{Group, NeighbourList, Places, Surroundings};
use super::pairs::{PairTerms, squared};
use super::sweep::Sums;

pub(super) struct Densities<'a, S> {
    pub(super) sums: Sums<'a, f32>,
    pub(super) places: &'a mut Places,
    pub(super) scheme: PhantomData<S>,
}

impl<S: PairTerms> Task for Densities<'_, S> {
    /// Pairs gone through, and those that forces will go through.
    type Output = [u64; 2];

    #[inline(always)]
    fn run<L: Lanes>(self) -> [u64; 2] {
        let Self { sums, places, .. } = self;
        let mut pairs = [0; 2];
        sums.visit(
            L::Register::LANES,
            #[inline(always)]
            |group, around, found, values| {
                let counts = densities::<S, L::Register>(group, around, places, found, values);
                (0..2).for_each(|of| pairs[of] += (counts[of] * L::Register::LANES) as u64);
            },
        );
        pairs
    }
}

#[inline(always)]
fn densities<S: PairTerms, R: Register>(
    group: &Group<'_>,
    around: &Surroundings<'_>,
    places: &mut Places,
    found: &mut NeighbourList,
    values: &mut [f32],
) -> [usize; 2] {
    places.collect::<R>(around, group);
    let [at_x, at_y, at_z] = around.places::<R>(group);
    let mut sum = R::splat(0.0);
    let counts = places.visit::<R>(
        found,
        #[inline(always)]
        |[x, y, z]| {
            let distance2 = squared([at_x - R::splat(x), at_y - R::splat(y), at_z - R::splat(z)]);
            sum = sum + S::shape(distance2);
            distance2.less(R::splat(1.0)) != 0
        },
    );
    let mut lanes = [0.0; LANES];
    sum.store(&mut lanes);
    values.copy_from_slice(&lanes[..values.len()]);
    counts
}
