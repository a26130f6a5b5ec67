//! Connection to a participant: calls with deadlines, whose errors name the participant, the step and the
//! phase.

use std::time::{Duration, Instant};

use amalgam_network::{Access, Calls, innermost, is_refusal, speaks_tls};
use amalgam_particles::{CellSet, DMat3, DVec3, Obstacle};
use amalgam_proto::columns::{Packet, WireError};
use amalgam_proto::contract::{
    AskFrame, AskSave, Batch, Begin, CELL_COLUMNS, Call, Commit, Committed, Context, Description, Frame,
    FrameFiles, Integrate, Integrated, Restore, Snapshot, SnapshotFiles, Survey, Surveyed, Table,
    obstacle_to_wire, vec3_to_wire,
};
use amalgam_proto::room::{CELL_BYTES_MAX, CELL_SET_BYTES_MAX};
use amalgam_proto::{
    Columns, Incoming, Known, Outgoing, PROTOCOL_VERSION, Room, call, gather, message_limit, v1,
};
use prost::Message;
use serde::{Deserialize, Serialize};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use amalgam_particles::text::shorten;

use super::address::{Address, CONNECT_DEADLINE, Sight, dial, look};
use crate::error::{CoordinatorError, Loss};
use crate::settings::{DomainSettings, Fault};

/// Entry of a participant in the scene.
#[derive(Clone, Debug)]
pub struct ParticipantPlan {
    /// Its name in the scene.
    pub name: String,
    /// Name of the program that must answer; any if empty.
    pub solver: String,
    /// True if its contacts give back the energy that merging takes, where the scene has no `coupling.alpha`.
    /// Contacts of a fluid do not.
    pub elastic: bool,
    /// Its own section of the scene, TOML.
    pub section: String,
    /// Address of its service.
    pub address: Address,
    /// Certificate and token for calls of its service.
    pub access: Access,
    /// Longest time to wait for its service to listen there.
    pub wait: Duration,
}

/// Bytes of column data sent and received.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WireBytes {
    pub(crate) out: u64,
    pub(crate) received: u64,
    /// Bytes in both directions that hold occupied cells on grids of participants.
    pub(crate) occupancy: u64,
}

/// An answer that has come, for statistics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// Name of the call.
    pub(crate) call: &'static str,
    /// Time of the answer.
    pub(crate) at: Instant,
    /// Bytes of columns of the call.
    pub(crate) bytes_out: u64,
    /// Bytes of columns of the answer.
    pub(crate) bytes_in: u64,
}

/// A connected participant.
pub(crate) struct Connection {
    pub(crate) name: String,
    pub(crate) elastic: bool,
    pub(crate) description: Description,
    pub(crate) wire: WireBytes,
    address: Address,
    access: Access,
    calls: Calls,
    context: Context,
    deadline: Duration,
    /// Number of its particles.
    particles: u64,
    /// Number of particles in the last batch.
    sent_count: usize,
    /// Slopes in the last answer to Integrate [kg].
    slope: Vec<DMat3>,
    /// Stage of the last Integrate in the step.
    stage: u32,
    /// The last call, and when it was answered.
    answered: Option<(&'static str, Instant)>,
    /// Bytes of columns before the last call.
    before: WireBytes,
}

/// Time to connect, and time for an answer, when the coordinator finds out why a participant does not answer;
/// `coupling.step_deadline` if this is shorter.
const LOOK_DEADLINE: Duration = Duration::from_secs(2);

impl Connection {
    pub(crate) async fn connect(
        plan: &ParticipantPlan,
        run_id: &str,
        epoch: u64,
        deadline: Duration,
    ) -> Result<Self, CoordinatorError> {
        let unreachable = |reason: String| CoordinatorError::Connect {
            participant: plan.name.clone(),
            address: plan.address.to_string(),
            reason,
        };
        let refused = |reason: String| CoordinatorError::Refused {
            participant: plan.name.clone(),
            address: plan.address.to_string(),
            reason,
        };
        let patience = CONNECT_DEADLINE.min(deadline);
        let late = |what: &str| unreachable(format!("no {what} within {} s", patience.as_secs_f64()));
        let dialled = tokio::time::timeout(patience, dial(&plan.address, &plan.access)).await;
        let calls = dialled.map_err(|_| late("connection"))?.map_err(|error| match is_refusal(&error) {
            true => refused(innermost(&error)),
            false => unreachable(format!("no connection: {}", innermost(&error))),
        })?;
        let handshake =
            |reason: String| CoordinatorError::Handshake { participant: plan.name.clone(), reason };
        let answer =
            tokio::time::timeout(patience, describe(&calls)).await.map_err(|_| late("answer to Describe"))?;
        if let (Err(status), Address::Tcp(address)) = (&answer, &plan.address)
            && is_lost(status)
            && !plan.access.has_tls()
            && speaks_tls(address, LOOK_DEADLINE.min(deadline)).await
        {
            return Err(refused("it speaks TLS: give the folder of its certificates with --tls DIR".into()));
        }
        let answer = answer.map_err(|status| match status.code() {
            Code::Unimplemented => {
                handshake("it does not serve amalgam.solver.v1; is the address right?".into())
            }
            Code::FailedPrecondition => handshake(shorten(status.message())),
            Code::Unauthenticated => refused(shorten(status.message())),
            _ => unreachable(shorten(status.message())),
        })?;
        let spoken = answer.protocol_version;
        if spoken != PROTOCOL_VERSION {
            let older = if spoken < PROTOCOL_VERSION { "the solver" } else { "amalgam" };
            return Err(handshake(format!(
                "it speaks version {spoken} of amalgam.solver, this coordinator version {PROTOCOL_VERSION}: update {older}"
            )));
        }
        let description = Description::from_wire(answer).map_err(|error| handshake(error.to_string()))?;
        if !plan.solver.is_empty() && description.name != plan.solver {
            return Err(handshake(format!(
                "the scene wants solver {:?}, but {} serves {:?}",
                plan.solver, plan.address, description.name
            )));
        }
        let context = Context { run_id: run_id.into(), epoch, step: 0 };
        Ok(Self {
            name: plan.name.clone(),
            elastic: plan.elastic,
            description,
            wire: WireBytes::default(),
            address: plan.address.clone(),
            access: plan.access.clone(),
            calls,
            context,
            deadline,
            particles: 0,
            sent_count: 0,
            slope: Vec::new(),
            stage: 0,
            answered: None,
            before: WireBytes::default(),
        })
    }

