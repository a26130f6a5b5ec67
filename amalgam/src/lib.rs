//! The command people type: reads scenes, starts solvers, runs the coordinator and writes the results.
//!
//! - [`scene`]: scene files and their faults;
//! - [`run`]: one local process per participant, progress, output;
//! - [`service`]: the coordinator for clients that come and go, and [`at`], a client;
//! - [`plan`]: what a scene would take on a cluster;
//! - [`checkpoint`]: the states from which a run goes on;
//! - [`viewer`]: a page that shows a run while it goes on, [`report`]: one about a run that is over, and [`export`] for renderers;
//! - [`command`]: from the command line to an exit code.

pub mod at;
pub mod bench;
pub mod certs;
pub mod check;
pub mod checkpoint;
pub mod cli;
pub mod command;
pub mod conform;
pub mod console;
pub mod control;
pub mod ending;
pub mod error;
pub mod export;
pub mod folder;
pub mod html;
pub mod http;
pub mod interrupt;
pub mod manual;
pub mod metrics;
pub mod observers;
pub mod page;
pub(crate) mod picture;
pub mod plan;
pub mod report;
pub mod reproduce;
pub mod resume;
pub mod run;
pub mod scene;
pub mod serve;
pub mod service;
pub mod validate;
pub mod viewer;
