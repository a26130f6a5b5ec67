//! Renders water that falls on a sagging sheet: `cargo run --release -p amalgam-frames --example demo --
//! demo.png`.

use std::time::Instant;

use amalgam_frames::{Camera, Colour, ColourMap, DVec3, FramesError, Layer, Radius, Scene};

const RADIUS: f64 = 0.006;

fn main() -> Result<(), FramesError> {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: demo PICTURE.png");
        std::process::exit(2);
    };
    let (water, speeds) = water();
    let (sheet, triangles) = sheet(81);
    let scene = Scene {
        layers: vec![
            Layer::Surface {
                positions: &sheet,
                triangles: &triangles,
                colour: Colour::One([0.84, 0.43, 0.27]),
            },
            Layer::Spheres {
                positions: &water,
                radius: Radius::One(RADIUS),
                colour: Colour::Mapped { values: &speeds, range: [0.0, 4.0], map: ColourMap::Water },
            },
        ],
        ground: Some(-0.45),
        outline: Some((DVec3::new(-0.75, -0.45, -0.75), DVec3::new(0.75, 0.55, 0.75))),
        ..Scene::default()
    };
    let domain = scene.outline.expect("set above");
    let camera = Camera::framing(domain, DVec3::new(-0.45, -0.42, -1.0), DVec3::Y, 32.0, 16.0 / 9.0);
    scene.render(&camera, 1280, 720)?;
    let start = Instant::now();
    let picture = scene.render(&camera, 1280, 720)?;
    let drawn = start.elapsed();
    picture.write_png(&path)?;
    let written = start.elapsed() - drawn;
    println!(
        "{} spheres, {} triangles: drawn in {:.0} ms, written in {:.0} ms",
        water.len(),
        triangles.len(),
        1e3 * drawn.as_secs_f64(),
        1e3 * written.as_secs_f64()
    );
    Ok(())
}

/// Height of the sheet, which hangs by its corners.
fn height(x: f64, z: f64) -> f64 {
    let bowl = 0.34 * (1.0 - (x * x + z * z) / 0.72).max(0.0);
    0.02 * (9.0 * x).sin() * (7.0 * z).cos() * (x * x + z * z) - bowl * (1.0 - 0.3 * x * x * z * z)
}

/// A jet above the sheet, and the pool that it has filled, with their speeds [m/s].
fn water() -> (Vec<DVec3>, Vec<f32>) {
    let spacing = 1.9 * RADIUS;
    let cells = (1.6 / spacing) as i32;
    let mut random = 1u64;
    let mut jitter = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((random >> 40) as f64 / (1u64 << 24) as f64 - 0.5) * 0.7 * spacing
    };
    let mut positions = Vec::new();
    let mut speeds = Vec::new();
    for k in -cells..cells {
        for j in -cells..cells {
            for i in -cells..cells {
                let grid = spacing * DVec3::new(f64::from(i), f64::from(j), f64::from(k));
                let x = grid + DVec3::new(jitter(), jitter(), jitter());
                let from_axis = x.x.hypot(x.z);
                let level = -0.15 + 0.05 * (-(from_axis / 0.1).powi(2)).exp() * (40.0 * from_axis).cos();
                let in_pool = x.y < level && x.y > height(x.x, x.z) + 2.0 * RADIUS;
                let in_jet = from_axis < 0.13 && x.y > -0.12 && x.y < 0.5;
                if in_pool || in_jet {
                    let falling = (2.0 * 9.81 * (0.6 - x.y)).sqrt();
                    speeds.push(if in_jet { falling } else { 1.2 * (-from_axis / 0.15).exp() } as f32);
                    positions.push(x);
                }
            }
        }
    }
    (positions, speeds)
}

/// A square sheet with `n` particles along each side.
fn sheet(n: u32) -> (Vec<DVec3>, Vec<[u32; 3]>) {
    let place = |i: u32| 1.4 * (f64::from(i) / f64::from(n - 1) - 0.5);
    let position = |j, i| DVec3::new(place(i), height(place(i), place(j)), place(j));
    let positions = (0..n).flat_map(|j| (0..n).map(move |i| position(j, i))).collect();
    let cell = |j: u32, i: u32| {
        let a = j * n + i;
        [[a, a + 1, a + n], [a + 1, a + n + 1, a + n]]
    };
    let triangles = (0..n - 1).flat_map(|j| (0..n - 1).flat_map(move |i| cell(j, i))).collect();
    (positions, triangles)
}
