//! Synchronising: from the participants' answers to one velocity for each meta-particle
//! (`docs/theory/coupling.md`, "Synchronising, for any number of participants").

pub mod quasi_newton;

use amalgam_particles::{DMat3, DVec3};
use amalgam_proto::contract::{Integrated, Integration};

use crate::error::CoordinatorError;
use crate::merging::merge::Forest;
use crate::settings::{CouplingSettings, Inertia, Synchronise};
use quasi_newton::{QuasiNewton, norm};

/// The slope of a projection, which reports none, over the mass of its own members: the added mass of a fluid
/// that cannot give way. The answer does not depend on it; from 3 to 12 it takes about as many repetitions
/// (docs/design/decisions.md).
pub(crate) const ADDED_MASS: f64 = 6.0;

/// The part of its first residual that whoever iterates may leave in an answer to be repeated: forcing term
/// of an inexact Newton method [EisenstatWalker1996]. From 0.003 to 0.01 solves take half of the iterations;
/// with 0.1 there are more repetitions (docs/design/decisions.md).
const FORCING: f64 = 0.01;

/// Repetitions whose answers grow beyond this many times the first, and beyond the groups' momentum, diverge:
/// the step is too long for them.
const DIVERGED: f64 = 1e4;

/// Participants that disagree by more than this part of all their impulses have not come nearer to each other
/// by repeating.
const DISAGREEMENT_MAX: f64 = 1.0;

/// The part of a stage's groups that one participant has particles in.
#[derive(Clone, Debug, Default)]
pub struct Share {
    /// The groups, ascending.
    pub groups: Vec<u32>,
    /// Mass of the participant's own members of each [kg], infinite if one is immovable.
    pub mass: Vec<f64>,
    /// Impulse this participant gave its members in the last step [kg m/s], a first guess for others; zero if
    /// unknown.
    pub guess: Vec<DVec3>,
}

/// Turn of a participant to integrate, with a value for each group of its [`Share`].
#[derive(Clone, Debug)]
pub struct Turn {
    /// Index of the participant.
    pub participant: usize,
    /// Inertia of each group [kg].
    pub inertia: Vec<f64>,
    /// External impulse of each group [kg m/s].
    pub impulse: Vec<DVec3>,
    /// Part of its first residual that an iteration may leave; above 0 only where the participant is asked
    /// again.
    pub forcing: f64,
}

/// Interface that makes participants integrate: connections, or a test.
pub trait Ask {
    /// Lets the participants of `turns` integrate, all at once, and returns their answers in the same order.
    ///
    /// # Errors
    /// The first participant's, in order, that fails.
    fn ask(&mut self, turns: Vec<Turn>) -> Result<Vec<Integrated>, CoordinatorError>;
}

/// The result for all groups of a stage.
#[derive(Clone, Debug, Default)]
pub struct Synchronised {
    /// Velocity v' of each group [m/s].
    pub velocity: Vec<DVec3>,
    /// Angular velocity of each group [rad/s], of a step in which groups are bodies; else empty.
    pub spin: Vec<DVec3>,
    /// Energy dEk that synchronising took from each group [J] (Eq. 19 [Truong2021]).
    pub energy: Vec<f64>,
    /// Momentum each participant gave each group of its share [kg m/s].
    pub momentum: Vec<Vec<DVec3>>,
    /// Times that implicit participants were asked again.
    pub repetitions: u32,
    /// Remaining disagreement of implicit participants that share groups, relative to their impulses.
    pub disagreement: f64,
    /// Largest relative error of momentum over groups: v' against v12 and what the participants gave.
    pub momentum_error: f64,
}

/// Participants and groups of a stage.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'a> {
    /// Integration of each participant.
    pub kinds: &'a [Integration],
    /// Number of particles of each.
    pub sizes: &'a [u64],
    /// The groups.
    pub forest: &'a Forest,
    /// Each participant's part of them.
    pub shares: &'a [Share],
    /// Gravity times the length of the step [m/s].
    pub gravity_dt: DVec3,
}

