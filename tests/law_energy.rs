//! Energy under the contact law, scene by scene: nothing is reported that does not move, and nothing is
//! gained.

mod support;

use support::at_once::at_once;
use support::process::{Folder, repository, stderr};

/// Energy that a run reports [J], step by step.
struct Ledger {
    kinetic: Vec<f64>,
    gravity: Vec<f64>,
    stored: Vec<f64>,
    dissipated: Vec<f64>,
    phantom: Vec<f64>,
}

impl Ledger {
    /// Runs a scene under the contact law.
    fn of(folder: &Folder, scene: &std::path::Path, arguments: &[&str]) -> Self {
        let fixed = [
            "--quiet",
            "--set=output.vtk=false",
            "--set=coupling.method=contact-law",
            "--set=probes=[{ name = \"energy\", quantity = \"energy\" }, { name = \"phantom\", quantity = \"phantom\" }]",
        ];
        let output = folder.run(scene, &[&fixed, arguments].concat());
        assert!(output.status.success(), "{}: {}", scene.display(), stderr(&output));
        let column = |probe: &str, name: &str| -> Vec<f64> {
            let path = folder.out().join(format!("probes/{probe}.csv"));
            let text = std::fs::read_to_string(path).expect("a table");
            let mut lines = text.lines();
            let head = lines.next().expect("a head");
            let at = head.split(',').position(|column| column == name).expect("a column of this name");
            lines.map(|line| line.split(',').nth(at).expect("a value").parse().expect("a number")).collect()
        };
        Self {
            kinetic: column("energy", "kinetic [J]"),
            gravity: column("energy", "gravity [J]"),
            stored: column("energy", "stored [J]"),
            dissipated: column("energy", "dissipated_in_coupling [J]"),
            phantom: column("phantom", "phantom [J]"),
        }
    }

    fn scale(&self) -> f64 {
        self.kinetic.iter().copied().fold(0.0, f64::max)
    }

    /// The largest rise of the total energy in a step, relative to the largest kinetic energy.
    fn rise(&self) -> f64 {
        let total = |i: usize| self.kinetic[i] + self.gravity[i] + self.stored[i];
        largest((1..self.kinetic.len()).map(|i| total(i) - total(i - 1))) / self.scale()
    }

    /// The same of a fluid alone, all energies at the middle of the step: its report has the compression at
    /// the start, the velocities are those of the middle, and the positions those of the end.
    fn centred_rise(&self) -> f64 {
        let mean = |values: &[f64], i: usize| 0.5 * (values[i] + values[i + 1]);
        let total = |i: usize| self.kinetic[i] + mean(&self.gravity, i - 1) + mean(&self.stored, i);
        largest((2..self.kinetic.len() - 1).map(|i| total(i) - total(i - 1))) / self.scale()
    }

    /// The most that contacts gave in a step, by their impulses over the mean velocities of the step.
    fn given(&self) -> f64 {
        largest((1..self.dissipated.len()).map(|i| self.dissipated[i - 1] - self.dissipated[i]))
            / self.scale()
    }
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NEG_INFINITY, f64::max)
}

/// One sub-step of the water in a step, in place of up to three.
const ONE: &str = "--set=participants.water.settings.substeps_max=1";

/// Each scene with the largest rise of the total energy in a step, and the most that contacts may give.
///
/// Contacts do no work over the motion. Over the mean velocities of a step, contacts that part at its start
/// and are held until its end give a little energy, as on a cloth that springs back. The implicit cloth loses
/// more than that.
#[test]
fn no_scene_gains_energy() {
    let scenes = [
        ("balls", &[][..], 1e-6, 1e-5),
        ("soft-bodies", &["--frames=10"][..], 1e-6, 1e-5),
        ("tumble", &["--frames=18", "--set=output.pictures.every=100"][..], 1e-6, 1e-12),
        ("drop", &["--set=time.dt_max=8e-5"][..], 1e-6, 1e-6),
        // The fluid's own: see the next test.
        ("drop", &[ONE][..], 2e-4, 5e-6),
        // Its steps hold three sub-steps.
        ("drop", &[][..], 6e-4, 2e-5),
    ];
    at_once(&scenes, |&(scene, arguments, rise, given)| {
        let folder = Folder::new();
        let ledger = Ledger::of(&folder, &repository(&format!("scenes/small/{scene}.toml")), arguments);
        assert!(ledger.phantom.iter().all(|&phantom| phantom == 0.0), "{scene} reports what does not move");
        let (risen, gave) = (ledger.rise(), ledger.given());
        assert!(
            risen < rise && gave < given,
            "{scene} {arguments:?}: rises by {risen:e}, contacts give {gave:e}"
        );
    });
}

const WATER: &str = r#"
[scene]
name = "water"
[domain]
min = [-0.15, -0.15, 0.0]
max = [0.15, 0.15, 0.3]
[time]
duration = 0.1
frame_interval = 0.1
[[participants]]
name = "water"
solver = "fluid"
[participants.settings]
method = "sph"
spacing = 0.01
[[participants.settings.shapes]]
type = "sphere"
center = [0.0, 0.0, 0.06]
radius = 0.04
velocity = [0.0, 0.0, -1.0]
"#;

const FLOOR: &str = r#"
[[domain.obstacles]]
name = "floor"
shape = { type = "plane", point = [0.0, 0.0, 0.01], normal = [0.0, 0.0, 1.0] }
"#;

/// Water that falls on the floor of the domain, with no contact at all, and on a plane under the law. With a
/// step that resolves the impact, all that seems to be gained in either is the time at which energies are
/// taken. The obstacle counts in the density as fluid at rest, and is softer than a mirror.
#[test]
fn what_rises_is_the_fluids_own() {
    for (scene, has_contacts, rise) in
        [(WATER.to_string(), false, 5e-3), (format!("{WATER}{FLOOR}"), true, 4e-4)]
    {
        let folder = Folder::new();
        let path = folder.scene(&scene);
        let coarse = Ledger::of(&folder, &path, &[ONE]);
        assert!(coarse.rise() > rise, "{has_contacts}: {:e}", coarse.rise());
        let fine = Ledger::of(&folder, &path, &["--set=time.dt_max=4e-5"]);
        assert!(fine.rise() < 1e-3, "{has_contacts}: {:e}", fine.rise());
        assert!(fine.centred_rise() < 1e-12, "{has_contacts}: {:e}", fine.centred_rise());
        assert_eq!(fine.dissipated.last() != Some(&0.0), has_contacts);
        assert!(fine.given() < 1e-8 && coarse.given() < 1e-7, "{:e}, {:e}", fine.given(), coarse.given());
    }
}
