//! Output that people look at: VTK frames for ParaView, pictures, and tables of probes.
//!
//! - [`write_vtu`] writes one frame of one participant or a part of it, [`write_pvtu`] joins parts,
//!   [`PvdCollection`] lists the frames by time;
//! - [`Scene::render`] draws spheres and surfaces into a [`Picture`], without a graphics card;
//! - [`write_ply`] writes a surface; [`Frame::read`] and [`read_ply`] read what was written;
//! - [`write_usd`] writes all frames as one animated scene;
//! - [`CsvTable`] holds numbers over time.
//!
//! Architecture invariants: this crate depends on nothing else of the project. A reader finds only whole
//! frames, whole lists and whole rows, also while a run goes on or after it was killed.

mod atomic;
mod error;
mod picture;
mod ply;
mod pvd;
mod pvtu;
mod read;
mod table;
mod usd;
mod vtu;

pub use error::FramesError;
pub use glam::DVec3;
pub use picture::{Camera, Colour, ColourMap, Creased, Layer, Picture, Radius, Rgb, Scene, creased};
pub use ply::{PlyMesh, write_ply};
pub use pvd::PvdCollection;
pub use pvtu::{frame_parts, write_pvtu};
pub use read::{Frame, Mesh, read_ply};
pub use table::CsvTable;
pub use usd::{Load, UsdMesh, UsdObject, UsdPoints, UsdScene, UsdShape, UsdStates, UsdWritten, write_usd};
pub use vtu::{Compression, FrameData, FrameField, FrameValues, RADIUS, write_vtu};
