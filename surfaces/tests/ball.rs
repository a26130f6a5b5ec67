//! A ball of particles: its surface is closed, of the right size, the same on any number of threads.

use std::collections::HashMap;

use amalgam_surfaces::{SurfaceSettings, reconstruct};
use glam::DVec3;

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
    let (radius, spacing) = (0.1, 0.01);
    let points = ball(radius, spacing);
    let surface = reconstruct(&points, SurfaceSettings::new(0.5 * spacing)).expect("a surface");
    assert!(surface.triangles.len() > 1000, "only {} triangles", surface.triangles.len());
    // Closed and oriented: every edge is passed once each way.
    let mut edges: HashMap<(u32, u32), u32> = HashMap::new();
    for [a, b, c] in &surface.triangles {
        for edge in [(*a, *b), (*b, *c), (*c, *a)] {
            *edges.entry(edge).or_default() += 1;
        }
    }
    assert!(edges.iter().all(|(&(a, b), &count)| count == 1 && edges.contains_key(&(b, a))));
    let volume = points.len() as f64 * spacing.powi(3);
    let ratio = surface.volume() / volume;
    println!("{} triangles, volume over the particles' {ratio:.4}", surface.triangles.len());
    assert!((ratio - 1.0).abs() < 0.1, "the surface encloses {ratio} of the particles' volume");
    let farthest = surface.vertices.iter().map(|v| (v.length() - radius).abs()).fold(0.0, f64::max);
    assert!(farthest < 1.5 * spacing, "a vertex is {farthest} m off the ball");
}

#[test]
fn threads_do_not_change_a_bit() {
    // Large enough to be cut into parts that threads share.
    let mut points = ball(0.2, 0.01);
    points.extend(ball(0.05, 0.01).iter().map(|x| x + DVec3::new(0.6, 0.1, 0.0)));
    let surfaces = [1, 2, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| {
            reconstruct(&points, SurfaceSettings { cell: 0.5, ..SurfaceSettings::new(0.005) })
                .expect("a surface")
        })
    });
    assert!(surfaces[0].triangles.len() > 20_000);
    assert!(surfaces.iter().all(|surface| *surface == surfaces[0]));
}

#[test]
fn nothing_has_no_surface() {
    assert!(reconstruct(&[], SurfaceSettings::new(0.1)).expect("nothing").triangles.is_empty());
}
