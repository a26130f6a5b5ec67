//! Cases of solids: springs, bonds that break, and their integrators.

pub(super) mod bar_wave;
pub(super) mod bent_beams;
pub(super) mod branching;
pub(super) mod brittle_wall;
pub(super) mod buckling;
pub(super) mod cantilever;
pub(super) mod catenary;
pub(super) mod crack_energy;
pub(super) mod free_body;
pub(super) mod hanging_bar;
pub(super) mod hanging_rope;
pub(super) mod implicit_euler;
pub(super) mod kalthoff;
pub(super) mod pendulum;
pub(super) mod small_disc;
