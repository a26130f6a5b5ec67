//! A FLIP fluid that is cut among ranks moves as one that is not, to the bit, wherever space is cut.

mod common;

use amalgam_particles::{DQuat, DVec3, Obstacle, ObstacleForm, random};
use amalgam_solver_fluid::flip::{Flip, section};
use amalgam_solver_kit::{Alone, Ranks, Solver, World};
use common::ranks::{Told, assert_same_on_ranks};
use common::world;

const STEPS: u64 = 40;

/// Two boxes that meet in a tank above a ball, in several sub-steps, with a wind, an emitter and a sink. In this
/// tank ranks share two levels of the multigrid.
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

/// The fluid on this rank after every tenth step. Space is cut anew in steps drawn by chance, with numbers of
/// particles drawn by chance.
fn told(ranks: &Ranks, seed: u64) -> Vec<Told> {
    let form = ObstacleForm::Ball { center: DVec3::new(1.8, 1.5, 0.4), radius: 0.45 };
    let ball = Obstacle { form, rotation: DQuat::IDENTITY, is_hollow: false };
    let world =
        World { obstacles: vec![ball], ranks: ranks.clone(), ..world(DVec3::new(3.6, 3.2, 4.0), 9.81) };
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
            told.push(Told::new(&mut fluid, &report, &["density", "pressure"]));
        }
    }
    told
}

#[test]
fn the_number_of_ranks_and_the_cut_do_not_change_a_bit() {
    assert_same_on_ranks(told, 10_000);
}
