//! Synchronising: the participants' answers lead to one velocity for each meta-particle
//! (`docs/theory/coupling.md`, "Synchronising, for any number of participants").

pub mod quasi_newton;

use amalgam_particles::{DMat3, DVec3};
use amalgam_proto::contract::{Integrated, Integration};

use crate::error::CoordinatorError;
use crate::merging::merge::Forest;
use crate::settings::{CouplingSettings, Inertia, Synchronise};
use quasi_newton::{QuasiNewton, norm};

/// Slope of a projection over the mass of its members, since a projection reports no slope. It stands for the
/// added mass of the fluid. The result does not depend on it, and any value from 3 to 12 takes about as many
/// repetitions (docs/design/decisions.md).
pub(crate) const ADDED_MASS: f64 = 6.0;

/// Part of its first residual at which an iterative solver may stop, in an answer that will be repeated: the
/// forcing term of an inexact Newton method [EisenstatWalker1996]. With 0.003 to 0.01 the solves take half of
/// the iterations. With 0.1 there are more repetitions (docs/design/decisions.md).
pub(crate) const FORCING: f64 = 0.01;

/// Repetition has diverged once its impulses exceed the momentum of the groups and this many times the
/// impulses of the first repetition. The step is then too long.
const DIVERGED: f64 = 1e4;

/// Largest disagreement after the last repetition, relative to all impulses L = J + Z dv. Above it, repeating
/// has not brought the participants nearer to each other, and the step is halved.
const DISAGREEMENT_MAX: f64 = 1.0;

/// The forcing term of the next answers, from the disagreements d_n of the last repetition, `disagreement`,
/// and d_(n-1) of the one before.
///
/// If the disagreement falls by the same factor again, it becomes d_n^2 / d_(n-1). If this is within the
/// tolerance, the next repetition may be the last, and its answers must be exact. Otherwise other answers will
/// follow, and these need not be exact.
pub(crate) fn next_forcing(disagreement: f64, before: f64, tolerance: f64) -> f64 {
    let expected = disagreement * disagreement / before;
    if expected <= tolerance { 0.0 } else { FORCING }
}

/// Groups of a stage in which one participant has particles.
#[derive(Clone, Debug, Default)]
pub struct Share {
    /// Indices of the groups, ascending.
    pub groups: Vec<u32>,
    /// Mass of the participant's own members of each group [kg]; infinite if one of them is immovable.
    pub mass: Vec<f64>,
    /// First guess of an impulse on the participant's members of each group [kg m/s], from the last step: the
    /// impulse that the participant gave, or under the contact law the impulse of the contacts. Zero if
    /// unknown.
    pub guess: Vec<DVec3>,
}

/// Request to a participant to integrate in a stage, with a value for each group of its [`Share`].
#[derive(Clone, Debug)]
pub struct StageRequest {
    /// Index of the participant.
    pub participant: usize,
    /// Inertia M of each group [kg].
    pub inertia: Vec<f64>,
    /// External impulse J_ext on each group [kg m/s].
    pub impulse: Vec<DVec3>,
    /// Part of its first residual at which the participant's iteration may stop. It is above 0 only if the
    /// participant will be asked again.
    pub forcing: f64,
}

/// Interface through which participants integrate: connections, or a test.
pub trait Ask {
    /// Lets the participants of `requests` integrate, all at once, and returns their answers in the order of
    /// the requests.
    ///
    /// # Errors
    /// The error of the first participant, in this order, that fails.
    fn ask(&mut self, requests: Vec<StageRequest>) -> Result<Vec<Integrated>, CoordinatorError>;
}

/// The result for all groups of a stage.
#[derive(Clone, Debug, Default)]
pub struct Synchronised {
    /// Velocity v' of each group [m/s].
    pub velocity: Vec<DVec3>,
    /// Angular velocity of each group [rad/s] in a step in which groups are bodies; else empty.
    pub spin: Vec<DVec3>,
    /// Energy dE_k that synchronising took from each group [J] (Eq. 19 [Truong2021]).
    pub energy: Vec<f64>,
    /// Momentum J that each participant gave each group of its share [kg m/s].
    pub momentum: Vec<Vec<DVec3>>,
    /// Number of times that implicit participants were asked again.
    pub repetitions: u32,
    /// Remaining disagreement of implicit participants that share groups, relative to their impulses;
    /// infinite if they diverge.
    pub disagreement: f64,
    /// Largest |m (v' - v12) - sum of the impulses| over groups, relative to the momentum and the impulses of
    /// the group.
    pub momentum_error: f64,
}

/// Participants and groups of a stage.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'a> {
    /// Integration of each participant.
    pub kinds: &'a [Integration],
    /// Number of particles of each participant.
    pub sizes: &'a [u64],
    /// The groups.
    pub forest: &'a Forest,
    /// Share of each participant in the groups.
    pub shares: &'a [Share],
    /// Gravity times the length of the step [m/s].
    pub gravity_dt: DVec3,
}

