//! Callers who write bytes and no calls: their messages, kind by kind.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::SockRef;

/// First bytes on every connection of HTTP/2: the preface and an empty SETTINGS frame.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Kinds of frames (RFC 9113, section 6).
mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;
    pub(super) const WINDOW_UPDATE: u8 = 8;
    pub(super) const CONTINUATION: u8 = 9;
}

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Use of a connection by a caller.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Raw {
    Silence,
    Noise,
    Http1,
    TlsHello,
    HalfPreface,
    SlowPreface,
    Pings,
    Settings,
    RapidReset,
    Continuations,
    FrameTooLong,
    WindowOverflow,
    HeadersTooLong,
    HeaderBomb,
    MessageTooLong,
    Compressed,
    UnknownCall,
    Trickle,
    AnswerNotTaken,
    Streams,
    Torn,
    ManyConnections,
}

pub(crate) const RAW: [Raw; 22] = [
    Raw::Silence,
    Raw::Noise,
    Raw::Http1,
    Raw::TlsHello,
    Raw::HalfPreface,
    Raw::SlowPreface,
    Raw::Pings,
    Raw::Settings,
    Raw::RapidReset,
    Raw::Continuations,
    Raw::FrameTooLong,
    Raw::WindowOverflow,
    Raw::HeadersTooLong,
    Raw::HeaderBomb,
    Raw::MessageTooLong,
    Raw::Compressed,
    Raw::UnknownCall,
    Raw::Trickle,
    Raw::AnswerNotTaken,
    Raw::Streams,
    Raw::Torn,
    Raw::ManyConnections,
];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The headers of a call (RFC 7541, appendix A): POST, http, a path, the content type of gRPC, trailers.
fn headers(path: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let mut block = vec![0x83, 0x86, 0x04];
    block.extend(text(path));
    block.extend([0x0f, 0x10]);
    block.extend(text("application/grpc"));
    block.push(0);
    block.extend(text("te"));
    block.extend(text("trailers"));
    block
}

