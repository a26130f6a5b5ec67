//! FLIP alone: water at rest, a collapsing column, a thrown ball, groups.

mod common;

use amalgam_particles::{DVec3, GroupMap, random};
use amalgam_solver_fluid::flip::{Flip, section};
use amalgam_solver_kit::Solver;
use common::{Groups, create, field, integrate, kinetic_energy, momentum, run, step, world};

const GRAVITY: f64 = 9.81;

/// A tank of 16 x 8 cells, 20 high, with 10 layers of filled cells from `bottom` on [m].
fn tank(bottom: f64) -> Box<dyn Solver> {
    let section = format!(
        "method = 'flip'\nspacing = 0.025\n[[shapes]]\ntype = 'box'\nmin = [0, 0, {bottom}]\n\
         max = [0.8, 0.4, {}]\n",
        bottom + 0.5
    );
    create(&section, &world(DVec3::new(0.8, 0.4, 1.0), GRAVITY))
}

fn height(solver: &dyn Solver) -> f64 {
    let particles = solver.particles();
    particles.position.iter().map(|x| x.z).sum::<f64>() / particles.len() as f64
}

#[test]
fn water_at_rest_stays_at_rest_under_its_hydrostatic_pressure() {
    let mut solver = tank(0.0);
    let start = height(solver.as_ref());
    let mass: f64 = solver.particles().mass.iter().sum();
    let mut largest = 0.0f64;
    run(solver.as_mut(), 2.0, |solver, time, _| {
        if time > 1.0 {
            largest = largest.max(kinetic_energy(solver));
        }
    });
    let drift = height(solver.as_ref()) / start - 1.0;
    let scale = mass * GRAVITY * 0.5;
    assert!(drift.abs() < 0.02, "the centre of mass moved by {drift}");
    assert!(largest < 1e-4 * scale, "kinetic energy {:.2e} m g H", largest / scale);
    // Pressure in a cell is that of its centre; the surface's cells are full, but for some particles just
    // above them.
    let pressure = field(solver.as_mut(), "pressure");
    let (mut worst, mut bottom) = (0.0f64, 0.0f64);
    for (x, &pressure) in solver.particles().position.iter().zip(&pressure) {
        let z = (x.z / 0.05).floor() * 0.05 + 0.025;
        let expected = 1000.0 * GRAVITY * (0.5 - z).max(0.0);
        worst = worst.max((f64::from(pressure) - expected).abs());
        if z < 0.05 {
            bottom = bottom.max((f64::from(pressure) / expected - 1.0).abs());
        }
    }
    let profile = worst / (1000.0 * GRAVITY * 0.5);
    assert!(bottom < 0.02 && profile < 0.03, "bottom {bottom}, profile {profile}");
}

#[test]
fn a_ball_in_flight_keeps_momentum_and_shape() {
    let section = "method = 'flip'\nspacing = 0.025\n[[shapes]]\ntype = 'sphere'\ncenter = [0.5, 0.5, 0.5]\n\
                   radius = 0.2\nvelocity = [0.4, 0, 2.0]\n";
    let mut solver = create(section, &world(DVec3::splat(1.5), GRAVITY));
    let mass: f64 = solver.particles().mass.iter().sum();
    let before = momentum(solver.as_ref());
    let mut end = 0.0;
    run(solver.as_mut(), 0.2, |_, time, _| end = time);
    let expected = before + DVec3::NEG_Z * (mass * GRAVITY * end);
    let error = (momentum(solver.as_ref()) - expected).length() / before.length();
    // Transfers between particles and grid are f32.
    assert!(error < 1e-7, "momentum is off by {error:.1e}");
    let particles = solver.particles();
    let middle = particles.position.iter().sum::<DVec3>() / particles.len() as f64;
    let radius = particles.position.iter().map(|x| x.distance(middle)).fold(0.0, f64::max);
    assert!((radius / 0.2 - 1.0).abs() < 0.1, "radius {radius}");
}

