//! A fluid that is cut among ranks moves as one that is not, to the bit, wherever space is cut.

mod common;

use amalgam_particles::{DVec3, random};
use amalgam_solver_fluid::sph::{Sph, section};
use amalgam_solver_kit::{Alone, Ranks, Solver, World};
use common::ranks::{Told, assert_same_bits_on_ranks, assert_same_on_ranks};
use common::world;

const STEPS: u64 = 150;

/// Two boxes that meet in a tank, in several sub-steps, with a wind, an emitter and a sink.
const SECTION: &str =
    "spacing = 0.05\ncfl = 0.4\nsubsteps_max = 3\nsound_speed = 30.0\nno_slip = [\"z0\", \"x0\"]
[[shapes]]
type = \"box\"
min = [0, 0, 0]
max = [0.3, 0.6, 0.7]
velocity = [2, 0.5, 0]
[[shapes]]
type = \"box\"
min = [0.7, 0.1, 0]
max = [1.0, 0.5, 0.4]
velocity = [-2, 0, 0.3]
[[drag]]
rate = 0.5
velocity = [0, 1, 0]
[[emitters]]
center = [0.5, 0.3, 0.9]
axis = [0, 0.2, -1]
radius = 0.1
speed = 2.0
until = 0.3
[[sinks]]
min = [1.0, 0.0, 0.0]
max = [1.2, 0.2, 0.2]
";

/// Two boxes so far apart that cells are counted modulo some number, which differs from rank to rank. For one rank
/// the numbers begin anew inside the second box.
const APART: &str = "spacing = 0.05\ncfl = 0.4\nsound_speed = 30.0\nwalls = false
[[shapes]]
type = \"box\"
min = [0, 0, 0]
max = [0.6, 0.5, 0.5]
angular_velocity = [0, 0, 4]
[[shapes]]
type = \"box\"
min = [39.65, 0, 0]
max = [40.25, 0.5, 0.5]
angular_velocity = [0, 5, 1]
";

/// The fluid on this rank after every tenth step. Space is cut anew in steps drawn by chance, with weights
/// drawn by chance.
fn told(section: &str, ranks: &Ranks, seed: u64) -> Vec<Told> {
    let world = World { ranks: ranks.clone(), ..world(DVec3::new(1.2, 0.6, 1.0), 9.81) };
    let (parameters, particles) = section::read(section, &world).expect("a good section");
    let mut fluid = Sph::new(parameters, particles);
    fluid.share(ranks).expect("SPH can be cut");
    let (mut alone, mut dt, mut told) = (Alone::default(), fluid.stable_dt(), Vec::new());
    for step in 0..STEPS {
        let report = alone.step_free(&mut fluid, dt).expect("a stable step");
        dt = report.stable_dt;
        if random::mix(seed ^ step).is_multiple_of(3) {
            fluid.recut(1 + random::mix(seed ^ step ^ ranks.rank() as u64) % 100);
        }
        fluid.migrate();
        if step % 10 == 9 {
            told.push(Told::new(&mut fluid, &report, &["density"]));
        }
    }
    told
}

#[test]
fn the_number_of_ranks_and_the_cut_do_not_change_a_bit() {
    assert_same_on_ranks(|ranks, seed| told(SECTION, ranks, seed), 800);
}

#[test]
fn cells_that_are_counted_anew_do_not_change_a_bit() {
    assert_same_bits_on_ranks(|ranks, seed| told(APART, ranks, seed));
}
