//! Calls of a service over one connection of HTTP/2.
//!
//! The bytes of a call go out as one body from where they lie: in as few frames as they fit into, and in the
//! same write as its head. A general client of HTTP sends the head, waits until its stream is open, and then
//! sends each piece by itself.

use std::collections::VecDeque;
use std::error::Error;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use amalgam_proto::TransportLimits;
use bytes::{Buf, Bytes};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response, Uri};
use http_body::Frame;
use http_body_util::BodyExt as _;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::body::Body;

use crate::stream::Wire;
use crate::token::Token;

/// Bytes that are given to HTTP/2 at once: fewer than a window may hold.
const SENT_AT_ONCE: usize = 1 << 30;

/// Opens a connection to a service; called for each new connection.
type Way = dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn Wire>>> + Send + Sync;

/// Calls of a service over a connection that is made anew when it was lost. Clones share the connection. Each
/// call shows the token, if there is one.
#[derive(Clone)]
pub struct Calls(Arc<Connection>);

struct Connection {
    way: Box<Way>,
    /// Scheme and host that calls name.
    origin: Uri,
    token: Option<Token>,
    connection: Mutex<Option<SendRequest<Pieces>>>,
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Calls({})", self.0.origin)
    }
}

impl Calls {
    /// Calls through connections that `way` makes; the first is made at once. `origin` is the scheme and host
    /// that they name.
    ///
    /// # Errors
    /// The error of `way`, or one of HTTP/2.
    pub(crate) async fn through(
        way: impl Fn() -> BoxFuture<'static, io::Result<Box<dyn Wire>>> + Send + Sync + 'static,
        origin: &str,
        token: Option<Token>,
    ) -> io::Result<Self> {
        let origin = origin.parse().unwrap_or_else(|_| Uri::from_static("http://localhost"));
        let first = open(&way).await?;
        Ok(Self(Arc::new(Connection {
            way: Box::new(way),
            origin,
            token,
            connection: Mutex::new(Some(first)),
        })))
    }
}

async fn open(way: &Way) -> io::Result<SendRequest<Pieces>> {
    let wire = way().await?;
    let opened = Builder::new()
        .initial_window_size(TransportLimits::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(TransportLimits::CONNECTION_WINDOW_BYTES)
        .max_frame_size(TransportLimits::FRAME_BYTES)
        .max_header_list_size(TransportLimits::HEADER_LIST_BYTES)
        .initial_max_send_streams(TransportLimits::STREAMS_MAX as usize)
        .enable_push(false)
        .handshake(wire)
        .await;
    let (calls, connection) = opened.map_err(io::Error::other)?;
    // An error that ends the connection is the error of its calls.
    tokio::spawn(connection.map(drop));
    Ok(calls)
}

impl Connection {
    /// The connection, made anew if it was lost.
    async fn connected(&self) -> Result<SendRequest<Pieces>, Status> {
        let mut connection = self.connection.lock().await;
        if let Some(calls) = connection.take()
            && let Ok(calls) = calls.ready().await
        {
            return Ok(connection.insert(calls).clone());
        }
        let opened = open(&*self.way).await.map_err(|error| {
            let mut status = Status::unavailable(error.to_string());
            status.set_source(Arc::new(error));
            status
        })?;
        Ok(connection.insert(opened).clone())
    }

    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, Box<dyn Error + Send + Sync>> {
        let (mut head, mut body) = request.into_parts();
        let mut target = self.origin.clone().into_parts();
        target.path_and_query = head.uri.into_parts().path_and_query;
        head.uri = Uri::from_parts(target)?;
        if let Some(token) = &self.token {
            token.show(&mut head.headers);
        }
        let mut calls = self.connected().await?;
        let mut pieces = Pieces::default();
        let is_whole = loop {
            match body.frame().now_or_never() {
                Some(Some(frame)) => pieces.push(frame?.into_data().unwrap_or_default()),
                Some(None) => break true,
                None => break false,
            }
        };
        let (answer, mut stream) = calls.send_request(Request::from_parts(head, ()), false)?;
        // Sending fails only if the service wants no more. Its answer says why.
        while pieces.length > SENT_AT_ONCE {
            let _ = stream.send_data(pieces.split_to(SENT_AT_ONCE), false);
        }
        let _ = stream.send_data(pieces, is_whole);
        let mut sending = JoinSet::new();
        if !is_whole {
            sending.spawn(send_as_it_comes(body, stream));
        }
        Ok(answer.await?.map(|body| Body::new(Answer { body, _sending: sending })))
    }
}

/// Sends the rest of a request as it comes, and as fast as the service takes it. Ends early if the service
/// wants no more.
async fn send_as_it_comes(mut body: Body, mut stream: SendStream<Pieces>) {
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            _ = poll_fn(|cx| stream.poll_reset(cx)) => return,
        };
        let mut pieces = Pieces::default();
        match frame {
            Some(Ok(frame)) => pieces.push(frame.into_data().unwrap_or_default()),
            Some(Err(_)) => return stream.send_reset(Reason::CANCEL),
            None => {
                // Fails only if the service wants no more.
                let _ = stream.send_data(pieces, true);
                return;
            }
        }
        stream.reserve_capacity(pieces.length);
        while stream.capacity() == 0 && pieces.length > 0 {
            if !matches!(poll_fn(|cx| stream.poll_capacity(cx)).await, Some(Ok(_))) {
                return;
            }
        }
        if stream.send_data(pieces, false).is_err() {
            return;
        }
    }
}

