//! Runs that write surfaces, read back with a reader that is not ours.

use std::{fs::File, path::Path};

use assert_cmd::Command;
use ply_rs_bw::{
    parser::Parser,
    ply::{DefaultElement, Property},
};

/// Heights [m] of the vertices of a participant's surface in frame 1, which is closed, of one piece and without handles.
fn heights(scene: &str, participant: &str, settings: &[&str]) -> Vec<f32> {
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
    // Euler's formula.
    assert_eq!(vertices.len() + faces.len() - faces.len() * 3 / 2, 2);
    let height = |vertex: &DefaultElement| match vertex["z"] {
        Property::Float(z) => z,
        _ => panic!("z is no float"),
    };
    vertices.iter().map(height).collect()
}

#[test]
fn a_run_writes_the_surface_of_a_fluid() {
    // The drop is a ball of radius 0.04 m about 0.16 m, a little lower in frame 1.
    let heights = heights("small/drop.toml", "water", &["output.surfaces.water.cell=0.8"]);
    assert!(heights.iter().all(|z| (0.08..0.21).contains(z)), "{heights:?}");
}

#[test]
fn a_run_writes_the_surface_of_a_solid_as_its_solver_knows_it() {
    // The wall is a metre high and stands on z = 0, to half a spacing that the cubes leave over.
    let settings = ["output.surfaces.wall.every=1", "time.frame_interval=0.0005"];
    let heights = heights("paper/fig5.toml", "wall", &settings);
    let [low, high] = [f32::min, f32::max].map(|end| heights.iter().copied().reduce(end).expect("vertices"));
    assert!(low.abs() < 0.002 && (high - 1.0).abs() < 0.002, "from {low} to {high} m");
}
