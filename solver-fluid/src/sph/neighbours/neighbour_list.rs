//! The neighbours of the packets of a chunk, found with densities and used again for forces.

use amalgam_particles::lanes::Register;

/// Neighbours of the packets of a chunk, one packet after the other. A neighbour of a packet is a particle or
/// image within a support radius of any of its particles.
///
/// An entry begins with the walls in reach of the packet, as bits of [`SIDES`](super::search::SIDES). For
/// each set of these walls, the empty set first, follow the number of neighbours that are mirrored in all
/// walls of the set, and their indices in the cell order. With two walls a and b in reach:
///
/// ```text
///   | walls | n | n particles | n | n images in a | n | n images in b | n | n images in a and b |
/// ```
#[derive(Clone, Debug, Default)]
pub(in crate::sph) struct NeighbourList {
    words: Vec<u32>,
    /// The next word to be read.
    next: usize,
}

impl NeighbourList {
    /// Empties the list, to be filled anew.
    pub(in crate::sph) fn clear(&mut self) {
        self.words.clear();
    }

    /// Continues reading at the first packet.
    pub(in crate::sph) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Begins the entry of a packet.
    #[inline(always)]
    pub(super) fn begin_packet(&mut self, walls: u32) {
        self.words.push(walls);
    }

    /// Appends the number of those of the `candidates` that are neighbours, and these neighbours.
    /// `is_neighbour` has a flag, 0 or 1, for each candidate and is filled up to a whole number of registers.
    /// Returns the number.
    #[inline(always)]
    pub(super) fn append<R: Register>(&mut self, candidates: &[u32], is_neighbour: &[u8]) -> usize {
        let begin = self.words.len();
        let room = 1 + is_neighbour.len() + R::LANES;
        if self.words.capacity() - begin < room {
            // Lists live from step to step. To double their capacity would waste memory.
            self.words.reserve_exact(begin / 8 + room);
        }
        self.words.resize(begin + room, 0);
        let mut end = begin + 1;
        for at in (0..is_neighbour.len()).step_by(R::LANES) {
            let selected = bits(&is_neighbour[at..][..R::LANES]);
            R::store_selected_words(&candidates[at..], selected, &mut self.words[end..]);
            end += selected.count_ones() as usize;
        }
        let count = end - begin - 1;
        self.words[begin] = count as u32;
        self.words.truncate(end);
        count
    }

    /// Reads the next `count` words.
    #[inline(always)]
    pub(super) fn read(&mut self, count: usize) -> &[u32] {
        let begin = self.next;
        self.next += count;
        &self.words[begin..self.next]
    }
}

/// Eight or sixteen flags, each 0 or 1, as bits.
#[inline(always)]
fn bits(flags: &[u8]) -> u16 {
    let (eights, _) = flags.as_chunks();
    // The factor's powers of two move each of eight flags to its bit in the last byte of the product.
    let of = |&eight| (u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u16;
    eights.iter().rev().fold(0, |bits, eight| bits << 8 | of(eight))
}
