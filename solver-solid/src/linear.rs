//! The linear system of an implicit step, and its solution by preconditioned conjugate gradients.

pub(crate) mod block;
pub(crate) mod conjugate_gradients;
pub(crate) mod fixed;
pub(crate) mod groups;
pub(crate) mod multilevel;
pub(crate) mod operator;
pub(crate) mod partition;
pub(crate) mod product;
pub(crate) mod reduced;
pub(crate) mod rounded;
pub(crate) mod system;
pub(crate) mod vectors;
