//! Runs that write surfaces, read back with a reader that is not part of this project.

use std::{collections::HashSet, fs::File, path::Path};

use glam::{DVec2, Vec3};

use assert_cmd::Command;
use ply_rs_bw::{
    parser::Parser,
    ply::{DefaultElement, Property},
};

/// Height [m] and velocity [m/s] of each vertex of a participant's surface in frame 1. The surface is
/// checked: closed, of one piece and without handles.
fn vertices(scene: &str, participant: &str, settings: &[&str]) -> Vec<(f32, Vec3)> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out");
    let scene = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenes").join(scene);
    let mut command = Command::cargo_bin("amalgam").expect("the program is built");
    command
        .arg("run")
        .arg(scene)
        .args(["--frames", "1", "--quiet", "--transport", "in-process", "--out"])
        .arg(&out)
        .args(["--set", "output.pictures.every=100"])
        .args(settings.iter().flat_map(|setting| ["--set", setting]));
    command.assert().success();
    let file = out.join(format!("surfaces/{participant}_000001.ply"));
    let mut file = File::open(file).expect("a surface of frame 1");
    let ply = Parser::<DefaultElement>::new().read_ply(&mut file).expect("a PLY file");
    let (vertices, faces) = (&ply.payload["vertex"], &ply.payload["face"]);
    assert!(vertices.len() > 100 && faces.len() > 200, "{} and {}", vertices.len(), faces.len());
    let float = |vertex: &DefaultElement, name: &str| match vertex[name] {
        Property::Float(value) => value,
        _ => panic!("{name} is no float"),
    };
    let vector = |vertex: &DefaultElement, names: [&str; 3]| names.map(|name| float(vertex, name));
    // Euler's formula V - E + F = 2 holds for places. Where an edge is sharp, a place has several vertices,
    // each with its own normal.
    let places: HashSet<[u32; 3]> =
        vertices.iter().map(|vertex| vector(vertex, ["x", "y", "z"]).map(f32::to_bits)).collect();
    assert_eq!(places.len() + faces.len() - faces.len() * 3 / 2, 2);
    for vertex in vertices {
        let length = Vec3::from(vector(vertex, ["nx", "ny", "nz"])).length();
        assert!((length - 1.0).abs() < 1e-5, "a normal of length {length}");
    }
    let moving = |vertex| (float(vertex, "z"), Vec3::from(vector(vertex, ["vx", "vy", "vz"])));
    vertices.iter().map(moving).collect()
}

#[test]
fn a_run_writes_the_surface_of_a_fluid() {
    // The drop is a ball of radius 0.04 m about 0.16 m, a little lower in frame 1.
    let vertices = vertices("small/drop.toml", "water", &["output.surfaces.water.cell=0.8"]);
    for (height, velocity) in vertices {
        assert!((0.08..0.21).contains(&height), "{height}");
        // It started with 1 m/s and has fallen for 0.02 s: 1.196 m/s.
        assert!((velocity - Vec3::NEG_Z * 1.196).length() < 0.15, "{velocity}");
    }
}

#[test]
fn a_run_writes_the_surface_of_a_solid_as_its_solver_knows_it() {
    // The wall is a metre high and stands on z = 0, except for up to half a spacing that whole cubes do not
    // fill.
    let settings = ["output.surfaces.wall.every=1", "time.frame_interval=0.0005"];
    let wall = vertices("paper/fig5.toml", "wall", &settings);
    let heights = || wall.iter().map(|&(height, _)| height);
    let [low, high] = [f32::min, f32::max].map(|end| heights().reduce(end).expect("vertices"));
    assert!(low.abs() < 0.002 && (high - 1.0).abs() < 0.002, "from {low} to {high} m");
    // The ball is moving.
    let ball = vertices("paper/fig5.toml", "ball", &["output.surfaces.ball.every=1", settings[1]]);
    assert!(ball.iter().all(|(_, velocity)| (*velocity - 10.0 * Vec3::Y).length() < 0.01), "{ball:?}");
}

