//! The method through real services: what "Synchronising" and "Invariants" of
//! `docs/theory/coupling.md` promise.

mod support;

use amalgam_coordinator::settings::SplitRule;
use amalgam_coordinator::settings::{Inertia, Quantity, StagesMax, Synchronise};
use amalgam_particles::DVec3;
use amalgam_solver_fluid::FluidProgram;
use amalgam_solver_solid::SolidProgram;
use support::at_once::at_once;
use support::{GRAVITY, Scene, last, positions};

const DT: f64 = 1e-3;

/// A row of the piston table: stiffness [N/m], mass on the spring [kg], fluid mass on top [kg].
#[derive(Clone, Copy, Debug)]
struct Piston {
    stiffness: f64,
    solid: f64,
    fluid: f64,
}

const PISTONS: [Piston; 5] = [
    Piston { stiffness: 1e3, solid: 1.0, fluid: 1.0 },
    Piston { stiffness: 1e5, solid: 1.0, fluid: 1.0 },
    Piston { stiffness: 1e5, solid: 0.01, fluid: 1.0 },
    Piston { stiffness: 1e6, solid: 0.01, fluid: 1.0 },
    Piston { stiffness: 1e6, solid: 0.001, fluid: 0.01 },
];

impl Piston {
    fn damping(self) -> f64 {
        2.0 * (self.stiffness * (self.solid + self.fluid)).sqrt()
    }

    /// Deflection by Newton's law [m].
    fn deflection(self) -> f64 {
        (self.solid + self.fluid) * GRAVITY / self.stiffness
    }

    /// A mass on a damped spring carries one fluid particle.
    fn scene(self, duration: f64) -> Scene {
        let solid = format!(
            "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\npositions = [[0, 0, 0]]\nmass = {}\nradius = 0.05\n\
             foundation = {{ stiffness = {}, damping = {} }}\n",
            self.solid,
            self.stiffness,
            self.damping()
        );
        // Spacing 0.1 m: mass = rest density x 1e-3.
        let fluid = format!(
            "method = 'sph'\nspacing = 0.1\nrest_density = {}\nsound_speed = 20.0\nradius = 0.05\n[[shapes]]\n\
             type = 'points'\npositions = [[0, 0, 0.0999]]\n",
            self.fluid * 1e3
        );
        Scene::new(duration, DT)
            .with("piston", SolidProgram, solid)
            .with("water", FluidProgram, fluid)
            .probe("piston", Quantity::Displacement { participant: "piston".into(), point: DVec3::ZERO })
    }

    /// Time in which a critically damped spring settles to 1e-6 [s].
    fn settling_time(self) -> f64 {
        20.0 * ((self.solid + self.fluid) / self.stiffness).sqrt().max(DT)
    }
}

#[test]
fn a_piston_rests_where_newton_says_with_impulse() {
    for piston in PISTONS {
        for stages in [StagesMax::Count(2), StagesMax::Converged] {
            for alpha in [0.0, 1.0] {
                let scene = piston.scene(3.0 * piston.settling_time()).coupling(|coupling| {
                    coupling.stages_max = Some(stages);
                    coupling.alpha = Some(alpha);
                });
                let simulation = scene.run();
                let ratio = -last(&simulation, "piston", 2) / piston.deflection();
                assert!((ratio - 1.0).abs() < 1e-3, "{piston:?}, {stages:?}, alpha {alpha}: {ratio}");
            }
        }
    }
}

