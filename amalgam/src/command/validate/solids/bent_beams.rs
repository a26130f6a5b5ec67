//! Beams of few particles in thickness, bent and stretched by their own weight: the stiffness that a material
//! should give them.

use glam::DVec3;

use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/bent-beams/scene.toml");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "bent-beams",
    about: "stiffness in bending and in tension of beams of 2 to 8 cells in thickness, of springs and of bonds: beam theory",
    quick: false,
    compute,
};

/// As in the scene: spacing [m], Young's modulus [Pa], density [kg/m^3].
const SPACING: f64 = 0.01;
const YOUNG_MODULUS: f64 = 1e6;
const DENSITY: f64 = 1000.0;
/// Length of a beam over its thickness.
const SLENDERNESS: f64 = 8.0;
/// Largest strain of the beams.
const STRAIN: f64 = 1e-3;

/// Bodies: name, keys, whether a beam is as wide as thick (or one layer), and the modulus along the lattice's
/// axes over the given one (`docs/theory/solids.md`, "Surfaces").
const KINDS: [(&str, &str, bool, f64); 3] = [
    ("springs", "type = \"volume\", radius = 1.0", true, 1.0),
    (
        "bonds, plane stress",
        "type = \"peridynamic\", model = \"plane-stress\", surface_correction = true, radius = 1.0",
        false,
        0.9966,
    ),
    ("bonds, solid", "type = \"peridynamic\", surface_correction = true, radius = 1.0", true, 0.9239),
];

/// Known gaps of the stiffness in tension, in bodies of at most as many layers as the horizon has spacings.
/// Bonds cannot be right in tension and bending there. Each entry has the number of the kind, the cells, and
/// today's value.
const GAPS: [(usize, u32, f64); 4] = [(1, 2, 1.7), (1, 3, 1.44), (2, 2, 1.95), (2, 3, 1.57)];

fn compute() -> Result<CaseOutcome, CaseError> {
    let (mut checks, mut sketch) = (Vec::new(), Sketch::default());
    for (k, (name, keys, square, modulus)) in KINDS.into_iter().enumerate() {
        for cells in [2, 3, 4, 6, 8] {
            let beam = Beam { keys, square, cells };
            let bending = beam.bend()?;
            let name = |what: &str| format!("{name}, {cells} cells: {what} / theory");
            // The product of the factors of two axes is not exact if the body is thin in both.
            let tolerance = if square && cells == 2 { 0.1 } else { 0.05 };
            checks.push(Check::relative(name("stiffness in bending"), 1.0, bending / modulus, tolerance));
            let chart = |y: f64, z: f64| DVec3::new(0.2 * f64::from(cells) + 2.0 * k as f64, 0.0, y + z);
            sketch = sketch.measured([chart(0.0, bending / modulus)]).reference([chart(0.0, 1.0)]);
            if cells > 4 {
                continue;
            }
            let quantity = name("stiffness in tension");
            let tension = beam.stretch()? / modulus;
            let known = GAPS.iter().find(|(kind, thin, _)| (*kind, *thin) == (k, cells));
            checks.push(match known {
                Some((.., today)) => Check::known_gap(quantity, (1.0, *today), tension, 0.1 * today),
                None => Check::relative(quantity, 1.0, tension, 0.05),
            });
            sketch = sketch.measured([chart(-2.5, tension)]).reference([chart(-2.5, 1.0)]);
        }
    }
    Ok(CaseOutcome { checks, picture: sketch })
}

/// A beam along x, held at x <= 0.
struct Beam {
    keys: &'static str,
    square: bool,
    /// Cells in thickness.
    cells: u32,
}

impl Beam {
    fn thickness(&self) -> f64 {
        f64::from(self.cells) * SPACING
    }

    fn length(&self) -> f64 {
        SLENDERNESS * self.thickness()
    }

