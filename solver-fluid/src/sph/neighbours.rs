//! Neighbours: the order of particles by cells, packets of particles, the candidates around a packet, and the
//! lists of neighbours.

mod candidates;
mod cells;
mod neighbour_list;
mod search;
mod sorted_particles;

pub(super) use candidates::{CandidateCoordinates, PacketNeighbours};
pub use cells::Points;
pub(super) use cells::{CellOrder, Chunk, FixedPointGrid};
pub(super) use neighbour_list::NeighbourList;
pub(super) use search::{NeighbourSearch, Packet};
pub(super) use sorted_particles::{PRESSURE, ParticleRecord, SortedParticles, VELOCITY, VOLUME};