#[test]
fn a_piston_sags_as_the_formula_says_with_average() {
    let each = |piston| [Inertia::Share, Inertia::Total].map(|inertia| (piston, inertia));
    at_once(&PISTONS.map(each).concat(), |&(piston, inertia)| {
        // The larger the error, the slower the approach: its rate falls by the same factor.
        let Piston { stiffness: k, solid: m1, fluid: m2 } = piston;
        let implicit = DT * DT * k + DT * piston.damping();
        let (share, m12) = (1.0 + implicit / m1, m1 + m2);
        // At rest: the solid's answer alone, v = dt (m g - k x) / (M + dt^2 k + dt c), balances the
        // fluid's.
        let load = match inertia {
            Inertia::Share => m1 + m2 * share,
            // Each counts m_k / m12 of its own forces; the solid's are divided by 1 + implicit / m12.
            Inertia::Total => m12 + m12 * (m2 / m1) * (1.0 + implicit / m12),
        };
        let expected = load * GRAVITY / k;
        let slow = share * (m12 / m1);
        // To 1e-3 where the impulse's settles to 1e-6.
        let duration = (0.5 * piston.settling_time() * slow).min(8.0);
        let scene = piston.scene(duration).coupling(|coupling| {
            coupling.synchronise = Synchronise::Average;
            coupling.inertia = inertia;
            coupling.alpha = Some(0.0);
            coupling.stages_max = Some(StagesMax::Converged);
        });
        let simulation = scene.run();
        let ratio = -last(&simulation, "piston", 2) / expected;
        assert!((ratio - 1.0).abs() < 1e-2, "{piston:?}, {inertia:?}: {ratio} of {expected} m");
    });
}

#[test]
fn resting_contact_neither_creeps_nor_gains_energy() {
    at_once(&[0.0, 1.0], |&alpha| {
        let piston = PISTONS[2];
        let settle = 3.0 * piston.settling_time();
        let scene =
            piston.scene(settle + 10_000.0 * DT).probe("speed", Quantity::Speed { participant: None });
        let (mut before, mut speed, mut creep) = (None, 0.0f64, 0.0f64);
        scene.coupling(|coupling| coupling.alpha = Some(alpha)).run_with(|simulation, record| {
            if record.time > settle {
                let at = last(simulation, "piston", 2);
                let start = *before.get_or_insert(at);
                creep = creep.max((at - start).abs());
                speed = speed.max(last(simulation, "speed", 0));
            }
        });
        assert!(creep < 1e-3 * piston.deflection(), "alpha {alpha}: crept {creep} m");
        assert!(speed < 1e-3 * GRAVITY * DT, "alpha {alpha}: moves at {speed} m/s");
    });
}

/// Balls on a cloud of crossing paths; some meet in groups of several.
fn cloud() -> (Vec<DVec3>, Vec<DVec3>) {
    let random = |i: u64, axis: u64| amalgam_particles::random::uniform_f64(&[i, axis]) - 0.5;
    let positions = (0..60u64).map(|i| DVec3::from_array([0, 1, 2].map(|axis| random(i, axis)))).collect();
    let velocities =
        (0..60u64).map(|i| DVec3::from_array([3, 4, 5].map(|axis| 4.0 * random(i, axis)))).collect();
    (positions, velocities)
}

fn balls(positions: &[DVec3], velocities: &[DVec3]) -> String {
    let list = |vectors: &[DVec3]| {
        let rows: Vec<String> =
            vectors.iter().map(|v| format!("[{:?}, {:?}, {:?}]", v.x, v.y, v.z)).collect();
        format!("[{}]", rows.join(", "))
    };
    format!(
        "positions = {}\nvelocities = {}\nmass = 0.3\nradius = 0.09\nself_collision = true\n",
        list(positions),
        list(velocities)
    )
}

#[test]
fn one_explicit_system_gives_the_same_answer_split_over_one_two_and_three_participants() {
    let (x, v) = cloud();
    for rule in [Synchronise::Impulse, Synchronise::Average] {
        let results: Vec<Vec<DVec3>> = [vec![0, 60], vec![0, 23, 60], vec![0, 11, 37, 60]]
            .into_iter()
            .map(|cuts| {
                let mut scene = Scene::new(0.3, 2e-3).coupling(|coupling| {
                    coupling.synchronise = rule;
                    coupling.split = SplitRule::Symmetric;
                    // Limits are drawn by participant and id, which the cuts change.
                    coupling.group_limit = Some([64, 64]);
                });
                for (k, range) in cuts.windows(2).enumerate() {
                    let section = balls(&x[range[0]..range[1]], &v[range[0]..range[1]]);
                    scene = scene.with(&format!("part{k}"), support::balls::BallsProgram, section);
                }
                let (mut contacts, count) = (0, cuts.len() - 1);
                let mut simulation = scene.run_with(|_, record| contacts += record.groups);
                assert!(contacts > 50, "only {contacts} groups");
                (0..count).flat_map(|k| positions(&mut simulation, &format!("part{k}"))).collect()
            })
            .collect();
        for other in &results[1..] {
            let error = results[0].iter().zip(other).map(|(a, b)| a.distance(*b)).fold(0.0, f64::max);
            assert!(error < 1e-9, "{rule:?}: {error} m");
        }
    }
}

