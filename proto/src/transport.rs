//! Limits that both ends of a connection agree on, measured for streams of columns.

use tonic::Status;

pub use crate::columns::CHUNK_BYTES;
use crate::columns::room::Room;
use crate::columns::{Columns, Packet, WireError};

/// Limits and windows of a connection.
#[derive(Clone, Copy, Debug)]
pub struct TransportLimits;

impl TransportLimits {
    /// HTTP/2 frame [bytes].
    pub const FRAME_BYTES: u32 = 1 << 20;
    /// HTTP/2 window of a stream [bytes]; the receiver's governs the sender, so both ends set it.
    pub const STREAM_WINDOW_BYTES: u32 = 4 << 20;
    /// HTTP/2 window of a connection [bytes].
    pub const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
    /// Calls at once on one connection.
    pub const STREAMS_MAX: u32 = 4;
    /// Connections of a service at once.
    pub const CONNECTIONS_MAX: usize = 16;
    /// Bytes of HTTP/2 headers in a call.
    pub const HEADER_LIST_BYTES: u32 = 64 << 10;
    /// Time of silence after which the kernel asks whether the other end is there.
    pub const KEEPALIVE: std::time::Duration = std::time::Duration::from_secs(20);
    /// Time after which the kernel asks once more, if there was no answer.
    pub const KEEPALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);
    /// Number of times that the kernel asks before it gives the connection up.
    pub const KEEPALIVE_TRIES: u32 = 4;
}

/// Largest message either side accepts [bytes]: a chunk, its names and a header, with room.
pub const fn message_limit() -> usize {
    4 << 20
}

/// Reads a whole stream: the header, and the columns that there is `room` for after it.
///
/// # Errors
/// The other side's status, that of `room`, or INVALID_ARGUMENT for a stream that breaks the contract, as
/// soon as it does.
pub async fn gather<P, S>(
    mut stream: S,
    room: impl FnOnce(&P::Header) -> Result<Room, Status>,
) -> Result<(P::Header, Columns), Status>
where
    P: Packet,
    S: futures_util::Stream<Item = Result<P, Status>> + Unpin,
{
    use futures_util::StreamExt as _;
    let invalid = |error: WireError| Status::invalid_argument(error.to_string());
    let (mut header, mut columns, mut room) = (None, Columns::default(), Some(room));
    while let Some(packet) = stream.next().await {
        let (new_header, new_columns) = packet?.split();
        if new_header.is_some() {
            if header.is_some() {
                return Err(invalid(WireError::SecondHeader));
            }
            if let (Some(header), Some(room)) = (&new_header, room.take()) {
                columns = Columns::within(room(header)?);
            }
            header = new_header;
        } else if header.is_none() {
            return Err(invalid(WireError::NoHeader));
        }
        columns.append(new_columns).map_err(invalid)?;
    }
    Ok((header.ok_or_else(|| invalid(WireError::NoHeader))?, columns))
}
