//! Calls of the contract, message by message: sent as they are, answers checked and kept as text.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use amalgam_network::Calls;
use amalgam_particles::{CellSet, DMat3};
use amalgam_proto::columns::WireError;
use amalgam_proto::contract::{Batch, Call, Committed, Frame, Integrated, Snapshot, Surveyed, Table};
use amalgam_proto::v1::solver_client::SolverClient;
use amalgam_proto::{Columns, Known, Packet, Room, gather, message_limit, v1};
use futures_util::{Stream, StreamExt as _, stream};
use serde::Serialize;
use tonic::{Code, Response, Status, Streaming};

use crate::shown::{message, messages};

/// A call and its answer, shortened.
#[derive(Clone, Debug, Serialize)]
pub struct Exchange {
    /// Name of the call.
    pub call: &'static str,
    /// The request.
    pub request: String,
    /// The answer.
    pub answer: String,
}

/// Calls that are kept to show what broke a rule.
const EXCHANGES_KEPT: usize = 6;

/// Longest time for a call.
const CALL_DEADLINE: Duration = Duration::from_secs(60);

/// Messages of one answer, at most.
const MESSAGES_MAX: usize = 4096;

/// Reasons for which a call has no readable answer.
#[derive(Debug)]
pub(crate) enum No {
    /// The service refused it.
    Refused { call: &'static str, status: Box<Status> },
    /// There was no end of the answer in time.
    Late { call: &'static str },
    /// The answer breaks the contract.
    Wrong { call: &'static str, reason: String },
}

impl No {
    /// The code of a refusal.
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { status, .. } => Some(status.code()),
            _ => None,
        }
    }
}

impl fmt::Display for No {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { call, status } => {
                let text = amalgam_particles::text::shorten(status.message());
                write!(f, "{call} was refused with {} ({text})", code_name(status.code()))
            }
            Self::Late { call } => write!(f, "{call} was not answered within {} s", CALL_DEADLINE.as_secs()),
            Self::Wrong { call, reason } => write!(f, "the answer to {call} breaks the contract ({reason})"),
        }
    }
}

/// A code as the contract writes it.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

type Header<C> = <<C as Call>::Packet as Packet>::Header;

/// A connection to the service.
pub(crate) struct Wire {
    runtime: tokio::runtime::Runtime,
    client: SolverClient<Calls>,
    exchanges: VecDeque<Exchange>,
    /// Runs that were begun: each has another name.
    pub(crate) runs: u64,
    /// Slopes in the last answer to Integrate [kg].
    slope: Vec<DMat3>,
}

impl Wire {
    pub(crate) fn new(runtime: tokio::runtime::Runtime, channel: Calls) -> Self {
        let client = SolverClient::new(channel)
            .max_decoding_message_size(message_limit())
            .max_encoding_message_size(2 * message_limit());
        Self { runtime, client, exchanges: VecDeque::new(), runs: 0, slope: Vec::new() }
    }

    /// The last calls.
    pub(crate) fn take(&mut self) -> Vec<Exchange> {
        std::mem::take(&mut self.exchanges).into()
    }

    fn note(&mut self, call: &'static str, request: String, answer: String) {
        if self.exchanges.len() == EXCHANGES_KEPT {
            self.exchanges.pop_front();
        }
        self.exchanges.push_back(Exchange { call, request, answer });
    }

    /// Makes a call in time and keeps it as text.
    fn call<T>(
        &mut self,
        call: &'static str,
        request: String,
        answer: impl Future<Output = Result<T, Status>>,
        text: impl FnOnce(&T) -> String,
    ) -> Result<T, No> {
        let answered = self.runtime.block_on(async { tokio::time::timeout(CALL_DEADLINE, answer).await });
        match answered {
            Ok(Ok(answer)) => {
                self.note(call, request, text(&answer));
                Ok(answer)
            }
            Ok(Err(status)) => {
                let text = amalgam_particles::text::shorten(status.message());
                self.note(call, request, format!("{}: {text}", code_name(status.code())));
                Err(No::Refused { call, status: Box::new(status) })
            }
            Err(_) => {
                self.note(call, request, "nothing in time".into());
                Err(No::Late { call })
            }
        }
    }

