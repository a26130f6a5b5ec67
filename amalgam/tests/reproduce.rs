//! `amalgam reproduce`: every figure is a scene that can be read, whatever the case, the method and the
//! scale.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use amalgam::{
    cli::Scale,
    command::reproduce::{figures, pile, read},
};

#[test]
fn every_run_of_every_figure_is_a_scene() {
    for figure in figures().expect("figures.toml") {
        for scale in [Scale::Quick, Scale::Half, Scale::Paper] {
            for (case, method) in figure.runs() {
                let scene = read(&figure, case, method, scale);
                let scene =
                    scene.unwrap_or_else(|e| panic!("{} {} {}: {e}", figure.name, case.name, method.name));
                let pictures = scene.output.pictures.as_ref();
                let every = pictures.unwrap_or_else(|| panic!("{} draws no pictures", figure.name)).every;
                let last = (scene.time.duration / scene.time.frame_interval).round() as u32;
                for &picture in &figure.pictures {
                    let drawn = picture <= last && picture.is_multiple_of(every);
                    assert!(drawn, "{}: there is no picture {picture}", figure.name);
                }
                let mut probes: Vec<&str> = scene.probes.iter().map(|probe| probe.name.as_str()).collect();
                if figure.pile {
                    // The pile is measured in frames.
                    assert!(scene.output.vtk && scene.output.every == 1, "{} writes no frames", figure.name);
                    probes.push(pile::NAME);
                }
                for measure in &figure.measures {
                    let probe = match (&measure.settled, measure.path.as_slice()) {
                        (Some([probe, _]), _) => probe,
                        (None, [first, probe, ..]) if first == "probes" => probe,
                        (None, _) => continue,
                    };
                    assert!(probes.contains(&probe.as_str()), "{}: no probe {probe}", figure.name);
                    let column = measure.path.get(2).map_or("", String::as_str);
                    let known = probe != pile::NAME || pile::COLUMNS.contains(&column);
                    assert!(known, "{}: no column {column}", figure.name);
                }
            }
        }
    }
}

/// Hash of the final state of a small scene with the given settings.
fn state_hash(folder: &Path, settings: &[&str], arguments: &[&str]) -> String {
    let scene = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenes/small/drop.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
    command.current_dir(folder).arg("run").arg(scene).args(["--frames", "2", "--quiet"]).args(arguments);
    command.args(settings.iter().flat_map(|set| ["--set", set]));
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary = fs::read_to_string(folder.join("out/drop/summary.json")).expect("a summary");
    let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
    assert!(summary["contacts"]["active_mean"].as_f64().is_some_and(|mean| mean > 0.0), "nothing touches");
    let error = summary["coupling"]["momentum_error_relative_max"].as_f64();
    assert!(error.is_some_and(|error| error < 1e-12), "{error:?}");
    summary["state_hash"].as_str().expect("a hash").to_string()
}

#[test]
fn every_method_of_contact_gives_the_same_bits_on_any_threads_and_transport() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut hashes = BTreeSet::new();
    for method in ["merge-split", "penalty", "sph-repulsion", "pairwise-impulse"] {
        let set = format!("coupling.method={method}");
        // The frame interval is long enough for the drop to reach the cloth.
        let settings = [set.as_str(), "time.frame_interval=0.03"];
        let one = state_hash(folder.path(), &settings, &["--threads", "1"]);
        assert_eq!(
            one,
            state_hash(folder.path(), &settings, &["--threads", "3", "--transport", "in-process"]),
            "{method}"
        );
        assert!(hashes.insert(one), "{method} does nothing");
    }
}
