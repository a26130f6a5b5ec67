//! Encoding of messages as in prost, in buffers large enough for columns.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::columns::CHUNK_BYTES;

/// Room for the header and the names of columns in a message.
const HEADER_BYTES: usize = 64 << 10;

/// The codec of generated clients and servers. Its buffers have room at once; those of tonic grow from a few
/// kilobytes and copy a large message each time.
#[derive(Clone, Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = WithRoom<T>;
    type Decoder = InRoom<U>;

    fn encoder(&mut self) -> Self::Encoder {
        WithRoom(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        InRoom(PhantomData)
    }
}

/// Decodes as prost does, in a buffer with room for a whole message.
#[derive(Clone, Debug)]
pub struct InRoom<U>(PhantomData<U>);

impl<U: Message + Default> Decoder for InRoom<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let message = U::decode(buffer)
            .map_err(|error| Status::invalid_argument(format!("a message cannot be read: {error}")))?;
        Ok(Some(message))
    }

    fn buffer_settings(&self) -> BufferSettings {
        // When tonic has read a message's length, it asks for that much room behind what has come of it so
        // far. The threshold is for senders.
        BufferSettings::new(2 * (CHUNK_BYTES + HEADER_BYTES), 0)
    }
}

/// Encodes as prost does, with room for the whole message made at once.
#[derive(Clone, Debug)]
pub struct WithRoom<T>(PhantomData<T>);

impl<T: Message> Encoder for WithRoom<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(message.encoded_len());
        message.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}
