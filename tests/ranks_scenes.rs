//! Scenes of which several participants are cut among ranks at once: every result is to the byte that of one rank.

mod support;

use support::process::repository;
use support::ranks::assert_file_is_same_with_cuts;

#[test]
fn water_cloth_and_tori_are_cut_at_once() {
    let scene = repository("scenes/paper/fig9-top.toml");
    let cuts = [[("water", 2), ("cloth", 2), ("tori", 3)]];
    let ([_, contacts], _) = assert_file_is_same_with_cuts(&scene, &["--set=time.duration=0.3"], &cuts);
    assert!(contacts["active_mean"].as_f64() > Some(1.0), "{contacts}");
}

/// Scenes at the scale of `amalgam reproduce --scale quick`, with both participants cut in two ways. Pictures are left
/// out, which no cut changes.
#[test]
#[ignore = "takes some minutes"]
fn whole_scenes_are_the_same_with_both_participants_cut() {
    let both = |scene: &str, [a, b]: [&str; 2], set: &[&str]| {
        let set = [&["--set=output.pictures.every=1000"], set].concat();
        let ([_, contacts], _) =
            assert_file_is_same_with_cuts(&repository(scene), &set, &[[(a, 2), (b, 2)], [(a, 3), (b, 5)]]);
        assert!(contacts["active_mean"].as_f64() > Some(1.0), "{scene}: {contacts}");
    };
    both("scenes/paper/fig8-bottom.toml", ["water", "bowl"], &[]);
    both("scenes/paper/fig9-top.toml", ["water", "cloth"], &[]);
    let coarse = [
        "--set=participants.cloth.settings.bodies[0].spacing=0.024",
        "--set=participants.water.settings.spacing=0.02",
    ];
    both("scenes/water-on-cloth.toml", ["water", "cloth"], &coarse);
    let coarse = [
        "--set=participants.wall.settings.bodies[0].spacing=0.04",
        "--set=participants.wall.settings.bodies[0].held[0].max=[1, 1, 0.03]",
        "--set=participants.ball.settings.bodies[0].spacing=0.04",
    ];
    both("scenes/brittle-wall.toml", ["wall", "ball"], &coarse);
}
