//! Warnings about fluids that are too soft for the weight on them at the start.

use std::collections::HashMap;

use amalgam_coordinator::{ParticipantFrame, Plan};
use amalgam_particles::DVec3;
use amalgam_solver_fluid::section::{Method, method};
use amalgam_solver_fluid::sph;
use amalgam_solver_fluid::sph::guard::{TOLD, sound_speed_under};
use amalgam_solver_fluid::sph::pressure::equation_of_state::EquationOfState;
use amalgam_solver_kit::World;

/// Width of the columns [spacings of the fluid] in which other participants are looked for above it.
const COLUMN: f64 = 2.0;

/// A weakly compressible fluid of the scene.
pub(super) struct SoftFluid {
    /// Its place among the participants.
    place: usize,
    state: EquationOfState,
    spacing: f64,
}

/// The weakly compressible fluids among participants, each with its solver's name and section.
pub(super) fn fluids(plan: &Plan, participants: &[(&str, &str)]) -> Vec<SoftFluid> {
    let read = |(place, &(solver, section)): (usize, &(&str, &str))| {
        if solver != "fluid" || !matches!(method(section), Ok(Method::Sph)) {
            return None;
        }
        let world = World {
            participant: String::new(),
            domain: (plan.domain.min, plan.domain.max),
            gravity: plan.domain.gravity,
            seed: plan.seed,
            obstacles: Vec::new(),
            ranks: amalgam_solver_kit::Ranks::alone(),
        };
        // The fluid's solver has given its warnings already.
        let quiet = tracing::subscriber::NoSubscriber::default();
        let (parameters, _) =
            tracing::subscriber::with_default(quiet, || sph::section::read(section, &world)).ok()?;
        Some(SoftFluid { place, state: parameters.state, spacing: parameters.spacing })
    };
    participants.iter().enumerate().filter_map(read).collect()
}

/// Fluids that the weight of other participants would compress by more than they are made for. `masses` [kg]
/// are those of the frames' particles.
pub(super) fn loads(
    plan: &Plan,
    fluids: &[SoftFluid],
    frames: &[ParticipantFrame],
    masses: &[Vec<f64>],
) -> Vec<String> {
    let gravity = plan.domain.gravity.length();
    let Some(up) = (-plan.domain.gravity).try_normalize() else { return Vec::new() };
    let mut found = Vec::new();
    for fluid in fluids {
        let columns = Columns::new(&frames[fluid.place].positions, up, COLUMN * fluid.spacing);
        for (other, (frame, masses)) in frames.iter().zip(masses).enumerate() {
            if other == fluid.place {
                continue;
            }
            let above =
                frame.positions.iter().zip(masses).filter(|(x, m)| m.is_finite() && columns.lie_under(**x));
            let pressure = above.map(|(_, m)| m).sum::<f64>() * gravity / columns.area();
            if pressure > fluid.state.pressure(TOLD) {
                let name = &frames[fluid.place].name;
                found.push(format!(
                    "{} begins above {name}. If {name} bears its weight, {pressure:.2e} Pa on the mean, {name} is too soft: it gives way \
                     by more than {:.0} % from {:.2e} Pa on; write sound_speed = {:.1} for {name}, put the heavier one below, or see that \
                     something else holds {}",
                    frame.name,
                    100.0 * (TOLD - 1.0),
                    fluid.state.pressure(TOLD),
                    sound_speed_under(pressure, fluid.state.rest_density),
                    frame.name,
                ));
            }
        }
    }
    found
}

/// The highest particle of a fluid in each upright column that it stands in.
struct Columns {
    axes: [DVec3; 3],
    width: f64,
    top: HashMap<[i64; 2], f64>,
}

impl Columns {
    fn new(positions: &[DVec3], up: DVec3, width: f64) -> Self {
        let (x, y) = up.any_orthonormal_pair();
        let mut this = Self { axes: [x, y, up], width, top: HashMap::new() };
        for &position in positions {
            let (column, height) = this.place(position);
            let top = this.top.entry(column).or_insert(f64::NEG_INFINITY);
            *top = top.max(height);
        }
        this
    }

    fn place(&self, position: DVec3) -> ([i64; 2], f64) {
        let [x, y, height] = self.axes.map(|axis| axis.dot(position));
        ([x, y].map(|along| (along / self.width).floor() as i64), height)
    }

    /// True if the fluid stands under a place.
    fn lie_under(&self, position: DVec3) -> bool {
        let (column, height) = self.place(position);
        self.top.get(&column).is_some_and(|&top| top < height)
    }

    /// Area that the fluid stands on [m^2].
    fn area(&self) -> f64 {
        self.top.len() as f64 * self.width * self.width
    }
}