/// The lowest layer of water is held in the air as one heavy group: it must bear the weight of all above it.
#[test]
fn a_group_that_is_held_takes_the_weight_above_it() {
    let mut solver = tank(0.25);
    let all = solver.particles().position.iter().enumerate();
    let members: Vec<u32> = all.filter(|(_, x)| x.z < 0.3).map(|(i, _)| i as u32).collect();
    let above: f64 = solver.particles().mass.iter().sum();
    let mut map = GroupMap::default();
    map.set(solver.particles().len(), &[0, members.len() as u32], &members);
    let inertia = 1e9;
    let groups = Groups::new(map, vec![inertia], vec![DVec3::ZERO]);
    let dt = 2e-3;
    let mut given = DVec3::ZERO;
    for _ in 0..50 {
        solver.begin().expect("a good state");
        let answer = integrate(solver.as_mut(), &groups, dt);
        given = answer.momentum[0] / dt;
        step(solver.as_mut(), &groups, dt);
    }
    let weight = above * GRAVITY;
    assert!((-given.z / weight - 1.0).abs() < 0.02, "the group carries {} of {weight} N", -given.z);
}

/// Single particles respond to impulses, as under the contact law, by a matrix B that is symmetric and between 0 and
/// 1/m (docs/theory/contact-law.md#projections). Only faces in the air, which take extrapolated velocities, are not
/// symmetric.
#[test]
fn particles_respond_to_impulses_by_a_symmetric_positive_matrix() {
    let section = "method = 'flip'\nspacing = 0.025\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0.26]\nmax = [0.2, 0.2, 0.66]\n";
    let mut solver = create(section, &world(DVec3::new(0.2, 0.2, 1.0), GRAVITY));
    let dt = 2e-3;
    let (count, mass) = (solver.particles().len(), solver.particles().mass[0]);
    step(solver.as_mut(), &Groups::none(count), dt);
    solver.begin().expect("a good state");
    let low = |x: &DVec3| x.z < 0.285;
    let members: Vec<u32> =
        (0..count as u32).filter(|&i| low(&solver.particles().position[i as usize])).collect();
    let mut map = GroupMap::default();
    map.set(count, &Vec::from_iter(0..=members.len() as u32), &members);
    let start: Vec<DVec3> = members.iter().map(|&i| solver.particles().velocity[i as usize]).collect();
    let mut groups = Groups::new(map, vec![mass; members.len()], start.clone());
    let mut end = |impulse: &[DVec3]| -> Vec<DVec3> {
        groups.impulse = impulse.to_vec();
        let answer = integrate(solver.as_mut(), &groups, dt);
        (0..members.len()).map(|k| start[k] + (answer.momentum[k] + impulse[k]) / mass).collect()
    };
    let free = end(&vec![DVec3::ZERO; members.len()]);
    // m B p/m for impulses p of m times 0.1 m/s.
    let mut response = |p: &[DVec3]| -> Vec<DVec3> {
        let impulse: Vec<DVec3> = p.iter().map(|p| *p * mass * 0.1).collect();
        end(&impulse).iter().zip(&free).map(|(v, free)| (*v - *free) / 0.1).collect()
    };
    let dot = |a: &[DVec3], b: &[DVec3]| a.iter().zip(b).map(|(a, b)| a.dot(*b)).sum::<f64>();
    let random = |k: u64| -> Vec<DVec3> {
        let number = |n, axis| random::uniform_f64(&[k, n as u64, axis]) - 0.5;
        (0..members.len()).map(|n| DVec3::from_array([0, 1, 2].map(|axis| number(n, axis)))).collect()
    };
    for k in 0..4 {
        let (a, b) = (random(2 * k), random(2 * k + 1));
        let [to_a, to_b] = [&a, &b].map(|p| response(p));
        let scale = (dot(&a, &to_a) * dot(&b, &to_b)).sqrt();
        let asymmetry = (dot(&a, &to_b) - dot(&b, &to_a)).abs() / scale;
        assert!(asymmetry < 0.05, "{k}: asymmetry {asymmetry:e}");
        for (p, v) in [(&a, &to_a), (&b, &to_b)] {
            let (work, most) = (dot(p, v), dot(p, p));
            assert!(0.0 < work && work < most, "{k}: {work} of {most}");
        }
        let twice = response(&a.iter().map(|p| *p * 2.0).collect::<Vec<_>>());
        let off: Vec<DVec3> = twice.iter().zip(&to_a).map(|(twice, once)| *twice - 2.0 * *once).collect();
        assert!(dot(&off, &off) < 1e-8 * dot(&twice, &twice), "{k}: not linear");
    }
    // A push on the lowest layer of sixteen moves the whole column. With particles in free fall it would be 1.
    let push = vec![DVec3::Z; members.len()];
    let moved = dot(&push, &response(&push)) / dot(&push, &push);
    assert!((0.5 / 16.0..3.0 / 16.0).contains(&moved), "{moved}");
}

