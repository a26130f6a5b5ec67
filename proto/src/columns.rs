//! Columns: packed arrays in pieces over a stream of messages.

use amalgam_particles::{CellSet, DVec3, ParticleId};
use bytemuck::Pod;
use bytes::Bytes;

use crate::generated::v1;

mod arriving;
mod limits;
pub mod room;

use arriving::Arriving;
pub use limits::{
    CALL_BYTES_MAX, COUNT_MAX, Limit, MOMENTA, POSITIONS, Shown, VELOCITIES, WireError, check, check_count,
    check_unique,
};
use room::Room;

#[cfg(target_endian = "big")]
compile_error!("columns are little-endian; this machine is not");

/// Bytes of column data in a message. Larger columns are cut.
pub const CHUNK_BYTES: usize = 1 << 20;

/// A message that carries an optional header and pieces of columns.
pub trait Packet: prost::Message + Default + Sized + Send + 'static {
    /// The header, in the first message of a stream.
    type Header: Default + Send + 'static;
    /// Puts a message together.
    fn join(header: Option<Self::Header>, columns: Vec<v1::Column>) -> Self;
    /// Its pieces of columns.
    fn columns(&self) -> &[v1::Column];
    /// Takes a message apart.
    fn split(self) -> (Option<Self::Header>, Vec<v1::Column>);
}

macro_rules! packets {
    ($($message:ident($header:ident)),* $(,)?) => {$(
        impl Packet for v1::$message {
            type Header = v1::$header;
            fn join(header: Option<Self::Header>, columns: Vec<v1::Column>) -> Self {
                Self { header, columns }
            }
            fn columns(&self) -> &[v1::Column] {
                &self.columns
            }
            fn split(self) -> (Option<Self::Header>, Vec<v1::Column>) {
                (self.header, self.columns)
            }
        }
    )*};
}

packets!(
    InitializeResponse(InitializeHeader),
    SurveyResponse(SurveyAnswer),
    BeginRequest(BeginHeader),
    BeginResponse(BeginAnswer),
    IntegrateRequest(IntegrateHeader),
    IntegrateResponse(IntegrateAnswer),
    CommitRequest(CommitHeader),
    CommitResponse(CommitAnswer),
    FrameResponse(FrameAnswer),
    SaveResponse(SaveAnswer),
    RestoreRequest(RestoreHeader),
);

/// Keeps a vector alive as bytes, without copying it.
struct Owner<T>(Vec<T>);

impl<T: Pod> AsRef<[u8]> for Owner<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// The columns of one call, on their way out or in.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    columns: Vec<(String, Content)>,
    room: Room,
}

/// The bytes of a column.
#[derive(Clone, Debug)]
enum Content {
    /// On their way out; clones share them.
    Whole(Bytes),
    /// On their way in.
    Arriving(Arriving),
}

impl Content {
    fn len(&self) -> u64 {
        match self {
            Self::Whole(bytes) => bytes.len() as u64,
            Self::Arriving(column) => column.len(),
        }
    }

    fn into_values<T: Pod>(self) -> Vec<T> {
        match self {
            Self::Whole(bytes) => arriving::values(&bytes),
            Self::Arriving(column) => column.into_values(),
        }
    }
}

