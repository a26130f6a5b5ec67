//! The ranks of a participant, and a rank's way to the others: messages, sums, maxima and broadcasts.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytemuck::Pod;

#[cfg(feature = "mpi")]
use crate::mpi::{self, MpiError};
use crate::{alone, backend::Backend, message::Message, threads};

/// One of the ranks that share a participant, and its way to the others. Clones share it.
///
/// Unless said otherwise, calls are collective: every rank makes them in the same order, one thread at a
/// time.
#[derive(Clone)]
pub struct Ranks {
    backend: Arc<dyn Backend>,
    counters: Arc<Counters>,
}

/// Messages and calls of a rank so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Messages to single ranks.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Calls in which all ranks take part: sums, maxima, broadcasts.
    pub collectives: u64,
}

#[derive(Default)]
struct Counters {
    messages: AtomicU64,
    bytes: AtomicU64,
    collectives: AtomicU64,
    /// Time in messages and calls [ns].
    waited: AtomicU64,
}

impl Counters {
    fn message(&self, bytes: usize) {
        self.messages.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn collective(&self) {
        self.collectives.fetch_add(1, Relaxed);
    }
}

impl Default for Ranks {
    fn default() -> Self {
        Self::alone()
    }
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Ranks").field("rank", &self.rank()).field("size", &self.size()).finish()
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        // The other ranks would wait for this one forever.
        if std::thread::panicking() {
            self.backend.abandon();
        }
    }
}

impl Ranks {
    /// The only rank: no call waits for anything or copies a message.
    pub fn alone() -> Self {
        Self::new(alone::Alone)
    }

    fn new(backend: impl Backend + 'static) -> Self {
        Self { backend: Arc::new(backend), counters: Arc::default() }
    }