/// Water at rest without gravity, whose first particle is pushed in one answer and not in the next one: no divergence is
/// left, and the pressure of the answer before is no start for the solve.
#[test]
fn a_push_that_is_taken_back_leaves_no_pressure() {
    let section = "method = 'flip'\nspacing = 0.025\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\nmax = [0.2, 0.2, 0.2]\n";
    let mut solver = create(section, &world(DVec3::splat(0.4), 0.0));
    let (count, mass) = (solver.particles().len(), solver.particles().mass[0]);
    solver.begin().expect("a good state");
    let mut groups = Groups::one(count, &[0], mass, DVec3::ZERO, DVec3::ONE * mass);
    assert!(integrate(solver.as_mut(), &groups, 2e-3).momentum[0].length() > 0.1 * mass);
    groups.impulse[0] = DVec3::ZERO;
    assert_eq!(integrate(solver.as_mut(), &groups, 2e-3).momentum[0], DVec3::ZERO);
}

/// A column that collapses, in `threads`: positions and velocities as bits.
fn collapsed(threads: usize) -> Vec<u64> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    pool.install(|| {
        let section = "method = 'flip'\nspacing = 0.025\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\nmax = [0.2, 0.4, 0.6]\n";
        let mut solver = create(section, &world(DVec3::new(0.8, 0.4, 1.0), GRAVITY));
        run(solver.as_mut(), 0.15, |_, _, _| ());
        bits(solver.as_ref())
    })
}

fn bits(solver: &dyn Solver) -> Vec<u64> {
    let particles = solver.particles();
    let columns = particles.position.iter().chain(&particles.velocity);
    columns.flat_map(|v| v.to_array().map(f64::to_bits)).collect()
}

#[test]
fn threads_do_not_change_a_bit() {
    let one = collapsed(1);
    assert_eq!(collapsed(2), one);
    assert_eq!(collapsed(3), one);
}

#[test]
fn a_restored_fluid_goes_on_to_the_same_bits() {
    let advance = |solver: &mut dyn Solver| {
        let groups = Groups::none(solver.particles().len());
        (0..20).for_each(|_| drop(step(solver, &groups, 2e-3)));
    };
    let mut whole = tank(0.2);
    advance(whole.as_mut());
    let snapshot = whole.save().expect("keeps checkpoints");
    advance(whole.as_mut());
    let mut restored = tank(0.2);
    restored.restore(&snapshot).expect("its own");
    advance(restored.as_mut());
    assert_eq!(bits(whole.as_ref()), bits(restored.as_ref()));
    assert!(tank(0.2).restore(&snapshot[..100]).is_err());
}

