//! Conversion of the calls that end stages and steps, Integrate and Commit. See `convert.rs` for the others.

use super::values::{
    DT_RANGE, SLOPE_LIMIT, SUM_LIMIT, check_name, flags, is_positive_semidefinite, lattice_from_wire,
    lattice_to_wire, not_negative, positive_time, symmetric_from_wire, symmetric_to_wire, vec3_from_wire,
    vec3_to_wire,
};
use super::{Batch, Call, Commit, Committed, Context, Groups, Integrate, Integrated, Interest, Next, Totals};
use amalgam_particles::text::number;
use amalgam_particles::{
    Body, DMat3, MASS_RANGE, MASS_RULE, ParticleId, RADIUS_RULE, SPEED_LIMIT, is_mass, is_radius,
};

use crate::columns::room::{CELL_COLUMNS, GRIDS_MAX, Known, Room};
use crate::columns::{Columns, MOMENTA, POSITIONS, VELOCITIES, WireError, check, check_count, check_unique};
use crate::generated::v1;

/// Kinds of potential energy that a solver may tell, at most.
const POTENTIAL_ENERGIES_MAX: usize = 16;

impl Call for Integrate {
    type Packet = v1::IntegrateRequest;

    fn room(header: &v1::IntegrateHeader, known: &Known) -> Result<Room, WireError> {
        Room::integrate(header, known)
    }

    fn encode(self) -> (v1::IntegrateHeader, Columns) {
        let mut header = v1::IntegrateHeader {
            context: Some(self.context.to_wire()),
            stage: self.stage,
            repetition: self.repetition,
            dt: self.dt,
            forcing: self.forcing,
            groups: self.impulse.len() as u32,
            ..Default::default()
        };
        let mut columns = Columns::default();
        if let Some(groups) = self.groups {
            header.members = groups.member.len() as u64;
            header.watched = groups.watch.len() as u64;
            header.has_occupied = groups.occupied.is_some();
            columns.put_uniform("group_size", groups.size);
            columns.put_ids("member", &groups.member);
            columns.put("velocity", groups.velocity);
            columns.put_ids("watch", &groups.watch);
            columns.put("occupied", groups.occupied.map(|cells| cells.to_bytes()).unwrap_or_default());
        }
        columns.put("inertia", self.inertia.unwrap_or_default());
        columns.put_uniform("impulse", self.impulse);
        (header, columns)
    }

    fn decode(header: v1::IntegrateHeader, mut columns: Columns) -> Result<Self, WireError> {
        let count = u64::from(header.groups);
        let groups =
            if header.repetition == 0 { Some(groups_from_wire(&header, &mut columns)?) } else { None };
        let (shortest, longest) = DT_RANGE;
        if !(shortest..=longest).contains(&header.dt) {
            let dt = number(header.dt);
            return Err(WireError::Rule(format!(
                "dt is {dt}, but must be from {shortest:e} to {longest:e} s"
            )));
        }
        if header.stage == 0 {
            return Err(WireError::Rule("stages count from 1".into()));
        }
        if !(0.0..1.0).contains(&header.forcing) {
            return Err(WireError::Rule(format!(
                "forcing is {}, but must be from 0 to below 1",
                number(header.forcing)
            )));
        }
        let is_as_before = header.repetition > 0 && columns.bytes_of("inertia") == 0;
        let inertia: Vec<f64> = columns.take("inertia", if is_as_before { 0 } else { count })?;
        let is_inertia = |&m: &f64| m.is_infinite() && m > 0.0 || (MASS_RANGE.0..SLOPE_LIMIT).contains(&m);
        check("inertia", &inertia, None, "infinite, or from 1e-50 to 1e62 kg", is_inertia)?;
        let call = Self {
            context: Context::from_wire(header.context)?,
            stage: header.stage,
            repetition: header.repetition,
            dt: header.dt,
            forcing: header.forcing,
            groups,
            inertia: (!is_as_before).then_some(inertia),
            impulse: columns.take_uniform_vec3("impulse", count, MOMENTA)?,
        };
        columns.finish()?;
        Ok(call)
    }
}

