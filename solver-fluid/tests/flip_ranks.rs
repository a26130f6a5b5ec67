//! A FLIP fluid that is cut among ranks moves as one that is not, to the bit, wherever space is cut.

mod common;

use amalgam_particles::{DVec3, random};
use amalgam_solver_fluid::flip::{Flip, section};
use amalgam_solver_kit::{Alone, Ranks, Solver};
use common::world;

const STEPS: u64 = 60;

/// Two boxes that meet in a tank, in several sub-steps, with a wind, an emitter and a sink. In this tank ranks
/// share two levels of the multigrid.
const SECTION: &str = "method = \"flip\"\nspacing = 0.05\ncfl = 0.7\nsubsteps_max = 3
[[shapes]]
type = \"box\"
min = [0, 0, 0]
max = [1.2, 3.2, 1.6]
velocity = [2, 0.5, 0]
[[shapes]]
type = \"box\"
min = [2.4, 0.8, 0]
max = [3.6, 2.4, 2.4]
velocity = [-2, 0, 0.3]
[[drag]]
rate = 0.5
velocity = [0, 1, 0]
[[emitters]]
center = [2.0, 1.6, 3.6]
axis = [0, 0.2, -1]
radius = 0.3
speed = 2.0
until = 1.0
[[sinks]]
min = [3.0, 0.0, 0.0]
max = [3.6, 1.0, 0.6]
";

/// A step as the participant tells it, and its particles: id, position, velocity, density.
#[derive(Debug, PartialEq)]
struct Told {
    stable_dt: u64,
    given: u64,
    particles: Vec<(u64, [u64; 6], u32, u32)>,
}

/// The fluid on this rank after every tenth step. Space is cut anew in steps drawn by chance, with numbers of
/// particles drawn by chance.
fn told(ranks: &Ranks, seed: u64) -> Vec<Told> {
    let world = world(DVec3::new(3.6, 3.2, 4.0), 9.81);
    let (parameters, particles) = section::read(SECTION, &world).expect("a good section");
    let layers = parameters.cells()[2] as u64;
    let mut fluid = Flip::new(parameters, particles);
    fluid.share(ranks).expect("FLIP can be cut");
    let (mut alone, mut dt, mut told) = (Alone::default(), fluid.stable_dt(), Vec::new());
    for step in 0..STEPS {
        let report = alone.step_free(&mut fluid, dt.min(0.1)).expect("a stable step");
        dt = report.stable_dt;
        if !ranks.is_alone() && random::mix(seed ^ step).is_multiple_of(3) {
            let particles = |k| (random::mix(seed ^ step ^ k) % 100) as i64;
            fluid.recut(&(0..layers).map(particles).collect::<Vec<_>>()).expect("layers enough");
        }
        fluid.migrate();
        if step % 10 == 9 {
            let (density, pressure) = (common::field(&fluid, "density"), common::field(&fluid, "pressure"));
            let particles = fluid.particles();
            let of = |i: usize| {
                let (x, v) = (particles.position[i], particles.velocity[i]);
                let state = [x.x, x.y, x.z, v.x, v.y, v.z].map(f64::to_bits);
                (particles.id[i].0, state, density[i].to_bits(), pressure[i].to_bits())
            };
            told.push(Told {
                stable_dt: dt.to_bits(),
                given: report.given.to_bits(),
                particles: (0..particles.len()).map(of).collect(),
            });
        }
    }
    told
}

/// The fluid of all ranks.
fn joined(size: usize, seed: u64) -> Vec<Told> {
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
            let Told { stable_dt, given, particles } = part;
            assert_eq!((all.stable_dt, all.given), (stable_dt, given));
            all.particles.extend(particles);
        }
    }
    all.iter_mut().for_each(|told| told.particles.sort_unstable());
    all
}

#[test]
fn the_number_of_ranks_and_the_cut_do_not_change_a_bit() {
    let one = joined(1, 0);
    let last = one.last().expect("steps");
    let count = one[0].particles.len();
    assert!(last.particles.len() > 10_000 && last.particles.len() != count, "{count}");
    assert!(one.iter().any(|told| f64::from_bits(told.given) < 0.0), "nothing fell into the sink");
    for (size, seed) in [(2, 1), (3, 2), (5, 3), (8, 4)] {
        for (n, (one, cut)) in one.iter().zip(joined(size, seed)).enumerate() {
            assert!(one.stable_dt == cut.stable_dt, "{size} ranks, {n}");
            assert!(*one == cut, "{size} ranks, {n}");
        }
    }
}
