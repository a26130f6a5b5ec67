//! Tests of the layout and of its kernels.

use amalgam_particles::lanes::Width;
use amalgam_particles::random::uniform_f64;

use super::*;

#[test]
fn every_width_gives_the_same_bits() {
    const HALF: i32 = (0.5 * QUANTA as f32).to_bits() as i32;
    let random = |i: usize, what: u64| uniform_f64(&[i as u64, what]);
    let quanta = |i: usize, what: u64| (random(i, what) * 3.0 * QUANTA) as i32;
    let record: Vec<[i32; 4]> = (0..96)
        .map(|i| {
            let correction = ((0.5 + 0.01 * random(i, 9)) * QUANTA) as f32;
            [quanta(i, 0), quanta(i, 1), quanta(i, 2), correction.to_bits() as i32]
        })
        .collect();
    let bits = |i: usize, what: u64| (random(i, what) as f32).to_bits() as i32;
    let pair: Vec<Pair> = (0..96)
        .map(|i| std::array::from_fn(|k| if k % 4 < 3 { bits(i, 20 + k as u64) } else { 0 }))
        .collect();
    let share = BondStiffness { inner: 3.5, slope: 1.0 / QUANTA as f32 };
    for first in (0..96).step_by(CLUSTER) {
        let others: Vec<u32> =
            (0..96).filter(|&other| other / CLUSTER != first / CLUSTER).map(|other| other as u32).collect();
        let of = |slots: &[u32; BLOCK]| {
            let lanes = (random(slots[0] as usize, 10 + first as u64) * 65536.0) as u16;
            NeighbourBlock { slot: *slots, lanes }
        };
        let neighbours: Vec<NeighbourBlock> = others.as_chunks().0.iter().map(of).collect();
        let bonds = neighbours.iter().map(|block| block.lanes.count_ones() as usize).sum::<usize>();
        let rest =
            |k: usize| (1.0 + random(k, 40)) / (3.0 * QUANTA) * if k.is_multiple_of(9) { -1.0 } else { 1.0 };
        let inverse_rest: Vec<f32> = (0..bonds + 16).map(|k| rest(k) as f32).collect();
        let rows = Rows { first, neighbours: &neighbours, record: &record, share };
        let results = |width: &Width| {
            let inverse_rest = inverse_rest.as_slice();
            let mut coefficient = vec![0; bonds + 16];
            let forces = width
                .run(KernelTask(ForceKernel::<AnyStrain, Corrected, LeastRecorded>::new(rows, inverse_rest)));
            let kernel = DiagonalKernel::<AnyStrain>::new(rows, inverse_rest, coefficient.as_mut_slice());
            let (diagonal, _) = width.run(KernelTask(kernel));
            let exact = width.run(KernelTask(ProductKernel::<AnyStrain, WholeNumbers>::new(
                rows,
                inverse_rest,
                &pair,
            )));
            let far =
                width.run(KernelTask(ProductKernel::<AnyStrain, FloatBits>::new(rows, inverse_rest, &pair)));
            let rounded =
                width.run(KernelTask(RoundedKernel { rows, coefficient: &coefficient, pair: &pair }));
            let near = width.run(KernelTask(ForceKernel::<SmallStrain, Corrected, LeastIgnored>::new(
                rows,
                inverse_rest,
            )));
            let without = width.run(KernelTask(ForceKernel::<SmallStrain, Uncorrected, LeastIgnored>::new(
                rows,
                inverse_rest,
            )));
            let columns = [forces, near, without]
                .map(|of| [of.force[0], of.force[1], of.force[2], of.least, of.largest, of.energy]);
            let all = columns.into_iter().flatten().chain(diagonal);
            let all = all.chain(exact).chain(far).chain(rounded).flatten().map(f32::to_bits);
            (all.collect::<Vec<_>>(), coefficient[..bonds].to_vec())
        };
        let widths = Width::supported();
        let plain = results(&widths[0]);
        assert!(plain.0.iter().all(|&bits| f32::from_bits(bits).is_finite() && bits != 0));
        for width in &widths[1..] {
            assert_eq!(results(width), plain, "{width:?}");
        }
        let ones: Vec<_> = record.iter().map(|&[x, y, z, _]| [x, y, z, HALF]).collect();
        let (rows, inverse_rest) = (Rows { record: &ones, ..rows }, inverse_rest.as_slice());
        let read = widths[0]
            .run(KernelTask(ForceKernel::<SmallStrain, Corrected, LeastIgnored>::new(rows, inverse_rest)));
        let not = widths[0]
            .run(KernelTask(ForceKernel::<SmallStrain, Uncorrected, LeastIgnored>::new(rows, inverse_rest)));
        assert_eq!((read.force, read.energy), (not.force, not.energy), "corrections of 1, read or not");
    }
}

#[test]
fn clusters_of_a_block_share_their_neighbours() {
    let edge = 20u32;
    let lattice = |i: u32| DVec3::new((i / edge / edge).into(), (i / edge % edge).into(), (i % edge).into());
    let position: Vec<DVec3> = (0..edge.pow(3)).map(lattice).collect();
    let order = clustered(&position);
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..edge.pow(3)));
    let in_order: Vec<DVec3> = order.iter().map(|&i| position[i as usize]).collect();
    let blocks = bonds_of_clusters(&in_order, 3.015).concat();
    let bonds: u32 = blocks.iter().map(|block| block.lanes.count_ones()).sum();
    // Four in a row would use 0.58 of the lanes, squares 0.65; at the surface fewer.
    assert!(f64::from(bonds) > 0.58 * (LANES * blocks.len()) as f64, "{bonds} {}", blocks.len());
}
