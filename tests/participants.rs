//! participants