/// A soft spring's mass rests on a stiff spring's: one participant for both, or one for each.
#[test]
fn two_implicit_participants_that_share_a_group_agree_with_one() {
    for ratio in [10.0, 1e3, 1e6] {
        let body = |z: f64, stiffness: f64| {
            format!(
                "[[bodies]]\ntype = 'points'\npositions = [[0, 0, {z}]]\nmass = 0.5\nradius = 0.05\n\
                 foundation = {{ stiffness = {stiffness}, damping = 0.5 }}\n"
            )
        };
        let head = "method = 'mass-spring'\nself_collision = true\ntolerance = 1e-12\n";
        let (stiff, soft) = (body(0.0, 100.0 * ratio), body(0.0999, 100.0));
        let probe = |participant: &str| Quantity::Displacement {
            participant: participant.into(),
            point: DVec3::Z * 0.0999,
        };
        let mut shared = 0;
        let one = Scene::new(0.3, DT)
            .with("both", SolidProgram, format!("{head}{stiff}{soft}"))
            .probe("z", probe("both"))
            .run();
        let two = Scene::new(0.3, DT)
            .with("stiff", SolidProgram, format!("{head}{stiff}"))
            .with("soft", SolidProgram, format!("{head}{soft}"))
            .probe("z", probe("soft"))
            .run_with(|_, record| shared += record.groups);
        assert!(shared > 100, "ratio {ratio}: the bodies shared a group in {shared} of 300 steps only");
        let (one, two) = (last(&one, "z", 2), last(&two, "z", 2));
        assert!(one < 0.0, "nothing moved");
        assert!((one - two).abs() < 1e-3 * one.abs(), "ratio {ratio}: {one} m and {two} m");
    }
}

/// Groups that two participants share and that each joins by stiff links of its own: plain repetition
/// diverges here.
#[test]
fn implicit_participants_with_stiff_links_between_shared_groups_agree() {
    let chain = |z: f64, speed: f64, stiffness: f64| {
        let velocities = vec![format!("[0, 0, {speed}]"); 6].join(", ");
        let positions: Vec<String> = (0..6).map(|i| format!("[{}, 0, {z}]", 0.2 * f64::from(i))).collect();
        let springs: Vec<String> = (0..5)
            .map(|i| format!("{{ a = {i}, b = {}, stiffness = {stiffness}, damping = 1.0 }}", i + 1))
            .collect();
        format!(
            "method = 'mass-spring'\ntolerance = 1e-12\n[[bodies]]\ntype = 'points'\npositions = [{}]\n\
             velocities = [{velocities}]\nmass = 0.1\nradius = 0.05\nsprings = [{}]\n",
            positions.join(", "),
            springs.join(", ")
        )
    };
    let mut repeated = 0;
    let scene = Scene::new(0.2, DT).with("a", SolidProgram, chain(0.0, 0.5, 1e5));
    let scene = scene.with("b", SolidProgram, chain(0.101, -1.0, 3e6));
    scene.coupling(|coupling| coupling.coupling_tolerance = 1e-6).run_with(|_, record| {
        assert!(record.disagreement <= 1e-6, "step {}: {}", record.step, record.disagreement);
        repeated = repeated.max(record.repetitions);
    });
    assert!(repeated > 1, "no group was shared");
}