    pub(crate) async fn initialize(
        &mut self,
        section: &str,
        (domain, obstacles): (&DomainSettings, &[Obstacle]),
        seed: u64,
        nearest_to: Vec<DVec3>,
    ) -> Result<Table, CoordinatorError> {
        let mut request = v1::InitializeRequest {
            run_id: self.context.run_id.clone(),
            epoch: self.context.epoch,
            participant: self.name.clone(),
            section: section.into(),
            domain_min: Some(vec3_to_wire(domain.min)),
            domain_max: Some(vec3_to_wire(domain.max)),
            gravity: Some(vec3_to_wire(domain.gravity)),
            seed,
            obstacles: Vec::new(),
            brief: true,
            nearest_to: nearest_to.iter().copied().map(vec3_to_wire).collect(),
        };
        let wanted = if self.description.wants_obstacles { obstacles } else { &[] };
        let mut too_large = None;
        for (obstacle, settings) in wanted.iter().zip(&domain.obstacles) {
            request.obstacles.push(obstacle_to_wire(obstacle));
            if request.encoded_len() > message_limit() {
                request.obstacles.pop();
                too_large = too_large.or(Some(&settings.name));
            }
        }
        let mut calls = self.calls.clone();
        let answer = async move {
            let answer = call(&mut calls, "Initialize", Outgoing::message(&request)).await?;
            collect::<v1::InitializeResponse>(answer, |header| Table::room(header, &Known::default())).await
        };
        let answer = self.in_time("Initialize", answer).await;
        let table = self.read("Initialize", answer, Table::decode)?;
        if table.keeps_off_obstacles && !self.description.wants_obstacles {
            return Err(
                self.broken("Initialize", "it keeps its particles off obstacles, but does not ask for them")
            );
        }
        if let Some(obstacle) = too_large {
            let (name, bytes) = (&self.name, message_limit());
            if table.keeps_off_obstacles {
                return Err(CoordinatorError::Scene(format!(
                    "participant {name} keeps itself off obstacles, but the mesh of obstacle {obstacle} does not fit into a \
                     message of {bytes} bytes: simplify the mesh"
                )));
            }
            tracing::warn!(
                "{name} is not told of obstacle {obstacle}, whose mesh does not fit into a message of {bytes} bytes: contacts \
                 hold its particles out, but its solver does not know what the obstacle fills. Simplify the mesh"
            );
        }
        if let Some(brief) = &table.brief
            && brief.nearest.len() != nearest_to.len()
        {
            let (named, asked) = (brief.nearest.len(), nearest_to.len());
            return Err(self.broken("Initialize", format!("{named} nearest particles for {asked} points")));
        }
        self.particles = table.count();
        Ok(table)
    }