fn groups_from_wire(header: &v1::IntegrateHeader, columns: &mut Columns) -> Result<Groups, WireError> {
    let count = u64::from(header.groups);
    let size: Vec<u32> = columns.take_uniform("group_size", count)?;
    check("group_size", &size, None, "at least 1", |&s| s >= 1)?;
    let members = check_count("members", header.members)?;
    if size.iter().map(|&s| u64::from(s)).sum::<u64>() != members {
        return Err(WireError::Rule(format!("group sizes do not add up to {members} members")));
    }
    let member = columns.take_ids("member", members)?;
    check_unique("member", &member)?;
    let watch = columns.take_ids("watch", check_count("watched", header.watched)?)?;
    check_unique("watch", &watch)?;
    let occupied = columns.take_cells("occupied")?;
    Ok(Groups {
        size,
        member,
        velocity: columns.take_vec3("velocity", count, VELOCITIES)?,
        watch,
        occupied: header.has_occupied.then_some(occupied),
    })
}

/// [`Integrated`] is read with the counts that were asked for, which its header does not repeat.
impl Integrated {
    /// Header and columns to send.
    pub fn encode(self) -> (v1::IntegrateAnswer, Columns) {
        let mut columns = Columns::default();
        if let Some(mut slope) = self.slope {
            if slope.is_empty() && !self.momentum.is_empty() {
                slope.push(DMat3::ZERO);
            }
            columns.put_uniform("slope", slope.iter().map(symmetric_to_wire).collect());
        }
        columns.put("momentum", self.momentum);
        columns.put("watch_velocity", self.watch_velocity);
        let header = v1::IntegrateAnswer { travel_max: self.travel_max, bodies: self.bodies.is_some() };
        if let Some(bodies) = self.bodies {
            columns.put("body_mass", bodies.iter().map(|body| body.mass).collect());
            columns.put("body_inertia", bodies.iter().map(|body| symmetric_to_wire(&body.inertia)).collect());
            columns.put("body_centre", bodies.iter().map(|body| body.centre).collect());
            columns.put("body_velocity", bodies.iter().map(|body| body.velocity).collect());
            columns.put("body_spin", bodies.iter().map(|body| body.spin).collect());
        }
        (header, columns)
    }

    /// Slope of one group [kg].
    pub fn slope_of(&self, group: usize) -> DMat3 {
        self.slope.as_ref().and_then(|slope| slope.get(group)).copied().unwrap_or(DMat3::ZERO)
    }

    /// Fills in the slopes of the last answer, where this one has none, and keeps those of this one.
    pub fn complete(&mut self, last: &mut Vec<DMat3>) {
        match &self.slope {
            Some(slope) => last.clone_from(slope),
            None => self.slope = Some(last.clone()),
        }
    }

    /// Room for an answer for `groups` groups and `watched` particles.
    pub fn room(header: &v1::IntegrateAnswer, groups: u64, watched: u64) -> Room {
        Room::integrated(header, groups, watched)
    }

    /// Checks and reads an answer for `groups` groups and `watched` particles, in a repetition or in the first call
    /// of a stage.
    ///
    /// # Errors
    /// The first rule of the contract that the message breaks.
    pub fn decode(
        header: v1::IntegrateAnswer,
        mut columns: Columns,
        (groups, watched): (u64, u64),
        is_repetition: bool,
    ) -> Result<Self, WireError> {
        // A single slope may stand for all groups. It is spread to them only after `momentum`, which holds a
        // value for each group. So no more room is made than was sent.
        let momentum = columns.take_vec3("momentum", groups, MOMENTA)?;
        let is_as_before = is_repetition && columns.bytes_of("slope") == 0;
        let of_groups = if is_as_before { 0 } else { groups };
        let mut slope: Vec<DMat3> =
            columns.take_single_or_all("slope", of_groups)?.into_iter().map(symmetric_from_wire).collect();
        let is_slope = |z: &DMat3| is_positive_semidefinite(z) && z.abs_diff_eq(DMat3::ZERO, SLOPE_LIMIT);
        check("slope", &slope, None, "positive semidefinite, entries below 1e62 kg", is_slope)?;
        match slope[..] {
            [none] if none == DMat3::ZERO => slope.clear(),
            [slope_of_all] => slope.resize(groups as usize, slope_of_all),
            _ => (),
        }
        let answer = Self {
            momentum,
            slope: (!is_as_before).then_some(slope),
            watch_velocity: columns.take_vec3("watch_velocity", watched, VELOCITIES)?,
            travel_max: header.travel_max,
            bodies: header.bodies.then(|| take_bodies(&mut columns, groups)).transpose()?,
        };
        let travel = answer.travel_max;
        if !(travel >= 0.0 && travel.is_finite()) {
            return Err(WireError::Rule(format!(
                "travel_max is {}, but must be finite and not negative",
                number(travel)
            )));
        }
        columns.finish()?;
        Ok(answer)
    }
}

