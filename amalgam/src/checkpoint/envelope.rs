//! A file of a checkpoint: a line with the format, a line with the label of the file, its bytes, and a
//! checksum of all before it. `head -2` shows the lines.

use serde::{Deserialize, Serialize};

const FORMAT: &str = "amalgam checkpoint ";
const VERSION: &str = "1";

/// Bytes of the checksum (BLAKE3) at the end of a file.
const CHECKSUM_BYTES: usize = blake3::OUT_LEN;

/// Label of a file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// Name of the file.
    pub what: String,
    /// Steps taken.
    pub steps: u64,
    /// Program whose bytes it holds, and its version.
    pub program: String,
    /// Digest of the data with which the program was started.
    pub digest: String,
    /// Number of the program's bytes.
    pub length: u64,
}

/// Differences between a file and the file that was written.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Unsound {
    /// Something else.
    #[error("it is no file of a checkpoint")]
    Other,
    /// A later format.
    #[error("it has format {0} of checkpoints, this amalgam reads format {VERSION}")]
    Format(String),
    /// Bytes are missing at the end.
    #[error("it is cut off: {held} of {whole} bytes are there")]
    Cut {
        /// Bytes that are there.
        held: u64,
        /// Bytes that were written.
        whole: u64,
    },
    /// Bytes differ.
    #[error("its bytes are not those that were written: the checksum differs")]
    Changed,
}

impl Label {
    /// The parts of a file that holds `bytes`.
    pub fn seal<'a>(&self, bytes: &'a [u8]) -> [std::borrow::Cow<'a, [u8]>; 3] {
        let label = serde_json::to_string(self).expect("a label is JSON");
        let head = format!("{FORMAT}{VERSION}\n{label}\n").into_bytes();
        let checksum = blake3::Hasher::new().update(&head).update(bytes).finalize();
        [head.into(), bytes.into(), checksum.as_bytes().to_vec().into()]
    }

    /// Reads the label and the content of a file.
    ///
    /// # Errors
    /// If a bit of it is not as it was written.
    pub fn open(mut file: Vec<u8>) -> Result<(Self, Vec<u8>), Unsound> {
        let Some((head, end)) = Self::read(&file) else {
            return Err(Unsound::of_start(&file));
        };
        let whole = (end as u64).saturating_add(head.length).saturating_add(CHECKSUM_BYTES as u64);
        let held = file.len() as u64;
        let sum_at = file.len().saturating_sub(CHECKSUM_BYTES);
        if blake3::hash(&file[..sum_at]).as_bytes()[..] != file[sum_at..] || held != whole {
            return Err(if held < whole { Unsound::Cut { held, whole } } else { Unsound::Changed });
        }
        file.truncate(sum_at);
        file.drain(..end);
        Ok((head, file))
    }

    /// The label, and where it ends.
    fn read(file: &[u8]) -> Option<(Self, usize)> {
        let rest = file.strip_prefix(FORMAT.as_bytes())?.strip_prefix(VERSION.as_bytes())?;
        let rest = rest.strip_prefix(b"\n")?;
        let length = rest.iter().position(|&byte| byte == b'\n')?;
        let label = serde_json::from_slice(&rest[..length]).ok()?;
        Some((label, file.len() - rest.len() + length + 1))
    }
}

impl Unsound {
    /// Fault of a file that does not begin with a label.
    fn of_start(file: &[u8]) -> Self {
        let line = file.split(|&byte| byte == b'\n').next().unwrap_or_default();
        match line.strip_prefix(FORMAT.as_bytes()).map(|version| String::from_utf8_lossy(version)) {
            Some(version) if version == VERSION => Self::Changed,
            Some(version) => Self::Format(amalgam_particles::text::shorten(&version)),
            None => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed() -> (Label, Vec<u8>, Vec<u8>) {
        let bytes: Vec<u8> = (0..200u8).chain(*b"\n\n").collect();
        let label = Label {
            what: "participant-water".into(),
            steps: 500,
            program: "fluid 0.1.0".into(),
            digest: "00".into(),
            length: bytes.len() as u64,
        };
        let file = label.seal(&bytes).concat();
        (label, bytes, file)
    }

    #[test]
    fn a_file_gives_back_what_it_was_given() {
        let (label, bytes, file) = sealed();
        assert_eq!(Label::open(file), Ok((label, bytes)));
        let empty = Label { length: 0, ..sealed().0 };
        assert_eq!(Label::open(empty.seal(&[]).concat()), Ok((empty, Vec::new())));
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let file = sealed().2;
        for bit in 0..8 * file.len() {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Label::open(flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_cut_is_refused_and_so_is_what_is_longer() {
        let file = sealed().2;
        let body = file.len() - CHECKSUM_BYTES - sealed().1.len();
        for length in 0..file.len() {
            let error = Label::open(file[..length].to_vec()).expect_err("a cut file");
            let (held, whole) = (length as u64, file.len() as u64);
            assert!(length < body || error == Unsound::Cut { held, whole }, "{length}: {error}");
        }
        assert_eq!(Label::open([&file[..], b"\0"].concat()), Err(Unsound::Changed));
    }

    #[test]
    fn other_files_and_later_formats_are_told_apart() {
        let open = |text: &str| Label::open(text.into()).expect_err("no checkpoint").to_string();
        assert_eq!(open("P5 640 480"), "it is no file of a checkpoint");
        let later = "it has format 2 of checkpoints, this amalgam reads format 1";
        assert_eq!(open("amalgam checkpoint 2\n{}\n"), later);
    }
}
