//! Frames and snapshots that ranks write for themselves: they hold what one rank sends, and nothing of another run
//! or of another folder is among them.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use amalgam_frames::{Frame, PvdCollection};
use amalgam_proto::v1;
use support::client::Client;
use support::process::{Folder, repository, stderr};
use support::service::Service;
use tonic::transport::Channel;

const SCENE: &str = "tests/determinism.toml";

/// The frames of the water, by their list, and the kinds of their files.
fn frames(folder: &Folder) -> Vec<(String, String)> {
    let list = PvdCollection::read(&folder.out().join("water.pvd")).expect("a list");
    let read = |(_, file): &(f64, String)| {
        let path = folder.out().join(file);
        let kind = path.extension().expect("an extension").to_string_lossy().into_owned();
        (kind, format!("{:?}", Frame::read(path).expect("a frame")))
    };
    list.iter().map(read).collect()
}

/// The number of files that a folder of frames has of a frame of the water.
fn parts(out: &Path, number: u32) -> usize {
    let start = format!("water_{number:06}_");
    let entries = fs::read_dir(out.join("frames")).expect("a folder").map(|entry| entry.expect("an entry"));
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&start)).count()
}

#[test]
fn parts_hold_the_frames_of_one_rank() {
    let (one, cut) = (Folder::new(), Folder::new());
    for (folder, ranks) in [(&one, "--ranks=water=1"), (&cut, "--ranks=water=3")] {
        let arguments = ["--quiet", "--checkpoint-every=1steps", "--keep-checkpoints=1000", ranks];
        let output = folder.run(&repository(SCENE), &arguments);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let whole = frames(&one);
    let is_same = |parts: &[(String, String)]| {
        assert_eq!(parts.len(), whole.len());
        assert!(parts.iter().all(|(kind, _)| kind == "pvtu") && whole.iter().all(|(kind, _)| kind == "vtu"));
        assert!(parts.iter().zip(&whole).all(|((_, parts), (_, whole))| parts == whole));
    };
    is_same(&frames(&cut));
    assert_eq!([0, 1, 2, 3].map(|number| parts(&cut.out(), number)), [3; 4]);
    // Two ranks go on from a step after the first frame, and nothing of the third rank is left after it.
    let resume = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
        command.arg("resume").arg(cut.out()).args(["--quiet", "--from=1", "--ranks=water=2"]);
        command.current_dir(cut.path()).output().expect("amalgam runs")
    };
    let output = resume();
    assert!(output.status.success(), "{}", stderr(&output));
    is_same(&frames(&cut));
    assert_eq!([0, 1, 2, 3].map(|number| parts(&cut.out(), number)), [3, 2, 2, 2]);
    fs::remove_file(cut.out().join("frames/water_000000_2.vtu")).expect("removes");
    let refused = stderr(&resume());
    assert!(refused.contains("water_000000_2.vtu"), "{refused}");
    assert!(refused.contains("results from before the checkpoint"), "{refused}");
}