/// Bodies as the groups of an answer.
fn take_bodies(columns: &mut Columns, count: u64) -> Result<Vec<Body>, WireError> {
    let mass: Vec<f64> = columns.take("body_mass", count)?;
    check("body_mass", &mass, None, MASS_RULE, |&mass| is_mass(mass))?;
    let inertia: Vec<[f64; 6]> = columns.take("body_inertia", count)?;
    let inertia: Vec<DMat3> = inertia.into_iter().map(symmetric_from_wire).collect();
    check("body_inertia", &inertia, None, "positive definite, determinant a number", |inertia| {
        is_positive_semidefinite(inertia)
            && inertia.determinant().is_normal()
            && inertia.inverse().is_finite()
    })?;
    let centre = columns.take_vec3("body_centre", count, POSITIONS)?;
    let velocity = columns.take_vec3("body_velocity", count, VELOCITIES)?;
    let spin = columns.take_vec3("body_spin", count, VELOCITIES)?;
    let rows = mass.into_iter().zip(inertia).zip(centre).zip(velocity.into_iter().zip(spin));
    Ok(rows
        .map(|(((mass, inertia), centre), (velocity, spin))| Body { mass, inertia, centre, velocity, spin })
        .collect())
}

impl Call for Commit {
    type Packet = v1::CommitRequest;

    fn room(header: &v1::CommitHeader, known: &Known) -> Result<Room, WireError> {
        Room::commit(header, known)
    }

    fn encode(self) -> (v1::CommitHeader, Columns) {
        let mut columns = Columns::default();
        let within = self.next.as_ref().map_or(0.0, |next| next.within);
        let header = v1::CommitHeader {
            context: Some(self.context.to_wire()),
            stage: self.stage,
            repetition: self.repetition,
            want_state_hash: self.want_state_hash,
            grids: self.grids.into_iter().map(lattice_to_wire).collect(),
            tracked: self.track.len() as u64,
            next: self.next.map(|next| next.interest.put(&mut columns)),
            next_within: within,
            groups: self.group_velocity.len() as u32,
            members: self.member_velocity.as_ref().map_or(0, Vec::len) as u64,
            bodies: self.group_spin.is_some(),
        };
        columns.put("group_velocity", self.group_velocity);
        columns.put("group_spin", self.group_spin.unwrap_or_default());
        columns.put("group_number", self.group_number);
        columns.put("member_velocity", self.member_velocity.unwrap_or_default());
        columns.put_ids("track", &self.track);
        (header, columns)
    }

    fn decode(header: v1::CommitHeader, mut columns: Columns) -> Result<Self, WireError> {
        let (groups, members) = (u64::from(header.groups), check_count("members", header.members)?);
        if header.grids.len() > GRIDS_MAX {
            return Err(WireError::Rule(format!("more than {GRIDS_MAX} grids in one commit")));
        }
        let next_of = |interest| -> Result<Next, WireError> {
            let within = not_negative("next_within", header.next_within)?;
            Ok(Next { interest: Interest::take(interest, &mut columns)?, within })
        };
        let next = header.next.map(next_of).transpose()?;
        let commit = Self {
            next,
            context: Context::from_wire(header.context)?,
            stage: header.stage,
            repetition: header.repetition,
            want_state_hash: header.want_state_hash,
            grids: header.grids.into_iter().map(lattice_from_wire).collect::<Result<_, WireError>>()?,
            group_velocity: columns.take_vec3("group_velocity", groups, VELOCITIES)?,
            group_number: columns.take("group_number", groups)?,
            member_velocity: match members {
                0 => None,
                _ => Some(columns.take_vec3("member_velocity", members, VELOCITIES)?),
            },
            group_spin: header
                .bodies
                .then(|| columns.take_vec3("group_spin", groups, VELOCITIES))
                .transpose()?,
            track: columns.take_ids("track", check_count("tracked", header.tracked)?)?,
        };
        columns.finish()?;
        Ok(commit)
    }
}