impl Stage<'_> {
    /// Lets every participant integrate and finds one velocity for each group.
    ///
    /// # Errors
    /// The error of a participant that fails.
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

    /// Averages the velocities v^k = v12 + (J_k + J_ext)/M_k that participants answer: v' = sum_k m_k v^k /
    /// m, for any number of participants (Eq. 17-20 [Truong2021]).
    fn average(&self, inertia: Inertia, ask: &mut impl Ask) -> Result<Synchronised, CoordinatorError> {
        let requests: Vec<StageRequest> = (0..self.shares.len())
            .map(|participant| {
                let share = &self.shares[participant];
                let inertia_and_impulse = share.groups.iter().zip(&share.mass).map(|(&group, &own)| {
                    let all = self.forest.mass()[group as usize];
                    match inertia {
                        _ if all.is_infinite() => (all, DVec3::ZERO),
                        Inertia::Share => (own, DVec3::ZERO),
                        // A participant knows the weight of its own members only. This is the weight of the
                        // other members.
                        Inertia::Total => (all, self.gravity_dt * (all - own)),
                    }
                });
                let (inertia, impulse) = inertia_and_impulse.unzip();
                StageRequest { participant, inertia, impulse, forcing: 0.0 }
            })
            .collect();
        let answers = ask.ask(requests.clone())?;

        let (mass, v12) = (self.forest.mass(), self.forest.velocity());
        let mut velocity: Vec<DVec3> = v12.to_vec();
        let mut energy = vec![0.0; self.forest.len()];
        let change = |request: &StageRequest, answer: &Integrated, local: usize| {
            (answer.momentum[local] + request.impulse[local]) / request.inertia[local]
        };
        for (request, answer) in requests.iter().zip(&answers) {
            let share = &self.shares[request.participant];
            for (local, &group) in share.groups.iter().enumerate() {
                let group = group as usize;
                if mass[group].is_finite() {
                    velocity[group] += change(request, answer, local) * (share.mass[local] / mass[group]);
                }
            }
        }
        for (request, answer) in requests.iter().zip(&answers) {
            let share = &self.shares[request.participant];
            for (local, &group) in share.groups.iter().enumerate() {
                let group = group as usize;
                if mass[group].is_finite() {
                    // dE_k = 1/2 sum_k m_k |v^k - v'|^2, which equals 1/2 sum_k m_k |v^k|^2 - 1/2 m |v'|^2
                    // without its cancellation.
                    let own = v12[group] + change(request, answer, local);
                    energy[group] += 0.5 * share.mass[local] * (own - velocity[group]).length_squared();
                }
            }
        }
        let momentum = answers.into_iter().map(|answer| answer.momentum).collect();
        Ok(Synchronised { velocity, energy, momentum, ..Synchronised::default() })
    }

    /// Exchanges impulses: every participant integrates the whole mass m of a group and knows the impulses
    /// that the other participants give.
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
        let of_kind = |wanted: fn(Integration) -> bool| -> Vec<usize> {
            (0..self.kinds.len()).filter(|&k| wanted(self.kinds[k])).collect()
        };
        let explicit = of_kind(|kind| kind == Integration::Explicit);
        let implicit = of_kind(|kind| kind != Integration::Explicit);
        // Explicit participants that are asked together with implicit ones, since no group has members of
        // both.
        let mut along = Vec::new();
        if self.share_groups(&explicit, &implicit) {
            self.integrate_participants(&explicit, |_| 0.0, &mut state, ask)?;
            self.give(&explicit, &mut state);
        } else {
            along.clone_from(&explicit);
        }
        let shared = self.shared(&implicit);
        let (repetitions, disagreement) = if shared.is_empty() {
            self.integrate_participants(&both(&along, &implicit), |_| 0.0, &mut state, ask)?;
            (0, 0.0)
        } else {
            self.repeat(&implicit, &along, &shared, &mut state, settings, ask)?
        };
        self.give(&along, &mut state);

        // Each implicit answer is linearised as J_k(dv) = L_k - Z_k dv with L_k = J_k + Z_k dv_k. The balance
        // m dv = sum J_explicit + sum J_k(dv) then gives dv = (sum J_explicit + sum L_k) / (m + sum Z_k).
        // This is exact with one implicit participant. With several, large impulses of stiff springs are not
        // subtracted from each other.
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

    /// True if a group has members of a participant in `some` and of a participant in `others`.
    fn share_groups(&self, some: &[usize], others: &[usize]) -> bool {
        let mut taken = vec![false; self.forest.len()];
        let groups_of = |list: &'_ [usize]| -> Vec<usize> {
            list.iter().flat_map(|&k| self.shares[k].groups.iter().map(|&group| group as usize)).collect()
        };
        groups_of(some).into_iter().for_each(|group| taken[group] = true);
        groups_of(others).into_iter().any(|group| taken[group])
    }

    /// Adds the impulses that explicit participants answered to the impulses given to the groups.
    fn give(&self, explicit: &[usize], state: &mut Exchange) {
        for &k in explicit {
            for (&group, &momentum) in self.shares[k].groups.iter().zip(&state.momentum[k]) {
                state.given[group as usize] += momentum;
            }
        }
    }

    /// Places (participant, index in its share) of implicit participants in movable groups that several of
    /// them share.
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

    /// Chooses the followers among implicit participants. In each repetition the followers answer to the
    /// leaders' latest answers, and then the leaders answer. No two followers share a group, so that the
    /// answers of followers depend on the leaders' answers alone and are no unknowns of the iteration.
    ///
    /// Projections are chosen first, then the largest participants, since a follower is asked once less than
    /// a leader. Of equally large ones the last in the scene is chosen first.
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

    /// Repeats the requests to implicit participants that share groups, until their answers agree. Each
    /// participant integrates against the linearised answers J_o(dv) = L_o - Z_o dv of the others (a Robin
    /// condition). Returns the number of repetitions and the disagreement, infinite if the repetition
    /// diverges.
    ///
    /// The unknowns are L = J + Z dv of the leaders at the shared places. If the system of a solid is
    /// diagonal in the groups, its L does not depend on the other participants, and one repetition is exact.
    /// Only answers that may be the last are solved to the participants' own tolerances. The participants
    /// `along` are explicit, share no group with implicit ones, and answer together with the leaders' first
    /// answer.
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
        // A participant that shares no group is asked only once, so that its answer must be exact.
        let unknown = |leader| places.iter().any(|&(k, _)| k == leader);
        let (mut forcing, mut before) = (FORCING, 1.0);
        self.integrate_participants(
            &both(along, &leaders),
            |k| if unknown(k) { forcing } else { 0.0 },
            state,
            ask,
        )?;
        leaders.retain(|&leader| unknown(leader));
        let mut point = read(state);
        // Norm of L at all shared places. The leaders' part alone may be nothing but rounding, as of a free
        // ball on a bar.
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
            self.integrate_participants(&followers, |_| forcing, state, ask)?;
            self.integrate_participants(&leaders, |_| forcing, state, ask)?;
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
            forcing = next_forcing(disagreement, before, settings.coupling_tolerance);
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

    /// Lets `participants` integrate, all at once, each against the latest answers of all others: M = m +
    /// sum_o Z_o and J_ext = sum J_explicit + sum_o L_o. A participant's answer J gives dv = (J + J_ext)/M
    /// and L = J + Z dv.
    fn integrate_participants(
        &self,
        participants: &[usize],
        forcing: impl Fn(usize) -> f64,
        state: &mut Exchange,
        ask: &mut impl Ask,
    ) -> Result<(), CoordinatorError> {
        let groups = self.forest.len();
        let requests: Vec<StageRequest> = participants
            .iter()
            .map(|&participant| {
                // Sums of L_o and Z_o over the other implicit participants o.
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
                StageRequest {
                    participant,
                    inertia: own.clone().map(|group| self.forest.mass()[group] + inertia[group]).collect(),
                    impulse: own.map(|group| state.given[group] + load[group]).collect(),
                    forcing: forcing(participant),
                }
            })
            .collect();
        let answers = ask.ask(requests.clone())?;
        for (request, answer) in requests.iter().zip(answers) {
            let k = request.participant;
            for local in 0..request.inertia.len() {
                let inertia = request.inertia[local];
                let momentum = answer.momentum[local];
                let change = if inertia.is_finite() {
                    (momentum + request.impulse[local]) / inertia
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

    /// Largest |m (v' - v12) - sum of the impulses| over movable groups, relative to m |v12| plus the sizes
    /// of the impulses.
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

/// Joins two lists of participants, ascending.
fn both(some: &[usize], others: &[usize]) -> Vec<usize> {
    let mut all = [some, others].concat();
    all.sort_unstable();
    all
}

/// Mean of a slope over all directions: a third of its trace.
fn mean(slope: &DMat3) -> f64 {
    (slope.x_axis.x + slope.y_axis.y + slope.z_axis.z) / 3.0
}

/// Answers of the participants so far in a stage.
struct Exchange {
    /// External impulse on each group plus the impulses of the explicit participants [kg m/s].
    given: Vec<DVec3>,
    /// L = J + Z dv of each implicit participant, for each group of its share [kg m/s].
    linear: Vec<Vec<DVec3>>,
    /// Z of each participant, for each group of its share [kg].
    slope: Vec<Vec<f64>>,
    /// J of each participant, for each group of its share [kg m/s].
    momentum: Vec<Vec<DVec3>>,
}
