//! Space cut among ranks, and particles moved to their owners.

use amalgam_ranks::{Cell, Decomposition, Moves};
use proptest::prelude::*;

use crate::common::{SIZES, bits, on_ranks};

/// The cut for `size` ranks of particles that are dealt out among them.
fn cut(size: usize, cells: &[Cell], weight: impl Fn(usize) -> u64 + Sync) -> Decomposition {
    let cuts = on_ranks(size, |ranks| {
        let own: Vec<Cell> = cells.iter().skip(ranks.rank()).step_by(size).copied().collect();
        Decomposition::balanced(ranks, |i| own[i], own.len(), weight(ranks.rank()))
    });
    assert!(cuts.iter().all(|cut| *cut == cuts[0]), "ranks differ");
    assert_eq!(Decomposition::from_words(&cuts[0].to_words()), Some(cuts[0].clone()));
    cuts[0].clone()
}

fn counts(cut: &Decomposition, cells: &[Cell]) -> Vec<usize> {
    let mut counts = vec![0; cut.size()];
    cells.iter().for_each(|&cell| counts[cut.owner(cell)] += 1);
    counts
}

/// Particles in a box of cells.
fn block(count: u64, size: [u64; 3]) -> Vec<Cell> {
    (0..count).map(|i| [0, 1, 2].map(|axis| (bits(&[i, axis as u64]) % size[axis]) as i32 - 5)).collect()
}

#[test]
fn ranks_get_equal_shares_of_a_block() {
    let cells = block(40_000, [100, 120, 80]);
    for size in SIZES {
        let counts = counts(&cut(size, &cells, |_| 10), &cells);
        let largest = *counts.iter().max().unwrap() as f64;
        assert!(largest < 1.04 * cells.len() as f64 / size as f64, "{counts:?}");
    }
}

#[test]
fn a_slow_rank_gets_less() {
    // Particles lie where their ranks are: rank 1, twice as slow, above y = 0.
    let cuts = on_ranks(2, |ranks| {
        let low = if ranks.rank() == 0 { -1000 } else { 0 };
        Decomposition::balanced(ranks, |i| [0, low + i as i32, 0], 1000, 100 * (1 + ranks.rank() as u64))
    });
    // Total 300,000, of which half is reached 50,000 = 250 particles above 0.
    assert_eq!(cuts[0].region(0).1[1], 249);
    assert_eq!(cuts[0], cuts[1]);
}

/// The third of four ranks takes twice as long for a particle. Particles that leave it for others then cost half as
/// much there, which the next cut knows.
#[test]
fn a_rank_at_half_speed_is_balanced_within_a_tenth() {
    let cells = block(40_000, [100, 120, 80]);
    let cost = |rank: usize| if rank == 2 { 200 } else { 100 };
    let mut now = cut(4, &cells, |_| 100);
    let mut ratios = Vec::new();
    for _ in 0..6 {
        let work: Vec<u64> =
            counts(&now, &cells).iter().enumerate().map(|(rank, &count)| cost(rank) * count as u64).collect();
        let mean = work.iter().sum::<u64>() as f64 / 4.0;
        ratios.push(*work.iter().max().expect("four ranks") as f64 / mean);
        let cuts = on_ranks(4, |ranks| {
            let is_own = |cell: &&Cell| now.owner(**cell) == ranks.rank();
            let own: Vec<Cell> = cells.iter().filter(is_own).copied().collect();
            Decomposition::balanced(ranks, |i| own[i], own.len(), cost(ranks.rank()))
        });
        now = cuts[0].clone();
    }
    assert!(ratios[0] > 1.5 && ratios[3..].iter().all(|&ratio| ratio < 1.1), "{ratios:?}");
}

#[test]
fn rows_stay_whole_while_they_are_short_and_y_and_z_are_thick() {
    let whole_rows = |cut: &Decomposition| {
        (0..cut.size()).all(|rank| cut.region(rank).0[0] == i32::MIN && cut.region(rank).1[0] == i32::MAX)
    };
    assert!(whole_rows(&cut(8, &block(10_000, [32, 16, 16]), |_| 1)));
    // Thin columns would see as many particles of others as they have.
    let long = cut(8, &block(10_000, [1000, 16, 16]), |_| 1);
    assert!((0..8).all(|rank| long.region(rank).0[1..] == [i32::MIN; 2]));
    let flat = cut(8, &block(10_000, [1000, 3, 3]), |_| 1);
    assert!((0..8).all(|rank| flat.region(rank).0[1..] == [i32::MIN; 2]));
}

