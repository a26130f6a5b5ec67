//! Pure things that more than one crate needs: particle fields, ids, the cell grid, intersecting spheres,
//! sets of occupied cells, the group map and counter-based random numbers. No input or output, no async, no
//! wire types.

mod body;
mod cells;
mod contact_look_ahead;
mod fields;
mod grid;
mod groups;
mod id;
pub mod lanes;
mod pairs;
pub mod polygon;
pub mod random;
pub mod reduce;
pub mod shapes;
pub mod surface;
pub mod text;

pub use body::Body;
pub use cells::{CellMask, CellSet, Lattice, Reach};
pub use contact_look_ahead::ContactLookAhead;
pub use fields::{
    MASS_RANGE, MASS_RULE, MOMENTUM_LIMIT, Particles, ParticlesError, RADIUS_RANGE, RADIUS_RULE, SPEED_LIMIT,
    is_mass, is_radius,
};
pub use glam::{DMat3, DQuat, DVec3};
pub use grid::{CellGrid, POSITION_LIMIT, counting_sort};
pub use groups::{GroupMap, NO_GROUP, StepEnd};
pub use id::ParticleId;
pub use pairs::{PairFinder, Spheres};
pub use shapes::obstacle::{Obstacle, ObstacleForm};
pub use surface::moving::MovingSurface;
