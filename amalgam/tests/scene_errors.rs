//! Wrong scenes, and the messages for their author. The solvers' own sections are in `command.rs`.

use amalgam::scene::{Scene, SceneError};

const SCENE: &str = r##"# A scene with nothing wrong.
[scene]
name = "drop"
seed = 7

[domain]
min = [-1, -1, 0]
max = [1, 1, 2]

[time]
duration = 1.0

[coupling]
alpha = 0.5 # a comment
stages_max = "converged"

[[participants]]
name = "cloth"
solver = "solid"
[[participants.settings.bodies]]
type = "sheet"
spacing = 0.02

[[participants]]
name = "water"
solver = "fluid"
settings = { spacing = 0.01, shapes = [{ type = "sphere", radius = 0.1 }] }

[[probes]]
name = "through"
quantity = "crossings"
sheet = "cloth"
of = "water"

[output.pictures]
colours = { water = "water", cloth = "#d97a3f" }
"##;

fn render(error: &SceneError) -> String {
    amalgam::console::render(error, false)
}

/// Errors reported after `from` was replaced by `to` in a right scene.
fn errors(from: &str, to: &str, overrides: &[&str]) -> String {
    let text = SCENE.replacen(from, to, 1);
    assert!(from.is_empty() || text != SCENE, "`{from}` stands in the scene");
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    render(&Scene::parse("drop.toml", &text, &overrides).expect_err("the scene is wrong"))
}

#[test]
fn keys_of_old_are_told_their_new_names() {
    for (old, new) in [
        ("max_stages", "stages_max"),
        ("stage_cap", "converged_stages_max"),
        ("coupling_iterations", "repetitions_max"),
    ] {
        let said = errors("stages_max = \"converged\"", &format!("{old} = 3"), &[]);
        assert!(said.contains(&format!("unknown key `{old}`")), "{said}");
        assert!(said.contains(&format!("the key is called `{new}`: write {new} = ...")), "{said}");
    }
}

#[test]
fn a_key_that_is_gone_is_told_what_to_write() {
    let said = errors("stages_max = \"converged\"", "slip = 0.9", &[]);
    assert!(said.contains("unknown key `slip`"), "{said}");
    assert!(said.contains("merging has no friction"), "{said}");
}

#[test]
fn the_right_scene_is_read() {
    let overrides =
        ["participants.cloth.settings.bodies[0].spacing=0.01", "scene.name=other", "output.every=3"];
    let scene = Scene::parse("drop.toml", SCENE, &overrides.map(str::to_string)).expect("a right scene");
    assert_eq!(scene.header.name, "other");
    assert_eq!(scene.output.every, 3);
    assert_eq!(scene.participants.len(), 2);
    let section: toml::Table = toml::from_str(&scene.participants[0].section).expect("the section is TOML");
    assert_eq!(section["bodies"][0]["spacing"].as_float(), Some(0.01));
    assert_eq!(scene.participants[1].section, toml::to_string(&section_of_water()).expect("TOML"));
    let effective = scene.effective_text();
    assert!(effective.contains("alpha = 0.5 # a comment"), "comments stay: {effective}");
    let again = Scene::parse("again.toml", &effective, &[]).expect("the effective scene is a right scene");
    assert_eq!(again.effective_text(), effective);
    assert_eq!(again.participants[0].section, scene.participants[0].section);
}

fn section_of_water() -> toml::Table {
    toml::from_str("spacing = 0.01\nshapes = [{ type = \"sphere\", radius = 0.1 }]").expect("TOML")
}

#[test]
fn every_float_reaches_the_solver_to_the_bit() {
    for value in [0.1 + 0.2, 1e-300, f64::MIN_POSITIVE, 123_456_789.123_456_78, -0.0] {
        let text = SCENE.replacen("spacing = 0.02", &format!("spacing = {value:?}"), 1);
        let scene = Scene::parse("drop.toml", &text, &[]).expect("a right scene");
        let section: toml::Table = toml::from_str(&scene.participants[0].section).expect("TOML");
        let got = section["bodies"][0]["spacing"].as_float().expect("a float");
        assert_eq!(got.to_bits(), value.to_bits());
    }
}

macro_rules! wrong {
    ($($name:ident: $from:expr => $to:expr, $overrides:expr;)*) => {$(
        #[test]
        fn $name() {
            let overrides: &[&str] = &$overrides;
            insta::assert_snapshot!(errors($from, $to, overrides));
        }
    )*};
}