#[test]
fn more_ranks_than_cells_or_particles_work() {
    for cells in [vec![], vec![[3, 4, 5]], vec![[0; 3]; 1000], block(50, [2, 1, 1]), block(100, [2, 2, 2])] {
        for size in [2, 3, 8, 13] {
            let cut = cut(size, &cells, |_| 1);
            let full = |rank| (0..3).all(|axis| cut.region(rank).0[axis] <= cut.region(rank).1[axis]);
            assert!((0..size).all(full));
        }
    }
}

#[test]
fn strays_far_out_do_not_spoil_the_balance() {
    let far = 1 << 27;
    let mut cells = block(20_000, [50, 50, 50]);
    cells.extend([[0, far, 0], [0, -far, 3], [far, 0, -far], [i32::MAX, i32::MIN, i32::MAX], [i32::MIN; 3]]);
    for size in SIZES {
        let counts = counts(&cut(size, &cells, |_| 7), &cells);
        assert!(
            *counts.iter().max().unwrap() as f64 <= 1.06 * cells.len() as f64 / size as f64,
            "{counts:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_cut_covers_space_once(
        cells in prop::collection::vec(prop::array::uniform3(prop_oneof![-3..3, -200..200, any::<i32>()]), 0..300),
        size in 1usize..10,
        probes in prop::collection::vec(prop::array::uniform3(prop_oneof![-5..5, any::<i32>()]), 20),
        depth in 0..4i32,
    ) {
        let cut = cut(size, &cells, |rank| 1 + rank as u64);
        for &cell in cells.iter().chain(&probes) {
            let inside: Vec<usize> = (0..size).filter(|&rank| cut.is_near(rank, cell, 0)).collect();
            prop_assert_eq!(inside, vec![cut.owner(cell)]);
        }
        for rank in 0..size {
            for other in cut.neighbours(rank, depth) {
                prop_assert!(cut.neighbours(other, depth).contains(&rank));
            }
        }
    }

    #[test]
    fn columns_arrive_whole_and_together(
        size in 1usize..7,
        count in 0u64..300,
        seed: u64,
        still in 0u64..4,
    ) {
        let columns = on_ranks(size, |ranks| {
            let own = ranks.rank() as u64;
            // Ranks hold different numbers of particles, some none.
            let count = count * (own % 3) / 2;
            let mut id: Vec<u64> = (0..count).map(|i| own << 32 | i).collect();
            let mut narrow: Vec<[u8; 3]> = id.iter().map(|&id| [id as u8, own as u8, 9]).collect();
            let target = |id: u64| {
                let key = bits(&[seed, id]);
                if still == 0 || key % 4 < still { own } else { key / 4 % size as u64 }
            };
            let destination: Vec<u32> = id.iter().map(|&id| target(id) as u32).collect();
            let moves = Moves::new(ranks, &destination);
            let staying = count as usize - moves.leaving();
            moves.apply(ranks, &mut id);
            moves.apply(ranks, &mut narrow);
            assert_eq!(id.len(), staying + moves.arriving());
            assert_eq!(moves.is_empty(), !ranks.any(moves.leaving() > 0));
            assert!(id.iter().all(|&id| target(id) == own));
            let fits = |(id, narrow): (&u64, &[u8; 3])| *narrow == [*id as u8, (id >> 32) as u8, 9];
            assert!(id.iter().zip(&narrow).all(fits));
            id
        });
        let mut all: Vec<u64> = columns.concat();
        all.sort_unstable();
        let expected: Vec<u64> =
            (0..size as u64).flat_map(|rank| (0..count * (rank % 3) / 2).map(move |i| rank << 32 | i)).collect();
        prop_assert_eq!(all, expected);
    }
}
