//! A small workload on ranks that prints one hash: the same for every number of ranks, and for threads and
//! MPI.
//!
//! `cargo run -p amalgam-ranks --release --example exchange -- --threads 3`, or, with the feature `mpi`,
//! `mpirun -np 3 target/release/examples/exchange`. With `--bench` it prints how long calls take
//! instead; with `--fail` a rank panics, and with `--idle` ranks wait.

mod workload;

use std::{array, thread, time::Instant};

use amalgam_ranks::{Cell, Decomposition, ExactSum, Moves, Ranks};

use crate::workload::{bits, number};

/// As in the binary: messages reuse memory that was given back, and its pages need not be mapped anew.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let asks = |wish: &str| words.iter().any(|word| word == wish);
    let work = match () {
        () if asks("--bench") => bench,
        () if asks("--fail") => fail,
        () if asks("--idle") => idle,
        () => say,
    };
    match words.iter().position(|word| word == "--threads") {
        Some(at) => {
            let size = words.get(at + 1).ok_or("--threads needs a number")?.parse()?;
            thread::scope(|scope| {
                for ranks in Ranks::threads(size) {
                    scope.spawn(move || work(&ranks));
                }
            });
        }
        None => work(&processes()?),
    }
    Ok(())
}

#[cfg(feature = "mpi")]
fn processes() -> Result<Ranks, amalgam_ranks::MpiError> {
    Ranks::mpi()
}

#[cfg(not(feature = "mpi"))]
fn processes() -> Result<Ranks, std::convert::Infallible> {
    Ok(Ranks::alone())
}

/// The workload's hash.
fn say(ranks: &Ranks) {
    let summary = workload::run(ranks);
    if ranks.is_first() {
        println!("{summary}");
    }
}

/// The last rank panics while the others need it: all must end.
fn fail(ranks: &Ranks) {
    ranks.barrier();
    assert!(ranks.rank() + 1 < ranks.size(), "a fault of the last rank");
    ranks.barrier();
}

/// The first rank is busy elsewhere for three seconds, and the others must hardly use their cores meanwhile.
fn idle(ranks: &Ranks) {
    if ranks.is_first() {
        thread::sleep(std::time::Duration::from_secs(3));
        ranks.broadcast(vec![1u8]);
    } else {
        ranks.await_broadcast::<u8>();
    }
}

/// Times of calls on this machine.
fn bench(ranks: &Ranks) {
    let others: Vec<usize> = (0..ranks.size()).filter(|&rank| rank != ranks.rank()).collect();
    let say = |name: &str, bytes: usize, seconds: f64| {
        if ranks.is_first() {
            let rate = bytes as f64 / seconds * 1e-9;
            println!("{name:<40} {:>10.2} us {rate:>8.2} GB/s", seconds * 1e6);
        }
    };
    let time = |times: usize, call: &mut dyn FnMut()| {
        call();
        ranks.barrier();
        let start = Instant::now();
        (0..times).for_each(|_| call());
        start.elapsed().as_secs_f64() / times as f64
    };
    for values in [0, 1, 125, 3_000, 30_000, 300_000] {
        let mut messages = vec![vec![1.5f64; values]; others.len()];
        let times = if values > 10_000 { 200 } else { 5_000 };
        let seconds = time(times, &mut || messages = ranks.exchange(&others, std::mem::take(&mut messages)));
        say(&format!("exchange of {} B with each", values * 8), values * 8, seconds);
    }
    let seconds = time(5_000, &mut || ranks.max(&mut [1.0, 2.0]));
    say("max of 2", 16, seconds);
    let sum: ExactSum = [1.0, 1e-300].into_iter().collect();
    let seconds = time(5_000, &mut || assert!(ranks.exact_sum(&sum) > 0.0));
    say("exact sum over ranks", 544, seconds);
    let seconds = time(5_000, &mut || drop(ranks.broadcast(vec![1.0f64; 10])));
    ranks.barrier();
    say("broadcast of 80 B", 80, seconds);
    let mut histogram = vec![1i64; 4096];
    let seconds = time(500, &mut || ranks.sum(&mut histogram));
    say("sum of 4096 words", 32768, seconds);
    let count = 1_000_000;
    let terms: Vec<f64> = (0..count).map(|i| number(&[i as u64])).collect();
    let seconds = time(3, &mut || assert!(terms.iter().copied().collect::<ExactSum>().value() != 0.0));
    say("exact sum of 10^6 own terms", count * 8, seconds);
    // Every tenth particle goes to the next rank.
    let next = ((ranks.rank() + 1) % ranks.size()) as u32;
    let destination: Vec<u32> =
        (0..count).map(|i| if i % 10 == 0 { next } else { ranks.rank() as u32 }).collect();
    let mut moves = Moves::new(ranks, &destination);
    let seconds = time(5, &mut || moves = Moves::new(ranks, &destination));
    say("plan of moves for 10^6, a tenth leaves", count * 4, seconds);
    let mut column = vec![[1.0f64; 3]; count];
    let seconds = time(5, &mut || moves.apply(ranks, &mut column));
    say("moves of 10^6 times 24 B, a tenth leaves", count * 24, seconds);
    let place = |i: usize| array::from_fn(|axis| (bits(&[i as u64, axis as u64]) % 100) as i32);
    let cells: Vec<Cell> = (0..count).map(place).collect();
    let seconds = time(5, &mut || drop(Decomposition::balanced(ranks, |i| cells[i], count, 100)));
    say("cut of 10^6 particles a rank", count * 12, seconds);
}
