//! `amalgam validate`: its quick cases, and what it says.

#[path = "../../tests/support/at_once.rs"]
mod at_once;

use assert_cmd::Command;
use at_once::at_once;

fn amalgam(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::cargo_bin("amalgam").expect("the program is built");
    let output = command.arg("validate").args(arguments).env("COLUMNS", "100").output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn quick_cases_are_within_their_tolerance() {
    let cases = amalgam::command::validate::quick();
    assert!(cases.len() > 20, "{cases:?}");
    at_once(&cases, |case| {
        let checks =
            amalgam::command::validate::checks(case).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(!checks.is_empty(), "{case} compares nothing");
        let failed: Vec<_> = checks.iter().filter(|check| !check.pass).collect();
        assert!(failed.is_empty(), "{failed:#?}");
    });
}

#[test]
fn a_case_leaves_a_table_a_picture_and_json() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (json, out) = (folder.path().join("checks.json"), folder.path().join("pictures"));
    let paths = [&json, &out].map(|path| path.to_str().expect("UTF-8"));
    let (code, table, errors) = amalgam(&["implicit-euler", "--json", paths[0], "--out", paths[1]]);
    assert_eq!(code, Some(0), "{errors}");
    let checks: Vec<serde_json::Value> =
        serde_json::from_str(&std::fs::read_to_string(json).expect("is there")).expect("JSON");
    assert_eq!(checks.len(), 6);
    for check in checks {
        assert_eq!(check["case"], "implicit-euler");
        assert_eq!(check["pass"], true);
        let number = |key: &str| check[key].as_f64().expect("a number");
        assert!((number("measured") - number("reference")).abs() <= number("tolerance"));
        assert!(table.contains(check["quantity"].as_str().expect("text")), "{table}");
    }
    assert!(std::fs::metadata(out.join("implicit-euler.png")).expect("a picture").len() > 1000);
}

#[test]
fn an_unknown_case_is_refused_with_the_nearest_name() {
    let (code, _, errors) = amalgam(&["implicit-eular"]);
    assert_eq!(code, Some(2));
    assert!(errors.contains("did you mean `implicit-euler`?"), "{errors}");
}
