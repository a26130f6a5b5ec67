//! Messages of gRPC in bodies of HTTP. Columns go out from where they lie, and are read where they arrive:
//! the codecs of tonic copy each message once at either end.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::{Stream, stream};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::{Body as _, Frame};
use http_body_util::StreamBody;
use prost::Message;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::{Code, Status};

use crate::columns::Packet;
use crate::generated::v1;
use crate::generated::v1::solver_server::SERVICE_NAME;
use crate::transport::message_limit;

/// Bytes before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Shorter pieces are copied beside what surrounds them. A frame of HTTP/2 for each would cost more.
const PIECE_BYTES: usize = 4 << 10;

/// The byte before `columns` of a packet and `data` of a column on the wire: field 2, with a length.
const FIELD_2: u8 = 2 << 3 | 2;

const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// Messages on their way out. Clones share the columns.
#[derive(Clone, Debug, Default)]
pub struct Outgoing(Vec<Bytes>);

impl Outgoing {
    /// A single message.
    pub fn message(message: &impl Message) -> Self {
        let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + message.encoded_len());
        prefix(message.encoded_len(), &mut bytes);
        encode(message, &mut bytes);
        Self(vec![bytes.freeze()])
    }

    /// The messages of a stream with columns.
    pub fn packets<P: Packet>(packets: Vec<P>) -> Self {
        let (mut pieces, mut bytes) = (Vec::new(), BytesMut::new());
        for packet in packets {
            let length = packet.encoded_len();
            prefix(length, &mut bytes);
            let (header, columns) = packet.split();
            encode(&P::join(header, Vec::new()), &mut bytes);
            for column in columns {
                bytes.put_u8(FIELD_2);
                encode_length(column.encoded_len(), &mut bytes);
                let v1::Column { name, data } = column;
                encode(&v1::Column { name, data: Bytes::new() }, &mut bytes);
                if data.is_empty() {
                    continue;
                }
                bytes.put_u8(FIELD_2);
                encode_length(data.len(), &mut bytes);
                if data.len() < PIECE_BYTES {
                    bytes.extend_from_slice(&data);
                } else {
                    pieces.push(bytes.split().freeze());
                    pieces.push(data);
                }
            }
        }
        if !bytes.is_empty() {
            pieces.push(bytes.freeze());
        }
        Self(pieces)
    }

    /// The answer of a service, with the status OK after it. `call` lives until all of it has been taken.
    pub fn into_answer(self, call: impl Send + 'static) -> http::Response<Body> {
        let mut trailers = HeaderMap::new();
        trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
        let mut response = http::Response::new(self.into_body(Some(trailers), call));
        response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
        response
    }

    fn into_body(self, trailers: Option<HeaderMap>, call: impl Send + 'static) -> Body {
        let frames = self.0.into_iter().map(Frame::data).chain(trailers.map(Frame::trailers));
        let frames = frames.map(move |frame| {
            let _lives = &call;
            Ok::<_, Status>(frame)
        });
        Body::new(StreamBody::new(stream::iter(frames)))
    }
}

fn prefix(length: usize, bytes: &mut BytesMut) {
    bytes.put_u8(0);
    bytes.put_u32(length as u32);
}

fn encode(message: &impl Message, bytes: &mut BytesMut) {
    message.encode(bytes).expect("a buffer that grows has room");
}

fn encode_length(length: usize, bytes: &mut BytesMut) {
    prost::encode_length_delimiter(length, bytes).expect("a buffer that grows has room");
}

/// Calls a method of a solver. The messages of its answer come back.
///
/// # Errors
/// The status of the service, or of the connection with its error as source.
pub async fn call<S, M>(service: &mut S, method: &str, sent: Outgoing) -> Result<Incoming<M>, Status>
where
    S: GrpcService<Body>,
    M: Message + Default,
    S::ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    <S::ResponseBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut request = http::Request::new(sent.into_body(None, ()));
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    let path = format!("/{SERVICE_NAME}/{method}");
    *request.uri_mut() = path.parse().map_err(|_| Status::internal(format!("{path} is no path")))?;
    request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
    request.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(|error| Status::from_error(error.into()))?;
    let response = service.call(request).await.map_err(|error| Status::from_error(error.into()))?;
    Incoming::of_answer(response.map(Body::new))
}

/// Messages on their way in.
#[derive(Debug)]
pub struct Incoming<M> {
    body: Body,
    arrived: Arrived,
    /// Length of the message of which the first bytes have been read.
    length: Option<usize>,
    /// True if a status must come at the end, as answers have it.
    is_answer: bool,
    is_over: bool,
    message: PhantomData<fn() -> M>,
}

impl<M: Message + Default> Incoming<M> {
    /// The messages of a request.
    pub fn of_request(body: Body) -> Self {
        Self {
            body,
            arrived: Arrived::default(),
            length: None,
            is_answer: false,
            is_over: false,
            message: PhantomData,
        }
    }

