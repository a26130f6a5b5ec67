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

#[test]
#[ignore = "takes much longer than ten minutes"]
fn whole_scenes_are_the_same_with_both_participants_cut() {
    let both = |scene: &str, a: &str, b: &str| {
        assert_file_is_same_with_cuts(&repository(scene), &[], &[[(a, 2), (b, 2)], [(a, 3), (b, 5)]]);
    };
    both("scenes/paper/fig8-bottom.toml", "water", "bowl");
    both("scenes/paper/fig9-top.toml", "water", "cloth");
    both("scenes/water-on-cloth.toml", "water", "cloth");
    both("scenes/brittle-wall.toml", "wall", "ball");
}
