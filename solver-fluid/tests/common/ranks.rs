//! A fluid that is cut among ranks of threads, as its particles and reports tell it.

use amalgam_solver_kit::{Ranks, Report, Solver};

use super::field;

/// A step as the participant tells it, and its particles: id, position and velocity, fields.
#[derive(Debug, PartialEq)]
pub struct Told {
    stable_dt: u64,
    energies: Vec<(&'static str, u64)>,
    given: u64,
    particles: Vec<(u64, [u64; 6], Vec<u32>)>,
}

impl Told {
    /// The particles of this rank, with these fields.
    pub fn new(fluid: &mut dyn Solver, report: &Report, fields: &[&str]) -> Self {
        let fields: Vec<_> = fields.iter().map(|name| field(fluid, name)).collect();
        let particles = fluid.particles();
        let of = |i: usize| {
            let (x, v) = (particles.position[i], particles.velocity[i]);
            let state = [x.x, x.y, x.z, v.x, v.y, v.z].map(f64::to_bits);
            (particles.id[i].0, state, fields.iter().map(|field| field[i].to_bits()).collect())
        };
        Self {
            stable_dt: report.stable_dt.to_bits(),
            energies: report.energies.iter().map(|&(name, joule)| (name, joule.to_bits())).collect(),
            given: report.given.to_bits(),
            particles: (0..particles.len()).map(of).collect(),
        }
    }
}

/// Results of all ranks of a run, joined. Each rank calls `told` with a seed by which it cuts space.
fn joined(size: usize, seed: u64, told: fn(&Ranks, u64) -> Vec<Told>) -> Vec<Told> {
    let parts: Vec<Vec<Told>> = std::thread::scope(|scope| {
        let rank = |ranks: Ranks| {
            scope.spawn(move || {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
                pool.install(|| told(&ranks, seed))
            })
        };
        let ranks: Vec<_> = Ranks::threads(size).into_iter().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
    });
    let mut parts = parts.into_iter();
    let mut all = parts.next().expect("a rank");
    for part in parts {
        for (all, part) in all.iter_mut().zip(part) {
            let Told { stable_dt, energies, given, particles } = part;
            assert_eq!((all.stable_dt, &all.energies, all.given), (stable_dt, &energies, given));
            all.particles.extend(particles);
        }
    }
    all.iter_mut().for_each(|told| told.particles.sort_unstable());
    all
}

/// Neither the number of ranks nor the cut changes a bit of what a run tells. At least `particles` are left, of
/// which some were born, and some fell into a sink.
pub fn assert_same_on_ranks(told: fn(&Ranks, u64) -> Vec<Told>, particles: usize) {
    let one = joined(1, 0, told);
    let last = one.last().expect("steps");
    let count = one[0].particles.len();
    assert!(last.particles.len() > particles && last.particles.len() != count, "{count}");
    assert!(one.iter().any(|told| f64::from_bits(told.given) < 0.0), "nothing fell into the sink");
    assert_same_bits_on_ranks(told);
}

/// Checks that numbers of ranks and random cuts change no bit.
pub fn assert_same_bits_on_ranks(told: fn(&Ranks, u64) -> Vec<Told>) {
    let one = joined(1, 0, told);
    for (size, seed) in [(2, 1), (3, 2), (5, 3), (8, 4)] {
        for (n, (one, cut)) in one.iter().zip(joined(size, seed, told)).enumerate() {
            assert!(*one == cut, "{size} ranks, {n}");
        }
    }
}