    /// The messages of an answer.
    fn of_answer(response: http::Response<Body>) -> Result<Self, Status> {
        let (head, body) = response.into_parts();
        let status = Status::from_header_map(&head.headers);
        let is_over = status.is_some();
        match status {
            Some(status) if status.code() != Code::Ok => Err(status),
            None if head.status != StatusCode::OK => Err(no_grpc(head.status)),
            _ => Ok(Self { is_answer: true, is_over, ..Self::of_request(body) }),
        }
    }

    /// The only message.
    ///
    /// # Errors
    /// The status of the other end, or INVALID_ARGUMENT for none or more than one message.
    pub async fn single(mut self) -> Result<M, Status> {
        use futures_util::StreamExt as _;
        let wrong = || Status::invalid_argument("a call of this kind has a single message either way");
        let message = self.next().await.ok_or_else(wrong)??;
        match self.next().await {
            None => Ok(message),
            Some(Err(status)) => Err(status),
            Some(Ok(_)) => Err(wrong()),
        }
    }

    /// A message, if all of it has arrived.
    fn decode(&mut self) -> Result<Option<M>, Status> {
        let length = match self.length {
            Some(length) => length,
            None if self.arrived.remaining() < PREFIX_BYTES => return Ok(None),
            None => {
                self.arrived.gather();
                if self.arrived.get_u8() != 0 {
                    return Err(Status::unimplemented("compressed messages are not read"));
                }
                let (length, limit) = (self.arrived.get_u32() as usize, message_limit());
                if length > limit {
                    return Err(Status::out_of_range(format!(
                        "a message of {length} bytes, but at most {limit} bytes are read"
                    )));
                }
                *self.length.insert(length)
            }
        };
        if self.arrived.remaining() < length {
            return Ok(None);
        }
        self.length = None;
        self.arrived.gather();
        let message = M::decode((&mut self.arrived).take(length))
            .map_err(|error| Status::invalid_argument(format!("a message cannot be read: {error}")))?;
        Ok(Some(message))
    }

    fn end(&self, trailers: Option<&HeaderMap>) -> Option<Status> {
        match trailers.and_then(Status::from_header_map) {
            Some(status) if status.code() != Code::Ok => return Some(status),
            None if self.is_answer => return Some(Status::unknown("the answer ended without a status")),
            _ => (),
        }
        let is_cut = self.length.is_some() || self.arrived.remaining() > 0;
        is_cut.then(|| Status::internal("the stream ended within a message"))
    }
}

impl<M: Message + Default> Stream for Incoming<M> {
    type Item = Result<M, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        while !this.is_over {
            match this.decode() {
                Ok(None) => (),
                Ok(Some(message)) => return Poll::Ready(Some(Ok(message))),
                Err(status) => {
                    this.is_over = true;
                    return Poll::Ready(Some(Err(status)));
                }
            }
            let end = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        this.arrived.push(data);
                        continue;
                    }
                    Err(frame) => this.end(frame.trailers_ref()),
                },
                Some(Err(status)) => Some(status),
                None => this.end(None),
            };
            this.is_over = true;
            if let Some(status) = end {
                return Poll::Ready(Some(Err(status)));
            }
        }
        Poll::Ready(None)
    }
}

/// Status of an answer that no gRPC service gave.
fn no_grpc(status: StatusCode) -> Status {
    let code = match status {
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Unknown,
    };
    Status::new(code, format!("no answer of gRPC, but the status {status} of HTTP"))
}

/// Bytes that have arrived, in pieces.
#[derive(Debug, Default)]
struct Arrived {
    pieces: VecDeque<Bytes>,
    /// The last ones, of pieces that are too short to be kept apart.
    short: BytesMut,
    length: usize,
}

impl Arrived {
    fn push(&mut self, piece: Bytes) {
        self.length += piece.len();
        if piece.len() < PIECE_BYTES {
            self.short.extend_from_slice(&piece);
        } else {
            self.gather();
            self.pieces.push_back(piece);
        }
    }

    /// Puts the last bytes among the others. They are read after this.
    fn gather(&mut self) {
        if !self.short.is_empty() {
            self.pieces.push_back(self.short.split().freeze());
        }
    }
}