    /// One handle for each of `size` threads that act as ranks, the first rank's first.
    ///
    /// If a rank's last handle is dropped, or one while its thread panics, the other ranks panic as soon as
    /// they need that rank.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn threads(size: usize) -> Vec<Self> {
        assert!(size > 0, "a participant has at least one rank");
        if size == 1 {
            return vec![Self::alone()];
        }
        threads::ranks(size).map(Self::new).collect()
    }

    /// This process among those that `mpirun` started.
    ///
    /// A handle that is dropped while its thread panics ends all processes. The last handle to be dropped
    /// finalises MPI, which waits for the other ranks: a rank that stops early for another reason calls
    /// [`Self::abandon`]. MPI must end on the thread that began it: keep a handle where this was called.
    ///
    /// # Errors
    /// If MPI was initialised before, or does not let threads take turns in calling it.
    #[cfg(feature = "mpi")]
    pub fn mpi() -> Result<Self, MpiError> {
        Ok(Self::new(mpi::Mpi::new()?))
    }

    /// This rank's number, from 0. Not collective.
    pub fn rank(&self) -> usize {
        self.backend.rank()
    }

    /// The number of ranks. Not collective.
    pub fn size(&self) -> usize {
        self.backend.size()
    }

    /// True on rank 0. Not collective.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// True if there is no other rank. Not collective.
    pub fn is_alone(&self) -> bool {
        self.size() == 1
    }

    /// Messages and calls of this rank so far. Not collective.
    pub fn sent(&self) -> Sent {
        let Counters { messages, bytes, collectives, .. } = &*self.counters;
        Sent {
            messages: messages.load(Relaxed),
            bytes: bytes.load(Relaxed),
            collectives: collectives.load(Relaxed),
        }
    }

    /// Time that this rank has spent in messages and calls, waits for others included. Not collective.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.counters.waited.load(Relaxed))
    }

    /// Carries out a call, and counts its time.
    fn call<T>(&self, call: impl FnOnce(&dyn Backend) -> T) -> T {
        let start = Instant::now();
        let answer = call(&*self.backend);
        self.counters.waited.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
        answer
    }

    /// Tells the others that this rank will make no further call: threads panic once they need it, MPI ends
    /// all processes. Does nothing where the rank is alone. Not collective.
    pub fn abandon(&self) {
        self.backend.abandon();
    }

    /// `send[to]` goes to rank `to`; entry `from` of the answer came from rank `from`. Empty messages cost
    /// little.
    ///
    /// # Panics
    /// If there is not one message for each rank.
    pub fn all_to_all<T: Pod>(&self, send: Vec<Vec<T>>) -> Vec<Vec<T>> {
        assert_eq!(send.len(), self.size(), "messages and ranks");
        if self.is_alone() {
            return send;
        }
        for (to, message) in send.iter().enumerate() {
            if to != self.rank() && !message.is_empty() {
                self.counters.message(size_of_val(&message[..]));
            }
        }
        unpack(self.call(|backend| backend.all_to_all(pack(send))))
    }

    /// As [`Self::all_to_all`] between neighbours: `send[k]` goes to rank `with[k]`, and entry `k` of the
    /// answer came from there. Rank a is in b's list where b is in a's; a list is sorted and does not hold
    /// the rank itself.
    ///
    /// # Panics
    /// If the list is not sorted, names no other rank, or there is not one message for each entry.
    pub fn exchange<T: Pod>(&self, with: &[usize], send: Vec<Vec<T>>) -> Vec<Vec<T>> {
        assert_eq!(send.len(), with.len(), "messages and neighbours");
        assert!(with.is_sorted_by(|a, b| a < b), "neighbours {with:?} must ascend");
        let others = with.iter().all(|&other| other < self.size() && other != self.rank());
        assert!(others, "neighbours {with:?} must be other ranks");
        if with.is_empty() {
            return send;
        }
        send.iter().for_each(|message| self.counters.message(size_of_val(&message[..])));
        unpack(self.call(|backend| backend.exchange(with, pack(send))))
    }

    /// All ranks' values at the first rank, by rank; none at the others.
    pub fn gather<T: Pod>(&self, values: Vec<T>) -> Option<Vec<Vec<T>>> {
        if self.is_alone() {
            return Some(vec![values]);
        }
        if !self.is_first() {
            self.counters.message(size_of_val(&values[..]));
        }
        self.call(|backend| backend.gather(Message::pack(values))).map(unpack)
    }

    /// The first rank's values at all ranks. Values of the others are ignored.
    pub fn broadcast<T: Pod>(&self, values: Vec<T>) -> Vec<T> {
        if self.is_alone() {
            return values;
        }
        self.counters.collective();
        self.call(|backend| backend.broadcast(Message::pack(values))).unpack()
    }

    /// The first rank's next broadcast, on any other rank, in place of [`Self::broadcast`]. The wait may be
    /// long, and it does not keep a core busy for longer than a moment.
    ///
    /// # Panics
    /// On the first rank.
    pub fn await_broadcast<T: Pod>(&self) -> Vec<T> {
        assert!(!self.is_first(), "the first rank cannot wait for itself");
        self.counters.collective();
        self.backend.await_broadcast(Message::pack(Vec::<T>::new())).unpack()
    }

    /// A list of `count` values, each of which one rank knows, at all ranks; `own` are those of this rank, by
    /// place in the list. Places that no rank names are zero.
    ///
    /// # Panics
    /// If a place is not in the list.
    pub fn shared<T: Pod>(&self, count: usize, own: impl IntoIterator<Item = (usize, T)>) -> Vec<T> {
        // All other ranks have zeros in a value's words, so the sum of words is the value.
        let width = size_of::<T>().div_ceil(size_of::<u64>());
        let mut words = vec![0u64; count * width];
        for (at, value) in own {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words[at * width..][..width]);
            bytes[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        }
        self.wrapping_sum(&mut words);
        let value = |words: &[u64]| {
            bytemuck::pod_read_unaligned(&bytemuck::cast_slice::<u64, u8>(words)[..size_of::<T>()])
        };
        words.chunks(width.max(1)).map(value).collect()
    }

    /// Largest value over ranks, element by element; NaN if any is NaN. Zero is larger than minus zero.
    pub fn max(&self, values: &mut [f64]) {
        let mut keys: Vec<i64> = values.iter().map(|&value| key(value)).collect();
        if !self.is_alone() {
            self.counters.collective();
            self.call(|backend| backend.max(&mut keys));
        }
        for (value, key) in values.iter_mut().zip(keys) {
            *value = from_key(key);
        }
    }

    /// Sum over ranks, element by element, of terms whose sums are exact in any order: multiples of a power
    /// of two, with sums far below 2^53 times that power. A sum of zeros is plus zero.
    pub fn sum_exact(&self, values: &mut [f64]) {
        if !self.is_alone() {
            self.counters.collective();
            self.call(|backend| backend.sum_exact(values));
        }
        for value in values {
            *value += 0.0;
        }
    }

    /// Sum over ranks, element by element; it wraps.
    pub fn sum(&self, values: &mut [i64]) {
        if !self.is_alone() {
            self.counters.collective();
            self.call(|backend| backend.sum(bytemuck::cast_slice_mut(values)));
        }
    }

    /// As [`Self::sum`], for words without a sign, such as hashes.
    pub fn wrapping_sum(&self, values: &mut [u64]) {
        if !self.is_alone() {
            self.counters.collective();
            self.call(|backend| backend.sum(values));
        }
    }

    /// True on all ranks if it is true on any.
    pub fn any(&self, flag: bool) -> bool {
        let mut flags = [i64::from(flag)];
        if !self.is_alone() {
            self.counters.collective();
            self.call(|backend| backend.max(&mut flags));
        }
        flags[0] != 0
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&self) {
        self.any(false);
    }
}