    /// The answer that has come since the last call of this function.
    pub(crate) fn take_answer(&mut self) -> Option<Answer> {
        let (call, at) = self.answered.take()?;
        let before = std::mem::replace(&mut self.before, self.wire);
        let (bytes_out, bytes_in) = (self.wire.out - before.out, self.wire.received - before.received);
        Some(Answer { call, at, bytes_out, bytes_in })
    }

    /// Goes on counting from a checkpoint.
    pub(crate) fn go_on(&mut self, wire: WireBytes) {
        (self.wire, self.before, self.answered) = (wire, wire, None);
    }

    fn known(&self) -> Known {
        Known { particles: self.particles, ..Known::default() }
    }

    /// A context for the step that the participant expects.
    pub(crate) fn context(&self) -> Context {
        self.context.clone()
    }

    /// The cells that the particles touch, at most `cells` of them.
    pub(crate) async fn survey(&mut self, call: &Survey, cells: u64) -> Result<CellSet, CoordinatorError> {
        let cell_bytes = cells.saturating_mul(CELL_BYTES_MAX).min(CELL_SET_BYTES_MAX);
        let known = Known { cell_bytes, ..self.known() };
        let request = Outgoing::message(&call.to_wire());
        let answer =
            self.call::<v1::SurveyResponse>("Survey", request, |header| Surveyed::room(header, &known)).await;
        self.read("Survey", answer, Surveyed::decode).map(|Surveyed(cells)| cells)
    }

    /// The particles that are wanted.
    pub(crate) async fn begin(&mut self, call: Begin) -> Result<Batch, CoordinatorError> {
        let packets = self.packets(call.into_packets());
        let known = self.known();
        let answer =
            self.call::<v1::BeginResponse>("Begin", packets, |header| Batch::room(header, &known)).await;
        let batch = self.read("Begin", answer, Batch::decode)?;
        self.note_told("Begin", &batch)?;
        Ok(batch)
    }

    fn note_told(&mut self, phase: &'static str, batch: &Batch) -> Result<(), CoordinatorError> {
        let (count, known) = (batch.position.len(), self.sent_count);
        if batch.id.is_none() && count != known {
            let reason = format!("{count} particles as before, but before there were {known}");
            return Err(self.broken(phase, reason));
        }
        self.sent_count = count;
        Ok(())
    }

    pub(crate) async fn integrate(
        &mut self,
        call: Integrate,
        watched: u64,
    ) -> Result<Integrated, CoordinatorError> {
        let (groups, is_repetition) = (call.impulse.len() as u64, call.repetition > 0);
        self.stage = call.stage;
        let packets = self.packets(call.into_packets());
        let room = |header: &_| Ok(Integrated::room(header, groups, watched));
        let answer = self.call::<v1::IntegrateResponse>("Integrate", packets, room).await;
        let mut answer = self.read("Integrate", answer, |header, columns| {
            Integrated::decode(header, columns, (groups, watched), is_repetition)
        })?;
        answer.complete(&mut self.slope);
        Ok(answer)
    }

    pub(crate) async fn commit(&mut self, call: Commit) -> Result<Committed, CoordinatorError> {
        let (grids, tracked) = (call.grids.len(), call.track.len() as u64);
        let packets = self.packets(call.into_packets());
        let known = self.known();
        let room = |header: &_| Committed::room(header, &known, grids, tracked);
        let answer = self.call::<v1::CommitResponse>("Commit", packets, room).await;
        let committed = self
            .read("Commit", answer, |header, columns| Committed::decode(header, columns, grids, tracked))?;
        if let Some(batch) = &committed.next {
            self.note_told("Commit", batch)?;
        }
        self.context.step += 1;
        self.stage = 0;
        self.particles = committed.particles;
        Ok(committed)
    }

    pub(crate) async fn frame(
        &mut self,
        surface: bool,
        files: Option<FrameFiles>,
    ) -> Result<Frame, CoordinatorError> {
        let may_write = files.is_some();
        let request = AskFrame { context: self.context(), surface, files }.to_wire();
        let known = self.known();
        let request = Outgoing::message(&request);
        let answer =
            self.call::<v1::FrameResponse>("Frame", request, |header| Frame::room(header, &known)).await;
        let frame = self.read("Frame", answer, Frame::decode)?;
        match frame.written.is_some() && !may_write {
            true => Err(self.broken("Frame", "it wrote files that were not asked for")),
            false => Ok(frame),
        }
    }