impl Committed {
    /// Header and columns to send.
    pub fn encode(self) -> (v1::CommitAnswer, Columns) {
        let mut columns = Columns::default();
        let Totals { momentum, angular_momentum, mass_moment, .. } = self.totals;
        let header = v1::CommitAnswer {
            particles: self.particles,
            stable_dt: self.stable_dt,
            speed_max: self.totals.speed_max,
            radius_rate_max: self.totals.radius_rate_max,
            acceleration_max: self.totals.acceleration_max,
            momentum: Some(vec3_to_wire(momentum)),
            angular_momentum: Some(vec3_to_wire(angular_momentum)),
            kinetic_energy: self.totals.kinetic_energy,
            potential_energies: self
                .potential_energies
                .into_iter()
                .map(|(name, joule)| v1::Energy { name, joule })
                .collect(),
            mass_moment: Some(vec3_to_wire(mass_moment)),
            state_hash: self.state_hash,
            broken: self.broken,
            born: self.born.len() as u64,
            dead: self.dead.len() as u64,
            released: self.released.len() as u64,
            solver_seconds: self.solver_seconds,
            not_taken: self.not_taken,
            given: self.given,
            next: self.next.map(|batch| batch.put(&mut columns)),
        };
        columns.put_ids("born_id", &self.born.iter().map(|b| b.0).collect::<Vec<_>>());
        columns.put_uniform("born_mass", self.born.iter().map(|b| b.1).collect());
        columns.put_uniform("born_radius", self.born.iter().map(|b| b.2).collect());
        columns.put_uniform("born_immovable", self.born.iter().map(|b| u8::from(b.3)).collect());
        columns.put_ids("dead", &self.dead);
        columns.put_ids("released_id", &self.released.iter().map(|r| r.0).collect::<Vec<_>>());
        columns.put_uniform("released_mass", self.released.iter().map(|r| r.1).collect());
        for (name, cells) in CELL_COLUMNS.into_iter().zip(&self.cells) {
            columns.put(name, cells.to_bytes());
        }
        columns.put("track_position", self.track_position);
        columns.put("track_velocity", self.track_velocity);
        (header, columns)
    }

    /// Room for an answer for `grids` grids and `tracked` particles.
    ///
    /// # Errors
    /// Counts that are impossible.
    pub fn room(
        header: &v1::CommitAnswer,
        known: &Known,
        grids: usize,
        tracked: u64,
    ) -> Result<Room, WireError> {
        Room::committed(header, known, grids, tracked)
    }

    /// Checks and reads an answer for `grids` grids and `tracked` particles.
    ///
    /// # Errors
    /// The first rule of the contract that the message breaks.
    pub fn decode(
        header: v1::CommitAnswer,
        mut columns: Columns,
        grids: usize,
        tracked: u64,
    ) -> Result<Self, WireError> {
        let totals = totals_from_wire(&header)?;
        check_seconds_and_energies(&header)?;
        let potential_energies = energies_from_wire(header.potential_energies)?;
        let born = take_born(&mut columns, check_count("born", header.born)?)?;
        let released = take_released(&mut columns, check_count("released", header.released)?)?;
        let committed = Self {
            particles: check_count("particles", header.particles)?,
            stable_dt: positive_time("stable_dt", header.stable_dt)?,
            totals,
            potential_energies,
            state_hash: header.state_hash,
            broken: header.broken,
            born,
            dead: columns.take_ids("dead", check_count("dead", header.dead)?)?,
            released,
            cells: CELL_COLUMNS[..grids.min(GRIDS_MAX)]
                .iter()
                .map(|name| columns.take_cells(name))
                .collect::<Result<_, WireError>>()?,
            track_position: columns.take_vec3("track_position", tracked, POSITIONS)?,
            track_velocity: columns.take_vec3("track_velocity", tracked, VELOCITIES)?,
            solver_seconds: header.solver_seconds,
            not_taken: header.not_taken,
            given: header.given,
            next: header.next.map(|answer| Batch::take(answer, &mut columns)).transpose()?,
        };
        columns.finish()?;
        Ok(committed)
    }
}

