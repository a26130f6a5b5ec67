//! Neighbours: the order of particles by cells, and the candidates around a group of particles.

mod candidates;
mod cells;

pub(super) use candidates::{
    Candidates, Columns, Group, NeighbourList, PRESSURE, Places, Stored, Surroundings, VELOCITY, VOLUME,
};
pub use cells::Points;
pub(super) use cells::{CellOrder, Chunk, Raster};
