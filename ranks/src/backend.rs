//! Messages between ranks: the part of [`crate::Ranks`] that differs between threads and processes.

use crate::message::Message;

/// One rank's way to the others. Calls are collective, except for the first two and the last.
pub(crate) trait Backend: Send + Sync {
    fn rank(&self) -> usize;

    fn size(&self) -> usize;

    /// Message `k` goes to rank `with[k]`, answer `k` came from there. Answers are as wide as messages.
    fn exchange(&self, with: &[usize], send: Vec<Message>) -> Vec<Message>;

    /// One message to each rank and one from each, this one included.
    fn all_to_all(&self, send: Vec<Message>) -> Vec<Message>;

    fn gather(&self, message: Message) -> Option<Vec<Message>>;

    fn broadcast(&self, message: Message) -> Message;

    /// Receives a broadcast for which the wait may be long. `like` is empty, and as wide as the message that
    /// comes.
    fn await_broadcast(&self, like: Message) -> Message;

    fn max(&self, values: &mut [i64]);

    /// Sums element by element over ranks; sums wrap.
    fn sum(&self, values: &mut [u64]);

    fn sum_exact(&self, values: &mut [f64]);

    /// This rank will make no further call.
    fn abandon(&self);
}