    /// Makes a call as [`Self::call`] does, for an answer in columns, which is checked.
    fn columns<P: Packet + fmt::Debug + Clone, T>(
        &mut self,
        call: &'static str,
        request: String,
        answer: impl Future<Output = Result<Response<Streaming<P>>, Status>>,
        room: impl FnOnce(&P::Header) -> Result<Room, WireError>,
        read: impl FnOnce(P::Header, Columns) -> Result<T, WireError>,
    ) -> Result<T, No>
    where
        P::Header: fmt::Debug + Clone,
    {
        let whole = async {
            let mut packets = Vec::new();
            let mut stream = answer.await?.into_inner();
            while let Some(packet) = stream.next().await {
                packets.push(packet?);
                if packets.len() > MESSAGES_MAX {
                    return Err(Status::internal("the answer has no end"));
                }
            }
            Ok(packets)
        };
        let mut packets = self.call(call, request, whole, |packets: &Vec<P>| messages(packets))?;
        let wrong = |reason: String| No::Wrong { call, reason };
        let room = |header: &P::Header| room(header).map_err(|e| Status::internal(e.to_string()));
        let arrived = stream::iter(packets.drain(..).map(Ok));
        let (header, columns) =
            self.runtime.block_on(gather(arrived, room)).map_err(|status| wrong(status.message().into()))?;
        read(header, columns).map_err(|error| wrong(error.to_string()))
    }

    pub(crate) fn describe(&mut self, protocol_version: u32) -> Result<v1::DescribeResponse, No> {
        let request = v1::DescribeRequest { protocol_version };
        let (text, mut client) = (message(&request), self.client.clone());
        let answer = async move { client.describe(request).await.map(Response::into_inner) };
        self.call("Describe", text, answer, message)
    }

    pub(crate) fn initialize(&mut self, request: v1::InitializeRequest) -> Result<Table, No> {
        let (text, mut client) = (message(&request), self.client.clone());
        let answer = async move { client.initialize(request).await };
        let room = |header: &Header<Table>| Table::room(header, &Known::default());
        self.columns("Initialize", text, answer, room, Table::decode)
    }

    pub(crate) fn survey(&mut self, request: v1::SurveyRequest) -> Result<CellSet, No> {
        let (text, mut client) = (message(&request), self.client.clone());
        let answer = async move { client.survey(request).await };
        let room = |header: &Header<Surveyed>| Surveyed::room(header, &Known::default());
        self.columns("Survey", text, answer, room, Surveyed::decode).map(|Surveyed(cells)| cells)
    }

    pub(crate) fn begin(&mut self, packets: Vec<v1::BeginRequest>, known: Known) -> Result<Batch, No> {
        let (text, mut client) = (messages(&packets), self.client.clone());
        let answer = async move { client.begin(stream::iter(packets)).await };
        self.columns("Begin", text, answer, |header| Batch::room(header, &known), Batch::decode)
    }

    pub(crate) fn integrate(
        &mut self,
        packets: impl Stream<Item = v1::IntegrateRequest> + Send + 'static,
        text: String,
        ((groups, watched), is_repetition): ((u64, u64), bool),
    ) -> Result<Integrated, No> {
        let mut client = self.client.clone();
        let answer = async move { client.integrate(packets).await };
        let room = |header: &_| Ok(Integrated::room(header, groups, watched));
        let read = |header, columns| Integrated::decode(header, columns, (groups, watched), is_repetition);
        let mut answer = self.columns("Integrate", text, answer, room, read)?;
        answer.complete(&mut self.slope);
        Ok(answer)
    }

    pub(crate) fn commit(
        &mut self,
        packets: Vec<v1::CommitRequest>,
        known: Known,
        (grids, tracked): (usize, u64),
    ) -> Result<Committed, No> {
        let (text, mut client) = (messages(&packets), self.client.clone());
        let answer = async move { client.commit(stream::iter(packets)).await };
        let room = |header: &_| Committed::room(header, &known, grids, tracked);
        let read = |header, columns| Committed::decode(header, columns, grids, tracked);
        self.columns("Commit", text, answer, room, read)
    }

    pub(crate) fn frame(&mut self, request: v1::FrameRequest, known: Known) -> Result<Frame, No> {
        let (text, mut client) = (message(&request), self.client.clone());
        let answer = async move { client.frame(request).await };
        self.columns("Frame", text, answer, |header| Frame::room(header, &known), Frame::decode)
    }

    pub(crate) fn save(&mut self, request: v1::SaveRequest, known: Known) -> Result<Snapshot, No> {
        let (text, mut client) = (message(&request), self.client.clone());
        let answer = async move { client.save(request).await };
        self.columns("Save", text, answer, |header| Snapshot::room(header, &known), Snapshot::decode)
    }

    pub(crate) fn restore(&mut self, packets: Vec<v1::RestoreRequest>) -> Result<u64, No> {
        let (text, mut client) = (messages(&packets), self.client.clone());
        let answer = async move { client.restore(stream::iter(packets)).await.map(Response::into_inner) };
        self.call("Restore", text, answer, message).map(|answer| answer.state_hash)
    }

    pub(crate) fn shutdown(&mut self, request: v1::ShutdownRequest) -> Result<(), No> {
        let (text, mut client) = (message(&request), self.client.clone());
        let answer = async move { client.shutdown(request).await.map(Response::into_inner) };
        self.call("Shutdown", text, answer, message).map(drop)
    }
}