    /// The whole state, which the participant may write to files.
    pub(crate) async fn save(&mut self, files: Option<SnapshotFiles>) -> Result<Snapshot, CoordinatorError> {
        let may_write = files.is_some();
        let request = AskSave { context: self.context(), files }.to_wire();
        let known = self.known();
        let request = Outgoing::message(&request);
        let answer =
            self.call::<v1::SaveResponse>("Save", request, |header| Snapshot::room(header, &known)).await;
        let snapshot = self.read("Save", answer, Snapshot::decode)?;
        match snapshot.parts > 0 && !may_write {
            true => Err(self.broken("Save", "it wrote files that were not asked for")),
            false => Ok(snapshot),
        }
    }

    /// Restores what a participant saved before step `step`. The context of the call is that of this connection.
    pub(crate) async fn restore(
        &mut self,
        step: u64,
        call: Restore,
        state_hash: u64,
    ) -> Result<(), CoordinatorError> {
        self.context.step = step;
        let particles = call.particles;
        let packets = self.packets(Restore { context: self.context(), ..call }.into_packets());
        let restored: v1::RestoreResponse = self.call_single("Restore", packets).await?;
        let restored = restored.state_hash;
        if restored != state_hash {
            let reason = format!("its state has hash {restored:016x}, but {state_hash:016x} was saved");
            return Err(self.broken("Restore", reason));
        }
        (self.particles, self.sent_count) = (particles, 0);
        Ok(())
    }

    pub(crate) async fn shutdown(&mut self) -> Result<(), CoordinatorError> {
        let request = v1::ShutdownRequest { context: Some(self.context.to_wire()) };
        let ended: Result<v1::ShutdownResponse, _> =
            self.call_single("Shutdown", Outgoing::message(&request)).await;
        ended.map(|_| ())
    }

    /// Error for an answer that breaks the contract.
    pub(crate) fn broken(&self, phase: &'static str, reason: impl Into<String>) -> CoordinatorError {
        CoordinatorError::Protocol {
            participant: self.name.clone(),
            step: self.context.step,
            phase,
            reason: reason.into(),
        }
    }

    fn packets<P: Packet>(&mut self, packets: Vec<P>) -> Outgoing {
        for column in packets.iter().flat_map(P::columns) {
            let bytes = column.data.len() as u64;
            self.wire.out += bytes;
            self.wire.occupancy += if column.name == "occupied" { bytes } else { 0 };
        }
        Outgoing::packets(packets)
    }

    /// Makes a call whose answer holds columns. The header of the answer says how much room they may take.
    async fn call<P: Packet>(
        &mut self,
        phase: &'static str,
        sent: Outgoing,
        room: impl Fn(&P::Header) -> Result<Room, WireError>,
    ) -> Result<(P::Header, Columns), CoordinatorError> {
        self.call_twice(phase, async |mut calls: Calls| {
            collect::<P>(call(&mut calls, phase, sent.clone()).await?, &room).await
        })
        .await
    }

    /// Makes a call whose answer is a single message.
    async fn call_single<M: Message + Default>(
        &mut self,
        phase: &'static str,
        sent: Outgoing,
    ) -> Result<M, CoordinatorError> {
        self.call_twice(phase, async |mut calls: Calls| {
            call(&mut calls, phase, sent.clone()).await?.single().await
        })
        .await
    }

    /// Makes a call, and repeats it once if the answer is lost with the connection. A service that has
    /// carried out the call before answers it again and does nothing.
    async fn call_twice<T>(
        &mut self,
        phase: &'static str,
        call: impl AsyncFn(Calls) -> Result<T, Status>,
    ) -> Result<T, CoordinatorError> {
        let asked = Instant::now();
        let attempts = async {
            match call(self.calls.clone()).await {
                Err(status) if is_lost(&status) => call(self.calls.clone()).await,
                answer => answer,
            }
        };
        let answer = self.in_time(phase, attempts).await;
        let answered = Instant::now();
        self.answered = Some((phase, answered));
        tracing::trace!(
            run = self.context.run_id,
            participant = self.name,
            step = self.context.step,
            stage = self.stage,
            call = phase,
            seconds = (answered - asked).as_secs_f64(),
            ok = answer.is_ok(),
            "answered"
        );
        answer
    }

    async fn in_time<T>(
        &self,
        phase: &'static str,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, CoordinatorError> {
        match tokio::time::timeout(self.deadline, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(status)) if is_lost(&status) => {
                let cause = std::error::Error::source(&status).map(innermost);
                let cause = cause.unwrap_or_else(|| shorten(status.message()));
                Err(self.lost(phase, self.why_lost(Some(cause)).await))
            }
            Ok(Err(status)) => Err(self.failure(phase, &status)),
            Err(_) => Err(self.lost(phase, self.why_lost(None).await)),
        }
    }

