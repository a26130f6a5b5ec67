//! Threads of one process as ranks: each has an inbox.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{backend::Backend, message::Message};

/// Messages to one rank that it has not yet taken, by the rank that sent them, the oldest first.
struct Inbox {
    queues: Mutex<Vec<VecDeque<Message>>>,
    changed: Condvar,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Vec<VecDeque<Message>>> {
        // A poisoned lock is no fault: nothing panics while a queue is half changed.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Shared {
    inboxes: Vec<Inbox>,
    gone: Vec<AtomicBool>,
    /// The rank that panicked first. The others name it, instead of a rank that panicked because of it.
    culprit: OnceLock<usize>,
}

/// One thread's place among the ranks.
pub(crate) struct Thread {
    rank: usize,
    shared: Arc<Shared>,
}

/// The places of `size` threads.
pub(crate) fn ranks(size: usize) -> impl Iterator<Item = Thread> {
    let inbox = |_| Inbox { queues: Mutex::new(vec![VecDeque::new(); size]), changed: Condvar::new() };
    let shared = Arc::new(Shared {
        inboxes: (0..size).map(inbox).collect(),
        gone: (0..size).map(|_| AtomicBool::new(false)).collect(),
        culprit: OnceLock::new(),
    });
    (0..size).map(move |rank| Thread { rank, shared: shared.clone() })
}

impl Thread {
    fn send(&self, to: usize, message: Message) {
        if self.shared.gone[to].load(Ordering::SeqCst) {
            self.panic_over(to);
        }
        let inbox = &self.shared.inboxes[to];
        inbox.lock()[self.rank].push_back(message);
        inbox.changed.notify_all();
    }

    fn receive(&self, from: usize) -> Message {
        let inbox = &self.shared.inboxes[self.rank];
        let mut queues = inbox.lock();
        loop {
            // A rank that is gone may have left a message before.
            if let Some(message) = queues[from].pop_front() {
                return message;
            }
            if self.shared.gone[from].load(Ordering::SeqCst) {
                drop(queues);
                self.panic_over(from);
            }
            queues = inbox.changed.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn panic_over(&self, rank: usize) -> ! {
        let culprit = self.shared.culprit.get_or_init(|| rank);
        panic!("rank {culprit} is gone");
    }

    fn leave(&self) {
        self.shared.gone[self.rank].store(true, Ordering::SeqCst);
        for inbox in &self.shared.inboxes {
            // Holds the lock: a rank that has just looked, and is about to wait, must not miss the signal.
            let _queues = inbox.lock();
            inbox.changed.notify_all();
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let rank = self.rank;
        (0..self.size()).filter(move |&other| other != rank)
    }

    /// Combines values of all ranks in the order of ranks.
    fn reduce<T: bytemuck::Pod>(&self, values: &mut [T], combine: impl Fn(T, T) -> T) {
        for other in self.others() {
            self.send(other, Message::pack(values.to_vec()));
        }
        let mut own = Some(values.to_vec());
        for from in 0..self.size() {
            let theirs = match own.take_if(|_| from == self.rank) {
                Some(own) => own,
                None => self.receive(from).unpack(),
            };
            assert_eq!(theirs.len(), values.len(), "ranks do not agree on the number of values");
            for (value, theirs) in values.iter_mut().zip(theirs) {
                *value = if from == 0 { theirs } else { combine(*value, theirs) };
            }
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Backend for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.inboxes.len()
    }

    fn exchange(&self, with: &[usize], send: Vec<Message>) -> Vec<Message> {
        for (&to, message) in with.iter().zip(send) {
            self.send(to, message);
        }
        with.iter().map(|&from| self.receive(from)).collect()
    }

    fn all_to_all(&self, send: Vec<Message>) -> Vec<Message> {
        for (to, message) in send.into_iter().enumerate() {
            self.send(to, message);
        }
        (0..self.size()).map(|from| self.receive(from)).collect()
    }

    fn gather(&self, message: Message) -> Option<Vec<Message>> {
        self.send(0, message);
        (self.rank == 0).then(|| (0..self.size()).map(|from| self.receive(from)).collect())
    }

    fn broadcast(&self, message: Message) -> Message {
        if self.rank != 0 {
            return self.receive(0);
        }
        for other in self.others() {
            self.send(other, message.clone());
        }
        message
    }

    fn await_broadcast(&self, _: Message) -> Message {
        self.receive(0)
    }

    fn max(&self, values: &mut [i64]) {
        self.reduce(values, i64::max);
    }

    fn sum(&self, values: &mut [u64]) {
        self.reduce(values, u64::wrapping_add);
    }

    fn sum_exact(&self, values: &mut [f64]) {
        self.reduce(values, |a, b| a + b);
    }

    fn abandon(&self) {
        self.shared.culprit.get_or_init(|| self.rank);
        self.leave();
    }
}