/// Water that falls freely in a tall shaft: 1,728 particles on a lattice `every` times as wide as its own,
/// which moves apart at `rate` [1/s]. Spread of the positions after 0.3 s over that at the start.
fn spread_in_flight(every: usize, rate: f64) -> f64 {
    let spacing = 0.025 * every as f64;
    let world = world(DVec3::new(2.4, 2.4, 4.0), GRAVITY);
    let middle = DVec3::new(1.2, 1.2, 3.0);
    let points: Vec<String> = (0..1728)
        .map(|n| {
            middle + spacing * (DVec3::new((n % 12) as f64, (n / 12 % 12) as f64, (n / 144) as f64) - 5.5)
        })
        .map(|x| format!("[{}, {}, {}]", x.x, x.y, x.z))
        .collect();
    let section = format!(
        "method = 'flip'\nspacing = 0.025\n[[shapes]]\ntype = 'points'\npositions = [{}]\n",
        points.join(", ")
    );
    let (parameters, mut particles) = section::read(&section, &world).expect("a good section");
    for (velocity, position) in particles.velocity.iter_mut().zip(&particles.position) {
        *velocity = rate * (*position - middle);
    }
    let mut solver = Flip::new(parameters, particles);
    let spread = |solver: &Flip| {
        let positions = &solver.particles().position;
        let middle = positions.iter().sum::<DVec3>() / positions.len() as f64;
        positions.iter().map(|x| x.distance_squared(middle)).sum::<f64>().sqrt()
    };
    let start = spread(&solver);
    let groups = Groups::none(solver.particles().len());
    (0..60).for_each(|_| drop(step(&mut solver, &groups, 5e-3)));
    spread(&solver) / start
}

/// Spray flies on its own, as each particle began; what fills its cells keeps its volume.
#[test]
fn spray_flies_apart_and_water_does_not() {
    let (spray, water) = (spread_in_flight(3, 2.0), spread_in_flight(1, 2.0));
    assert!((spray - 1.6).abs() < 0.05, "{spray} times as wide");
    assert!((water - 1.0).abs() < 0.1, "{water} times as wide");
}

/// Water that is too thin by half comes to rest as deep as its volume asks for. It fills
/// its tank at the start: walls and ceiling let it go.
#[test]
fn thin_water_comes_to_rest_at_its_density() {
    let mut points = Vec::new();
    for n in 0..16 * 16 * 24 {
        let at = [n % 16, n / 16 % 16, n / 256];
        if at.iter().sum::<usize>() % 2 == 0 {
            let x = DVec3::from_array(at.map(|n| 0.025 * (n as f64 + 0.5)));
            points.push(format!("[{}, {}, {}]", x.x, x.y, x.z));
        }
    }
    let depth = points.len() as f64 * 0.025f64.powi(3) / 0.16;
    let section = format!(
        "method = 'flip'\nspacing = 0.025\n[[shapes]]\ntype = 'points'\npositions = [{}]\n",
        points.join(", ")
    );
    let mut solver = create(&section, &world(DVec3::new(0.4, 0.4, 0.6), GRAVITY));
    let (mut sum, mut samples) = (0.0, 0.0);
    run(solver.as_mut(), 3.0, |solver, time, _| {
        if time > 2.3 {
            sum += 2.0 * height(solver) / depth;
            samples += 1.0;
        }
    });
    let volume = sum / samples;
    assert!((volume - 1.0).abs() < 0.03, "{volume} of its volume");
    let highest = solver.particles().position.iter().map(|x| x.z).fold(0.0, f64::max);
    assert!(highest < depth + 0.05, "a particle hangs at {highest} m");
}

/// The jitter is uniform, and the same every time.
#[test]
fn particles_begin_off_their_lattice() {
    let places = |jitter: f64| {
        let section = format!(
            "method = 'flip'\nspacing = 0.025\njitter = {jitter:?}\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\n\
             max = [0.4, 0.4, 0.2]\n"
        );
        create(&section, &world(DVec3::new(0.4, 0.4, 0.4), GRAVITY)).particles().position.clone()
    };
    let (lattice, jittered) = (places(0.0), places(0.5));
    let offsets = lattice.iter().zip(&jittered).map(|(a, b)| (*b - *a) / 0.025);
    let squares = offsets.clone().map(|offset| offset.length_squared()).sum::<f64>() / lattice.len() as f64;
    assert!(offsets.clone().all(|offset| offset.abs().max_element() <= 0.5));
    // A uniform number from -1/2 to 1/2 has a variance of 1/12 along each axis.
    assert!((squares / 0.25 - 1.0).abs() < 0.05, "{squares}");
    assert_eq!(places(0.5), jittered);
}
