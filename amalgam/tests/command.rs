//! The command line from outside: help, exit codes, and refusals before a solver is started.

use std::{fs, path::Path, process::Output};

use assert_cmd::Command;

fn amalgam(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::cargo_bin("amalgam").expect("the program is built");
    command.args(arguments).current_dir(folder).env("NO_COLOR", "1").env("COLUMNS", "100");
    command.output().expect("the program starts")
}

/// Exit code, standard output and standard error.
fn outcome(arguments: &[&str], folder: &Path) -> String {
    let output = amalgam(arguments, folder);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let code = output.status.code().expect("an exit code");
    format!("exit code {code}\n--- stdout\n{}--- stderr\n{}", text(&output.stdout), text(&output.stderr))
}

fn empty_folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn scene() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenes/small/drop.toml");
    fs::read_to_string(path).expect("the scene is there")
}

macro_rules! shows {
    ($($name:ident: $arguments:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(outcome(&$arguments, empty_folder().path()));
        }
    )*};
}

shows! {
    help_of_all: ["--help"];
    help_of_run: ["run", "--help"];
    help_of_check: ["check", "--help"];
    help_of_plan: ["plan", "--help"];
    help_of_serve: ["serve", "--help"];
    help_of_validate: ["validate", "--help"];
    help_of_conform: ["conform", "--help"];
    nothing_to_conform: ["conform", "127.0.0.1:1"];
    unknown_rule: ["conform", "127.0.0.1:1", "--only", "no-such-rule"];
    no_arguments: [];
    unknown_command: ["rnu", "scene.toml"];
    missing_scene: ["run", "no-such-scene.toml"];
    missing_scene_to_check: ["check", "no-such-scene.toml"];
    plan_of_an_empty_folder: ["plan", "."];
    plan_of_too_many_ranks: ["plan", "scene.toml", "--cores", "8", "--ranks-per-node", "9"];
    plan_of_no_particles: ["plan", "scene.toml", "--particles", "0"];
    no_frames: ["run", "scene.toml", "--frames", "0"];
    unknown_transport: ["run", "scene.toml", "--transport", "udp"];
    unknown_solver_to_serve: ["serve", "gas", "--listen", "127.0.0.1:0"];
}

#[test]
fn a_benchmark_of_fluids_writes_one_file_with_both_methods() {
    let folder = empty_folder();
    let output = amalgam(&["bench", "fluids", "--quick", "--json", "fluids.json"], folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(folder.path().join("fluids.json")).expect("the file is there");
    let figures: Vec<serde_json::Value> = serde_json::from_str(&text).expect("an array");
    for method in ["SPH", "FLIP"] {
        let step = figures.iter().find(|figure| {
            let name = figure["name"].as_str().expect("a name");
            name.starts_with(method) && name.ends_with(", step")
        });
        let step = step.unwrap_or_else(|| panic!("no step of {method}"));
        assert!(step["ns_per_particle"].as_f64().is_some_and(|ns| ns > 0.0), "{step}");
        // Memory that one method holds is not counted for the other.
        let bytes = step["bytes_per_particle"].as_f64();
        assert!(!cfg!(target_os = "linux") || bytes.is_some_and(|bytes| bytes > 100.0), "{step}");
    }
    let left = fs::read_dir(folder.path()).expect("reads").count();
    assert_eq!(left, 1, "files of its parts are left");
}

#[test]
fn a_wrong_scene_runs_nothing_and_leaves_nothing() {
    let folder = empty_folder();
    fs::write(folder.path().join("drop.toml"), scene()).expect("writes");
    for command in ["run", "check"] {
        let arguments = [command, "drop.toml", "--set", "time.duration=-1", "--set", "coupling.alpha=2"];
        insta::assert_snapshot!(outcome(&arguments, folder.path()));
    }
    assert!(!folder.path().join("out").exists());
}

#[test]
fn a_folder_with_other_things_is_not_touched() {
    let folder = empty_folder();
    fs::write(folder.path().join("drop.toml"), scene()).expect("writes");
    fs::create_dir(folder.path().join("mine")).expect("creates");
    // Not even one that holds a scene of its own, or frames.
    fs::write(folder.path().join("mine/scene.toml"), scene()).expect("writes");
    fs::create_dir(folder.path().join("mine/frames")).expect("creates");
    insta::assert_snapshot!(outcome(&["run", "drop.toml", "--out", "mine"], folder.path()));
    assert_eq!(fs::read_to_string(folder.path().join("mine/scene.toml")).expect("reads"), scene());
    assert!(folder.path().join("mine/frames").exists());
}

#[test]
fn an_output_folder_that_is_a_file_is_refused() {
    let folder = empty_folder();
    fs::write(folder.path().join("drop.toml"), scene()).expect("writes");
    fs::write(folder.path().join("file"), "").expect("writes");
    insta::assert_snapshot!(outcome(&["run", "drop.toml", "--out", "file"], folder.path()));
}

#[test]
fn a_colour_by_a_field_that_is_not_there_is_an_error_and_check_says_how_long_a_run_is() {
    let scene = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenes/small/drop.toml");
    let check = |field: &str| {
        let colour = format!("output.pictures.colours.water={{ field = \"{field}\" }}");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_amalgam"));
        let output = command.arg("check").arg(&scene).args(["--set", &colour]).output().expect("it starts");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
        (output.status.code(), text)
    };
    let (code, [stdout, stderr]) = check("pressures");
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("water has no field \"pressures\""), "{stderr}");
    assert!(stdout.is_empty(), "{stdout}");
    let (code, [stdout, stderr]) = check("pressure");
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("; 6 frames of "), "{stdout}");
    assert!(stdout.contains(" of them to the end"), "{stdout}");
}

