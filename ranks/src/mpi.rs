//! Processes under MPI as ranks.

use std::{
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use bytemuck::Pod;
use mpi::{
    Threading,
    collective::SystemOperation,
    datatype::Equivalence,
    environment::Universe,
    request::Request,
    topology::{Process, SimpleCommunicator},
    traits::{Communicator, CommunicatorCollectives, Destination, Root, Source},
};

use crate::{backend::Backend, message::Message};

/// Bytes that MPI is given at once: its counts have 32 bits. A longer message is sent in pieces of this
/// length. It ends with a shorter piece, which may be empty.
const PIECE: usize = 1 << 30;

/// Tags distinguish messages between neighbours from lengths of broadcasts.
const DATA: i32 = 1;
const LENGTH: i32 = 2;

/// Probes in a row before a wait for a broadcast begins to sleep: some 20 us.
const PROBES: u32 = 200;

/// The first sleep, and the longest one.
const SLEEP_MIN: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// The exit status of a job that a rank abandoned: that of a panic.
const ABANDONED: i32 = 101;

/// Reasons for which this process cannot be a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpiError {
    /// MPI can be initialised once in a process.
    #[error("MPI is initialised already: a process can be a rank of one participant only")]
    Twice,
    /// Threads may not take turns.
    #[error("this MPI library lets only the main thread call it: use one with MPI_THREAD_SERIALIZED")]
    Threads,
}

/// This process's place among the ranks.
pub(crate) struct Mpi {
    rank: usize,
    size: usize,
    /// Finalises MPI when it is dropped. The lock makes threads take turns.
    universe: Mutex<Universe>,
}

impl Mpi {
    pub(crate) fn new() -> Result<Self, MpiError> {
        let (universe, threading) =
            mpi::initialize_with_threading(Threading::Serialized).ok_or(MpiError::Twice)?;
        if threading < Threading::Serialized {
            return Err(MpiError::Threads);
        }
        let world = universe.world();
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        Ok(Self { rank, size, universe: Mutex::new(universe) })
    }

    fn world(&self) -> World<'_> {
        let turn = self.universe.lock().unwrap_or_else(PoisonError::into_inner);
        World { world: turn.world(), _turn: turn }
    }
}

/// All processes, for as long as it is this thread's turn.
struct World<'a> {
    world: SimpleCommunicator,
    _turn: MutexGuard<'a, Universe>,
}

impl World<'_> {
    fn process(&self, rank: usize) -> Process<'_> {
        self.world.process_at_rank(rank as i32)
    }

    /// Sends messages, takes one from each rank of `from`, as wide as the message beside it, and waits until
    /// all are under way.
    fn swap(&self, send: &[(usize, Message)], from: &[(usize, Message)]) -> Vec<Message> {
        mpi::request::scope(|scope| {
            let pieces = send
                .iter()
                .flat_map(|(to, message)| pieces(message.bytes(), PIECE).map(|piece| (*to, piece)));
            let sent: Vec<_> = pieces
                .map(|(to, piece)| self.process(to).immediate_send_with_tag(scope, piece, DATA))
                .collect();
            let received = from.iter().map(|(from, like)| self.receive(*from, like)).collect();
            sent.into_iter().for_each(Request::wait_without_status);
            received
        })
    }

    fn receive(&self, from: usize, like: &Message) -> Message {
        let mut whole: Option<Message> = None;
        loop {
            let (message, status) = self.process(from).matched_probe_with_tag(DATA);
            let bytes = status.count(u8::equivalent_datatype()) as usize;
            let mut piece = like.zeroed(bytes);
            message.matched_receive_into(piece.bytes_mut());
            let joined = match whole.take() {
                Some(first) => first.join(piece),
                None => piece,
            };
            if bytes < PIECE {
                return joined;
            }
            whole = Some(joined);
        }
    }

    /// The second half of a broadcast: all ranks know how long the message is.
    fn spread(&self, mut message: Message) -> Message {
        for piece in message.bytes_mut().chunks_mut(PIECE) {
            self.process(0).broadcast_into(piece);
        }
        message
    }

    fn reduce<T: Equivalence + Pod>(&self, values: &mut [T], operation: SystemOperation) {
        for values in values.chunks_mut(PIECE / size_of::<T>()) {
            let own = values.to_vec();
            self.world.all_reduce_into(&own[..], values, operation);
        }
    }
}

