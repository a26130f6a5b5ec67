//! The only rank.

use crate::{backend::Backend, message::Message};

pub(crate) struct Alone;

impl Backend for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn exchange(&self, _: &[usize], send: Vec<Message>) -> Vec<Message> {
        send
    }

    fn all_to_all(&self, send: Vec<Message>) -> Vec<Message> {
        send
    }

    fn gather(&self, message: Message) -> Option<Vec<Message>> {
        Some(vec![message])
    }

    fn broadcast(&self, message: Message) -> Message {
        message
    }

    fn await_broadcast(&self, like: Message) -> Message {
        like
    }

    fn max(&self, _: &mut [i64]) {}

    fn sum(&self, _: &mut [u64]) {}

    fn sum_exact(&self, _: &mut [f64]) {}

    fn abandon(&self) {}
}
