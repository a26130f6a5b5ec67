//! The bench on which rules are written: a run of the service, the calls of a step, and the properties of the
//! particles.

use std::collections::HashMap;

use amalgam_particles::{CellSet, ContactLookAhead, DVec3, ParticleId, random};
use amalgam_proto::contract::{
    Batch, Begin, Call, Commit, Committed, Context, Description, Frame, Groups, Integrate, Integrated,
    Integration, Interest, Next, Restore, Snapshot, Table, Wanted, vec3_to_wire,
};
use amalgam_proto::{Known, PROTOCOL_VERSION, v1};
use futures_util::stream;
use tonic::Code;

use crate::shown::messages;
use crate::verdict::{Check, Stop, broken, skip};
use crate::wire::{No, Wire, code_name};

/// Longest step of a trial [s].
const DT_MAX: f64 = 1e-3;

/// Properties of a particle from the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Property {
    pub(crate) mass: f64,
    pub(crate) radius: f64,
    pub(crate) immovable: bool,
    pub(crate) body: ParticleId,
}

/// Data with which a service is initialised.
#[derive(Clone, Debug)]
pub struct Section {
    /// Name of the participant.
    pub participant: String,
    /// Its section of a scene, TOML.
    pub text: String,
    /// Corners of the domain [m].
    pub domain: (DVec3, DVec3),
    /// Gravity [m/s^2].
    pub gravity: DVec3,
    /// Seed of everything random.
    pub seed: u64,
}

/// A run of the service under trial.
pub(crate) struct Bench<'a> {
    pub(crate) wire: &'a mut Wire,
    pub(crate) section: &'a Section,
    /// The run, and the step that comes next.
    pub(crate) context: Context,
    pub(crate) gravity: DVec3,
    pub(crate) table: Table,
    pub(crate) integration: Integration,
    /// Properties of each particle that is alive.
    pub(crate) known: HashMap<ParticleId, Property>,
    /// All particles at the start of the step, from the last Begin for all.
    pub(crate) state: Batch,
    /// Length of a step [s].
    pub(crate) dt: f64,
}

/// A call of Integrate.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) stage: u32,
    pub(crate) repetition: u32,
    pub(crate) dt: f64,
    pub(crate) groups: Groups,
    pub(crate) inertia: Vec<f64>,
    pub(crate) impulse: Vec<DVec3>,
}

/// End of a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct End {
    pub(crate) group_velocity: Vec<DVec3>,
    pub(crate) member_velocity: Vec<DVec3>,
    pub(crate) spin: Vec<DVec3>,
    pub(crate) grids: Vec<amalgam_particles::Lattice>,
    pub(crate) track: Vec<ParticleId>,
    pub(crate) next: Option<Next>,
}

/// Asks for all particles, and for contacts at this moment.
pub(crate) fn everyone() -> Interest {
    interest(Wanted::All)
}

/// Asks for these particles, and for contacts at this moment.
pub(crate) fn interest(wanted: Wanted) -> Interest {
    Interest { wanted, triangles: false, look_ahead: ContactLookAhead::default() }
}

impl<'a> Bench<'a> {
    pub(crate) fn new(wire: &'a mut Wire, section: &'a Section) -> Self {
        Self {
            wire,
            section,
            context: Context::default(),
            gravity: section.gravity,
            table: Table::default(),
            integration: Integration::Explicit,
            known: HashMap::new(),
            state: Batch::default(),
            dt: DT_MAX,
        }
    }

    pub(crate) fn describe(&mut self) -> Result<Description, Stop> {
        let answer = self.wire.describe(PROTOCOL_VERSION)?;
        if answer.protocol_version != PROTOCOL_VERSION {
            return broken(format!(
                "Describe answers version {} to a caller of version {PROTOCOL_VERSION}",
                answer.protocol_version
            ));
        }
        Description::from_wire(answer).or_else(|error| broken(error.to_string()))
    }