wrong! {
    unknown_key: "duration" => "duraton = 2.0\nduration", [];
    unknown_table: "[time]" => "[tiem]", [];
    missing_table: "[domain]\nmin = [-1, -1, 0]\nmax = [1, 1, 2]" => "", [];
    missing_key: "duration = 1.0" => "", [];
    wrong_type: "duration = 1.0" => "duration = \"long\"", [];
    short_vector: "max = [1, 1, 2]" => "max = [1, 1]", [];
    value_out_of_range: "alpha = 0.5" => "alpha = 1.5", [];
    wrong_choice: "\"converged\"" => "\"all\"", [];
    not_toml: "[time]" => "[time", [];
    duplicate_key: "duration = 1.0" => "duration = 1.0\nduration = 2.0", [];
    single_brackets: "[[probes]]" => "[probes]", [];
    unknown_solver: "\"fluid\"" => "\"fluit\"", [];
    no_solver: "solver = \"fluid\"" => "", [];
    bad_address: "solver = \"fluid\"" => "address = \"nowhere\"", [];
    bad_name: "\"water\"\nsolver" => "\"clear water\"\nsolver", [];
    same_name: "\"water\"\nsolver" => "\"cloth\"\nsolver", [];
    unknown_quantity: "\"crossings\"" => "\"crosings\"", [];
    unknown_probe_key: "of = \"water\"" => "of = \"water\"\nfor = 1", [];
    superfluous_probe_key: "quantity = \"crossings\"\nsheet = \"cloth\"" => "quantity = \"energy\"", [];
    unknown_participant_in_probe: "of = \"water\"" => "of = \"watr\"", [];
    bad_colour: "\"#d97a3f\"" => "\"orange\"", [];
    unknown_key_in_picture: "colours = {" => "colors = {", [];
    several_at_once: "alpha = 0.5" => "alpha = \"half\"\nbeta = 2.0\ngamma = 1\n", ["time.cfl=0", "time.dt=1"];
    set_without_value: "" => "", ["time.duration"];
    set_unknown_table: "" => "", ["tiem.duration=2"];
    set_unknown_key: "" => "", ["time.duraton=2"];
    set_wrong_type: "" => "", ["time.duration=long"];
    set_bad_value: "" => "", ["domain.min=[1, 2"];
    set_bad_path: "" => "", ["participants[x].name=a"];
    set_unknown_participant: "" => "", ["participants.watr.settings.spacing=1"];
    set_index_too_large: "" => "", ["participants[2].name=a"];
}

#[test]
fn a_missing_file_says_what_to_give() {
    let error = Scene::read("no-such-scene.toml".as_ref(), &[]).expect_err("there is no such file");
    insta::assert_snapshot!(render(&error));
}

#[test]
fn a_solvers_fault_is_shown_in_the_file() {
    let overrides = ["participants.water.settings.spacing=-1".to_string()];
    let scene = Scene::parse("drop.toml", SCENE, &overrides).expect("a right scene");
    let fault = |key: &str, message: &str| (key.to_string(), message.to_string());
    let cloth = [
        fault("bodies[0].spacing", "spacing must be positive: write e.g. spacing = 0.01"),
        fault("bodies[0].edge_u", "missing field `edge_u`"),
        fault("tolerance", "unknown field `tolerance`, expected one of `tolerances`, `bodies`"),
        fault("bodies[0]", "unknown field `type`, expected `kind`"),
        fault("?", "a key that is no path"),
    ];
    let water = [
        fault("shapes[0].radius", "radius must be positive: write e.g. radius = 0.1"),
        fault("spacing", "spacing must be positive: write e.g. spacing = 0.01"),
    ];
    insta::assert_snapshot!(
        [render(&scene.section_error("cloth", &cloth)), render(&scene.section_error("water", &water))]
            .join("\n")
    );
}

proptest::proptest! {
    /// After any edit, a scene is read, or its faults have places inside the text.
    #[test]
    fn no_edit_of_a_scene_makes_reading_panic(
        from in 0..SCENE.len(),
        length in 0..60usize,
        to in "([a-z_]{1,8}|[\\[\\]{}=\"'.,#\n ]{1,3}|-?[0-9]{1,3}|é|time|settings)?",
    ) {
        let boundary = |mut at: usize| {
            while !SCENE.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let text = [&SCENE[..boundary(from)], &to, &SCENE[boundary((from + length).min(SCENE.len()))..]].concat();
        if let Err(error) = Scene::parse("edited.toml", &text, &[]) {
            let shown = render(&error);
            proptest::prop_assert!(shown.contains("edited.toml") && !shown.contains("[Failed"), "{}", shown);
        }
    }

    #[test]
    fn no_set_makes_reading_panic(argument in "(time|participants|probes\\[0\\]|coupling|output|.{0,4})[\\[\\].=a-z0-9\"{}]{0,20}") {
        if let Err(error) = Scene::parse("drop.toml", SCENE, &[argument]) {
            proptest::prop_assert!(!render(&error).is_empty());
        }
    }
}

#[test]
fn files_of_local_participants_are_relative_to_the_scene() {
    let text = r#"
[scene]
name = "mesh"
[domain]
min = [-1, -1, 0]
max = [1, 1, 2]
[time]
duration = 1.0
[[participants]]
name = "here"
solver = "solid"
[participants.settings]
method = "mass-spring"
file = "a.obj"
[[participants.settings.bodies]]
type = "volume"
shape = { type = "mesh", file = "meshes/b.obj" }
shapes = [{ file = "c.stl" }, { type = "box" }]
[[participants]]
name = "there"
address = "unix:socket"
settings = { shape = { file = "d.obj" } }
"#;
    let scene = Scene::parse("some/folder/scene.toml", text, &[]).expect("a scene");
    let here = std::env::current_dir().expect("a folder").join("some/folder");
    let section = &scene.participants[0].section;
    for file in ["a.obj", "meshes/b.obj", "c.stl"] {
        let path = here.join(file).display().to_string();
        assert!(section.contains(&format!("\"{path}\"")), "{section}");
        assert!(scene.effective_text().contains(&path), "the scene beside the results finds it too");
    }
    assert!(scene.participants[1].section.contains("\"d.obj\""));
}
