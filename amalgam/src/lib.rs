//! The program that people run: it reads scenes, starts solvers, runs the coordinator and writes the results.
//!
//! - [`scene`]: scene files and their faults;
//! - [`run`]: one local process per participant, progress, output;
//! - [`service`]: the coordinator for clients that come and go, and [`at`], a client;
//! - [`command::plan`]: what a scene would take on a cluster;
//! - [`checkpoint`]: the states from which a run goes on;
//! - [`viewer`]: a page that shows a run while it goes on;
//! - [`command::report`]: a page about a run that is over, and [`run::export`], its frames for renderers;
//! - [`command`]: from the command line to an exit code.

pub mod at;
pub mod checkpoint;
pub mod cli;
pub mod command;
pub mod console;
pub mod error;
pub mod folder;
pub mod observers;
pub mod pages;
pub(crate) mod picture;
pub mod run;
pub mod scene;
pub mod service;
pub mod viewer;