/// A rigid mass M strikes the end of a long bar at speed V (Saint-Venant's problem [Goldsmith1960]): until
/// the wave comes back the end moves at V exp(-Z t/M), Z being the bar's impedance, here sqrt(k m) of a chain
/// of springs. With alpha 0 that is the speed that its particles report; with alpha 1 the particle that is
/// struck moves as it must, too, but keeps the speed at which it would rebound, V beyond the mass's, as long
/// as it is held.
#[test]
fn a_struck_bar_moves_as_saint_venant_says() {
    const COUNT: usize = 60;
    let (mass, stiffness, striker, speed) = (1.0, 1e4, 60.0, 0.2f64);
    let (time, dt) = (0.5, 0.005);
    let positions: Vec<String> = (0..COUNT).map(|i| format!("[{}, 0, 0]", 0.1 * i as f64)).collect();
    let springs: Vec<String> =
        (1..COUNT).map(|b| format!("{{ a = {}, b = {b}, stiffness = {stiffness} }}", b - 1)).collect();
    let points = |positions: &str, mass: f64| {
        format!(
            "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\npositions = [{positions}]\nmass = {mass}\n\
             radius = 0.05\n"
        )
    };
    let bar = format!("{}springs = [{}]\n", points(&positions.join(", "), mass), springs.join(", "));
    let ball = format!("{}velocities = [[{speed}, 0, 0]]\n", points("[-0.0999, 0, 0]", striker));
    for alpha in [0.0, 1.0] {
        let mut scene = Scene::new(time, dt)
            .with("bar", SolidProgram, bar.as_str())
            .with("ball", SolidProgram, ball.as_str())
            .probe("end", Quantity::Displacement { participant: "bar".into(), point: DVec3::ZERO })
            .probe("speed", Quantity::Speed { participant: Some("bar".into()) })
            .coupling(|coupling| coupling.alpha = Some(alpha));
        scene.plan.domain.gravity = DVec3::ZERO;
        let mut fastest = 0.0f64;
        let simulation = scene.run_with(|simulation, _| fastest = fastest.max(last(simulation, "speed", 0)));
        let rate = (stiffness * mass).sqrt() / striker;
        let way = speed / rate * (1.0 - (-rate * time).exp());
        let moved = last(&simulation, "end", 0);
        assert!((moved / way - 1.0).abs() < 0.02, "alpha {alpha}: {moved} m in place of {way} m");
        let expected = if alpha == 0.0 { speed } else { 2.0 * speed };
        assert!((fastest / expected - 1.0).abs() < 0.05, "alpha {alpha}: reports {fastest} m/s");
    }
}

/// Two masses on springs that a held ball presses down, all at rest: h k d of momentum in each step of length
/// h if the ball were not there. A group holds two particles at most, but neither mass may be left without
/// its contact: in an implicit step it would spring back by h k d/(m + h^2 k), however short the way to the
/// ball.
#[test]
fn a_group_limit_leaves_no_pressed_particle_without_its_contact() {
    let (mass, stiffness, pressed): (f64, f64, f64) = (0.01, 1e5, 0.02);
    let masses = format!(
        "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\nmass = {mass}\nradius = 0.05\npinned = [2, 3]\n\
         positions = [[-0.06, 0, 0], [0.06, 0, 0], [-0.06, 0, -1], [0.06, 0, -1]]\nsprings = [\
         {{ a = 0, b = 2, stiffness = {stiffness:?}, rest_length = {length:?} }}, \
         {{ a = 1, b = 3, stiffness = {stiffness:?}, rest_length = {length:?} }}]\n",
        length = 1.0 + pressed
    );
    let ball = "method = 'mass-spring'\n[[bodies]]\ntype = 'points'\nmass = 1.0\nradius = 0.3\npinned = [0]\n\
                positions = [[0, 0, 0.34]]\n";
    let mut scene = Scene::new(5.0 * DT, DT)
        .with("masses", SolidProgram, masses)
        .with("ball", SolidProgram, ball)
        .probe("speed", Quantity::Speed { participant: Some("masses".into()) })
        .coupling(|coupling| coupling.group_limit = Some([2, 2]));
    scene.plan.domain.gravity = DVec3::ZERO;
    let free = DT * stiffness * pressed / (mass + DT * DT * stiffness);
    let mut fastest = 0.0f64;
    scene.run_with(|simulation, _| fastest = fastest.max(last(simulation, "speed", 0)));
    assert!(fastest < 1e-9 * free, "{fastest} m/s, {free} without contact");
}