    /// Bending stiffness over E I, from the second difference of the deflection at a quarter, half and three
    /// quarters of the length. The free end has no effect there.
    fn bend(&self) -> Result<f64, CaseError> {
        let (h, l) = (self.thickness(), self.length());
        // The strain at the clamp is (q l^2/2) (h/2) / (E I), with q = rho g A.
        let gravity = STRAIN * YOUNG_MODULUS * h / (3.0 * DENSITY * l * l);
        let moved = self.rest(DVec3::NEG_Z * gravity)?;
        let load = DENSITY * gravity;
        // Deflection of a cantilever of unit section area: by bending, and by shear with 5/6 and Poisson's
        // ratio 1/4.
        let exact = |x: f64| {
            let bending = load * (x.powi(4) - 4.0 * l * x.powi(3) + 6.0 * l * l * x * x)
                / (2.0 * YOUNG_MODULUS * h * h);
            (bending, load * (l * x - 0.5 * x * x) * 3.0 / YOUNG_MODULUS)
        };
        let second = |f: &dyn Fn(f64) -> f64| f(0.25 * l) - 2.0 * f(0.5 * l) + f(0.75 * l);
        let measured = second(&|x| -self.mean(&moved, x).z);
        Ok(second(&|x| exact(x).0) / (measured - second(&|x| exact(x).1)))
    }

    /// Stiffness in tension over E A.
    fn stretch(&self) -> Result<f64, CaseError> {
        let l = self.length();
        let gravity = STRAIN * YOUNG_MODULUS / (DENSITY * l);
        let moved = self.rest(DVec3::X * gravity)?;
        let exact = |x: f64| DENSITY * gravity * (l * x - 0.5 * x * x) / YOUNG_MODULUS;
        let between = |f: &dyn Fn(f64) -> f64| f(0.75 * l) - f(0.25 * l);
        Ok(between(&exact) / between(&|x| self.mean(&moved, x).x))
    }

    /// Displacement [m] of the section at x [m], between the two nearest layers of particles.
    fn mean(&self, moved: &[(DVec3, DVec3)], x: f64) -> DVec3 {
        let layer = |at: f64| {
            let of = || moved.iter().filter(|(rest, _)| (rest.x - at).abs() < 0.25 * SPACING);
            of().map(|(_, u)| *u).sum::<DVec3>() / of().count() as f64
        };
        let below =
            moved.iter().map(|(rest, _)| rest.x).filter(|at| *at <= x + 1e-9).fold(f64::MIN, f64::max);
        let part = (x - below) / SPACING;
        if part < 1e-6 { layer(below) } else { layer(below) * (1.0 - part) + layer(below + SPACING) * part }
    }

    /// Places before, and displacements [m], at rest under a gravity [m/s^2].
    fn rest(&self, gravity: DVec3) -> Result<Vec<(DVec3, DVec3)>, CaseError> {
        let (h, l) = (self.thickness(), self.length());
        let width = if self.square { h } else { SPACING };
        let low = format!("[{:?}, {:?}, {:?}]", -4.0 * SPACING, -0.5 * width, -0.5 * h);
        let high = format!("[{l:?}, {:?}, {:?}]", 0.5 * width, 0.5 * h);
        let held = format!("min = [-1.0, -1.0, -1.0], max = [{:?}, 1.0, 1.0]", 0.1 * SPACING);
        let held = if self.keys.contains("volume") {
            format!("pinned = {{ type = \"box\", {held} }}")
        } else {
            format!("held = [{{ {held} }}]")
        };
        let set = [
            format!("domain.gravity=[{:?}, {:?}, {:?}]", gravity.x, gravity.y, gravity.z),
            format!(
                "participants[0].settings.bodies=[{{ {}, {held}, spacing = {SPACING:?}, density = {DENSITY:?}, \
                 young_modulus = {YOUNG_MODULUS:?}, shape = {{ type = \"box\", min = {low}, max = {high} }} }}]",
                self.keys
            ),
        ];
        let mut experiment = Experiment::start(CASE.name, SCENE, &set)?;
        let before = experiment.frames()?.swap_remove(0).positions;
        let after = experiment.end()?.swap_remove(0).positions;
        Ok(before.into_iter().zip(after).map(|(x, y)| (x, y - x)).collect())
    }
}
