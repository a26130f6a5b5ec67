//! The page about a run.

use std::{fs, path::Path};

use assert_cmd::Command;

fn amalgam() -> Command {
    Command::cargo_bin("amalgam").expect("the program is built")
}

fn said(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().expect("runs");
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn a_page_holds_verdict_pictures_and_curves_of_a_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let scene = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenes/small/drop.toml");
    let mut run = amalgam();
    run.arg("run").arg(scene).args(["--frames", "2", "--quiet", "--transport", "in-process", "--out"]);
    run.args([out.as_os_str()]).args(["--set", "output.pictures.every=1"]).assert().success();

    let (code, told) = said(amalgam().arg("report").arg(&out));
    assert_eq!(code, Some(0), "{told}");
    let page = fs::read_to_string(out.join("report.html")).expect("written");
    for part in [
        "The run came to its end.",
        "<figcaption>0.04 s</figcaption>",
        "src=\"data:image/jpeg;base64,/9j/",
        "energy: kinetic [J]",
        "<path d=\"M0.0 ",
        "<td>water</td>",
        "edge_u = [0.2, 0.0, 0.0]",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert_eq!(page.matches("<img ").count(), 3);
    assert!(!page.contains("http://") && !page.contains("https://"), "the page loads something");
    assert!(page.len() < 1 << 20, "{} bytes", page.len());

    // A failure comes first. Its text is escaped.
    let summary = fs::read_to_string(out.join("summary.json")).expect("a summary");
    let failed = summary.replace("\"error\": null", "\"error\": \"water <was> lost\"");
    fs::write(out.join("summary.json"), failed).expect("writes");
    let other = folder.path().join("other.html");
    assert_eq!(said(amalgam().arg("report").arg(&out).arg("--to").arg(&other)).0, Some(0));
    assert!(page.contains("Nothing speaks against the result."));
    let page = fs::read_to_string(&other).expect("written");
    assert!(!page.contains("Nothing speaks against the result."), "said of a run that failed");
    assert!(page.contains("The run failed: </b>water &lt;was&gt; lost"), "{}", &page[..2000]);
}

#[test]
fn what_is_no_finished_run_has_no_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, told) = said(amalgam().arg("report").arg(folder.path()));
    assert_eq!(code, Some(2));
    assert!(told.contains("holds no results of a run: give the folder"), "{told}");
    let scene = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenes/small/drop.toml");
    fs::copy(scene, folder.path().join("scene.toml")).expect("copies");
    let (code, told) = said(amalgam().arg("report").arg(folder.path()));
    assert_eq!(code, Some(2));
    assert!(told.contains("is not over") && told.contains("amalgam watch"), "{told}");
}
