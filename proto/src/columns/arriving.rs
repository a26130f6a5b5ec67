//! A column that arrives in pieces.

use bytemuck::Pod;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// A column makes room for this many times what has arrived, up to what was announced: whoever announces much
/// and sends little gets little.
const ROOM_FACTOR: u64 = 128;

/// The bytes of a column so far, in words, so that they become numbers where they lie.
#[derive(Clone, Debug, Default)]
pub(super) struct Arriving {
    words: Vec<u64>,
    /// The first bytes of a word whose others have not arrived.
    cut: Vec<u8>,
}

impl Arriving {
    /// Appends a piece, with the bytes that may still follow it.
    pub(super) fn push(&mut self, piece: &[u8], left: u64) {
        if (self.words.capacity() - self.words.len()) * WORD < self.cut.len() + piece.len() {
            let here = self.len() + piece.len() as u64;
            let all = (here + left).min(ROOM_FACTOR * here).div_ceil(WORD as u64);
            self.words.reserve_exact(all as usize - self.words.len());
        }
        let mut rest = piece;
        if !self.cut.is_empty() {
            let (first, others) = rest.split_at(rest.len().min(WORD - self.cut.len()));
            self.cut.extend_from_slice(first);
            rest = others;
            if self.cut.len() == WORD {
                self.words.push(bytemuck::pod_read_unaligned(&self.cut));
                self.cut.clear();
            }
        }
        let whole = rest.chunks_exact(WORD);
        self.cut.extend_from_slice(whole.remainder());
        self.words.extend(whole.map(bytemuck::pod_read_unaligned::<u64>));
    }

    pub(super) fn len(&self) -> u64 {
        (self.words.len() * WORD + self.cut.len()) as u64
    }

    /// All values, whose bytes are as many as have arrived.
    pub(super) fn into_values<T: Pod>(mut self) -> Vec<T> {
        let bytes = self.len() as usize;
        if self.cut.is_empty() {
            // Nothing to do if as much came as was announced.
            self.words.shrink_to_fit();
            match bytemuck::allocation::try_cast_vec(self.words) {
                Ok(values) => return values,
                Err((_, words)) => self.words = words,
            }
        } else {
            self.cut.resize(WORD, 0);
            self.words.push(bytemuck::pod_read_unaligned(&self.cut));
        }
        values(&bytemuck::cast_slice(&self.words)[..bytes])
    }
}

/// The values that these bytes hold, wherever they lie.
pub(super) fn values<T: Pod>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}
