//! A ball of particles: its surface is closed, of the right size, the same on any number of threads.

use std::collections::{HashMap, HashSet};

use amalgam_surfaces::{SurfaceSettings, reconstruct};
use glam::{DVec3, Vec3};

/// A cubic lattice within a ball about the origin.
fn ball(radius: f64, spacing: f64) -> Vec<DVec3> {
    let n = (radius / spacing).ceil() as i32;
    let along = move || (-n..n).map(move |i| (f64::from(i) + 0.5) * spacing);
    along()
        .flat_map(|z| along().flat_map(move |y| along().map(move |x| DVec3::new(x, y, z))))
        .filter(|x| x.length() < radius)
        .collect()
}

#[test]
fn a_ball_has_a_closed_surface_of_its_size() {
    let (radius, spacing) = (0.2, 0.01);
    let points = ball(radius, spacing);
    let moving: Vec<DVec3> = points.iter().map(|x| DVec3::Z.cross(*x)).collect();
    let surface = reconstruct(&points, &moving, SurfaceSettings::new(0.5 * spacing)).expect("a surface");
    assert!(surface.triangles.len() > 1000, "only {} triangles", surface.triangles.len());
    // Closed and oriented: every edge is passed once each way.
    let mut edges: HashMap<(u32, u32), u32> = HashMap::new();
    for [a, b, c] in &surface.triangles {
        for edge in [(*a, *b), (*b, *c), (*c, *a)] {
            *edges.entry(edge).or_default() += 1;
        }
    }
    assert!(edges.iter().all(|(&(a, b), &count)| count == 1 && edges.contains_key(&(b, a))));
    let used: HashSet<u32> = edges.keys().map(|edge| edge.0).collect();
    assert_eq!(used.len(), surface.vertices.len(), "vertices of triangles, and all");
    let volume = points.len() as f64 * spacing.powi(3);
    let ratio = surface.volume() / volume;
    println!("{} triangles, volume over the particles' {ratio:.4}", surface.triangles.len());
    assert!((ratio - 1.0).abs() < 0.1, "the surface encloses {ratio} of the particles' volume");
    let farthest = surface.vertices.iter().map(|v| (v.length() - radius).abs()).fold(0.0, f64::max);
    assert!(farthest < 1.5 * spacing, "a vertex is {farthest} m off the ball");
    for ((vertex, normal), velocity) in surface.vertices.iter().zip(&surface.normals).zip(&surface.velocities)
    {
        let normal = Vec3::from(*normal).as_dvec3();
        assert!(normal.dot(vertex.normalize()) > 0.97, "{normal} at {vertex}");
        let turning = DVec3::Z.cross(*vertex);
        assert!((Vec3::from(*velocity).as_dvec3() - turning).length() < spacing, "{velocity:?} at {vertex}");
    }
}

/// Water at rest as particles that are not on a lattice: how far its surface is from a plane.
#[test]
fn still_water_is_flat() {
    let (spacing, half) = (0.01, 0.1);
    let random = |k: usize, axis: u64| {
        let bits = (k as u64 * 3 + axis + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((bits ^ (bits >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    };
    let mut points = ball(2.0 * half, spacing);
    points.retain(|x| x.z < 0.0 && x.abs().max_element() < half);
    for (k, x) in points.iter_mut().enumerate() {
        *x += 0.5 * spacing * DVec3::new(random(k, 0), random(k, 1), random(k, 2));
    }
    let roughness = |smoothing: u32| {
        let settings = SurfaceSettings { smoothing, ..SurfaceSettings::new(0.5 * spacing) };
        let surface = reconstruct(&points, &vec![DVec3::ZERO; points.len()], settings).expect("a surface");
        let numbers = surface.normals.iter().chain(&surface.velocities).flatten();
        assert!(numbers.into_iter().all(|number| number.is_finite()), "a normal or a velocity is no number");
        let is_inner = |v: &&DVec3| v.z > -2.0 * spacing && v.truncate().abs().max_element() < 0.6 * half;
        let heights: Vec<f64> = surface.vertices.iter().filter(is_inner).map(|v| v.z).collect();
        let [low, high] =
            [f64::min, f64::max].map(|end| heights.iter().copied().reduce(end).expect("vertices"));
        high - low
    };
    let [rough, smooth] = [0, 25].map(roughness);
    println!("from lowest to highest {rough:.4} m, smoothed {smooth:.4} m");
    assert!(smooth < 0.2 * spacing && smooth < 0.5 * rough, "{rough} m, smoothed {smooth} m");
}

#[test]
fn a_drop_keeps_its_size() {
    // A particle alone, and seven: smoothing would make nothing of them if it took them for water.
    for points in [vec![DVec3::ZERO], ball(0.015, 0.01)] {
        let volume = |smoothing: u32| {
            let settings = SurfaceSettings { smoothing, cell: 0.5, ..SurfaceSettings::new(0.005) };
            reconstruct(&points, &vec![DVec3::ZERO; points.len()], settings).expect("a surface").volume()
        };
        let [rough, smooth] = [0, 25].map(volume);
        println!("{} particles: {rough:e} m^3, smoothed {smooth:e} m^3", points.len());
        assert!(smooth > 0.8 * rough, "{} particles: {rough:e} m^3, smoothed {smooth:e} m^3", points.len());
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    // Large enough to be cut into parts that threads share.
    let mut points = ball(0.2, 0.01);
    points.extend(ball(0.05, 0.01).iter().map(|x| x + DVec3::new(0.6, 0.1, 0.0)));
    let surfaces = [1, 2, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| {
            let moving: Vec<DVec3> = points.iter().map(|x| 2.0 * x).collect();
            reconstruct(&points, &moving, SurfaceSettings { cell: 0.5, ..SurfaceSettings::new(0.005) })
                .expect("a surface")
        })
    });
    assert!(surfaces[0].triangles.len() > 20_000);
    assert!(surfaces.iter().all(|surface| *surface == surfaces[0]));
}

#[test]
fn nothing_has_no_surface() {
    assert!(reconstruct(&[], &[], SurfaceSettings::new(0.1)).expect("nothing").triangles.is_empty());
}
