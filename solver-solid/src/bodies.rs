//! The kinds of body of a section, and how they become particles, springs and bonds.

pub(crate) mod checks;
pub(crate) mod grains;
pub(crate) mod layout;
pub(crate) mod motion;
pub(crate) mod peridynamic;
pub(crate) mod points;
pub(crate) mod rigid;
pub(crate) mod scatter;
pub(crate) mod sheet;
pub(crate) mod volume;