impl tower::Service<Request<Body>> for Calls {
    type Response = Response<Body>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let connection = Arc::clone(&self.0);
        async move { connection.call(request).await }.boxed()
    }
}

/// Bytes in pieces, which go out together.
#[derive(Debug, Default)]
struct Pieces {
    pieces: VecDeque<Bytes>,
    length: usize,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.length += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Takes the first bytes, at most as many as are there.
    fn split_to(&mut self, most: usize) -> Self {
        let mut first = Self::default();
        while let Some(piece) = self.pieces.front_mut()
            && first.length < most
        {
            let part = piece.split_to(piece.len().min(most - first.length));
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            self.length -= part.len();
            first.push(part);
        }
        first
    }
}

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.length
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let both = slices.iter_mut().zip(&self.pieces);
        both.map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    fn advance(&mut self, count: usize) {
        self.split_to(count);
    }
}

/// The body of an answer.
struct Answer {
    body: RecvStream,
    /// Sends the rest of the request, as long as somebody waits for the answer.
    _sending: JoinSet<()>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(piece) = ready!(self.body.poll_data(cx)) {
            let piece = piece.and_then(|piece| {
                self.body.flow_control().release_capacity(piece.len())?;
                Ok(Frame::data(piece))
            });
            return Poll::Ready(Some(piece));
        }
        let trailers = ready!(self.body.poll_trailers(cx));
        Poll::Ready(trailers.transpose().map(|trailers| trailers.map(Frame::trailers)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, dial_in_process};
    use futures_util::{StreamExt as _, TryStreamExt as _, stream};
    use http_body_util::{Full, StreamBody};
    use proptest::prelude::*;
    use tokio::io::DuplexStream;
    use tokio::sync::mpsc;
    use tonic::client::GrpcService as _;

    /// Answers requests with their own bodies, until the connection ends.
    async fn echo(pipe: DuplexStream) {
        let mut connection = h2::server::handshake(pipe).await.expect("HTTP/2");
        while let Some(Ok((request, mut answer))) = connection.accept().await {
            assert_eq!(request.uri().to_string(), "http://localhost/a/b");
            tokio::spawn(async move {
                let mut body = request.into_body();
                let mut answer = answer.send_response(Response::new(()), false).expect("answers");
                while let Some(Ok(piece)) = body.data().await {
                    body.flow_control().release_capacity(piece.len()).expect("room");
                    answer.send_data(piece, false).expect("answers");
                }
                answer.send_data(Bytes::new(), true).expect("answers");
            });
        }
    }

    async fn called(calls: &mut Calls, body: Body) -> Result<Bytes, Status> {
        let request = Request::builder().uri("/a/b").body(body).expect("a request");
        let answer = calls.call(request).await.map_err(Status::from_error)?;
        Ok(answer.into_body().collect().await?.to_bytes())
    }

    #[tokio::test]
    async fn a_body_arrives_whole_however_it_comes() {
        let (pipes, mut queue) = mpsc::channel(1);
        tokio::spawn(async move { echo(queue.recv().await.expect("a pipe")).await });
        let mut calls = dial_in_process(pipes, &Access::default()).await.expect("a service");
        let pieces: Vec<Bytes> = (0..40_u8).map(|n| vec![n; 10_000 * usize::from(n)].into()).collect();
        let whole = Bytes::from(pieces.concat());
        assert!(whole.len() > TransportLimits::STREAM_WINDOW_BYTES as usize);
        let frames = || stream::iter(pieces.clone()).map(|piece| Ok::<_, Status>(Frame::data(piece)));
        let at_once = Body::new(StreamBody::new(frames()));
        let slowly = frames().and_then(|frame| async {
            tokio::task::yield_now().await;
            Ok(frame)
        });
        let slowly = Body::new(StreamBody::new(Box::pin(slowly)));
        for body in [at_once, slowly, Body::new(Full::new(whole.clone()))] {
            assert!(called(&mut calls, body).await.expect("an answer") == whole);
        }
        assert_eq!(called(&mut calls, Body::empty()).await.expect("an answer"), "");
    }

    #[tokio::test]
    async fn a_lost_connection_is_made_anew() {
        let (pipes, mut queue) = mpsc::channel(1);
        let service = tokio::spawn(async move {
            let mut first = h2::server::handshake(queue.recv().await.expect("a pipe")).await.expect("HTTP/2");
            let asked: Option<Result<(_, h2::server::SendResponse<Bytes>), _>> = first.accept().await;
            drop((asked, first));
            echo(queue.recv().await.expect("another pipe")).await;
        });
        let mut calls = dial_in_process(pipes, &Access::default()).await.expect("a service");
        let ask = || Body::new(Full::new(Bytes::from_static(b"what was sent")));
        let lost = called(&mut calls, ask()).await.expect_err("it was lost");
        assert!(lost.source().is_some(), "{lost:?}");
        assert_eq!(called(&mut calls, ask()).await.expect("an answer"), "what was sent");
        service.abort();
        let _ = service.await;
        for _ in 0..2 {
            let lost = called(&mut calls, ask()).await.expect_err("it has ended");
            assert!(lost.source().is_some(), "{lost:?}");
        }
    }

    proptest! {
        #[test]
        fn pieces_are_their_bytes(
            lengths in prop::collection::vec(0usize..9, 0..9),
            steps in prop::collection::vec(0usize..9, 0..20),
        ) {
            let bytes: Vec<u8> = (0..lengths.iter().sum::<usize>()).map(|at| at as u8).collect();
            let (mut rest, mut pieces) = (Bytes::from(bytes), Pieces::default());
            let mut whole = rest.clone();
            lengths.iter().for_each(|&length| pieces.push(rest.split_to(length)));
            for step in steps {
                let step = step.min(whole.len());
                let mut slices = [IoSlice::new(&[]); 4];
                let filled = pieces.chunks_vectored(&mut slices);
                let seen: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
                prop_assert!(whole.starts_with(&seen));
                prop_assert_eq!(pieces.remaining(), whole.len());
                prop_assert_eq!(pieces.chunk().is_empty(), whole.is_empty());
                whole.advance(step);
                pieces.advance(step);
            }
            prop_assert_eq!(pieces.copy_to_bytes(pieces.remaining()), whole);
        }
    }
}
