//! A figure of a benchmark: time and memory per particle, a peer's figure beside them, and the machine's
//! limits.

use serde::Serialize;

/// The memory of this process before anything is measured.
#[derive(Clone, Copy, Debug)]
pub struct Idle(Option<u64>);

impl Idle {
    /// Measures the memory in use now.
    pub fn now() -> Self {
        Self(resident_bytes())
    }

    /// Additional bytes in use per particle, for `count` particles, where the system tells.
    pub fn held_for_each(self, count: usize) -> Option<f64> {
        resident_bytes().zip(self.0).map(|(now, before)| now.saturating_sub(before) as f64 / count as f64)
    }
}

/// Memory of this process that is in use [bytes], where the system tells.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(1024 * line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?)
}

/// A measured loop or step: a row of the table, an object of the JSON array.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// Name of the loop or step measured.
    pub name: String,
    /// Particles; contacts for the contact law.
    pub n: usize,
    /// Threads.
    pub threads: usize,
    /// Least time per particle [ns] of all repetitions.
    pub ns_per_particle: f64,
    /// Median time per particle [ns].
    pub ns_per_particle_median: f64,
    /// Mean iterations of a solve, for the contact law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iterations: Option<f64>,
    /// Least time per directed bond [ns], for solids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_bond: Option<f64>,
    /// Memory held per particle [bytes], where it was measured.
    pub bytes_per_particle: Option<f64>,
    /// Program that the figure is compared with, and its figure.
    pub peer: Option<String>,
    /// The peer's time divided by ours.
    pub ratio: Option<f64>,
    /// Operations and bytes per particle, which the table compares with the measured peaks.
    #[serde(skip)]
    pub bound: Option<Bound>,
}

/// Counted operations and bytes of a loop per particle.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Multiplications, additions and the like, in single lanes.
    pub operations: f64,
    /// Bytes read and written.
    pub bytes: f64,
}

/// Figure of another program.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Name of the program and its loop.
    pub name: &'static str,
    /// Time per particle [ns], or per directed bond for solids.
    pub ns: f64,
}

impl Measurement {
    /// A figure from the wall time [s] of repetitions.
    pub fn new(name: impl Into<String>, n: usize, mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let ns = |at: usize| seconds[at] * 1e9 / n as f64;
        Self {
            name: name.into(),
            n,
            threads: rayon::current_num_threads(),
            ns_per_particle: ns(0),
            ns_per_particle_median: ns(seconds.len() / 2),
            iterations: None,
            ns_per_bond: None,
            bytes_per_particle: None,
            peer: None,
            ratio: None,
            bound: None,
        }
    }

    /// Adds a peer's figure for comparison: per bond if this figure is known per bond, else per particle.
    pub fn beside(mut self, peer: Peer) -> Self {
        self.peer = Some(format!("{}: {} ns", peer.name, peer.ns));
        self.ratio = Some(peer.ns / self.ns_per_bond.unwrap_or(self.ns_per_particle));
        self
    }

    /// Adds the median time [ns] of a peer that was measured beside this.
    #[cfg(feature = "rapier")]
    pub fn beside_median(mut self, peer: &str, ns: f64) -> Self {
        self.peer = Some(format!("{peer}: {ns:.0} ns"));
        self.ratio = Some(ns / self.ns_per_particle_median);
        self
    }
}