impl Stage<'_> {
    /// Lets every participant integrate and agrees on a velocity for each group.
    ///
    /// # Errors
    /// Whatever a participant answers.
    pub fn synchronise(
        &self,
        settings: &CouplingSettings,
        ask: &mut impl Ask,
    ) -> Result<Synchronised, CoordinatorError> {
        let mut result = match settings.synchronise {
            Synchronise::Average => self.average(settings.inertia, ask)?,
            Synchronise::Impulse => self.impulse(settings, ask)?,
        };
        result.momentum_error = self.momentum_error(&result, settings);
        Ok(result)
    }

    /// Eq. 17-20 [Truong2021] for any number of participants.
    fn average(&self, inertia: Inertia, ask: &mut impl Ask) -> Result<Synchronised, CoordinatorError> {
        let turns: Vec<Turn> = (0..self.shares.len())
            .map(|participant| {
                let share = &self.shares[participant];
                let inertia_and_impulse = share.groups.iter().zip(&share.mass).map(|(&group, &own)| {
                    let all = self.forest.mass()[group as usize];
                    match inertia {
                        _ if all.is_infinite() => (all, DVec3::ZERO),
                        Inertia::Share => (own, DVec3::ZERO),
                        // Participants know the weight of their own members only; this is the rest.
                        Inertia::Total => (all, self.gravity_dt * (all - own)),
                    }
                });
                let (inertia, impulse) = inertia_and_impulse.unzip();
                Turn { participant, inertia, impulse, forcing: 0.0 }
            })
            .collect();
        let answers = ask.ask(turns.clone())?;

        let (mass, v12) = (self.forest.mass(), self.forest.velocity());
        let mut velocity: Vec<DVec3> = v12.to_vec();
        let mut energy = vec![0.0; self.forest.len()];
        let change = |turn: &Turn, answer: &Integrated, local: usize| {
            (answer.momentum[local] + turn.impulse[local]) / turn.inertia[local]
        };
        for (turn, answer) in turns.iter().zip(&answers) {
            let share = &self.shares[turn.participant];
            for (local, &group) in share.groups.iter().enumerate() {
                let group = group as usize;
                if mass[group].is_finite() {
                    velocity[group] += change(turn, answer, local) * (share.mass[local] / mass[group]);
                }
            }
        }
        for (turn, answer) in turns.iter().zip(&answers) {
            let share = &self.shares[turn.participant];
            for (local, &group) in share.groups.iter().enumerate() {
                let group = group as usize;
                if mass[group].is_finite() {
                    // 1/2 sum m_k |v^k|^2 - 1/2 m |v'|^2, in the form that cannot cancel.
                    let own = v12[group] + change(turn, answer, local);
                    energy[group] += 0.5 * share.mass[local] * (own - velocity[group]).length_squared();
                }
            }
        }
        let momentum = answers.into_iter().map(|answer| answer.momentum).collect();
        Ok(Synchronised { velocity, energy, momentum, ..Synchronised::default() })
    }

    /// Every participant integrates the whole inertia and knows what the others give.
    fn impulse(
        &self,
        settings: &CouplingSettings,
        ask: &mut impl Ask,
    ) -> Result<Synchronised, CoordinatorError> {
        let groups = self.forest.len();
        let mut state = Exchange {
            given: self.forest.impulse().to_vec(),
            linear: self.shares.iter().map(|share| vec![DVec3::ZERO; share.groups.len()]).collect(),
            slope: self.shares.iter().map(|share| vec![0.0; share.groups.len()]).collect(),
            momentum: self.shares.iter().map(|share| vec![DVec3::ZERO; share.groups.len()]).collect(),
        };
        let members = |wanted: fn(Integration) -> bool| -> Vec<usize> {
            (0..self.kinds.len()).filter(|&k| wanted(self.kinds[k])).collect()
        };
        let explicit = members(|kind| kind == Integration::Explicit);
        let implicit = members(|kind| kind != Integration::Explicit);
        // Who is asked together with the first of the implicit ones.
        let mut along = Vec::new();
        if self.share_groups(&explicit, &implicit) {
            self.turn(&explicit, |_| 0.0, &mut state, ask)?;
            self.give(&explicit, &mut state);
        } else {
            along.clone_from(&explicit);
        }
        let shared = self.shared(&implicit);
        let (repetitions, disagreement) = if shared.is_empty() {
            self.turn(&both(&along, &implicit), |_| 0.0, &mut state, ask)?;
            (0, 0.0)
        } else {
            self.repeat(&implicit, &along, &shared, &mut state, settings, ask)?
        };
        self.give(&along, &mut state);

        // M dv = sum of J_k(dv), each linearised: J_k = (J_k + Z_k dv_k) - Z_k dv. Exact with one implicit
        // participant, and free of the cancellation between stiff impulses with several.
        let (mass, v12) = (self.forest.mass(), self.forest.velocity());
        let (mut load, mut inertia) = (state.given.clone(), mass.to_vec());
        for &k in &implicit {
            for (local, &group) in self.shares[k].groups.iter().enumerate() {
                load[group as usize] += state.linear[k][local];
                inertia[group as usize] += state.slope[k][local];
            }
        }
        let change: Vec<DVec3> = load
            .iter()
            .zip(&inertia)
            .map(|(&load, &m)| if m.is_finite() { load / m } else { DVec3::ZERO })
            .collect();
        for &k in &implicit {
            for (local, &group) in self.shares[k].groups.iter().enumerate() {
                state.momentum[k][local] =
                    state.linear[k][local] - change[group as usize] * state.slope[k][local];
            }
        }
        Ok(Synchronised {
            spin: Vec::new(),
            velocity: v12.iter().zip(&change).map(|(&v, &dv)| v + dv).collect(),
            energy: vec![0.0; groups],
            momentum: state.momentum,
            repetitions,
            disagreement,
            momentum_error: 0.0,
        })
    }

    /// True if any group has members of participants of both lists.
    fn share_groups(&self, some: &[usize], others: &[usize]) -> bool {
        let mut taken = vec![false; self.forest.len()];
        let groups_of = |list: &'_ [usize]| -> Vec<usize> {
            list.iter().flat_map(|&k| self.shares[k].groups.iter().map(|&group| group as usize)).collect()
        };
        groups_of(some).into_iter().for_each(|group| taken[group] = true);
        groups_of(others).into_iter().any(|group| taken[group])
    }

    /// Adds what explicit participants answered to what is given.
    fn give(&self, explicit: &[usize], state: &mut Exchange) {
        for &k in explicit {
            for (&group, &momentum) in self.shares[k].groups.iter().zip(&state.momentum[k]) {
                state.given[group as usize] += momentum;
            }
        }
    }

    /// Places (participant, local group) of implicit participants in groups that another implicit one shares.
    fn shared(&self, implicit: &[usize]) -> Vec<(usize, usize)> {
        let mut count = vec![0u8; self.forest.len()];
        for &k in implicit {
            for &group in &self.shares[k].groups {
                count[group as usize] = count[group as usize].saturating_add(1);
            }
        }
        let places =
            implicit.iter().flat_map(|&k| (0..self.shares[k].groups.len()).map(move |local| (k, local)));
        places
            .filter(|&(k, local)| {
                let group = self.shares[k].groups[local] as usize;
                count[group] > 1 && self.forest.mass()[group].is_finite()
            })
            .collect()
    }

    /// Participants that follow from the others' answers and are no unknowns of the iteration: as many as
    /// share no group with one another. Projections before others, then the largest, since who follows is
    /// asked once less, and of equals the last.
    fn followers(&self, implicit: &[usize], shared: &[(usize, usize)]) -> Vec<usize> {
        let mut order = implicit.to_vec();
        order.sort_by_key(|&k| {
            (self.kinds[k] != Integration::Projection, std::cmp::Reverse((self.sizes[k], k)))
        });
        let mut taken = vec![false; self.forest.len()];
        let is_follower = |&k: &usize| {
            let own = shared.iter().filter(|place| place.0 == k);
            let groups: Vec<u32> = own.map(|&(_, local)| self.shares[k].groups[local]).collect();
            let follows = !groups.is_empty() && groups.iter().all(|&group| !taken[group as usize]);
            if follows {
                groups.iter().for_each(|&group| taken[group as usize] = true);
            }
            follows
        };
        let mut followers: Vec<usize> = order.into_iter().filter(is_follower).collect();
        followers.sort_unstable();
        followers
    }

    /// Implicit participants that share groups answer again and again, each against the others' linearised
    /// answers (a Robin condition), until these agree. The unknowns are J + Z dv at the shared places: for
    /// solids that are diagonal in the groups they do not depend on what the others do, and one repetition is
    /// exact. Only answers that may be the last are solved for to the participants' own tolerances. The
    /// participants `along` are explicit ones that share no group with these, and answer with the first.
    fn repeat(
        &self,
        implicit: &[usize],
        along: &[usize],
        shared: &[(usize, usize)],
        state: &mut Exchange,
        settings: &CouplingSettings,
        ask: &mut impl Ask,
    ) -> Result<(u32, f64), CoordinatorError> {
        let followers = self.followers(implicit, shared);
        let mut leaders: Vec<usize> = implicit.iter().copied().filter(|k| !followers.contains(k)).collect();
        let mut places = shared.to_vec();
        places.retain(|(k, _)| leaders.contains(k));
        let read = |state: &Exchange| -> Vec<f64> {
            places.iter().flat_map(|&(k, local)| state.linear[k][local].to_array()).collect()
        };
        for &(k, local) in shared.iter().filter(|place| self.kinds[place.0] == Integration::Projection) {
            state.slope[k][local] = ADDED_MASS * self.shares[k].mass[local];
        }
        for &k in &followers {
            state.linear[k].copy_from_slice(&self.shares[k].guess);
        }
        // Who shares nothing answers for good.
        let unknown = |leader| places.iter().any(|&(k, _)| k == leader);
        let (mut forcing, mut before) = (FORCING, 1.0);
        self.turn(&both(along, &leaders), |k| if unknown(k) { forcing } else { 0.0 }, state, ask)?;
        leaders.retain(|&leader| unknown(leader));
        let mut point = read(state);
        // Of leaders alone there may be nothing but rounding: a free ball on a bar.
        let whole = |state: &Exchange| -> f64 {
            let squares = shared.iter().map(|&(k, local)| state.linear[k][local].length_squared());
            squares.sum::<f64>().sqrt()
        };
        let momenta = shared.iter().map(|&(k, local)| {
            let group = self.shares[k].groups[local] as usize;
            (self.forest.velocity()[group] * self.forest.mass()[group]).length_squared()
        });
        let (momentum, mut first) = (momenta.sum::<f64>().sqrt(), 0.0);
        let mut newton = QuasiNewton::default();
        let mut repetition = 0;
        loop {
            repetition += 1;
            if repetition >= settings.repetitions_max {
                forcing = 0.0;
            }
            self.turn(&followers, |_| forcing, state, ask)?;
            self.turn(&leaders, |_| forcing, state, ask)?;
            let answer = read(state);
            let residual: Vec<f64> = answer.iter().zip(&point).map(|(a, p)| a - p).collect();
            let scale = norm(&answer);
            let disagreement = if scale > 0.0 { norm(&residual) / scale } else { 0.0 };
            let agreed = disagreement <= settings.coupling_tolerance;
            if agreed && forcing == 0.0 || repetition >= settings.repetitions_max {
                let diverged = norm(&residual) > DISAGREEMENT_MAX * whole(state);
                return Ok((repetition, if diverged { f64::INFINITY } else { disagreement }));
            }
            if repetition == 1 {
                first = whole(state);
            }
            // What comes next is the last repetition if it is as good as the one before: its answers must be
            // whole.
            let expected = disagreement * disagreement / before;
            forcing = if expected <= settings.coupling_tolerance { 0.0 } else { FORCING };
            before = disagreement;
            point = newton.next(&point, &answer);
            let grown = norm(&point).max(scale);
            if grown > (DIVERGED * first).max(momentum) && first > 0.0 || grown.is_nan() {
                return Ok((repetition, f64::INFINITY));
            }
            for (&(k, local), value) in places.iter().zip(point.chunks_exact(3)) {
                state.linear[k][local] = DVec3::from_slice(value);
            }
        }
    }

    /// Lets `who` integrate, all at once, each against what all others last answered.
    fn turn(
        &self,
        who: &[usize],
        forcing: impl Fn(usize) -> f64,
        state: &mut Exchange,
        ask: &mut impl Ask,
    ) -> Result<(), CoordinatorError> {
        let groups = self.forest.len();
        let turns: Vec<Turn> = who
            .iter()
            .map(|&participant| {
                // What all others give: explicit impulses, and linear answers J + Z dv with their slopes.
                let (mut load, mut inertia) = (vec![DVec3::ZERO; groups], vec![0.0; groups]);
                for (k, share) in self.shares.iter().enumerate() {
                    if k == participant || self.kinds[k] == Integration::Explicit {
                        continue;
                    }
                    for (local, &group) in share.groups.iter().enumerate() {
                        load[group as usize] += state.linear[k][local];
                        inertia[group as usize] += state.slope[k][local];
                    }
                }
                let own = self.shares[participant].groups.iter().map(|&group| group as usize);
                Turn {
                    participant,
                    inertia: own.clone().map(|group| self.forest.mass()[group] + inertia[group]).collect(),
                    impulse: own.map(|group| state.given[group] + load[group]).collect(),
                    forcing: forcing(participant),
                }
            })
            .collect();
        let answers = ask.ask(turns.clone())?;
        for (turn, answer) in turns.iter().zip(answers) {
            let k = turn.participant;
            for local in 0..turn.inertia.len() {
                let inertia = turn.inertia[local];
                let momentum = answer.momentum[local];
                let change = if inertia.is_finite() {
                    (momentum + turn.impulse[local]) / inertia
                } else {
                    DVec3::ZERO
                };
                if self.kinds[k] == Integration::Implicit {
                    state.slope[k][local] = mean(&answer.slope_of(local));
                }
                state.linear[k][local] = momentum + change * state.slope[k][local];
            }
            state.momentum[k] = answer.momentum;
        }
        Ok(())
    }

    /// Largest |M (v' - v12) - what was given| over groups, relative to what the group carries and was given.
    fn momentum_error(&self, result: &Synchronised, settings: &CouplingSettings) -> f64 {
        let groups = self.forest.len();
        let mut given = self.forest.impulse().to_vec();
        let mut scale: Vec<f64> = given.iter().map(|impulse| impulse.length()).collect();
        for (share, momentum) in self.shares.iter().zip(&result.momentum) {
            for (local, &group) in share.groups.iter().enumerate() {
                let group = group as usize;
                let (own, all) = (share.mass[local], self.forest.mass()[group]);
                let counted = match (settings.synchronise, settings.inertia) {
                    _ if all.is_infinite() => DVec3::ZERO,
                    (Synchronise::Average, Inertia::Total) => {
                        (momentum[local] + self.gravity_dt * (all - own)) * (own / all)
                    }
                    _ => momentum[local],
                };
                given[group] += counted;
                scale[group] += counted.length();
            }
        }
        (0..groups)
            .filter(|&group| self.forest.mass()[group].is_finite())
            .map(|group| {
                let mass = self.forest.mass()[group];
                let before = self.forest.velocity()[group] * mass;
                let error = (result.velocity[group] * mass - before - given[group]).length();
                let scale = before.length() + scale[group];
                if scale > 0.0 { error / scale } else { 0.0 }
            })
            .fold(0.0, f64::max)
    }
}

/// Two lists of participants as one, ascending.
fn both(some: &[usize], others: &[usize]) -> Vec<usize> {
    let mut all = [some, others].concat();
    all.sort_unstable();
    all
}

/// A third of the trace: the mean over all directions.
fn mean(slope: &DMat3) -> f64 {
    (slope.x_axis.x + slope.y_axis.y + slope.z_axis.z) / 3.0
}

/// Answers of the participants so far in a stage.
struct Exchange {
    /// External impulse, and that of all explicit participants, on each group [kg m/s].
    given: Vec<DVec3>,
    /// J + Z dv of each implicit participant, a value for each group of its share [kg m/s].
    linear: Vec<Vec<DVec3>>,
    /// Z of each participant [kg].
    slope: Vec<Vec<f64>>,
    /// J of each participant [kg m/s].
    momentum: Vec<Vec<DVec3>>,
}