/// Sums and maxima of the particles, whose kinetic energy, speed, rate and acceleration are not negative.
fn totals_from_wire(header: &v1::CommitAnswer) -> Result<Totals, WireError> {
    let totals = Totals {
        momentum: vec3_from_wire("momentum", header.momentum)?,
        angular_momentum: vec3_from_wire("angular_momentum", header.angular_momentum)?,
        kinetic_energy: header.kinetic_energy,
        mass_moment: vec3_from_wire("mass_moment", header.mass_moment)?,
        speed_max: header.speed_max,
        radius_rate_max: header.radius_rate_max,
        acceleration_max: header.acceleration_max,
    };
    check_range("kinetic_energy", totals.kinetic_energy, SUM_LIMIT)?;
    check_range("speed_max", totals.speed_max, 2.0 * SPEED_LIMIT)?;
    check_range("radius_rate_max", totals.radius_rate_max, SUM_LIMIT)?;
    check_range("acceleration_max", totals.acceleration_max, SUM_LIMIT)?;
    Ok(totals)
}

fn check_seconds_and_energies(header: &v1::CommitAnswer) -> Result<(), WireError> {
    check_range("solver_seconds", header.solver_seconds, SUM_LIMIT)?;
    check_energy("not_taken", header.not_taken)?;
    check_energy("given", header.given)
}

/// Checks that a value is from 0 to below a limit.
fn check_range(name: &str, value: f64, limit: f64) -> Result<(), WireError> {
    if (0.0..limit).contains(&value) {
        return Ok(());
    }
    Err(WireError::Rule(format!("{name} is {}, but must be from 0 to {limit:e}", number(value))))
}

/// Checks that an energy [J] of either sign is below [`SUM_LIMIT`].
fn check_energy(name: &str, joule: f64) -> Result<(), WireError> {
    if joule.abs() < SUM_LIMIT {
        return Ok(());
    }
    Err(WireError::Rule(format!("{name} is {}, but must be below {SUM_LIMIT:e} J", number(joule))))
}

fn energies_from_wire(energies: Vec<v1::Energy>) -> Result<Vec<(String, f64)>, WireError> {
    if energies.len() > POTENTIAL_ENERGIES_MAX {
        return Err(WireError::Rule(format!("more than {POTENTIAL_ENERGIES_MAX} potential energies")));
    }
    let checked = |v1::Energy { name, joule }| {
        check_name("the name of a potential energy", &name)?;
        check_energy(&format!("energy {name:?}"), joule)?;
        Ok((name, joule))
    };
    energies.into_iter().map(checked).collect()
}

/// Particles that appeared, by id, mass [kg], radius [m] and whether they are immovable.
fn take_born(columns: &mut Columns, count: u64) -> Result<Vec<(ParticleId, f64, f64, bool)>, WireError> {
    let id = columns.take_ids("born_id", count)?;
    let mass: Vec<f64> = columns.take_uniform("born_mass", count)?;
    let radius: Vec<f64> = columns.take_uniform("born_radius", count)?;
    let immovable = flags(columns.take_uniform("born_immovable", count)?)?;
    check("born_mass", &mass, Some(&id), MASS_RULE, |&mass| is_mass(mass))?;
    check("born_radius", &radius, Some(&id), RADIUS_RULE, |&radius| is_radius(radius))?;
    check_unique("born_id", &id)?;
    Ok((0..id.len()).map(|i| (id[i], mass[i], radius[i], immovable[i])).collect())
}

/// Particles that are immovable no longer, by id and mass [kg].
fn take_released(columns: &mut Columns, count: u64) -> Result<Vec<(ParticleId, f64)>, WireError> {
    let id = columns.take_ids("released_id", count)?;
    let mass: Vec<f64> = columns.take_uniform("released_mass", count)?;
    check("released_mass", &mass, Some(&id), MASS_RULE, |&mass| is_mass(mass))?;
    check_unique("released_id", &id)?;
    Ok(id.into_iter().zip(mass).collect())
}
