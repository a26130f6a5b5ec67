//! A hanging strip: the catenary.

use glam::DVec3;

use crate::command::validate::case::{Case, CaseError, CaseOutcome, Check, Reference};
use crate::command::validate::experiment::Experiment;
use crate::command::validate::sketch::Sketch;

const SCENE: &str = include_str!("../../../../../validation/catenary/scene.toml");
const DATA: &str = include_str!("../../../../../validation/catenary/catenary.csv");

pub(in crate::command::validate) const CASE: Case = Case {
    name: "catenary",
    about: "sag of a hanging strip of cloth at six lengths: the inextensible catenary",
    quick: true,
    compute,
};

fn compute() -> Result<CaseOutcome, CaseError> {
    let data = Reference::parse(DATA);
    let mut checks = Vec::new();
    let mut sketch = Sketch::default();
    for length in [1.05, 1.1, 1.25, 1.5, 2.0, 3.0] {
        let body = "participants.strip.settings.bodies[0]";
        let set = [
            format!("{body}.edge_u=[{length:?}, 0.0, 0.0]"),
            // In two seconds, to a distance of one metre.
            format!("{body}.scripted[0].velocity=[{:?}, 0.0, 0.0]", (1.0 - length) / 2.0),
        ];
        let frames = Experiment::start(CASE.name, SCENE, &set)?.run(|_, _| Ok(()))?;
        let positions = &frames[0].positions;
        let sag = -positions.iter().fold(0.0, |lowest: f64, x| lowest.min(x.z));
        let expected = data.look_up("S_over_W", length, "sag_over_W");
        checks.push(Check::relative(format!("sag / span, length {length} spans"), expected, sag, 0.01));
        let a = data.look_up("S_over_W", length, "a_over_W");
        let curve = |x: f64| DVec3::new(x, 0.0, a * (((x - 0.5) / a).cosh() - (0.5 / a).cosh()));
        sketch = sketch.measured(positions.iter().step_by(2).copied());
        sketch = sketch.reference((0..=200).map(|i| curve(f64::from(i) / 200.0)));
    }
    Ok(CaseOutcome { checks, picture: sketch })
}
