//! Time to reconstruct a surface, with and without smoothing. `cargo bench --workspace --bench surface`
//! prints milliseconds. A number of particles after `--` replaces the two default sizes.

#![allow(missing_docs, reason = "a benchmark")]

use std::time::Instant;

use amalgam_surfaces::{SurfaceSettings, reconstruct};
use glam::DVec3;

const SPACING: f64 = 0.01;
const REPETITIONS: usize = 3;

/// A heap of water about as high as wide, its particles a little off their lattice.
fn heap(count: usize) -> Vec<DVec3> {
    let n = (count as f64).cbrt().round() as usize;
    let shifted = |i: usize, k: usize| (i as f64 + 0.3 * (12.9898 * k as f64).sin()) * SPACING;
    (0..n.pow(3))
        .map(|k| DVec3::new(shifted(k % n, k), shifted(k / n % n, 2 * k), shifted(k / (n * n), 3 * k)))
        .collect()
}

fn main() {
    let asked = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect::<Vec<usize>>();
    let counts = if asked.is_empty() { vec![60_000, 1_000_000] } else { asked };
    println!("least of {REPETITIONS}, ms: plain, smoothed; ratio; triangles");
    for count in counts {
        let points = heap(count);
        let still = vec![DVec3::ZERO; points.len()];
        let mut triangles = 0;
        let [plain, smoothed] = [0, 25].map(|smoothing| {
            let settings = SurfaceSettings { smoothing, ..SurfaceSettings::new(0.5 * SPACING) };
            let once = |_| {
                let start = Instant::now();
                triangles = reconstruct(&points, &still, settings).expect("a surface").triangles.len();
                1e3 * start.elapsed().as_secs_f64()
            };
            (0..REPETITIONS).map(once).fold(f64::INFINITY, f64::min)
        });
        println!("{:9} {plain:9.0} {smoothed:9.0} {:6.2} {triangles:9}", points.len(), smoothed / plain);
    }
}
