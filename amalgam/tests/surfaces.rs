//! A run that writes a fluid's surface, read back with a reader that is not ours.

use std::{fs::File, path::Path};

use assert_cmd::Command;
use ply_rs_bw::{
    parser::Parser,
    ply::{DefaultElement, Property},
};

#[test]
fn a_run_writes_the_surface_of_a_fluid() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("drop");
    let scene = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenes/small/drop.toml");
    let mut command = Command::cargo_bin("amalgam").expect("the program is built");
    command
        .arg("run")
        .arg(scene)
        .args(["--frames", "1", "--quiet", "--transport", "in-process", "--out"])
        .arg(&out);
    command.args(["--set", "output.surfaces.water.cell=0.8", "--set", "output.pictures.every=100"]);
    command.assert().success();
    let mut file = File::open(out.join("surfaces/water_000001.ply")).expect("a surface of frame 1");
    let ply = Parser::<DefaultElement>::new().read_ply(&mut file).expect("a PLY file");
    let (vertices, faces) = (&ply.payload["vertex"], &ply.payload["face"]);
    assert!(vertices.len() > 100 && faces.len() > 200, "{} and {}", vertices.len(), faces.len());
    // Closed, of one piece and without handles: Euler's formula.
    assert_eq!(vertices.len() + faces.len() - faces.len() * 3 / 2, 2);
    for vertex in vertices {
        let Property::Float(z) = vertex["z"] else { panic!("z is no float") };
        // The drop is a ball of radius 0.04 m about 0.16 m, a little lower in frame 1.
        assert!((0.08..0.21).contains(&z), "a vertex at a height of {z} m");
    }
}
