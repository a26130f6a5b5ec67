//! Limits on how slow the other end of a call may be.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

/// Time for a call's messages to come, or for its answer to be taken, beyond what its bytes need.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that come or go in a second, at least.
pub const RATE_MIN: u64 = 100_000;

/// Time that so many bytes need.
pub(crate) fn time_for(bytes: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / RATE_MIN as f64)
}

/// The messages of a call. It ends with DEADLINE_EXCEEDED if they take longer than [`PATIENCE`] and the time
/// that their bytes need.
pub fn paced<P, S>(stream: S, bytes: fn(&P) -> u64) -> impl Stream<Item = Result<P, Status>> + Unpin
where
    S: Stream<Item = Result<P, Status>> + Unpin,
{
    paced_within(PATIENCE, stream, bytes)
}

fn paced_within<P, S>(
    patience: Duration,
    stream: S,
    bytes: fn(&P) -> u64,
) -> impl Stream<Item = Result<P, Status>> + Unpin
where
    S: Stream<Item = Result<P, Status>> + Unpin,
{
    let end = Instant::now() + patience;
    Paced { stream, bytes, end, sleep: Box::pin(sleep_until(end)) }
}

struct Paced<P, S> {
    stream: S,
    bytes: fn(&P) -> u64,
    end: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl<P, S> Stream for Paced<P, S>
where
    S: Stream<Item = Result<P, Status>> + Unpin,
{
    type Item = Result<P, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.stream.poll_next_unpin(cx);
        if let Poll::Ready(Some(Ok(packet))) = &polled {
            let time = time_for((self.bytes)(packet));
            self.end += time;
        }
        let end = self.end;
        // Messages without bytes could come without end, so each one is checked against the clock.
        if Instant::now() >= end {
            return Poll::Ready(Some(Err(Status::deadline_exceeded(format!(
                "the messages of the call came too slowly: {} s and {RATE_MIN} bytes in each second more are allowed",
                PATIENCE.as_secs()
            )))));
        }
        if polled.is_pending() && self.sleep.as_mut().poll(cx).is_ready() {
            self.sleep.as_mut().reset(end);
            cx.waker().wake_by_ref();
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    const SHORT: Duration = Duration::from_millis(200);

    async fn taken(stream: impl Stream<Item = Result<u64, Status>> + Unpin) -> (usize, bool) {
        let mut paced = paced_within(SHORT, stream, |bytes| *bytes);
        let mut count = 0;
        while let Some(item) = paced.next().await {
            match item {
                Ok(_) => count += 1,
                Err(status) => return (count, status.code() == tonic::Code::DeadlineExceeded),
            }
        }
        (count, false)
    }

    #[test]
    fn messages_that_trickle_end_and_those_that_flow_do_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let every = |time: Duration, bytes: u64, count| {
                Box::pin(stream::iter(0..count).then(move |_| async move {
                    tokio::time::sleep(time).await;
                    Ok(bytes)
                }))
            };
            let (count, is_late) = taken(every(SHORT / 4, 1, 100)).await;
            assert!(count < 5 && is_late, "a byte now and then: {count}");
            let flowing = every(SHORT / 4, RATE_MIN, 20);
            assert_eq!(taken(flowing).await, (20, false), "as fast as is allowed");
            assert_eq!(taken(stream::pending()).await, (0, true), "nothing");
            let (_, is_late) = taken(Box::pin(stream::repeat_with(|| Ok(0)))).await;
            assert!(is_late, "messages without bytes");
        });
    }
}