/// Vertices [m] and triangles of a file.
fn mesh(file: &Path) -> (Vec<[f64; 3]>, Vec<[usize; 3]>) {
    let mut file = File::open(file).expect("a surface");
    let ply = Parser::<DefaultElement>::new().read_ply(&mut file).expect("a PLY file");
    let float = |vertex: &DefaultElement, name: &str| match vertex[name] {
        Property::Float(value) => f64::from(value),
        _ => panic!("{name} is no float"),
    };
    let corner = |vertex: &DefaultElement| ["x", "y", "z"].map(|name| float(vertex, name));
    let corners = |face: &DefaultElement| match face.values().next() {
        Some(Property::ListInt(list)) => [0, 1, 2].map(|k| list[k] as usize),
        Some(Property::ListUInt(list)) => [0, 1, 2].map(|k| list[k] as usize),
        other => panic!("a face is {other:?}"),
    };
    (ply.payload["vertex"].iter().map(corner).collect(), ply.payload["face"].iter().map(corners).collect())
}

/// Height [m] of the upper side of a mesh at each place.
fn height_above((vertices, triangles): &(Vec<[f64; 3]>, Vec<[usize; 3]>), places: &[DVec2]) -> Vec<f64> {
    let mut heights = vec![f64::NEG_INFINITY; places.len()];
    for triangle in triangles {
        let [a, b, c] = triangle.map(|k| DVec2::new(vertices[k][0], vertices[k][1]));
        let area = (b - a).perp_dot(c - a);
        if area <= 0.0 {
            continue;
        }
        for (place, height) in places.iter().zip(&mut heights) {
            let parts =
                [(c - b).perp_dot(place - b), (a - c).perp_dot(place - c), (b - a).perp_dot(place - a)];
            if parts.iter().all(|&part| part >= 0.0) {
                let here: f64 = (0..3).map(|k| parts[k] / area * vertices[triangle[k]][2]).sum();
                *height = height.max(here);
            }
        }
    }
    heights
}

/// Water in a box, 10 mm between particles, at rest. It starts as a lattice, which gives way by itself within
/// 1.3 s. Roughness is the difference of heights in a frame, flicker the difference at a place from one frame
/// to the next, both after 1.6 s and two spacings from the walls on.
#[test]
fn the_surface_of_still_water_is_flat_and_does_not_flicker() {
    const SCENE: &str = "[scene]
name = 'still'
[domain]
min = [0.0, 0.0, 0.0]
max = [0.2, 0.2, 0.3]
gravity = [0.0, 0.0, -9.81]
[time]
duration = 2.4
frame_interval = 0.04
[output]
vtk = false
[output.surfaces.water]
[[participants]]
name = 'water'
solver = 'fluid'
[participants.settings]
method = 'sph'
spacing = 0.01
[[participants.settings.shapes]]
type = 'box'
min = [0.0, 0.0, 0.0]
max = [0.2, 0.2, 0.1]
";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, out) = (folder.path().join("still.toml"), folder.path().join("out"));
    std::fs::write(&file, SCENE).expect("writes");
    let mut command = Command::cargo_bin("amalgam").expect("the program is built");
    command.arg("run").arg(&file).args(["--quiet", "--transport", "in-process", "--out"]).arg(&out);
    command.assert().success();
    let places: Vec<DVec2> = (0..33 * 33)
        .map(|k| DVec2::new(0.02 + 0.005 * f64::from(k % 33), 0.02 + 0.005 * f64::from(k / 33)))
        .collect();
    let heights: Vec<Vec<f64>> = (40..=60)
        .map(|frame| height_above(&mesh(&out.join(format!("surfaces/water_{frame:06}.ply"))), &places))
        .collect();
    let spread = |heights: &Vec<f64>| {
        let ends = |pick: fn(f64, f64) -> f64| heights.iter().copied().reduce(pick).expect("heights");
        ends(f64::max) - ends(f64::min)
    };
    let roughness = heights.iter().map(spread).fold(0.0, f64::max);
    let between =
        |pair: &[Vec<f64>]| pair[0].iter().zip(&pair[1]).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let flicker = heights.windows(2).map(between).fold(0.0, f64::max);
    println!("roughness {:.2} mm, flicker {:.2} mm", 1e3 * roughness, 1e3 * flicker);
    assert!(roughness < 0.002, "heights differ by {roughness} m");
    assert!(flicker < 0.0002, "a height differs by {flicker} m from one frame to the next");
}
