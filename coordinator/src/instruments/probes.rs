//! Probes: quantities sampled after every step. Probes of contacts use the positions at the start of the
//! step, where contacts are sought.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use amalgam_particles::{DVec3, ParticleId};
use amalgam_proto::contract::{Table, Totals};
use serde::{Deserialize, Serialize};

use super::View;
use super::crossings::{Crossings, CrossingsState};
use super::summary::Extremes;
use crate::contacts::{Candidates, Contacts};
use crate::error::CoordinatorError;
use crate::settings::{ProbeSettings, Quantity};

/// Sample of a probe in a step.
#[derive(Clone, Debug, Default)]
pub struct ProbeSample {
    /// Name of the probe.
    pub name: String,
    /// Names of the values, with units.
    pub columns: Vec<String>,
    /// Values.
    pub values: Vec<f64>,
}

/// A probe and its extremes so far.
pub(crate) struct Probe {
    name: String,
    columns: Vec<String>,
    extremes: Vec<Extremes>,
    what: What,
}

/// A quantity with names resolved. `None` stands for all participants.
enum What {
    Momentum(Option<usize>),
    AngularMomentum(Option<usize>),
    Energy,
    Speed(Option<usize>),
    Displacement { participant: usize, id: ParticleId, from: DVec3 },
    Crossings(Box<Crossings>),
    Overlap,
    Phantom,
    Unresolved,
}

/// State of a probe, for a checkpoint.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProbeState {
    extremes: Vec<Extremes>,
    crossings: Option<CrossingsState>,
}

/// The points [m] for which a scene's probes want the nearest particle of a participant.
pub(crate) fn nearest_to(probes: &[ProbeSettings], participant: &str) -> Vec<DVec3> {
    let point = |probe: &ProbeSettings| match &probe.quantity {
        Quantity::Displacement { participant: of, point } if of == participant => Some(*point),
        _ => None,
    };
    probes.iter().filter_map(point).collect()
}

/// The particle nearest to a point [m], of several the one with the lowest id, and its position [m]. A brief
/// participant was told of the points `told`.
fn nearest(table: &Table, told: &[DVec3], point: DVec3) -> Option<(ParticleId, DVec3)> {
    let particles = &table.particles;
    if let Some(brief) = &table.brief {
        let at = told.iter().position(|&other| other == point)?;
        return brief.nearest.get(at).copied();
    }
    let distance = |&i: &usize| (particles.position[i].distance(point), particles.id[i]);
    let order = |a: &usize, b: &usize| distance(a).partial_cmp(&distance(b)).unwrap_or(Ordering::Equal);
    (0..particles.len()).min_by(order).map(|i| (particles.id[i], particles.position[i]))
}

impl Probe {
    /// State that outlives a step.
    pub(super) fn state(&self) -> ProbeState {
        let crossings =
            if let What::Crossings(crossings) = &self.what { Some(crossings.state()) } else { None };
        ProbeState { extremes: self.extremes.clone(), crossings }
    }

    /// Goes on from a checkpoint.
    ///
    /// # Errors
    /// A checkpoint of another probe.
    pub(super) fn go_on(&mut self, ProbeState { extremes, crossings }: ProbeState) -> Result<(), String> {
        let fits = [0, self.columns.len()].contains(&extremes.len());
        self.extremes = extremes;
        let taken = match (&mut self.what, crossings) {
            (What::Crossings(own), Some(state)) => own.go_on(state),
            (What::Crossings(_), None) | (_, Some(_)) => false,
            (_, None) => true,
        };
        if fits && taken { Ok(()) } else { Err(format!("probe {} is another one", self.name)) }
    }

    /// The last sample, if there was a step.
    pub(super) fn last(&self) -> Option<ProbeSample> {
        let values: Vec<f64> = self.extremes.iter().map(|extremes| extremes.last).collect();
        let sample = || ProbeSample { name: self.name.clone(), columns: self.columns.clone(), values };
        (!self.extremes.is_empty()).then(sample)
    }

    /// Resolves the names of a probe. Adds the particles whose positions it needs to `tracked`.
    pub(crate) fn new(
        (settings, all): (&ProbeSettings, &[ProbeSettings]),
        names: &[String],
        tables: &[Table],
        tracked: &mut [Vec<ParticleId>],
    ) -> Result<Self, CoordinatorError> {
        let fault = |reason: String| CoordinatorError::Probe { probe: settings.name.clone(), reason };
        let find = |name: &str| {
            let unknown =
                || fault(format!("there is no participant {name:?}; there are {}", names.join(", ")));
            names.iter().position(|known| known == name).ok_or_else(unknown)
        };
        let find_or_all = |name: &Option<String>| name.as_deref().map(find).transpose();
        let xyz = |quantity: &str, unit: &str| {
            ["x", "y", "z"].map(|axis| format!("{quantity}_{axis} [{unit}]")).to_vec()
        };
        let one = |column: &str| vec![column.to_string()];
        let (what, columns) = match &settings.quantity {
            Quantity::Momentum { participant } => {
                (What::Momentum(find_or_all(participant)?), xyz("momentum", "kg m/s"))
            }
            Quantity::AngularMomentum { participant } => {
                (What::AngularMomentum(find_or_all(participant)?), xyz("angular_momentum", "kg m^2/s"))
            }
            Quantity::Energy {} => (
                What::Energy,
                ["kinetic [J]", "gravity [J]", "stored [J]", "dissipated_in_coupling [J]", "total [J]"]
                    .map(String::from)
                    .to_vec(),
            ),
            Quantity::Speed { participant } => {
                (What::Speed(find_or_all(participant)?), one("speed_max [m/s]"))
            }
            Quantity::Displacement { participant, point } => {
                let k = find(participant)?;
                let nearest = nearest(&tables[k], &nearest_to(all, participant), *point);
                let (id, from) =
                    nearest.ok_or_else(|| fault(format!("participant {participant:?} has no particles")))?;
                tracked[k].push(id);
                // One particle may be wanted by several probes, but is tracked once.
                tracked[k].sort_unstable();
                tracked[k].dedup();
                let what = What::Displacement { participant: k, id, from };
                (what, xyz("displacement", "m"))
            }
            Quantity::Crossings { sheet, of } => {
                let (sheet_at, of_at) = (find(sheet)?, find(of)?);
                if tables[sheet_at].triangles.is_empty() {
                    return Err(fault(format!("participant {sheet:?} is no sheet: it has no triangles")));
                }
                let crossings = Crossings::new(sheet_at, of_at, &tables[sheet_at]);
                (What::Crossings(Box::new(crossings)), one("crossed [particles]"))
            }
            Quantity::Overlap {} => {
                (What::Overlap, vec!["depth_max [m]".into(), "depth_max [smaller radius]".into()])
            }
            Quantity::Phantom {} => {
                (What::Phantom, vec!["phantom [J]".into(), "phantom [kinetic energy]".into()])
            }
            Quantity::Unresolved {} => {
                (What::Unresolved, vec!["unresolved [pairs]".into(), "ignored [pairs]".into()])
            }
        };
        Ok(Self { name: settings.name.clone(), columns, extremes: Vec::new(), what })
    }