    /// Initialize for the run and epoch of the context.
    pub(crate) fn initialize_request(&self) -> v1::InitializeRequest {
        v1::InitializeRequest {
            run_id: self.context.run_id.clone(),
            epoch: self.context.epoch,
            participant: self.section.participant.clone(),
            section: self.section.text.clone(),
            domain_min: Some(vec3_to_wire(self.section.domain.0)),
            domain_max: Some(vec3_to_wire(self.section.domain.1)),
            gravity: Some(vec3_to_wire(self.gravity)),
            seed: self.section.seed,
            obstacles: Vec::new(),
            brief: false,
            nearest_to: Vec::new(),
        }
    }

    /// The context of a run of another name.
    pub(crate) fn new_context(&mut self) -> Context {
        self.wire.runs += 1;
        Context { run_id: format!("conform-{}", self.wire.runs), epoch: 1, step: 0 }
    }

    /// Begins a new run.
    pub(crate) fn start(&mut self) -> Check {
        let description = self.describe()?;
        (self.context, self.state) = (self.new_context(), Batch::default());
        let table = self.wire.initialize(self.initialize_request())?;
        self.integration = table.integration.unwrap_or(description.integration);
        self.dt = DT_MAX.min(0.5 * table.stable_dt);
        self.take_table(table);
        Ok(())
    }

    /// Begins a new run, whose answer may be brief.
    pub(crate) fn start_briefly(&mut self, nearest_to: &[DVec3]) -> Check {
        (self.context, self.state) = (self.new_context(), Batch::default());
        let nearest_to = nearest_to.iter().copied().map(vec3_to_wire).collect();
        let request = v1::InitializeRequest { brief: true, nearest_to, ..self.initialize_request() };
        let table = self.wire.initialize(request)?;
        self.take_table(table);
        Ok(())
    }

    pub(crate) fn take_table(&mut self, table: Table) {
        let particles = &table.particles;
        let body = |i: usize| table.bodies.as_ref().map_or(particles.id[i], |bodies| bodies[i]);
        let known = |i: usize| Property {
            mass: particles.mass[i],
            radius: particles.radius[i],
            immovable: particles.immovable[i],
            body: body(i),
        };
        self.known = (0..particles.len()).map(|i| (particles.id[i], known(i))).collect();
        self.table = table;
    }

    pub(crate) fn has_bodies(&self) -> bool {
        self.table.bodies.is_some()
    }

    pub(crate) fn room(&self) -> Known {
        Known { particles: self.known.len() as u64, ..Known::default() }
    }

    /// Begin of the step for all particles.
    pub(crate) fn begin(&mut self) -> Result<Batch, Stop> {
        let batch = self.begin_for(everyone())?;
        if batch.position.len() != self.known.len() {
            return broken(format!(
                "Begin for all answers {} particles of {}",
                batch.position.len(),
                self.known.len()
            ));
        }
        let before = self.state.id.as_ref().map_or(0, Vec::len);
        if batch.id.is_none() && before != batch.position.len() {
            return broken("Begin says that the particles are as before, but before there were others");
        }
        if batch.id.is_some() {
            self.state = batch.clone();
        } else {
            (self.state.position, self.state.velocity) = (batch.position.clone(), batch.velocity.clone());
            self.state.contacts.clone_from(&batch.contacts);
        }
        self.check_known("Begin", self.state.id.as_deref().unwrap_or_default())?;
        Ok(batch)
    }

    fn check_known(&self, call: &str, ids: &[ParticleId]) -> Check {
        match ids.iter().find(|id| !self.known.contains_key(id)) {
            Some(id) => broken(format!("{call} answers particle {id}, which is not alive")),
            None => Ok(()),
        }
    }

    pub(crate) fn begin_for(&mut self, interest: Interest) -> Result<Batch, No> {
        let call = Begin { context: self.context.clone(), interest };
        let room = self.room();
        self.wire.begin(call.into_packets(), room)
    }

