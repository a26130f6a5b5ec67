//! Requests of the I/O side to the solver's thread, and their way from the first rank to the others.

use amalgam_proto::contract::{AskFrame, AskSave, Begin, Call, Commit, Context, Integrate, Restore, Survey};
use amalgam_proto::{Known, Packet, gather, v1};
use futures_util::{FutureExt as _, stream};
use prost::Message;
use tokio::sync::oneshot;
use tonic::Status;

/// Way back of an answer: the messages to send.
pub(crate) type Reply<P> = oneshot::Sender<Result<Vec<P>, Status>>;

/// A request of the I/O side to the solver's thread.
pub(crate) enum Order {
    Initialize(Box<v1::InitializeRequest>, Reply<v1::InitializeResponse>),
    Survey(Survey, Reply<v1::SurveyResponse>),
    Begin(Begin, Reply<v1::BeginResponse>),
    Integrate(Box<Integrate>, Reply<v1::IntegrateResponse>),
    Commit(Box<Commit>, Reply<v1::CommitResponse>),
    Frame(AskFrame, Reply<v1::FrameResponse>),
    Save(AskSave, Reply<v1::SaveResponse>),
    Restore(Restore, Reply<v1::RestoreResponse>),
    Shutdown(Context, Reply<v1::ShutdownResponse>),
}

impl Order {
    /// The call, and the run, step and stage that it is for.
    pub(crate) fn about(&self) -> (&'static str, &str, u64, u32) {
        let (call, context, stage) = match self {
            Self::Initialize(request, _) => return ("Initialize", &request.run_id, 0, 0),
            Self::Survey(call, _) => ("Survey", &call.context, 0),
            Self::Begin(call, _) => ("Begin", &call.context, 0),
            Self::Integrate(call, _) => ("Integrate", &call.context, call.stage),
            Self::Commit(call, _) => ("Commit", &call.context, call.stage),
            Self::Frame(ask, _) => ("Frame", &ask.context, 0),
            Self::Save(ask, _) => ("Save", &ask.context, 0),
            Self::Restore(call, _) => ("Restore", &call.context, 0),
            Self::Shutdown(context, _) => ("Shutdown", context, 0),
        };
        (call, &context.run_id, context.step, stage)
    }

    /// The request for another rank: a letter that names the call, then its messages, each behind its length.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let message = |letter: u8, message: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = vec![letter];
            message(&mut bytes);
            bytes
        };
        let context = |context: &Context| Some(context.to_wire());
        match self {
            Self::Initialize(request, _) => message(b'I', &|to| put(to, &**request)),
            Self::Survey(call, _) => message(b'Y', &|to| put(to, &call.to_wire())),
            Self::Begin(call, _) => message(b'B', &|to| put_call(to, call.clone())),
            Self::Integrate(call, _) => message(b'G', &|to| put_call(to, (**call).clone())),
            Self::Commit(call, _) => message(b'C', &|to| put_call(to, (**call).clone())),
            Self::Frame(ask, _) => message(b'F', &|to| put(to, &ask.to_wire())),
            Self::Save(ask, _) => message(b'S', &|to| put(to, &ask.to_wire())),
            Self::Restore(call, _) => message(b'R', &|to| put_call(to, call.clone())),
            Self::Shutdown(of, _) => {
                message(b'E', &|to| put(to, &v1::ShutdownRequest { context: context(of) }))
            }
        }
    }

    /// Reads what [`Self::to_bytes`] of the same program wrote. Nobody waits for the answer.
    ///
    /// # Errors
    /// A message that cannot be read. The first rank has checked the call.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, Status> {
        let (letter, mut rest) = bytes.split_first().ok_or_else(|| unreadable("nothing"))?;
        let rest = &mut rest;
        let wrong = |error: amalgam_proto::WireError| unreadable(error);
        let context = |context| Context::from_wire(context).map_err(wrong);
        Ok(match letter {
            b'I' => Self::Initialize(Box::new(take(rest)?), nobody()),
            b'Y' => Self::Survey(Survey::from_wire(take(rest)?).map_err(wrong)?, nobody()),
            b'B' => Self::Begin(take_call(rest)?, nobody()),
            b'G' => Self::Integrate(Box::new(take_call(rest)?), nobody()),
            b'C' => Self::Commit(Box::new(take_call(rest)?), nobody()),
            b'F' => Self::Frame(AskFrame::from_wire(take(rest)?).map_err(wrong)?, nobody()),
            b'S' => Self::Save(AskSave::from_wire(take(rest)?).map_err(wrong)?, nobody()),
            b'R' => Self::Restore(take_call(rest)?, nobody()),
            b'E' => Self::Shutdown(context(take::<v1::ShutdownRequest>(rest)?.context)?, nobody()),
            _ => return Err(unreadable("a call that this program does not know")),
        })
    }
}

