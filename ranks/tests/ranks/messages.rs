//! Messages and sums between threads that act as ranks.

use crate::common::{SIZES, bits, on_ranks};

/// The message from one rank to another in a round; some are empty.
fn message(round: u64, from: usize, to: usize) -> Vec<u64> {
    let key = |i| bits(&[round, from as u64, to as u64, i]);
    (0..key(0) % 7 / 2).map(|i| key(i + 1)).collect()
}

#[test]
fn every_message_of_all_to_all_arrives_at_its_rank() {
    for size in SIZES {
        on_ranks(size, |ranks| {
            for round in 0..50 {
                let send = (0..size).map(|to| message(round, ranks.rank(), to)).collect();
                let received = ranks.all_to_all(send);
                let expected: Vec<_> = (0..size).map(|from| message(round, from, ranks.rank())).collect();
                assert_eq!(received, expected);
            }
        });
    }
}

#[test]
fn neighbours_exchange_any_type() {
    for size in SIZES {
        on_ranks(size, |ranks| {
            let own = ranks.rank();
            // Ranks whose numbers differ by one or three.
            let with: Vec<usize> =
                (0..size).filter(|&r| r.abs_diff(own) == 1 || r.abs_diff(own) == 3).collect();
            for round in 0..50u16 {
                let triples =
                    with.iter().map(|&to| vec![[own as f64, to as f64, f64::from(round)]; own]).collect();
                let received = ranks.exchange(&with, triples);
                for (&from, received) in with.iter().zip(received) {
                    assert_eq!(received, vec![[from as f64, own as f64, f64::from(round)]; from]);
                }
                let narrow = with.iter().map(|&to| vec![(own * 10 + to) as u16 + round]).collect();
                let received = ranks.exchange(&with, narrow);
                for (&from, received) in with.iter().zip(received) {
                    assert_eq!(received, [(from * 10 + own) as u16 + round]);
                }
            }
        });
    }
}

#[test]
fn the_first_rank_gathers_and_broadcasts() {
    for size in SIZES {
        on_ranks(size, |ranks| {
            for round in 0..20u32 {
                let gathered = ranks.gather(vec![round; ranks.rank()]);
                let expected =
                    ranks.is_first().then(|| (0..size).map(|rank| vec![round; rank]).collect::<Vec<_>>());
                assert_eq!(gathered, expected);
                let own = vec![ranks.rank() as f32 + 0.5, round as f32];
                let idle = !ranks.is_first() && round % 2 == 0;
                let received = if idle { ranks.await_broadcast() } else { ranks.broadcast(own) };
                assert_eq!(received, [0.5, round as f32]);
            }
        });
    }
}

#[test]
fn sums_and_largest_values_are_those_of_all_ranks() {
    for size in SIZES {
        let answers = on_ranks(size, |ranks| {
            let rank = ranks.rank() as i64;
            let last = ranks.rank() + 1 == size;
            let mut largest = [
                rank as f64,
                -rank as f64,
                if last { f64::NAN } else { 1.0 },
                if last { 0.0 } else { -0.0 },
                f64::NEG_INFINITY,
            ];
            ranks.max(&mut largest);
            let mut sums = [rank, i64::MAX];
            ranks.sum(&mut sums);
            let mut words = [u64::MAX];
            ranks.wrapping_sum(&mut words);
            let mut exact = [rank as f64 * 0.125, -0.0];
            ranks.sum_exact(&mut exact);
            assert!(ranks.any(last) && !ranks.any(false));
            ranks.barrier();
            (largest.map(f64::to_bits), sums, words, exact.map(f64::to_bits))
        });
        let (last, total) = (size as f64 - 1.0, (size * (size - 1) / 2) as f64);
        let largest = [last, 0.0, f64::NAN, 0.0, f64::NEG_INFINITY];
        for (found, sums, words, exact) in answers {
            assert_eq!(found, largest.map(f64::to_bits));
            assert_eq!(sums, [total as i64, i64::MAX.wrapping_mul(size as i64)]);
            assert_eq!(words, [u64::MAX.wrapping_mul(size as u64)]);
            assert_eq!(exact, [total * 0.125, 0.0].map(f64::to_bits));
        }
    }
}