    fn lost(&self, phase: &'static str, loss: Loss) -> CoordinatorError {
        let (participant, address) = (self.name.clone(), self.address.to_string());
        CoordinatorError::Lost { participant, address, step: self.context.step, phase, loss }
    }

    /// Finds out why there is no answer. `broken` is the fault of the connection, or `None` if the deadline
    /// passed.
    async fn why_lost(&self, broken: Option<String>) -> Loss {
        let seconds = self.deadline.as_secs_f64();
        match (look(&self.address, &self.access, LOOK_DEADLINE.min(self.deadline)).await, broken) {
            (Sight::NobodyListens(reason), broken) => Loss::Dead(broken.unwrap_or(reason)),
            (Sight::NoWay(reason), _) => Loss::Unreachable(reason),
            (Sight::Answers, None) => Loss::Slow(seconds),
            (Sight::Silent, None) => Loss::Silent(seconds),
            (Sight::Answers | Sight::Silent, Some(reason)) => Loss::Broken(reason),
        }
    }

    fn failure(&self, phase: &'static str, status: &Status) -> CoordinatorError {
        let (participant, step, reason) = (self.name.clone(), self.context.step, shorten(status.message()));
        match status.code() {
            Code::NotFound => self.lost(phase, Loss::Restarted),
            Code::Unauthenticated => {
                CoordinatorError::Refused { participant, address: self.address.to_string(), reason }
            }
            Code::Aborted => CoordinatorError::Solver { participant, step, phase, reason },
            Code::InvalidArgument if phase == "Initialize" => {
                let violations =
                    status.get_details_bad_request().map(|d| d.field_violations).unwrap_or_default();
                if violations.is_empty() {
                    return CoordinatorError::Protocol { participant, step, phase, reason };
                }
                let errors = violations.into_iter().map(|v| Fault { key: v.field, message: v.description });
                CoordinatorError::Section { participant, errors: errors.collect() }
            }
            Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange | Code::ResourceExhausted => {
                CoordinatorError::Protocol { participant, step, phase, reason }
            }
            Code::Unimplemented => {
                let reason = format!("it does not serve this call: {reason}");
                CoordinatorError::Protocol { participant, step, phase, reason }
            }
            // A foreign program has not caught an exception.
            code => {
                let reason =
                    format!("an error in its program, which its log may explain ({code:?}): {reason}");
                CoordinatorError::Solver { participant, step, phase, reason }
            }
        }
    }

    fn read<H, T>(
        &mut self,
        phase: &'static str,
        answer: Result<(H, Columns), CoordinatorError>,
        decode: impl FnOnce(H, Columns) -> Result<T, WireError>,
    ) -> Result<T, CoordinatorError> {
        let (header, columns) = answer?;
        self.wire.received += columns.bytes();
        self.wire.occupancy += CELL_COLUMNS.iter().map(|name| columns.bytes_of(name)).sum::<u64>();
        decode(header, columns).map_err(|error| self.broken(phase, error.to_string()))
    }
}

/// Asks a service for its description. A service that refuses the coordinator's version of the protocol is
/// asked in older versions.
async fn describe(calls: &Calls) -> Result<v1::DescribeResponse, Status> {
    let mut calls = calls.clone();
    let mut ask = async |protocol_version| {
        let request = Outgoing::message(&v1::DescribeRequest { protocol_version });
        call(&mut calls, "Describe", request).await?.single().await
    };
    let refusal = match ask(PROTOCOL_VERSION).await {
        Err(status) if status.code() == Code::FailedPrecondition => status,
        answer => return answer,
    };
    for version in (1..PROTOCOL_VERSION).rev() {
        if let Ok(answer) = ask(version).await {
            return Ok(answer);
        }
    }
    Err(refusal)
}

/// True if the answer was lost with the connection, so that the status does not come from the service.
fn is_lost(status: &Status) -> bool {
    status.code() == Code::Unavailable || std::error::Error::source(status).is_some()
}

/// Reads an answer. Its header says how much room the columns may take.
async fn collect<P: Packet>(
    answer: Incoming<P>,
    room: impl FnOnce(&P::Header) -> Result<Room, WireError>,
) -> Result<(P::Header, Columns), Status> {
    let room = |header: &P::Header| room(header).map_err(|error| Status::invalid_argument(error.to_string()));
    gather(answer, room).await
}
