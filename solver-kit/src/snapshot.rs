//! Snapshots: a solver's state as bytes, exact and of the same layout on every machine (little-endian).

use std::io::{self, Write};

use amalgam_particles::DVec3;

use crate::error::SolverError;

/// Writes a snapshot, number after number, to memory or to something else.
#[derive(Debug)]
pub struct SnapshotWriter<W: Write = Vec<u8>> {
    to: W,
    /// The first failure, after which nothing is written.
    failed: io::Result<()>,
}

/// Reads a snapshot that a [`SnapshotWriter`] wrote, in the same order.
#[derive(Clone, Debug)]
pub struct SnapshotReader<'a> {
    rest: &'a [u8],
    /// The solver whose snapshot it must be, for messages.
    solver: &'static str,
}

impl SnapshotWriter {
    /// Begins a snapshot in memory with `header`, which names the solver and the version of its layout.
    pub fn new(header: &[u8]) -> Self {
        Self::onto(header, Vec::new())
    }

    /// The bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.to
    }
}

impl<W: Write> SnapshotWriter<W> {
    /// Begins a snapshot with `header`, which names the solver and the version of its layout.
    pub fn onto(header: &[u8], to: W) -> Self {
        let mut writer = Self { to, failed: Ok(()) };
        writer.put(header);
        writer
    }

    fn put(&mut self, bytes: &[u8]) {
        if self.failed.is_ok() {
            self.failed = self.to.write_all(bytes);
        }
    }

    /// Ends a snapshot.
    ///
    /// # Errors
    /// The first failure of writing.
    pub fn end(self) -> io::Result<W> {
        self.failed.map(|()| self.to)
    }

    /// Writes an integer.
    pub fn integer(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// Writes numbers.
    pub fn numbers(&mut self, values: impl IntoIterator<Item = f64>) {
        values.into_iter().for_each(|value| self.put(&value.to_le_bytes()));
    }

    /// Writes vectors, component after component.
    pub fn vectors(&mut self, values: &[DVec3]) {
        self.numbers(values.iter().flat_map(DVec3::to_array));
    }

    /// Writes bytes encoded elsewhere, and their number before them.
    pub fn block(&mut self, bytes: &[u8]) {
        self.integer(bytes.len() as u64);
        self.put(bytes);
    }
}

impl<'a> SnapshotReader<'a> {
    /// Begins to read a snapshot of `solver`, such as `the grain solver`, that begins with `header`.
    ///
    /// # Errors
    /// If the snapshot has another header.
    pub fn new(header: &[u8], solver: &'static str, snapshot: &'a [u8]) -> Result<Self, SolverError> {
        let reader = Self { rest: snapshot, solver };
        let foreign = || reader.refuse(format!("it is not one of {solver} of this version"));
        let rest = snapshot.strip_prefix(header).ok_or_else(foreign)?;
        Ok(Self { rest, solver })
    }

    /// The error of a snapshot that has a fault.
    pub fn refuse(&self, reason: impl std::fmt::Display) -> SolverError {
        SolverError(format!("this snapshot of {} cannot be restored: {reason}", self.solver))
    }

    fn take(&mut self, count: Option<usize>) -> Result<&'a [u8], SolverError> {
        let split = count.and_then(|count| self.rest.split_at_checked(count));
        let (taken, rest) = split.ok_or_else(|| self.refuse("it is cut off"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads an integer.
    ///
    /// # Errors
    /// If the snapshot ends before.
    pub fn integer(&mut self) -> Result<u64, SolverError> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(Some(8))?);
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads an integer that must be `expected`, the number of `what` that there are.
    ///
    /// # Errors
    /// If it is another one.
    pub fn expect(&mut self, expected: usize, what: &str) -> Result<(), SolverError> {
        match self.integer()? {
            count if count == expected as u64 => Ok(()),
            count => Err(self.refuse(format!("it holds {count} {what}, not {expected}"))),
        }
    }

    /// Reads `count` numbers, which must be finite.
    ///
    /// # Errors
    /// If the snapshot ends before, or a number is not finite.
    pub fn numbers(&mut self, count: u64) -> Result<Vec<f64>, SolverError> {
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(8));
        let numbers: Vec<f64> =
            self.take(bytes)?.as_chunks().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect();
        if numbers.iter().any(|value| !value.is_finite()) {
            return Err(self.refuse("it holds a number that is not finite"));
        }
        Ok(numbers)
    }

    /// Reads `count` vectors, which must be finite.
    ///
    /// # Errors
    /// As [`Self::numbers`].
    pub fn vectors(&mut self, count: u64) -> Result<Vec<DVec3>, SolverError> {
        let numbers = self.numbers(count.saturating_mul(3))?;
        Ok(numbers.as_chunks().0.iter().map(|&vector| DVec3::from_array(vector)).collect())
    }

    /// Reads a few numbers, which must be finite.
    ///
    /// # Errors
    /// As [`Self::numbers`].
    pub fn array<const N: usize>(&mut self) -> Result<[f64; N], SolverError> {
        let mut numbers = self.numbers(N as u64)?.into_iter();
        Ok(std::array::from_fn(|_| numbers.next().expect("as many as were asked for")))
    }

    /// Reads a block of [`SnapshotWriter::block`].
    ///
    /// # Errors
    /// If the snapshot ends before.
    pub fn block(&mut self) -> Result<&'a [u8], SolverError> {
        let length = usize::try_from(self.integer()?).ok();
        self.take(length)
    }

    /// Ends reading.
    ///
    /// # Errors
    /// If something is left.
    pub fn finish(self) -> Result<(), SolverError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(self.refuse(format!("{} bytes more than it should have", self.rest.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Vec<u8> {
        let mut writer = SnapshotWriter::new(b"test 1\n");
        writer.integer(2);
        writer.vectors(&[DVec3::X, DVec3::NEG_Y]);
        writer.block(b"own");
        writer.numbers([0.5]);
        writer.finish()
    }

    fn read(bytes: &[u8]) -> Result<(Vec<DVec3>, Vec<u8>, f64), SolverError> {
        let mut reader = SnapshotReader::new(b"test 1\n", "the test", bytes)?;
        let count = reader.integer()?;
        let (vectors, own) = (reader.vectors(count)?, reader.block()?.to_vec());
        let [half] = reader.array()?;
        reader.finish()?;
        Ok((vectors, own, half))
    }

    #[test]
    fn a_snapshot_is_read_as_it_was_written() {
        let (vectors, own, half) = read(&written()).expect("a good snapshot");
        assert_eq!((vectors, own, half), (vec![DVec3::X, DVec3::NEG_Y], b"own".to_vec(), 0.5));
    }

    #[test]
    fn every_cut_addition_and_foreign_header_is_refused() {
        let bytes = written();
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert!(read(&[&bytes[..], b"x"].concat()).is_err());
        let error = read(b"test 2\n").expect_err("another version").to_string();
        assert!(error.ends_with("not one of the test of this version"), "{error}");
        let mut infinite = bytes.clone();
        let last = infinite.len() - 8;
        infinite[last..].copy_from_slice(&f64::INFINITY.to_le_bytes());
        assert!(read(&infinite).is_err());
        // A count that no memory holds.
        let mut many = bytes;
        many[7..15].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(read(&many).is_err());
    }
}