/// Water that three ranks save, by each method. Files whose bytes have changed are not gone on from.
#[test]
fn ranks_save_their_parts() {
    for method in ["sph", "flip"] {
        let method = format!("--set=participants.water.settings.method='{method}'");
        let scene = repository(SCENE);
        let (one, cut) = (Folder::new(), Folder::new());
        let whole = one.run(&scene, &["--quiet", &method]);
        assert!(whole.status.success(), "{}", stderr(&whole));
        let every = ["--checkpoint-every=10steps", "--keep-checkpoints=1000", "--ranks=water=3"];
        let output = cut.run(&scene, &[&["--quiet", &method], &every[..]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let checkpoints = cut.out().join("checkpoints");
        let resume = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
            command.arg("resume").arg(cut.out()).args(["--quiet", "--checkpoint-every=100000steps"]);
            command.args(arguments).current_dir(cut.path()).output().expect("amalgam runs")
        };
        let part =
            |step: u32, rank: u32| checkpoints.join(format!("step-{step:06}/participant-water.{rank}"));
        assert!((0..3).all(|rank| part(10, rank).exists()) && !part(10, 3).exists());
        for arguments in [&["--ranks=water=5"][..], &["--transport=in-process"], &["--ranks=water=2"]] {
            let output = resume(&[&["--from=10"], arguments].concat());
            assert!(output.status.success(), "{method} {arguments:?}: {}", stderr(&output));
            assert_eq!(cut.summary()["state_hash"], one.summary()["state_hash"], "{method} {arguments:?}");
        }
        let mut bytes = fs::read(part(10, 1)).expect("a part");
        bytes[100] ^= 1;
        fs::write(part(10, 1), bytes).expect("writes");
        let refused = stderr(&resume(&["--from=10"]));
        assert!(
            refused.contains("participant-water.1") && refused.contains("the checksum differs"),
            "{refused}"
        );
        fs::remove_file(part(10, 2)).expect("removes");
        fs::remove_file(part(10, 1)).expect("removes");
        assert!(stderr(&resume(&["--from=10"])).contains("participant-water.1"));
    }
}

/// Grains that turn, fall onto a floor, and are let go from it in the middle of the run.
const GRAINS: &str = "scene.name = 'grains'\n\
[domain]\nmin = [-1, -1, -1]\nmax = [1, 1, 1]\n\
[[domain.obstacles]]\nname = 'floor'\nshape = { type = 'plane', point = [0, 0, 0], normal = [0, 0, 1] }\n\
[time]\nduration = 0.04\nframe_interval = 0.02\ndt_max = 0.001\n\
[[coupling.contact]]\nbetween = ['grains', 'grains']\nfriction = 0.5\nrolling = 0.1\n\
[[coupling.contact]]\nbetween = ['floor', 'grains']\nfriction = 0.5\nrolling = 0.1\n\
[[participants]]\nname = 'grains'\nsolver = 'solid'\n\
[participants.settings]\nmethod = 'grains'\nspin = true\n\
[[participants.settings.bodies]]\ntype = 'grains'\nspacing = 0.02\nradius = 0.0095\ndensity = 1500\n\
shape = { type = 'box', min = [-0.06, -0.04, 0.002], max = [0.04, 0.04, 0.102] }\n\
velocity = [0, 0, -1]\nangular_velocity = [0, 20, 0]\n\
[[participants.settings.bodies]]\ntype = 'points'\nmass = 0.02\nradius = 0.01\n\
positions = [[-0.1, 0, 0.05], [-0.13, 0, 0.05]]\npinned = [0, 1]\nrelease = [0.02, inf]\n";

/// Three ranks lay out, save and go on with grains, as one does, whatever the order of their parts.
#[test]
fn ranks_save_their_grains() {
    let (one, cut) = (Folder::new(), Folder::new());
    let whole = one.run(&one.scene(GRAINS), &["--quiet"]);
    assert!(whole.status.success(), "{}", stderr(&whole));
    let every = ["--quiet", "--checkpoint-every=9steps", "--keep-checkpoints=1000", "--ranks=grains=3"];
    let output = cut.run(&cut.scene(GRAINS), &every);
    assert!(output.status.success(), "{}", stderr(&output));
    let hash = |folder: &Folder| folder.summary()["state_hash"].clone();
    assert_eq!(hash(&cut), hash(&one));
    let part = |step: u32, rank: u32| {
        cut.out().join(format!("checkpoints/step-{step:06}/participant-grains.{rank}"))
    };
    assert!((0..3).all(|rank| part(9, rank).exists() && part(27, rank).exists()) && !part(9, 3).exists());
    // After and before a grain is let go. Later checkpoints are of no use once a run has gone on from earlier ones.
    for step in ["--from=27", "--from=9"] {
        for ranks in ["--ranks=grains=1", "--ranks=grains=5", "--ranks=grains=2", "--transport=in-process"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_amalgam"));
            command.arg("resume").arg(cut.out()).args([
                "--quiet",
                "--checkpoint-every=100000steps",
                step,
                ranks,
            ]);
            let output = command.current_dir(cut.path()).output().expect("amalgam runs");
            assert!(output.status.success(), "{ranks}: {}", stderr(&output));
            assert_eq!(hash(&cut), hash(&one), "{step} {ranks}");
        }
    }
}

/// Frames that are drawn come to the coordinator, as do all frames of a service that may not write.
#[test]
fn frames_are_sent_where_they_are_drawn_or_files_are_not_allowed() {
    let folder = Folder::new();
    let output =
        folder.run(&repository(SCENE), &["--quiet", "--ranks=water=2", "--set=output.pictures.every=2"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let kinds: Vec<String> = frames(&folder).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["vtu", "pvtu", "vtu", "pvtu"]);

    let elsewhere = tempfile::tempdir().expect("a folder");
    let allowed = format!("--files={}", elsewhere.path().display());
    let service = Service::start("fluid", "127.0.0.1:0", &["--ranks=2", &allowed]);
    let text = fs::read_to_string(repository(SCENE)).expect("a scene");
    let text = text
        .replace("solver = \"fluid\"\n", &format!("solver = \"fluid\"\naddress = \"{}\"\n", service.address));
    let folder = Folder::new();
    let output = folder.run(&folder.scene(&text), &["--quiet"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(frames(&folder).iter().all(|(kind, _)| kind == "vtu"));
    assert_eq!(fs::read_dir(elsewhere.path()).expect("a folder").count(), 0);
}

#[test]
fn a_part_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("a path");
    let allowed = format!("--files={}", path.display());
    let service = Service::start("fluid", "127.0.0.1:0", &["--ranks=2", &allowed]);
    let section =
        "method = 'sph'\nspacing = 0.1\n[[shapes]]\ntype = 'box'\nmin = [0, 0, 0]\nmax = [1, 1, 1]\n";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let endpoint = Channel::from_shared(format!("http://{}", service.address)).expect("an address");
    let channel = runtime.block_on(endpoint.connect()).expect("connects");
    let mut client = Client::over(runtime, channel, section);
    let files = |stem: &str, folder: &str| {
        let (stem, folder) = (stem.to_string(), folder.to_string());
        Some(v1::FrameFiles { folder, stem, time: 0.0, compressed: true })
    };
    let here = path.to_str().expect("UTF-8");
    fs::create_dir(path.join(".water_1.vtu.part")).expect("a folder in the place of a file");
    let error = client.frame_in(files("water", here)).expect_err("one of two cannot be written");
    assert_eq!(error.code(), tonic::Code::Aborted);
    assert!(
        error.message().starts_with("cannot create ") && error.message().contains("water_1.vtu"),
        "{error}"
    );
    let written = client.frame_in(files("again", here)).expect("a frame").written.expect("files");
    assert_eq!((written.parts, written.particles), (2, 1000));
    let part = |rank: u32| Frame::read(path.join(format!("again_{rank}.vtu"))).expect("a part").ids.len();
    assert_eq!(part(0) + part(1), 1000);
    for (stem, folder) in [("../a", here), (".a", here), ("", here), ("a", "there"), ("a/b", here)] {
        let error = client.frame_in(files(stem, folder)).expect_err("no name of a file");
        assert_eq!(error.code(), tonic::Code::InvalidArgument, "{stem} {folder}: {error}");
    }
    // The folder above is not allowed, nor is a way out of the folder.
    for folder in [path.parent().expect("a parent").to_path_buf(), path.join("..")] {
        let frame = client.frame_in(files("water", folder.to_str().expect("UTF-8"))).expect("columns");
        assert!(frame.written.is_none() && frame.id.len() == 1000);
    }
}
