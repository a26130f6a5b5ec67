//! Any bytes as a file of a checkpoint, as a solver's snapshot, and files that were cut or changed: refused,
//! never taken.
#![no_main]

use amalgam::checkpoint::envelope::Label;
use amalgam_particles::DVec3;
use amalgam_solver_kit::{SolverProgram, World};
use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    bytes: Vec<u8>,
    cut: u16,
    flip: u16,
    bit: u8,
}

const SECTIONS: [&str; 3] = [
    "method = 'mass-spring'\n[[bodies]]\ntype = 'sheet'\ncorner = [0,0,0]\nedge_u = [0.2,0,0]\nedge_v = [0,0.2,0]\nspacing = 0.1\n\
     area_density = 1\nstructural_stiffness = 10",
    "method = 'grains'\nspin = true\n[[bodies]]\ntype = 'grains'\nspacing = 0.1\ndensity = 1000\n\
     shape = { type = 'box', min = [0,0,0], max = [0.2,0.1,0.1] }",
    "method = 'peridynamics'\n[[bodies]]\ntype = 'peridynamic'\nspacing = 0.1\ndensity = 1000\nyoung_modulus = 1e5\nfracture_energy = 1\n\
     shape = { type = 'box', min = [0,0,0], max = [0.3,0.3,0.3] }",
];

fuzz_target!(|input: Input| {
    let Input { bytes, cut, flip, bit } = input;
    if let Ok((label, body)) = Label::open(bytes.clone()) {
        assert_eq!(label.length, body.len() as u64);
    }
    let label = Label {
        what: "participant-water".into(),
        steps: 7,
        program: "fluid 0".into(),
        digest: "00".into(),
        length: bytes.len() as u64,
    };
    let file = label.seal(&bytes).concat();
    assert_eq!(Label::open(file.clone()), Ok((label, bytes.clone())));
    let cut = usize::from(cut) % file.len();
    assert!(Label::open(file[..cut].to_vec()).is_err(), "cut to {cut} bytes");
    let mut changed = file;
    let flip = usize::from(flip) % changed.len();
    changed[flip] ^= 1 << (bit % 8);
    assert!(Label::open(changed).is_err(), "bit {bit} of byte {flip}");
    // A snapshot behind a sound checksum is the solver's to check.
    let world = World {
        participant: "body".into(),
        domain: (DVec3::splat(-1.0), DVec3::splat(1.0)),
        gravity: DVec3::ZERO,
        seed: 1,
        obstacles: Vec::new(), ranks: amalgam_solver_kit::Ranks::alone(),
};
    for section in SECTIONS {
        let created = amalgam_solver_solid::SolidProgram.create(section, &world);
        let mut solver = created.unwrap_or_else(|faults| panic!("{section}: {faults:?}"));
        let _ = solver.restore(&bytes);
    }
});
