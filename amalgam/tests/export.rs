//! The frames of a run as one scene over time for other programs.

use std::{fs, path::Path};

use assert_cmd::Command;

fn amalgam() -> Command {
    Command::cargo_bin("amalgam").expect("the program is built")
}

/// Two frames of `scenes/small/drop.toml`, in `out` below the folder.
fn run(folder: &Path, settings: &[&str]) {
    let scene = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenes/small/drop.toml");
    let mut command = amalgam();
    command
        .arg("run")
        .arg(scene)
        .args(["--frames", "2", "--quiet", "--transport", "in-process", "--out"])
        .arg(folder.join("out"))
        .args(settings.iter().flat_map(|setting| ["--set", setting]));
    command.assert().success();
}

/// The numbers behind the first equals sign after a declaration, in the first state if there are several.
fn values(text: &str, object: &str, declaration: &str) -> Vec<f64> {
    let start = text.find(&format!("\"{object}\" (")).unwrap_or_else(|| panic!("{object} is missing"));
    let (_, rest) =
        text[start..].split_once(declaration).unwrap_or_else(|| panic!("{declaration} is missing"));
    let (_, rest) = rest.split_once('[').expect("an array");
    let (array, _) = rest.split_once(']').expect("its end");
    let numbers = array.split([',', '(', ')', ' ']).filter(|part| !part.is_empty());
    numbers.map(|number| number.parse().expect("a number")).collect()
}

#[test]
fn a_run_becomes_one_scene_over_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    run(folder.path(), &["output.surfaces.water.every=1", "output.usd={}"]);
    let by_run = fs::read(folder.path().join("out/drop.usda")).expect("written at the end of the run");
    let file = folder.path().join("drop.usda");
    let output = amalgam().arg("export").arg(folder.path().join("out")).arg("--usd").arg(&file).output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("points in 3 states") && said.contains("water_surface"), "{said}");
    assert_eq!(fs::read(&file).expect("written"), by_run);

    let text = String::from_utf8(by_run).expect("text");
    let frame = amalgam_frames::Frame::read(folder.path().join("out/frames/water_000000.vtu"));
    let frame = frame.expect("a frame");
    let positions = values(&text, "water", "points.timeSamples = {");
    let held = frame.positions.iter().flat_map(|x| x.as_vec3().to_array()).map(f64::from);
    assert!(positions.iter().zip(held).all(|(&read, held)| (read - held).abs() < 1e-7));
    assert_eq!(positions.len(), 3 * frame.positions.len());
    let ids = values(&text, "water", "int64[] ids");
    assert!(ids.iter().zip(&frame.ids).all(|(&read, &id)| read == id as f64) && ids.len() == frame.ids.len());
    // Spheres as large as the volume that a particle stands for, or about.
    let widths = values(&text, "water", "float[] widths");
    assert!(widths.iter().all(|width| (0.003..0.02).contains(width)), "{}", widths[0]);
    assert!(text.contains("uniform token purpose = \"guide\""), "particles hide the surface");
    let corners = values(&text, "water_surface", "int[] faceVertexIndices.timeSamples = {");
    assert!(corners.len() > 300 && corners.len().is_multiple_of(3), "{}", corners.len());
    assert!(text.contains("upAxis = \"Z\"") && text.contains("metersPerUnit = 1\n"));
}

#[test]
fn what_cannot_be_exported_says_what_to_write() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let refused = |arguments: &[&str]| {
        let output =
            amalgam().arg("export").args(arguments).current_dir(folder.path()).output().expect("runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused(&["nowhere", "--usd", "a.usda"]).contains("give the folder that `amalgam run` wrote to"));
    run(folder.path(), &["output.vtk=false"]);
    assert!(refused(&["out", "--usd", "a.usda"]).contains("output.vtk = true"));
    assert!(refused(&["out", "--usd", "a.obj"]).contains("write --usd a.usda"));
    assert_eq!(fs::read_dir(folder.path()).expect("reads").count(), 1, "something was written");
}