    /// The messages of a call of Integrate.
    pub(crate) fn integrate_packets(&self, ask: &Ask) -> Vec<v1::IntegrateRequest> {
        let call = Integrate {
            context: self.context.clone(),
            stage: ask.stage,
            repetition: ask.repetition,
            dt: ask.dt,
            forcing: 0.0,
            groups: (ask.repetition == 0).then(|| ask.groups.clone()),
            inertia: Some(ask.inertia.clone()),
            impulse: ask.impulse.clone(),
        };
        call.into_packets()
    }

    pub(crate) fn integrate(&mut self, ask: &Ask) -> Result<Integrated, No> {
        self.integrate_with(ask, |_| ())
    }

    /// Calls Integrate with changed messages.
    pub(crate) fn integrate_with(
        &mut self,
        ask: &Ask,
        change: impl FnOnce(&mut Vec<v1::IntegrateRequest>),
    ) -> Result<Integrated, No> {
        let mut packets = self.integrate_packets(ask);
        change(&mut packets);
        let text = messages(&packets);
        let counts = (ask.groups.size.len() as u64, ask.groups.watch.len() as u64);
        self.wire.integrate(stream::iter(packets), text, (counts, ask.repetition > 0))
    }

    /// End of a step that follows the answer: each group has the velocity that its momenta give it.
    pub(crate) fn end(&self, ask: &Ask, answer: &Integrated) -> End {
        let mut end = End::default();
        let mut at = 0;
        let place = self.places();
        for (group, &size) in ask.groups.size.iter().enumerate() {
            let mass = ask.inertia[group];
            let merged = ask.groups.velocity[group] + (answer.momentum[group] + ask.impulse[group]) / mass;
            let body = answer.bodies.as_ref().map(|bodies| bodies[group]);
            let velocity = body.map_or(merged, |body| body.velocity);
            end.group_velocity.push(velocity);
            end.spin.extend(body.map(|body| body.spin));
            for id in &ask.groups.member[at..at + size as usize] {
                let arm = body.map(|body| self.state.position[place[id]] - body.centre);
                let turn = body.zip(arm).map_or(DVec3::ZERO, |(body, arm)| body.spin.cross(arm));
                end.member_velocity.push(velocity + turn);
            }
            at += size as usize;
        }
        end
    }

    pub(crate) fn commit_packets(&self, ask: &Ask, end: &End) -> Vec<v1::CommitRequest> {
        let call = Commit {
            context: self.context.clone(),
            stage: ask.stage,
            repetition: ask.repetition,
            want_state_hash: true,
            grids: end.grids.clone(),
            group_velocity: end.group_velocity.clone(),
            group_number: (0..end.group_velocity.len() as u32).map(|group| group + 7).collect(),
            member_velocity: Some(end.member_velocity.clone()),
            group_spin: self.has_bodies().then(|| end.spin.clone()),
            track: end.track.clone(),
            next: end.next.clone(),
        };
        call.into_packets()
    }

    /// Calls Commit without taking note of it: the bench stays in the same step.
    pub(crate) fn try_commit(
        &mut self,
        ask: &Ask,
        end: &End,
        change: impl FnOnce(&mut Vec<v1::CommitRequest>),
    ) -> Result<Committed, No> {
        let mut packets = self.commit_packets(ask, end);
        change(&mut packets);
        let room = self.room();
        self.wire.commit(packets, room, (end.grids.len(), end.track.len() as u64))
    }

    pub(crate) fn commit(&mut self, ask: &Ask, end: &End) -> Result<Committed, Stop> {
        let done = self.try_commit(ask, end, |_| ())?;
        self.note(&done)?;
        Ok(done)
    }