#[test]
fn check_says_that_a_gas_is_too_soft_for_water_on_it() {
    let folder = empty_folder();
    let fluid = |name: &str, density: f64, (low, high): (f64, f64)| {
        format!(
            "[[participants]]\nname = \"{name}\"\nsolver = \"fluid\"\n[participants.settings]\nspacing = 0.05\n\
             rest_density = {density:?}\n[[participants.settings.shapes]]\ntype = \"box\"\nmin = [0, 0, {low}]\n\
             max = [0.4, 0.4, {high}]\n"
        )
    };
    let head = "[scene]\nname = \"gas\"\n[domain]\nmin = [0, 0, 0]\nmax = [0.4, 0.4, 0.6]\n[time]\nduration = 0.1\n\
                frame_interval = 0.1\n";
    let warnings = |lower: f64| {
        let text = [head, &fluid("gas", lower, (0.0, 0.2)), &fluid("water", 1000.0, (0.2, 0.4))].concat();
        fs::write(folder.path().join("gas.toml"), text).expect("writes");
        let output = amalgam(&["check", "gas.toml"], folder.path());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    // 0.2 m of water press with 1962 Pa, a hundredth of rho c^2 at 1 kg/m^3 and 443 m/s.
    let gas = warnings(1.0);
    assert!(
        gas.contains("1.96e3 Pa on the mean") && gas.contains("write sound_speed = 442.9 for gas"),
        "{gas}"
    );
    assert_eq!(warnings(1000.0), "");
}

#[test]
fn a_plan_comes_from_a_scene_and_from_the_results_of_a_run() {
    let folder = empty_folder();
    let plan = |of: &str, more: &[&str]| {
        let output =
            amalgam(&[&["plan", of, "--nodes", "4", "--json", "plan.json"], more].concat(), folder.path());
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let json = std::fs::read_to_string(folder.path().join("plan.json")).expect("a file");
        let rows: Vec<serde_json::Value> = serde_json::from_str(&json).expect("JSON");
        assert_eq!(rows.iter().map(|row| &row["nodes"]).collect::<Vec<_>>(), [1, 2, 4]);
        // A row is printed per estimate, and times are sums of their parts.
        for row in &rows {
            let waits = row["waits"].as_array().expect("waits").iter();
            let sum: f64 = waits.map(|wait| wait[1].as_f64().expect("a time")).sum();
            let [ideal, step] = ["ideal", "step"].map(|key| row[key].as_f64().expect("a time"));
            assert!(ideal > 0.0 && (ideal + sum - step).abs() < 1e-9 * step, "{row}");
        }
        text
    };
    fs::write(folder.path().join("drop.toml"), scene()).expect("a file");
    let first = plan("drop.toml", &[]);
    assert!(first.contains("cut among ranks") && first.contains("longest wait"), "{first}");
    let run = amalgam(&["run", "drop.toml", "--transport", "in-process", "--out", "out"], folder.path());
    assert!(run.status.success());
    let second = plan("out", &["--particles", "1e8", "--network", "ethernet"]);
    assert!(second.contains("times as many particles") && second.contains("is lost from"), "{second}");
    // Particles grow with the nodes, so that a rank of many nodes has as many as one of a few.
    plan("out", &["--particles", "1e8", "--weak", "--report", "page.md"]);
    let json = fs::read_to_string(folder.path().join("plan.json")).expect("a file");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&json).expect("JSON");
    let particles = rows.iter().map(|row| row["particles"].as_f64().expect("a number"));
    let particles: Vec<f64> = particles.collect();
    assert!(particles.iter().all(|n| (n / particles[0] - 1.0).abs() < 1e-9), "{particles:?}");
    let page = fs::read_to_string(folder.path().join("page.md")).expect("a page");
    assert!(page.starts_with("# Weak scaling") && page.contains("\n| 4 |"), "{page}");
}

/// Cases of `validate` replace values of these scenes, of two of them such without which the scene is not whole.
#[test]
fn check_accepts_the_scenes_of_validation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let fluid =
        |low: f64| format!("[{{ type = 'box', min = [0, 0, {low}], max = [1, 0.16, {}] }}]", low + 2.0);
    let mut checked = 0;
    for entry in fs::read_dir(root.join("validation")).expect("the folder is there") {
        let folder = entry.expect("an entry").path();
        let scene = folder.join("scene.toml");
        if !scene.is_file() {
            continue;
        }
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let settings = match name.as_str() {
            "rayleigh-taylor" => vec![
                format!("participants.light.settings.shapes={}", fluid(0.1)),
                format!("participants.heavy.settings.shapes={}", fluid(2.1)),
            ],
            "stretching-drop" => vec!["participants.water.settings.sound_speed=10".to_string()],
            _ => Vec::new(),
        };
        let scene = scene.to_string_lossy();
        let mut arguments = vec!["check", &scene];
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        let said = outcome(&arguments, &root);
        assert!(said.starts_with("exit code 0"), "{name}: {said}");
        checked += 1;
    }
    assert!(checked >= 40, "{checked} scenes");
}
