//! Any text as a scene: it is read or refused with a place, and what was read can be written and read again.
#![no_main]

use amalgam::scene::Scene;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(scene) = Scene::parse("scene.toml", text, &[]) else { return };
    let again = Scene::parse("scene.toml", &scene.effective_text(), &[]);
    let again = again.unwrap_or_else(|error| panic!("the scene that ran is not read again: {error}"));
    assert_eq!(scene.effective_text(), again.effective_text());
});