impl Raw {
    /// Bytes written once, bytes written repeatedly after them, and the time between two repetitions.
    fn script(self, path: &str) -> (Vec<u8>, Vec<u8>, Duration) {
        let call = |stream| frame(kind::HEADERS, END_HEADERS, stream, &headers(path));
        let opened = |more: &[Vec<u8>]| [&[OPENING.to_vec()], more].concat().concat();
        let (at_once, slowly) = (Duration::ZERO, Duration::from_millis(50));
        match self {
            Self::Silence | Self::ManyConnections => (Vec::new(), Vec::new(), slowly),
            Self::Noise => (vec![b'x'; 1 << 20], Vec::new(), slowly),
            Self::Http1 => (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n".into(), Vec::new(), slowly),
            Self::TlsHello => (vec![22, 3, 1, 0x3f, 0xff, 1], vec![0], slowly),
            Self::HalfPreface => (OPENING[..12].into(), Vec::new(), slowly),
            Self::SlowPreface => (OPENING[..2].into(), vec![b'*'], slowly),
            Self::Pings => (opened(&[]), frame(kind::PING, 0, 0, &[7; 8]).repeat(100), at_once),
            Self::Settings => {
                let setting = [0, 4, 0, 1, 0, 0];
                (opened(&[]), frame(kind::SETTINGS, 0, 0, &setting).repeat(100), at_once)
            }
            Self::RapidReset => {
                let pair =
                    |stream| [call(stream), frame(kind::RST_STREAM, 0, stream, &8u32.to_be_bytes())].concat();
                (opened(&(0..20_000).map(|at| pair(2 * at + 1)).collect::<Vec<_>>()), Vec::new(), slowly)
            }
            Self::Continuations => {
                let first = frame(kind::HEADERS, 0, 1, &headers(path));
                let mut field = vec![0x0f, 0x10, 100];
                field.resize(3 + 100, b'x');
                (opened(&[first]), frame(kind::CONTINUATION, 0, 1, &field).repeat(100), at_once)
            }
            Self::FrameTooLong => {
                let header = [&[0xff, 0xff, 0xff, kind::DATA, 0], 1u32.to_be_bytes().as_slice()].concat();
                (opened(&[call(1), header]), vec![0; 1 << 16], at_once)
            }
            Self::WindowOverflow => {
                let update = frame(kind::WINDOW_UPDATE, 0, 0, &0x7fff_ffffu32.to_be_bytes());
                (opened(&[update.clone(), update]), Vec::new(), slowly)
            }
            Self::HeadersTooLong => {
                let first = frame(kind::HEADERS, 0, 1, &headers(path));
                let mut field = vec![0x0f, 0x10, 0x7f, 0x80 | 0x01, 0x7f];
                field.resize(5 + 127 + 1 + (0x7f << 7), b'x');
                let (last, part) = (frame(kind::CONTINUATION, END_HEADERS, 1, &[]), field);
                let more: Vec<_> =
                    part.chunks(16_000).map(|part| frame(kind::CONTINUATION, 0, 1, part)).collect();
                (opened(&[vec![first], more, vec![last]].concat()), Vec::new(), slowly)
            }
            Self::HeaderBomb => {
                // A field of 3 KB in the table of the decoder, then named many times by one byte each.
                let mut block = headers(path);
                block.extend([0x40, 1, b'x', 0x7f, 0x80 | (0x39), 0x17]);
                block.extend(vec![b'y'; 127 + 0x39 + (0x17 << 7)]);
                let named = frame(kind::CONTINUATION, 0, 1, &[0xbe; 16_000]);
                (opened(&[frame(kind::HEADERS, 0, 1, &block)]), named, at_once)
            }
            Self::MessageTooLong => {
                let lie = frame(kind::DATA, 0, 1, &[0, 0xff, 0xff, 0xff, 0xff]);
                (opened(&[call(1), lie]), frame(kind::DATA, 0, 1, &[0; 16_000]), at_once)
            }
            Self::Compressed => {
                let message = frame(kind::DATA, END_STREAM, 1, &[1, 0, 0, 0, 3, 1, 2, 3]);
                (opened(&[call(1), message]), Vec::new(), slowly)
            }
            Self::UnknownCall => {
                let unknown =
                    frame(kind::HEADERS, END_HEADERS | END_STREAM, 1, &headers("/none.None/Nothing"));
                (opened(&[unknown]), Vec::new(), slowly)
            }
            Self::Trickle => (opened(&[call(1)]), frame(kind::DATA, 0, 1, &[0]), slowly),
            Self::AnswerNotTaken => {
                // Nothing may be sent on streams: their window is empty.
                let window = frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
                let empty = frame(kind::DATA, END_STREAM, 1, &[0; 5]);
                (opened(&[window, call(1), empty]), Vec::new(), slowly)
            }
            Self::Streams => {
                (opened(&(0..10_000).map(|at| call(2 * at + 1)).collect::<Vec<_>>()), Vec::new(), slowly)
            }
            Self::Torn => (opened(&[call(1)]), Vec::new(), slowly),
        }
    }

    /// Calls once, for at most `longest`; whether the service hung up.
    pub(crate) fn strike(self, address: &str, path: &str, longest: Duration) -> bool {
        let end = Instant::now() + longest;
        let Ok(mut stream) = TcpStream::connect(address) else { return true };
        let quick = Some(Duration::from_millis(50));
        stream.set_write_timeout(quick).expect("a time");
        stream.set_read_timeout(quick).expect("a time");
        let (once, again, pause) = self.script(path);
        let others: Vec<_> = match self {
            Self::ManyConnections => (0..100).map_while(|_| TcpStream::connect(address).ok()).collect(),
            _ => Vec::new(),
        };
        let is_over = |error: &std::io::Error| {
            !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
        };
        let mut write = |bytes: &[u8]| stream.write(bytes).map_err(|error| is_over(&error));
        let mut rest = once.as_slice();
        while !rest.is_empty() && Instant::now() < end {
            match write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(true) => return true,
                Err(false) => (),
            }
        }
        if let Self::Torn = self {
            // The connection ends by a reset.
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("sets");
            return true;
        }
        while Instant::now() < end {
            if pause.is_zero() {
                if let Err(true) = write(&again) {
                    return true;
                }
                continue;
            }
            if !again.is_empty() && matches!(write(&again), Err(true)) {
                return true;
            }
            std::thread::sleep(pause);
        }
        drop(others);
        // What came meanwhile is read, up to the end if there is one.
        let mut bytes = [0; 1 << 16];
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => (),
                Err(error) => return is_over(&error),
            }
        }
    }
}