/// A FLIP column of 8 x 4 x 10 cells on a floor of grounded springs, of which each carries what stands above
/// it.
struct Column {
    /// Stiffness of the spring under each particle of the floor [N/m].
    stiffness: f64,
    /// Stiffness of the springs that join the floor's particles [N/m].
    joints: f64,
    /// Jitter of the water, in spacings.
    jitter: f64,
}

/// State of a column at rest.
#[derive(Debug)]
struct Rest {
    /// Mean deflection of the floor over that under the column's weight.
    deflection: f64,
    /// Distance that the column's centre sank below the floor's deflection and the initial gap, in cells.
    sunk: f64,
    /// Particles that are below the floor.
    through: usize,
    /// Between the floor's highest and lowest particle, in cells.
    unevenness: f64,
}

impl Column {
    const CELL: f64 = 0.05;
    const SPACING: f64 = 0.025;
    const DENSITY: f64 = 12.5;

    fn run(&self, time: f64, rule: Synchronise) -> Rest {
        let load = 0.5 * 1000.0 + Self::DENSITY;
        let area = Self::SPACING * Self::SPACING;
        let damping = (self.stiffness * load * area).sqrt();
        let floor = format!(
            "method = 'mass-spring'\nself_collision = false\n[[bodies]]\ntype = 'sheet'\n\
             corner = [0.0125, 0.0125, 0]\nedge_u = [0.375, 0, 0]\nedge_v = [0, 0.175, 0]\nspacing = 0.025\n\
             area_density = {}\nstructural_stiffness = {:?}\nradius = 0.019\n\
             foundation = {{ stiffness = {:?}, damping = {damping:?} }}\n",
            Self::DENSITY,
            self.joints,
            self.stiffness
        );
        let water = format!(
            "method = 'flip'\nspacing = 0.025\njitter = {:?}\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0.025]\n\
             max = [0.4, 0.2, 0.525]\n",
            self.jitter
        );
        let mut scene =
            Scene::new(time, 2e-3).with("floor", SolidProgram, floor).with("water", FluidProgram, water);
        scene.plan.domain.min = DVec3::new(0.0, 0.0, -0.2);
        scene.plan.domain.max = DVec3::new(0.4, 0.2, 0.8);
        let mut simulation = scene
            .coupling(|coupling| {
                coupling.synchronise = rule;
                coupling.alpha = Some(0.0);
            })
            .run();
        let mean = |points: &[DVec3]| points.iter().map(|x| x.z).sum::<f64>() / points.len() as f64;
        let (floor, water) = (positions(&mut simulation, "floor"), positions(&mut simulation, "water"));
        // Particles of the sheet's rim stand for less area.
        let panels = 375.0 * 175.0 / (400.0 * 200.0);
        let expected = (0.5 * 1000.0 * 0.08 + Self::DENSITY * panels * 0.08) * GRAVITY
            / (self.stiffness * floor.len() as f64);
        let deflection = -mean(&floor);
        let gap = 0.0375 - (0.019 + 0.5 * Self::SPACING);
        let heights = || floor.iter().map(|x| x.z);
        let (highest, lowest) =
            (heights().fold(f64::NEG_INFINITY, f64::max), heights().fold(f64::INFINITY, f64::min));
        Rest {
            deflection: deflection / expected,
            sunk: (0.275 - mean(&water) - gap - deflection) / Self::CELL,
            through: water.iter().filter(|x| x.z < -deflection - 0.019).count(),
            unevenness: (highest - lowest) / Self::CELL,
        }
    }
}

