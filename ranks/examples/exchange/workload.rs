//! A cloud of particles that drifts through the ranks, random messages, and sums: every call of the crate.

use std::{array, fmt, thread};

use amalgam_ranks::{Cell, Decomposition, ExactSum, Moves, Ranks};

const PARTICLES: u64 = 20_000;
const ROUNDS: u64 = 20;
/// Whoever sends messages in the workload: ranks share them, so that messages are the same for every number
/// of ranks.
const SENDERS: usize = 12;
/// Cells that a particle sees around its own.
const DEPTH: i32 = 1;

/// Random bits for a purpose named by `key`.
pub(crate) fn bits(key: &[u64]) -> u64 {
    key.iter().fold(0x616d_616c_6761_6d00, |state: u64, &word| {
        let x = (state ^ word.wrapping_mul(0xd134_2543_de82_ef95)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    })
}

/// A number in [-1, 1).
pub(crate) fn number(key: &[u64]) -> f64 {
    (bits(key) >> 11) as f64 * 2.0f64.powi(-52) - 1.0
}

/// A rank's own particles.
#[derive(Default)]
struct Particles {
    id: Vec<u64>,
    position: Vec<[f64; 3]>,
    charge: Vec<f32>,
}

fn cell(position: [f64; 3]) -> Cell {
    position.map(|x| x.floor() as i32)
}

impl Particles {
    /// Every rank starts with every `size`-th particle, wherever it is. A few fly far out.
    fn new(ranks: &Ranks) -> Self {
        let mut own = Self::default();
        for id in (ranks.rank() as u64..PARTICLES).step_by(ranks.size()) {
            let far = if id % 5000 == 7 { 1e8 } else { 12.0 };
            own.id.push(id);
            own.position.push(array::from_fn(|axis| far * number(&[id, axis as u64])));
            own.charge.push(number(&[id, 9]) as f32);
        }
        own
    }

    fn step(&mut self, round: u64, force: &[f64]) {
        for ((&id, position), force) in self.id.iter().zip(&mut self.position).zip(force) {
            for (axis, x) in position.iter_mut().enumerate() {
                // The cloud drifts, so that ranks have to be cut anew.
                *x += 0.3 * axis as f64 + number(&[id, round, axis as u64]) + 1e-3 * force.clamp(-10.0, 10.0);
            }
        }
    }

    fn migrate(&mut self, ranks: &Ranks, cut: &Decomposition) -> usize {
        let destination: Vec<u32> = self.position.iter().map(|&x| cut.owner(cell(x)) as u32).collect();
        let moves = Moves::new(ranks, &destination);
        moves.apply(ranks, &mut self.id);
        moves.apply(ranks, &mut self.position);
        moves.apply(ranks, &mut self.charge);
        moves.arriving()
    }

    /// Particle by particle a sum over those in cells around, in the order of ids: their owners do not
    /// matter.
    fn forces(&self, ranks: &Ranks, cut: &Decomposition) -> Vec<f64> {
        let with = cut.neighbours(ranks.rank(), DEPTH);
        let near = |&to: &usize| {
            let seen = self.position.iter().zip(&self.id).zip(&self.charge);
            seen.filter(|((x, _), _)| cut.is_near(to, cell(**x), DEPTH))
                .map(|((x, &id), &charge)| [x[0], x[1], x[2], f64::from(charge), f64::from_bits(id)])
                .collect()
        };
        let ghosts = ranks.exchange(&with, with.iter().map(near).collect::<Vec<Vec<[f64; 5]>>>());
        let own = self.position.iter().zip(&self.id).zip(&self.charge);
        let own = own.map(|((x, &id), &charge)| [x[0], x[1], x[2], f64::from(charge), f64::from_bits(id)]);
        let mut seen: Vec<(Cell, [f64; 5])> =
            own.chain(ghosts.into_iter().flatten()).map(|p| (cell([p[0], p[1], p[2]]), p)).collect();
        seen.sort_unstable_by_key(|(cell, p)| (*cell, p[4].to_bits()));
        let force = |(&x, &charge): (&[f64; 3], &f32)| {
            let (around, mut force) = (cell(x), 0.0);
            for near in 0..27 {
                let offset = [near % 3 - 1, near / 3 % 3 - 1, near / 9 - 1];
                let near: Cell = array::from_fn(|axis| around[axis] + offset[axis]);
                let first = seen.partition_point(|(cell, _)| *cell < near);
                for (_, p) in seen[first..].iter().take_while(|(cell, _)| *cell == near) {
                    let squared: f64 = (0..3).map(|axis| (p[axis] - x[axis]) * (p[axis] - x[axis])).sum();
                    force += f64::from(charge) * p[3] / (squared + 0.01);
                }
            }
            force
        };
        self.position.iter().zip(&self.charge).map(force).collect()
    }
}

/// The end of the workload; the hash is the same for every number of ranks.
pub(crate) struct Summary {
    pub(crate) hash: u64,
    ranks: usize,
    /// Moves of particles to another rank.
    moved: u64,
    /// Most neighbours of the first rank.
    neighbours: usize,
    /// The most particles of a rank at a time, in shares of the mean.
    largest: f64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { hash, ranks, moved, neighbours, largest } = self;
        write!(
            f,
            "hash {hash:016x}  ranks {ranks}  moved {moved}  neighbours {neighbours}  largest share {largest:.3}"
        )
    }
}