impl Columns {
    /// Adds a column of packed values.
    pub fn put<T: Pod + Send + 'static>(&mut self, name: impl Into<String>, values: Vec<T>) {
        if !values.is_empty() {
            self.columns.push((name.into(), Content::Whole(Bytes::from_owner(Owner(values)))));
        }
    }

    /// Adds a column of ids.
    pub fn put_ids(&mut self, name: impl Into<String>, ids: &[ParticleId]) {
        self.put(name, ids.iter().map(|id| id.0).collect::<Vec<u64>>());
    }

    /// Adds a column that is a single value if all are the same, to the bit.
    pub fn put_uniform<T: Pod + Send + 'static>(&mut self, name: impl Into<String>, mut values: Vec<T>) {
        if values.windows(2).all(|pair| bytemuck::bytes_of(&pair[0]) == bytemuck::bytes_of(&pair[1])) {
            values.truncate(1);
        }
        self.put(name, values);
    }

    /// Bytes of all columns, as sent or received.
    pub fn bytes(&self) -> u64 {
        self.columns.iter().map(|(_, content)| content.len()).sum()
    }

    /// Bytes of a column, 0 if there is none of that name.
    pub fn bytes_of(&self, name: &str) -> u64 {
        self.columns.iter().filter(|column| column.0 == name).map(|(_, content)| content.len()).sum()
    }

    /// Cuts the columns into messages, the first with the header.
    pub fn into_packets<P: Packet>(self, header: P::Header) -> Vec<P> {
        let mut packets = Vec::new();
        let (mut header, mut columns, mut room) = (Some(header), Vec::new(), CHUNK_BYTES);
        for (name, content) in self.columns {
            let mut rest = match content {
                Content::Whole(bytes) => bytes,
                arriving => arriving.into_values().into(),
            };
            while !rest.is_empty() {
                let data = rest.split_to(rest.len().min(room));
                room -= data.len();
                columns.push(v1::Column { name: name.clone(), data });
                if room == 0 {
                    packets.push(P::join(header.take(), std::mem::take(&mut columns)));
                    room = CHUNK_BYTES;
                }
            }
        }
        if header.is_some() || !columns.is_empty() {
            packets.push(P::join(header, columns));
        }
        packets
    }

    /// Empty columns, with room for those that a header announces.
    pub fn within(room: Room) -> Self {
        Self { columns: Vec::new(), room }
    }

    /// Appends the pieces of one message.
    ///
    /// # Errors
    /// A column that the header does not call for, or one that holds more than was announced.
    pub fn append(&mut self, columns: Vec<v1::Column>) -> Result<(), WireError> {
        for v1::Column { name, data } in columns {
            let left = self.room.take(&name, data.len() as u64)?;
            match self.columns.iter_mut().find(|(known, _)| *known == name) {
                Some((_, Content::Arriving(column))) => column.push(&data, left),
                _ => {
                    let mut column = Arriving::default();
                    column.push(&data, left);
                    self.columns.push((name, Content::Arriving(column)));
                }
            }
        }
        Ok(())
    }

    /// Takes a column of `count` values; an absent column is an empty one.
    ///
    /// # Errors
    /// [`WireError::Length`] if its length is another.
    pub fn take<T: Pod>(&mut self, name: &'static str, count: u64) -> Result<Vec<T>, WireError> {
        let (got, stride) = (self.length(name), size_of::<T>());
        if count.checked_mul(stride as u64) != Some(got) {
            return Err(WireError::Length { column: name, got, count, stride });
        }
        Ok(self.take_all(name))
    }

    /// Takes a column of `count` values, or of one value that stands for all.
    ///
    /// # Errors
    /// [`WireError::Length`] if it has neither length.
    pub fn take_uniform<T: Pod>(&mut self, name: &'static str, count: u64) -> Result<Vec<T>, WireError> {
        let mut values = self.take_single_or_all(name, count)?;
        if let [value] = values[..] {
            values.resize(count as usize, value);
        }
        Ok(values)
    }

    /// Takes a column as [`Self::take_uniform`] does, but leaves a single value that stands for all as one
    /// value.
    ///
    /// # Errors
    /// [`WireError::Length`] if the column has neither length.
    pub(crate) fn take_single_or_all<T: Pod>(
        &mut self,
        name: &'static str,
        count: u64,
    ) -> Result<Vec<T>, WireError> {
        let single = self.length(name) == size_of::<T>() as u64;
        self.take(name, if single && count > 0 { 1 } else { count })
    }

    /// Takes a column of vectors within a limit.
    ///
    /// # Errors
    /// Wrong length, or a value beyond the limit.
    pub fn take_vec3(
        &mut self,
        name: &'static str,
        count: u64,
        limit: Limit,
    ) -> Result<Vec<DVec3>, WireError> {
        limit.check(name, self.take(name, count)?)
    }

    /// Takes a column of `count` vectors within a limit, or of one that stands for all.
    ///
    /// # Errors
    /// Neither length, or a value beyond the limit.
    pub fn take_uniform_vec3(
        &mut self,
        name: &'static str,
        count: u64,
        limit: Limit,
    ) -> Result<Vec<DVec3>, WireError> {
        limit.check(name, self.take_uniform(name, count)?)
    }

    /// Takes a column of ids below 2^48, repeated or not.
    ///
    /// # Errors
    /// Wrong length, or an id out of range.
    pub fn take_ids(&mut self, name: &'static str, count: u64) -> Result<Vec<ParticleId>, WireError> {
        let values: Vec<u64> = self.take(name, count)?;
        check(name, &values, None, "below 2^48", |&id| id < ParticleId::LIMIT)?;
        Ok(values.into_iter().map(ParticleId).collect())
    }

    /// Takes a column of raw bytes.
    pub fn take_bytes(&mut self, name: &'static str) -> Vec<u8> {
        self.take_all(name)
    }

    /// Takes a cell set.
    ///
    /// # Errors
    /// [`WireError::Malformed`] with the byte at fault.
    pub fn take_cells(&mut self, name: &'static str) -> Result<CellSet, WireError> {
        self.take_named_cells(name, name)
    }

    pub(crate) fn take_named_cells(
        &mut self,
        name: &str,
        column: &'static str,
    ) -> Result<CellSet, WireError> {
        let bytes: Vec<u8> = self.take_all(name);
        CellSet::from_bytes(&bytes).map_err(|reason| WireError::Malformed { column, reason })
    }

    pub(crate) fn take_floats(
        &mut self,
        column: &str,
        name: &str,
        count: u64,
    ) -> Result<Vec<f32>, WireError> {
        let bytes: Vec<u8> = self.take_all(column);
        if count.checked_mul(4) != Some(bytes.len() as u64) {
            return Err(WireError::Length { column: "field", got: bytes.len() as u64, count, stride: 4 });
        }
        let mut values = vec![0f32; count as usize];
        bytemuck::cast_slice_mut::<f32, u8>(&mut values).copy_from_slice(&bytes);
        match values.iter().position(|value| !value.is_finite()) {
            None => Ok(values),
            Some(at) => {
                let value = values[at].shown();
                Err(WireError::Rule(format!(
                    "field {name:?} holds {value} at place {at}, but must be finite"
                )))
            }
        }
    }

    /// Checks that every column was taken.
    ///
    /// # Errors
    /// [`WireError::UnknownColumn`] with the first that was not.
    pub fn finish(self) -> Result<(), WireError> {
        match self.columns.into_iter().next() {
            Some((name, _)) => Err(WireError::UnknownColumn(name)),
            None => Ok(()),
        }
    }

    pub(crate) fn length(&self, name: &str) -> u64 {
        self.bytes_of(name)
    }

    /// Takes the values of a column whose length has been checked; none if the column is absent.
    fn take_all<T: Pod>(&mut self, name: &str) -> Vec<T> {
        match self.columns.iter().position(|(known, _)| known == name) {
            Some(at) => self.columns.swap_remove(at).1.into_values(),
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(values: &[f64]) -> (u64, Vec<f64>) {
        let mut columns = Columns::default();
        columns.put_uniform("values", values.to_vec());
        let bytes = columns.bytes();
        (bytes, columns.take_uniform("values", values.len() as u64).expect("as many values"))
    }

    #[test]
    fn equal_values_travel_once_and_arrive_to_the_bit() {
        for (values, bytes) in [
            (&[][..], 0),
            (&[2.5], 8),
            (&[2.5; 5], 8),
            (&[2.5, 2.5, 1.0], 24),
            // Equal as numbers, but not as bits.
            (&[0.0, -0.0], 16),
        ] {
            let (sent_bytes, back) = sent(values);
            assert_eq!(sent_bytes, bytes, "{values:?}");
            assert!(back.iter().map(|v| v.to_bits()).eq(values.iter().map(|v| v.to_bits())), "{values:?}");
        }
    }

    #[test]
    fn a_column_in_pieces_is_the_column_in_one() {
        let values: Vec<f64> = (0..9).map(f64::from).collect();
        let bytes: &[u8] = bytemuck::cast_slice(&values);
        for cut in 0..=bytes.len() {
            let mut columns = Columns::within(Room::of("values", bytes.len() as u64));
            for piece in [&bytes[..cut], &bytes[cut..]] {
                let data = Bytes::copy_from_slice(piece);
                columns.append(vec![v1::Column { name: "values".into(), data }]).expect("small enough");
            }
            assert_eq!(columns.take::<f64>("values", 9), Ok(values.clone()), "cut at {cut}");
        }
    }

    #[test]
    fn pieces_are_joined_in_order_and_read_as_values_of_any_size() {
        const LENGTH: usize = 24 * 40_000;
        let bytes: Vec<u8> = (0..LENGTH).map(|i| (i % 251) as u8).collect();
        let cuts = [0, 3, 5, 4096, 70_000, 70_001, LENGTH];
        let received = || {
            let mut columns = Columns::within(Room::of("values", bytes.len() as u64));
            for cut in cuts.windows(2) {
                let data = Bytes::copy_from_slice(&bytes[cut[0]..cut[1]]);
                columns.append(vec![v1::Column { name: "values".into(), data }]).expect("announced");
            }
            columns
        };
        fn as_bytes<T: Pod>(mut columns: Columns) -> Vec<u8> {
            let count = LENGTH / size_of::<T>();
            let values: Vec<T> = columns.take("values", count as u64).expect("as many values");
            bytemuck::cast_slice(&values).to_vec()
        }
        // The second value of 24 bytes lies in three pieces.
        assert_eq!(as_bytes::<[u64; 3]>(received()), bytes);
        assert_eq!(as_bytes::<u64>(received()), bytes);
        assert_eq!(as_bytes::<u32>(received()), bytes);
        assert_eq!(as_bytes::<u8>(received()), bytes);
        let mut columns = received();
        assert_eq!(columns.bytes(), bytes.len() as u64);
        let more = v1::Column { name: "values".into(), data: Bytes::from_static(b"x") };
        assert!(matches!(columns.append(vec![more]), Err(WireError::Beyond { .. })));
        assert_eq!(columns.take_bytes("values"), bytes);
    }

    #[test]
    fn a_column_smaller_than_announced_is_read_as_what_it_is() {
        for length in 0..40usize {
            let bytes: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let mut columns = Columns::within(Room::of("values", 1 << 20));
            let data = Bytes::copy_from_slice(&bytes);
            columns.append(vec![v1::Column { name: "values".into(), data }]).expect("announced");
            assert_eq!(columns.bytes_of("values"), length as u64);
            let result = columns.take::<[u64; 3]>("values", 1);
            assert_eq!(result.is_ok(), length == 24, "{length}: {result:?}");
        }
    }
}