    /// Takes note of births, deaths, releases and the end of the step.
    pub(crate) fn note(&mut self, done: &Committed) -> Check {
        for &(id, mass, radius, immovable) in &done.born {
            if self.known.insert(id, Property { mass, radius, immovable, body: id }).is_some() {
                return broken(format!("particle {id} is born, but it lives already"));
            }
        }
        for id in &done.dead {
            if self.known.remove(id).is_none() {
                return broken(format!("particle {id} dies, but it was not alive"));
            }
        }
        for &(id, mass) in &done.released {
            match self.known.get_mut(&id) {
                Some(known) if known.immovable => {
                    (known.mass, known.immovable) = (mass, false);
                }
                Some(_) => return broken(format!("particle {id} is released, but it was not immovable")),
                None => return broken(format!("particle {id} is released, but it is not alive")),
            }
        }
        if done.particles != self.known.len() as u64 {
            return broken(format!(
                "Commit says that there are {} particles, but births and deaths make it {}",
                done.particles,
                self.known.len()
            ));
        }
        self.context.step += 1;
        Ok(())
    }

    /// A whole step in which nothing merges.
    pub(crate) fn step(&mut self) -> Result<Committed, Stop> {
        self.begin()?;
        let ask = self.nobody();
        let answer = self.integrate(&ask)?;
        let end = self.end(&ask, &answer);
        self.commit(&ask, &end)
    }

    pub(crate) fn frame(&mut self) -> Result<Frame, No> {
        let request = v1::FrameRequest { context: Some(self.context.to_wire()), ..Default::default() };
        let room = self.room();
        self.wire.frame(request, room)
    }

    /// Calls Save. The rule is skipped if the service keeps no checkpoints.
    pub(crate) fn save(&mut self) -> Result<Snapshot, Stop> {
        let request = v1::SaveRequest { context: Some(self.context.to_wire()), files: None };
        let room = self.room();
        match self.wire.save(request, room) {
            Err(no) if no.code() == Some(Code::Aborted) => skip("the service keeps no checkpoints"),
            answer => Ok(answer?),
        }
    }

    pub(crate) fn restore(&mut self, bytes: Vec<u8>) -> Result<u64, No> {
        let particles = self.known.len() as u64;
        let call = Restore { context: self.context.clone(), particles, bytes, files: None };
        self.wire.restore(call.into_packets())
    }

    pub(crate) fn shutdown(&mut self) -> Result<(), No> {
        self.wire.shutdown(v1::ShutdownRequest { context: Some(self.context.to_wire()) })
    }

    pub(crate) fn survey_centres(&mut self, cell_size: f64) -> Result<CellSet, No> {
        let lattice = amalgam_particles::Lattice { origin: DVec3::ZERO, cell_size };
        let context = self.context.clone();
        let call = amalgam_proto::contract::Survey { context, lattice, margin: 0.0, centres: true };
        self.wire.survey(call.to_wire())
    }

    pub(crate) fn survey(&mut self, cell_size: f64, margin: f64) -> Result<CellSet, No> {
        let lattice = amalgam_particles::Lattice { origin: DVec3::ZERO, cell_size };
        let call = amalgam_proto::contract::Survey {
            context: self.context.clone(),
            lattice,
            margin,
            centres: false,
        };
        self.wire.survey(call.to_wire())
    }
}

/// Demands that a call is refused with a code.
pub(crate) fn refused<T>(answer: Result<T, No>, code: Code, what: &str) -> Check {
    match answer {
        Ok(_) => broken(format!("{what} is answered, but must be refused with {}", code_name(code))),
        Err(no) if no.code() == Some(code) => Ok(()),
        Err(no) => broken(format!("{what} must be refused with {}, but {no}", code_name(code))),
    }
}

/// The hash of a state, as `docs/reference/protocol.md` defines it.
pub(crate) fn state_hash(frame: &Frame) -> u64 {
    (0..frame.id.len()).fold(0, |sum: u64, i| {
        let (x, v) = (frame.position[i], frame.velocity[i]);
        let words = [x.x, x.y, x.z, v.x, v.y, v.z].map(f64::to_bits);
        let hash = words.iter().fold(random::mix(frame.id[i].0), |hash, &word| random::mix(hash ^ word));
        sum.wrapping_add(hash)
    })
}

/// An answer to Commit without the wall time, which may differ between equal answers.
pub(crate) fn timeless(done: &Committed) -> Committed {
    Committed { solver_seconds: 0.0, ..done.clone() }
}
