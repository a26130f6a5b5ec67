//! Connections that are looked at a little longer before their thread sleeps.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Time for which a connection is looked at again and again after bytes have moved. A thread that sleeps is woken some 0.05 ms after
/// the bytes are there, and a coupled step has several calls.
const ATTENTION: Duration = Duration::from_micros(100);

/// Tasks that a runtime with an [`Attentive`] connection runs between two looks at what the system has received.
pub const EVENT_INTERVAL: u32 = 4;

/// A connection whose reader stays awake for [`ATTENTION`] after each byte.
pub struct Attentive<IO> {
    wire: IO,
    until: Option<Instant>,
}

impl<IO> Attentive<IO> {
    /// A connection of which nothing has been read.
    pub fn new(wire: IO) -> Self {
        Self { wire, until: None }
    }

    fn moved(&mut self, bytes: usize) {
        if bytes > 0 {
            self.until = Some(Instant::now() + attention());
        }
    }
}

fn attention() -> Duration {
    static A: std::sync::OnceLock<Duration> = std::sync::OnceLock::new();
    *A.get_or_init(|| {
        std::env::var("AMALGAM_SPIN")
            .ok()
            .and_then(|t| t.parse().ok())
            .map_or(ATTENTION, Duration::from_micros)
    })
}

impl<IO: AsyncRead + Unpin> AsyncRead for Attentive<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.wire).poll_read(cx, buf);
        if read.is_ready() {
            self.moved(buf.filled().len() - before);
        } else if let Some(until) = self.until {
            if Instant::now() < until {
                cx.waker().wake_by_ref();
            } else {
                self.until = None;
            }
        }
        read
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Attentive<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.wire).poll_write(cx, buf);
        if let Poll::Ready(Ok(bytes)) = written {
            self.moved(bytes);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.wire).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(bytes)) = written {
            self.moved(bytes);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }
}