#[test]
fn a_flip_column_rests_on_a_soft_and_on_a_stiff_floor() {
    // dt^2 k / m of 2.5, 2,500 and 250,000.
    for stiffness in [5e3, 5e6, 5e8] {
        let rest = Column { stiffness, joints: 0.0, jitter: 0.5 }.run(1.0, Synchronise::Impulse);
        assert!((rest.deflection - 1.0).abs() < 0.05, "{stiffness:e} N/m: {rest:?}");
        assert!(rest.sunk.abs() < 0.5 && rest.through == 0, "{stiffness:e} N/m: {rest:?}");
    }
}

/// The comparison: told only which cells are occupied, the projection takes the held layer for falling fluid.
#[test]
fn a_flip_column_sinks_with_average() {
    let rest = Column { stiffness: 5e6, joints: 0.0, jitter: 0.5 }.run(1.0, Synchronise::Average);
    assert!(rest.sunk > 1.0, "{rest:?}");
}

/// A floor that yields by 0.6 cells, foundation K = 1.6e5 N/m^3 under the pressure p = 4.9 kPa. Pressure
/// turns with the floor: springs that nothing joins buckle, in waves shorter than 2 pi p/K = 3.8 cells,
/// joints stiffer than p^2/K = 150 N/m prevent that (`docs/theory/flip.md`, "Soft floors"). Without jitter:
/// each particle of the floor bears one of water, so that what becomes uneven does so by itself.
#[test]
fn a_soft_floor_buckles_unless_its_springs_are_joined() {
    let rest = |joints: f64| Column { stiffness: 100.0, joints, jitter: 0.0 }.run(3.0, Synchronise::Impulse);
    let joined = rest(300.0);
    assert!((joined.deflection - 1.0).abs() < 0.05 && joined.sunk.abs() < 0.5, "{joined:?}");
    assert!(joined.unevenness < 0.1 && joined.through == 0, "{joined:?}");
    let free = rest(0.0);
    assert!(free.unevenness > 0.2, "{free:?}");
}

/// Horizontal loads: water of 8 x 4 x 10 cells stands on the domain's floor, held on one side by an upright
/// sheet of grounded springs. They carry the hydrostatic force and its moment about the floor.
#[test]
fn a_dam_of_springs_carries_the_hydrostatic_force_of_flip_water() {
    let (spacing, depth, width, stiffness) = (0.025, 0.5, 0.2, 1000.0);
    let wall = format!(
        "method = 'mass-spring'\nself_collision = false\n[[bodies]]\ntype = 'sheet'\n\
         corner = [0.419, 0.0125, 0.0125]\nedge_u = [0, 0.175, 0]\nedge_v = [0, 0, 0.575]\nspacing = 0.025\n\
         area_density = 12.5\nstructural_stiffness = 0.0\nradius = 0.019\n\
         foundation = {{ stiffness = {stiffness:?}, damping = 20.0 }}\n"
    );
    let water = "method = 'flip'\nspacing = 0.025\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\nmax = [0.4, 0.2, 0.5]\n";
    let mut scene = Scene::new(1.0, 2e-3).with("wall", SolidProgram, wall).with("water", FluidProgram, water);
    scene.plan.domain.min = DVec3::ZERO;
    scene.plan.domain.max = DVec3::new(0.6, 0.2, 0.8);
    let mut simulation = scene.coupling(|coupling| coupling.alpha = Some(0.0)).run();
    let (mut force, mut moment) = (0.0, 0.0);
    for (n, x) in positions(&mut simulation, "wall").iter().enumerate() {
        let pushed = stiffness * (x.x - 0.419);
        force += pushed;
        // Rows of eight, from below.
        moment += pushed * ((n / 8) as f64 + 0.5) * spacing;
    }
    let expected = 0.5 * 1000.0 * GRAVITY * depth * depth * width;
    assert!((force / expected - 1.0).abs() < 0.05, "{force} of {expected} N");
    let expected = expected * depth / 3.0;
    assert!((moment / expected - 1.0).abs() < 0.05, "{moment} of {expected} N m");
    let leaked = positions(&mut simulation, "water").iter().filter(|x| x.x > 0.44).count();
    assert_eq!(leaked, 0);
}