impl Buf for Arrived {
    fn remaining(&self) -> usize {
        self.length
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn advance(&mut self, mut count: usize) {
        self.length -= count;
        while count > 0 {
            let Some(piece) = self.pieces.front_mut() else { return };
            let here = count.min(piece.len());
            piece.advance(here);
            count -= here;
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        match self.pieces.front_mut() {
            // Shared, not copied.
            Some(piece) if count <= piece.len() => {
                self.length -= count;
                let bytes = piece.split_to(count);
                if piece.is_empty() {
                    self.pieces.pop_front();
                }
                bytes
            }
            _ => {
                let mut bytes = BytesMut::with_capacity(count);
                bytes.put(self.take(count));
                bytes.freeze()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt as _, StreamExt as _};
    use proptest::prelude::*;

    fn packets(lengths: &[usize]) -> Vec<v1::CommitResponse> {
        let column = |(i, &length): (usize, &usize)| v1::Column {
            name: format!("column {i}"),
            data: (0..length).map(|at| (at * 7 + i) as u8).collect(),
        };
        let header = |i| (i == 0).then(|| v1::CommitAnswer { particles: 7, ..v1::CommitAnswer::default() });
        let columns: Vec<_> = lengths.iter().enumerate().map(column).collect();
        let messages = columns.chunks(3).enumerate();
        messages
            .map(|(i, columns)| v1::CommitResponse { header: header(i), columns: columns.to_vec() })
            .collect()
    }

    fn bytes(sent: Outgoing) -> Vec<u8> {
        sent.0.concat()
    }

    fn received(pieces: Vec<Bytes>) -> Vec<Result<v1::CommitResponse, Status>> {
        let incoming = Incoming::of_request(Outgoing(pieces).into_body(None, ()));
        incoming.collect().now_or_never().expect("all is there")
    }

    #[test]
    fn messages_are_on_the_wire_as_prost_writes_them() {
        let packets = packets(&[0, 1, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES, 2, 70_000]);
        let mut expected = Vec::new();
        for packet in &packets {
            expected.put_u8(0);
            expected.put_u32(packet.encoded_len() as u32);
            packet.encode(&mut expected).expect("room");
        }
        assert!(bytes(Outgoing::packets(packets.clone())) == expected);
        let alone = bytes(Outgoing::message(&packets[0]));
        assert!(expected.starts_with(&alone));
    }

    proptest! {
        /// Wherever a network cuts the bytes.
        #[test]
        fn messages_arrive_in_pieces_of_any_length(
            lengths in prop::collection::vec(0usize..20_000, 0..8),
            cuts in prop::collection::vec(1usize..9_000, 1..20),
        ) {
            let sent = packets(&lengths);
            let mut rest = Bytes::from(bytes(Outgoing::packets(sent.clone())));
            let mut pieces = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                pieces.push(rest.split_to(rest.len().min(*cut)));
            }
            let received: Result<Vec<_>, _> = received(pieces).into_iter().collect();
            prop_assert!(received.expect("messages") == sent);
        }
    }

    #[test]
    fn columns_are_not_copied() {
        let data = Bytes::from(vec![1; 100_000]);
        let packet = v1::CommitResponse {
            header: None,
            columns: vec![v1::Column { name: "velocity".into(), data: data.clone() }],
        };
        let sent = Outgoing::packets(vec![packet]);
        assert!(sent.0.iter().any(|piece| piece.as_ptr() == data.as_ptr()));
        let message = received(sent.0).pop().expect("a message").expect("whole");
        assert_eq!(message.columns[0].data.as_ptr(), data.as_ptr());
    }

    #[test]
    fn an_answer_ends_with_its_status() {
        let last = |response: http::Response<Body>| {
            let answer =
                Incoming::<v1::CommitResponse>::of_answer(response).map_err(|status| status.code())?;
            answer.single().now_or_never().expect("all is there").map_err(|status| status.code())
        };
        let sent = packets(&[3]);
        let whole = Outgoing::packets(sent.clone());
        assert_eq!(last(whole.clone().into_answer(())), Ok(sent[0].clone()));
        assert_eq!(last(http::Response::new(whole.into_body(None, ()))), Err(Code::Unknown));
        assert_eq!(last(Status::aborted("no").into_http()), Err(Code::Aborted));
        let mut other = http::Response::new(Body::empty());
        *other.status_mut() = StatusCode::NOT_FOUND;
        assert_eq!(last(other), Err(Code::Unimplemented));
    }

    #[test]
    fn messages_that_break_the_framing_are_refused() {
        let code =
            |bytes: Vec<u8>| received(vec![bytes.into()]).pop().map(|last| last.expect_err("wrong").code());
        assert_eq!(code(vec![1, 0, 0, 0, 0]), Some(Code::Unimplemented));
        assert_eq!(code(vec![0, 1, 0, 0, 0]), Some(Code::OutOfRange));
        assert_eq!(code(vec![0, 0, 0, 0, 2, 0]), Some(Code::Internal));
        assert_eq!(code(vec![0, 0]), Some(Code::Internal));
        assert_eq!(code(vec![0, 0, 0, 0, 2, 0xff, 0xff]), Some(Code::InvalidArgument));
        assert_eq!(code(Vec::new()), None);
    }
}
