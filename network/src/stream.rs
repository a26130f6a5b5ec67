//! The bytes of a connection that a server has taken, with or without TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::Connected;

use crate::lines::{Caller, Place};

/// Bytes that a Unix socket holds on their way. The system's default is smaller than a frame, so that sender
/// and receiver would wait for each other in each frame.
const SOCKET_BYTES: usize = 2 << 20;

/// Makes room in a Unix socket, as far as the system allows.
pub(crate) fn widen(stream: &UnixStream) -> io::Result<()> {
    socket2::SockRef::from(stream).set_send_buffer_size(SOCKET_BYTES)
}

/// Anything that bytes come from and go to.
pub trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A connection that gives its place back when it is dropped, and that the server can end.
pub struct Line {
    wire: Box<dyn Wire>,
    place: Place,
}

impl Line {
    pub(crate) fn new(wire: Box<dyn Wire>, place: Place) -> Self {
        Self { wire, place }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.place.is_ended(cx) {
            return Poll::Ready(Err(ended()));
        }
        Pin::new(&mut self.wire).poll_read(cx, buf)
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A connection that the server has ended is not waited for.
        if self.place.is_ended(cx) {
            return Poll::Ready(Err(ended()));
        }
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }
}

impl Connected for Line {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.place.caller()
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the connection was silent for too long")
}