    /// Reads the probe after a step. `dissipated` is the energy that coupling has dissipated so far [J].
    pub(super) fn sample(&mut self, view: &View<'_>, dissipated: f64, sample: &mut ProbeSample) {
        let values = self.read(view, dissipated);
        if self.extremes.is_empty() {
            self.extremes = values.iter().map(|&v| Extremes { last: v, min: v, max: v }).collect();
            (sample.name, sample.columns) = (self.name.clone(), self.columns.clone());
        }
        for (extremes, &value) in self.extremes.iter_mut().zip(&values) {
            let Extremes { min, max, .. } = *extremes;
            *extremes = Extremes { last: value, min: min.min(value), max: max.max(value) };
        }
        sample.values = values;
    }

    fn read(&mut self, view: &View<'_>, dissipated: f64) -> Vec<f64> {
        let answers = || view.participants.iter().map(|participant| &participant.part.committed);
        let of = |who: Option<usize>| {
            let answers = answers().enumerate();
            answers.filter(move |(k, _)| who.is_none_or(|who| who == *k)).map(|(_, answer)| &answer.totals)
        };
        let sum = |who: Option<usize>, term: fn(&Totals) -> DVec3| of(who).map(term).sum::<DVec3>();
        match &mut self.what {
            What::Momentum(who) => sum(*who, |totals| totals.momentum).to_array().to_vec(),
            What::AngularMomentum(who) => sum(*who, |totals| totals.angular_momentum).to_array().to_vec(),
            What::Energy => {
                let kinetic: f64 = of(None).map(|totals| totals.kinetic_energy).sum();
                let gravity = -view.gravity.dot(sum(None, |totals| totals.mass_moment));
                let stored: f64 = answers().flat_map(|answer| &answer.potential_energies).map(|e| e.1).sum();
                vec![kinetic, gravity, stored, dissipated, kinetic + gravity + stored]
            }
            What::Speed(who) => vec![of(*who).map(|totals| totals.speed_max).fold(0.0, f64::max)],
            What::Displacement { participant, id, from } => {
                let part = &view.participants[*participant].part;
                let at = part.tracked.binary_search(id);
                let now = at.ok().and_then(|at| part.committed.track_position.get(at));
                now.map_or(vec![f64::NAN; 3], |&now| (now - *from).to_array().to_vec())
            }
            What::Crossings(crossings) => {
                vec![crossings.update(view.candidates, view.contacts) as f64]
            }
            What::Overlap => overlap(view.candidates, view.contacts, view.beside).to_vec(),
            What::Phantom => {
                let kinetic: f64 = of(None).map(|totals| totals.kinetic_energy).sum();
                let phantom = view.record.phantom;
                vec![phantom, if kinetic > 0.0 { phantom / kinetic } else { 0.0 }]
            }
            What::Unresolved => vec![view.record.unresolved as f64, view.record.ignored as f64],
        }
    }

    /// The participant whose triangles the probe needs.
    pub(crate) fn sheet(&self) -> Option<usize> {
        if let What::Crossings(crossings) = &self.what { Some(crossings.sheet()) } else { None }
    }

    /// Last and extreme values by column.
    pub(crate) fn summary(&self) -> (String, BTreeMap<String, Extremes>) {
        let columns = self.columns.iter().cloned().zip(self.extremes.iter().copied());
        (self.name.clone(), columns.collect())
    }
}

/// The deepest overlap of two particles in contact, or of a particle with an obstacle [m], and the deepest
/// overlap relative to the smaller radius.
pub(super) fn overlap(candidates: &Candidates, contacts: &Contacts, beside: &[(u32, f64)]) -> [f64; 2] {
    let beside = beside.iter().map(|&(i, gap)| (-gap, -gap / candidates.radius[i as usize]));
    let contacts = contacts.active.iter().chain(&contacts.marked);
    let depths = contacts.map(|&(i, j)| {
        let (i, j) = (i as usize, j as usize);
        let (a, b) = (candidates.radius[i], candidates.radius[j]);
        let depth = a + b - candidates.position[i].distance(candidates.position[j]);
        (depth, depth / a.min(b))
    });
    let (depth, relative) =
        depths.chain(beside).fold((0.0, 0.0), |m: (f64, f64), d| (m.0.max(d.0), m.1.max(d.1)));
    [depth, relative]
}