fn pack<T: Pod>(messages: Vec<Vec<T>>) -> Vec<Message> {
    messages.into_iter().map(Message::pack).collect()
}

fn unpack<T: Pod>(messages: Vec<Message>) -> Vec<Vec<T>> {
    messages.into_iter().map(Message::unpack).collect()
}

/// An integer that orders like the number; the largest one for NaN.
fn key(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    match (value.is_nan(), bits < 0) {
        (true, _) => i64::MAX,
        (_, true) => bits ^ i64::MAX,
        _ => bits,
    }
}

/// The inverse of [`key`].
fn from_key(key: i64) -> f64 {
    match key {
        i64::MAX => f64::NAN,
        ..0 => f64::from_bits((key ^ i64::MAX).cast_unsigned()),
        _ => f64::from_bits(key.cast_unsigned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_like_numbers() {
        let ordered =
            [f64::NEG_INFINITY, -1e300, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, 1e300, f64::INFINITY];
        for pair in ordered.windows(2) {
            assert!(key(pair[0]) < key(pair[1]), "{pair:?}");
        }
        for value in ordered {
            assert_eq!(from_key(key(value)).to_bits(), value.to_bits());
        }
        assert!(key(f64::INFINITY) < key(f64::NAN) && key(-f64::NAN) == key(f64::NAN));
        assert!(from_key(key(f64::NAN)).is_nan());
    }

    #[test]
    fn one_rank_hears_itself() {
        let ranks = Ranks::default();
        assert!(ranks.is_first() && ranks.is_alone());
        assert_eq!(ranks.all_to_all(vec![vec![1u8, 2]]), [[1, 2]]);
        assert_eq!(ranks.exchange::<f64>(&[], vec![]), Vec::<Vec<f64>>::new());
        assert_eq!(ranks.gather(vec![3u16]), Some(vec![vec![3]]));
        assert_eq!(ranks.broadcast(vec![4u32]), [4]);
        assert_eq!(ranks.shared(3, [(2, [5u8, 6, 7])]), [[0; 3], [0; 3], [5, 6, 7]]);
        let mut values = [-0.0, f64::NAN];
        ranks.max(&mut values);
        assert!(values[0].to_bits() == (-0.0f64).to_bits() && values[1].is_nan());
        assert!(ranks.any(true) && !ranks.any(false));
        assert_eq!(format!("{ranks:?}"), "Ranks { rank: 0, size: 1 }");
    }
}