/// A message in pieces of `length` bytes, and a shorter one at the end.
fn pieces(bytes: &[u8], length: usize) -> impl Iterator<Item = &[u8]> {
    let last = bytes.len() / length;
    (0..=last).map(move |k| &bytes[k * length..bytes.len().min((k + 1) * length)])
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // Finalising would wait for the other ranks, which may wait for this one.
        if thread::panicking() {
            self.abandon();
        }
    }
}

impl Backend for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(&self, with: &[usize], send: Vec<Message>) -> Vec<Message> {
        let from: Vec<_> = with.iter().zip(&send).map(|(&rank, message)| (rank, message.zeroed(0))).collect();
        let send: Vec<_> = with.iter().copied().zip(send).collect();
        self.world().swap(&send, &from)
    }

    fn all_to_all(&self, mut send: Vec<Message>) -> Vec<Message> {
        let world = self.world();
        let lengths: Vec<u64> = send.iter().map(|message| message.bytes().len() as u64).collect();
        let mut coming = vec![0u64; self.size];
        world.world.all_to_all_into(&lengths[..], &mut coming[..]);
        let mut answers: Vec<Message> = send.iter().map(|message| message.zeroed(0)).collect();
        answers[self.rank] = mem::replace(&mut send[self.rank], answers[self.rank].zeroed(0));
        let send: Vec<_> =
            send.into_iter().enumerate().filter(|(_, message)| !message.bytes().is_empty()).collect();
        let from = (0..self.size).filter(|&from| from != self.rank && coming[from] > 0);
        let from: Vec<_> = from.map(|from| (from, answers[from].zeroed(0))).collect();
        let received = world.swap(&send, &from);
        for ((from, _), message) in from.into_iter().zip(received) {
            answers[from] = message;
        }
        answers
    }

    fn gather(&self, message: Message) -> Option<Vec<Message>> {
        let world = self.world();
        if self.rank != 0 {
            world.swap(&[(0, message)], &[]);
            return None;
        }
        let from: Vec<_> = (1..self.size).map(|from| (from, message.zeroed(0))).collect();
        let mut all = vec![message];
        all.extend(world.swap(&[], &from));
        Some(all)
    }

    fn broadcast(&self, message: Message) -> Message {
        let world = self.world();
        if self.rank != 0 {
            let (length, _) = world.process(0).receive_with_tag::<u64>(LENGTH);
            return world.spread(message.zeroed(length as usize));
        }
        let length = message.bytes().len() as u64;
        for to in 1..self.size {
            world.process(to).send_with_tag(&length, LENGTH);
        }
        world.spread(message)
    }

    fn await_broadcast(&self, like: Message) -> Message {
        let (mut probes, mut sleep) = (0, SLEEP_MIN);
        while self.world().process(0).immediate_probe_with_tag(LENGTH).is_none() {
            probes += 1;
            if probes > PROBES {
                thread::sleep(sleep);
                // Each sleep is longer by an eighth and is about a ninth of the time slept so far: a call
                // that comes soon is answered soon.
                sleep = (sleep * 9 / 8).min(SLEEP_MAX);
            } else {
                thread::yield_now();
            }
        }
        self.broadcast(like)
    }

    fn max(&self, values: &mut [i64]) {
        self.world().reduce(values, SystemOperation::max());
    }

    fn sum(&self, values: &mut [u64]) {
        self.world().reduce(values, SystemOperation::sum());
    }

    fn sum_exact(&self, values: &mut [f64]) {
        self.world().reduce(values, SystemOperation::sum());
    }

    fn abandon(&self) {
        if self.size > 1 {
            // Without the lock: another thread may hold it while it waits for a rank that waits for this
            // rank.
            SimpleCommunicator::world().abort(ABANDONED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_piece_is_shorter_than_the_others() {
        let lengths = |bytes: &[u8]| pieces(bytes, 4).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(&[]), [0]);
        assert_eq!(lengths(&[0; 3]), [3]);
        assert_eq!(lengths(&[0; 8]), [4, 4, 0]);
        assert_eq!(lengths(&[0; 9]), [4, 4, 1]);
    }
}