fn nobody<P>() -> Reply<P> {
    oneshot::channel().0
}

fn unreadable(reason: impl std::fmt::Display) -> Status {
    Status::internal(format!("a call from the first rank cannot be read: {reason}"))
}

fn put(to: &mut Vec<u8>, message: &impl Message) {
    message.encode_length_delimited(to).expect("a vector has room");
}

fn put_call<C: Call>(to: &mut Vec<u8>, call: C)
where
    C::Packet: Message,
{
    call.into_packets().iter().for_each(|packet| put(to, packet));
}

fn take<M: Message + Default>(from: &mut &[u8]) -> Result<M, Status> {
    M::decode_length_delimited(from).map_err(unreadable)
}

fn take_call<C: Call>(from: &mut &[u8]) -> Result<C, Status>
where
    C::Packet: Message + Default + Unpin,
{
    let mut packets = Vec::new();
    while !from.is_empty() {
        packets.push(Ok(take::<C::Packet>(from)?));
    }
    let room =
        |header: &<C::Packet as Packet>::Header| C::room(header, &Known::default()).map_err(unreadable);
    let (header, columns) = gather(stream::iter(packets), room)
        .now_or_never()
        .expect("packets that are all here are not waited for")?;
    C::decode(header, columns).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use amalgam_particles::{DVec3, ParticleId};
    use amalgam_proto::contract::{FrameFiles, Groups};

    use super::*;

    #[test]
    fn calls_arrive_at_other_ranks_as_they_were() {
        let context = Context { run_id: "run".into(), epoch: 2, step: 7 };
        let groups = Groups {
            size: vec![2, 1],
            member: [5, 3, 9].map(ParticleId).to_vec(),
            velocity: vec![DVec3::X, DVec3::NEG_Y],
            watch: vec![ParticleId(1)],
            occupied: None,
        };
        let call = Integrate {
            context: context.clone(),
            stage: 1,
            repetition: 0,
            dt: 0.125,
            forcing: 0.0,
            groups: Some(groups),
            inertia: Some(vec![1.0, f64::INFINITY]),
            impulse: vec![DVec3::ZERO, DVec3::Z],
        };
        let sent = Order::Integrate(Box::new(call.clone()), nobody()).to_bytes();
        match Order::from_bytes(&sent) {
            Ok(Order::Integrate(arrived, _)) => assert_eq!(*arrived, call),
            _ => panic!("another call"),
        }
        let files =
            FrameFiles { folder: "/there".into(), stem: "water_000012".into(), time: 0.5, compressed: true };
        let ask = AskFrame { context, surface: true, files: Some(files) };
        match Order::from_bytes(&Order::Frame(ask.clone(), nobody()).to_bytes()) {
            Ok(Order::Frame(arrived, _)) => assert_eq!(arrived, ask),
            _ => panic!("another call"),
        }
        assert!(Order::from_bytes(&sent[..sent.len() - 1]).is_err());
        assert!(Order::from_bytes(b"x").is_err() && Order::from_bytes(b"").is_err());
    }
}