pub(crate) fn run(ranks: &Ranks) -> Summary {
    let mut own = Particles::new(ranks);
    let mut force = vec![0.0; own.id.len()];
    let (mut hash, mut moved, mut neighbours) = (0, [0], 0);
    let mut largest = [0.0f64];
    for round in 0..ROUNDS {
        own.step(round, &force);
        // A cost that differs by rank and round: results must not depend on it.
        let weight = 100 + bits(&[round, ranks.rank() as u64]) % 50;
        let cut = Decomposition::balanced(ranks, |i| cell(own.position[i]), own.id.len(), weight);
        moved[0] += own.migrate(ranks, &cut) as u64;
        neighbours = neighbours.max(cut.neighbours(ranks.rank(), DEPTH).len());
        force = own.forces(ranks, &cut);
        largest[0] = largest[0].max(own.id.len() as f64 * ranks.size() as f64 / PARTICLES as f64);
        hash = bits(&[
            hash,
            sums(ranks, &own, &force),
            letters(ranks, round),
            table(ranks, &own, &force, round),
        ]);
    }
    ranks.wrapping_sum(&mut moved);
    ranks.max(&mut largest);
    assert_eq!(ranks.broadcast(vec![hash]), [hash], "ranks do not agree");
    Summary { hash, ranks: ranks.size(), moved: moved[0], neighbours, largest: largest[0] }
}

/// Sums over all particles.
fn sums(ranks: &Ranks, own: &Particles, force: &[f64]) -> u64 {
    let energy: ExactSum = force.iter().copied().collect();
    let moment: ExactSum = force.iter().zip(&own.position).map(|(f, x)| f * x[0] * 1e-200).collect();
    let totals = ranks.exact_sums(&[energy.clone(), moment]);
    assert_eq!(ranks.exact_sum(&energy).to_bits(), totals[0].to_bits());
    let mut largest = [f64::NEG_INFINITY; 4];
    for (force, x) in force.iter().zip(&own.position) {
        largest[0] = largest[0].max(*force);
        (0..3).for_each(|axis| largest[axis + 1] = largest[axis + 1].max(x[axis]));
    }
    ranks.max(&mut largest);
    let mut quarters = [own.position.iter().map(|x| (x[1] * 4.0).floor() * 0.25).sum::<f64>()];
    ranks.sum_exact(&mut quarters);
    let mut words = [0u64];
    for ((&id, x), force) in own.id.iter().zip(&own.position).zip(force) {
        words[0] = words[0].wrapping_add(bits(&[
            id,
            x[0].to_bits(),
            x[1].to_bits(),
            x[2].to_bits(),
            force.to_bits(),
        ]));
    }
    ranks.wrapping_sum(&mut words);
    let mut not_a_number = [if own.id.contains(&3) { f64::NAN } else { 1.0 }];
    ranks.max(&mut not_a_number);
    assert!(not_a_number[0].is_nan());
    let mut hash = words[0];
    for value in totals.into_iter().chain(largest).chain(quarters) {
        hash = bits(&[hash, value.to_bits()]);
    }
    bits(&[hash, u64::from(ranks.any(own.id.contains(&17)))])
}

/// Random messages from each sender to each, of which many are empty and some are long.
fn letters(ranks: &Ranks, round: u64) -> u64 {
    let size = ranks.size();
    let mut send: Vec<Vec<[u32; 3]>> = vec![Vec::new(); size];
    for from in (ranks.rank()..SENDERS).step_by(size) {
        for to in 0..SENDERS {
            let key = [round, from as u64, to as u64];
            let kind = bits(&key);
            let length = if kind.is_multiple_of(97) { 100_000 } else { (kind % 7).saturating_sub(3) * 10 };
            let letter = (0..length).map(|i| [from as u32, to as u32, bits(&[kind, i]) as u32]);
            send[to % size].extend(letter);
        }
    }
    let mut hash = 0u64;
    for (from, letters) in ranks.all_to_all(send).into_iter().enumerate() {
        // Letters between a pair keep their order.
        let mut counts = [[0u64; SENDERS]; SENDERS];
        for [sender, to, content] in letters {
            assert_eq!((sender as usize % size, to as usize % size), (from, ranks.rank()));
            let count = &mut counts[sender as usize][to as usize];
            hash = hash.wrapping_add(bits(&[u64::from(sender), u64::from(to), *count, u64::from(content)]));
            *count += 1;
        }
    }
    let mut words = [hash];
    ranks.wrapping_sum(&mut words);
    words[0]
}

/// The whole table of particles at the first rank, its hash at all.
fn table(ranks: &Ranks, own: &Particles, force: &[f64], round: u64) -> u64 {
    let rows = own.id.iter().zip(force).map(|(&id, force)| [id, force.to_bits()]).collect();
    let answer = ranks.gather(rows).map(|parts: Vec<Vec<[u64; 2]>>| {
        let mut rows = parts.concat();
        rows.sort_unstable();
        assert!(rows.iter().enumerate().all(|(i, row)| row[0] == i as u64), "each particle has one owner");
        if round.is_multiple_of(7) {
            // Long enough for the other ranks to sleep.
            thread::sleep(std::time::Duration::from_millis(5));
        }
        vec![bits(rows.as_flattened())]
    });
    let idle = round % 2 == 1 && !ranks.is_first();
    let answer = if idle { ranks.await_broadcast() } else { ranks.broadcast(answer.unwrap_or_default()) };
    answer[0]
}
