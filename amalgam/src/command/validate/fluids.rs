//! Cases of fluids, for either method.

mod closed_box;
mod column;
mod dam_break;
mod dropped_ball;
mod fluid;
mod hydrostatic;
mod sloshing;
mod stretching_drop;
mod vortex;

pub(super) use closed_box::CASE as CLOSED_BOX;
pub(super) use column::CASE as COLUMN;
pub(super) use dam_break::CASE as DAM_BREAK;
pub(super) use dropped_ball::CASE as DROPPED_BALL;
pub(super) use hydrostatic::CASE as HYDROSTATIC;
pub(super) use sloshing::CASE as SLOSHING;
pub(super) use stretching_drop::CASE as STRETCHING_DROP;
pub(super) use vortex::CASE as VORTEX;
