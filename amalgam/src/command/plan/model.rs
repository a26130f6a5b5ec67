//! Model of a step on many ranks: work, memory, messages and time.
//!
//! Particles of a participant that is cut fill a cube, or a square if they are sheets. Bisections divide it among
//! ranks into boxes, or planes into slabs, as ranks do. A rank computes its own particles and receives those of
//! others within reach of its part, its ghosts. Participants that are not cut have a node for themselves. The
//! coordinator is one thread. Constants are those that `amalgam bench ranks` prints.

use serde::Serialize;

use crate::cli::Network;

/// Time of a rank per own particle [s], to find the particles that other ranks see.
const SEARCH: f64 = 4.5e-9;
/// Time of a rank per ghost [s], to copy, send, receive and sort it.
const GHOST: f64 = 72e-9;
/// Work of the busiest rank over that of the mean one.
const IMBALANCE: f64 = 1.05;
/// Time of a call to a participant [s] beside the network's.
const CALL: f64 = 1e-4;
/// Bytes per second that one connection carries.
const CONNECTION: f64 = 2e9;
/// Bytes of the table of particles that the coordinator gets at the start, per particle.
const TABLE: f64 = 56.0;

impl Network {
    /// Time of a message on its way [s].
    fn latency(self) -> f64 {
        match self {
            Self::Infiniband => 2e-6,
            Self::Ethernet => 30e-6,
        }
    }

    /// Bytes per second that leave a node.
    fn bandwidth(self) -> f64 {
        match self {
            Self::Infiniband => 25e9,
            Self::Ethernet => 1.25e9,
        }
    }
}

/// Machines that are alike.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    /// Number of nodes.
    pub nodes: usize,
    /// Cores of each.
    pub cores: usize,
    /// Ranks of each.
    pub ranks: usize,
    /// Network between them.
    pub network: Network,
}

/// The parts into which particles are cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cut {
    /// Boxes of a cube.
    Boxes,
    /// Slabs of a cube, or strips of a square: the number of dimensions, and the thickness of the thinnest slab
    /// [spacings].
    Slabs(i32, f64),
}

/// Exchanges between the ranks of a participant that is cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Halo {
    /// The parts of ranks.
    pub cut: Cut,
    /// Distance up to which a rank sees particles beyond its part, in spacings of particles.
    pub depth: f64,
    /// Messages to each neighbour in a step.
    pub messages: f64,
    /// Bytes of a ghost in all messages of a step.
    pub bytes: f64,
    /// Sums and maxima over all ranks in a step.
    pub collectives: f64,
    /// Bytes per particle of the whole participant that every rank keeps.
    pub everywhere: f64,
    /// True if each rank lays out a part of the particles at the start, and all of them do without a table.
    pub in_parts: bool,
}

impl Halo {
    /// Ranks that get a part, of so many.
    fn used(&self, particles: f64, ranks: usize) -> usize {
        match self.cut {
            Cut::Boxes => ranks,
            Cut::Slabs(dimensions, thinnest) => {
                // A root is rounded, up or down.
                let most = (particles.powf(1.0 / f64::from(dimensions)) / thinnest + 1e-6).max(1.0);
                ranks.min(most as usize)
            }
        }
    }

    /// The boundaries among ranks that all have a part.
    pub fn boundary(&self, particles: f64, ranks: usize) -> Boundary {
        match self.cut {
            Cut::Boxes => boundary(particles, ranks, self.depth),
            Cut::Slabs(dimensions, _) => {
                let edge = particles.powf(1.0 / f64::from(dimensions));
                let (own, plane) = (particles / ranks as f64, particles / edge);
                // The first slab and the last one have one neighbour.
                let sides = 2.0 - 2.0 / ranks as f64;
                let ghosts = (sides * self.depth * plane).min(particles - own);
                Boundary { ghosts, neighbours: sides * (self.depth * plane / own).max(1.0).ceil() }
            }
        }
    }
}

/// A participant, and what its step takes.
#[derive(Clone, Debug)]
pub struct Load {
    /// Name of the participant.
    pub name: String,
    /// Number of its particles.
    pub particles: f64,
    /// Processor time of a step [s].
    pub work: f64,
    /// Memory per particle [bytes].
    pub memory: f64,
    /// Exchanges, if it can be cut among ranks.
    pub halo: Option<Halo>,
}

/// The coordinator's part of a step.
#[derive(Clone, Copy, Debug)]
pub struct Coordinator {
    /// Time for its own computing [s].
    pub work: f64,
    /// Bytes to and from all participants.
    pub bytes: f64,
    /// Times that it waits for participants.
    pub round_trips: f64,
}

/// A cut of one participant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Boundary {
    /// Particles of others that a rank sees, in the mean.
    pub ghosts: f64,
    /// Ranks whose particles a rank sees, in the mean.
    pub neighbours: f64,
}

/// Time of a step by its parts [s], and its needs.
#[derive(Clone, Debug, Serialize)]
pub struct Estimate {
    /// Nodes.
    pub nodes: usize,
    /// Ranks of a participant that is cut.
    pub ranks: usize,
    /// Time if all cores computed all the time [s].
    pub ideal: f64,
    /// Waits, which make up the rest of the step: a name and a time [s].
    pub waits: Vec<(String, f64)>,
    /// Time of a step [s].
    pub step: f64,
    /// Memory of the fullest node [bytes].
    pub memory: f64,
    /// Memory of that node at the start, when every rank of some methods lays out all particles [bytes].
    pub memory_at_start: f64,
    /// Messages of a rank in a step.
    pub messages: f64,
    /// Bytes that a rank sends in a step.
    pub bytes: f64,
    /// Largest number of particles on a rank, of any participant.
    pub particles: f64,
}

impl Estimate {
    /// Part of the cores that computes, on average.
    pub fn efficiency(&self) -> f64 {
        self.ideal / self.step
    }

    /// The longest wait: its name, and the time [s].
    pub fn longest_wait(&self) -> (&str, f64) {
        let most = self.waits.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        most.map_or(("", 0.0), |(name, time)| (name, *time))
    }
}

/// A box of a cut cube: lowest and highest corner [spacings].
type Bounds = [[f64; 3]; 2];

/// Rows along x are whole up to this many times the longer side across them, as in
/// [`amalgam_solver_kit::Decomposition::balanced`].
const ROW: f64 = 4.0;

/// The axis across which [`amalgam_solver_kit::Decomposition::balanced`] would cut a box with these edges and
/// with cells of this size.
fn axis(edges: [f64; 3], cell: f64) -> usize {
    let [x, y, z] = edges;
    let across = if z > y { 2 } else { 1 };
    let is_thick = edges[across] >= 4.0 * cell;
    if x >= 2.0 * cell && (x > ROW * edges[across] || !is_thick) || (!is_thick && x > y.max(z)) {
        0
    } else {
        across
    }
}

/// The boxes of a cut among ranks.
fn boxes(bounds: Bounds, ranks: usize, cell: f64, all: &mut Vec<Bounds>) {
    if ranks == 1 {
        all.push(bounds);
        return;
    }
    let below = ranks / 2;
    let [low, high] = bounds;
    let edges = [0, 1, 2].map(|axis| high[axis] - low[axis]);
    let axis = axis(edges, cell);
    let plane = low[axis] + edges[axis] * below as f64 / ranks as f64;
    let (mut under, mut over) = (bounds, bounds);
    under[1][axis] = plane;
    over[0][axis] = plane;
    boxes(under, below, cell, all);
    boxes(over, ranks - below, cell, all);
}

/// Boxes of a large cut whose neighbours are counted.
const SAMPLES: usize = 256;

/// The boundaries of a cube of particles among ranks.
pub fn boundary(particles: f64, ranks: usize, depth: f64) -> Boundary {
    let edge = particles.cbrt();
    let mut all = Vec::with_capacity(ranks);
    boxes([[0.0; 3], [edge; 3]], ranks, depth, &mut all);
    let volume = |[low, high]: Bounds| (0..3).map(|axis| high[axis] - low[axis]).product::<f64>();
    let grown =
        |[low, high]: Bounds| [low.map(|x| (x - depth).max(0.0)), high.map(|x| (x + depth).min(edge))];
    let ghosts: f64 = all.iter().map(|&own| volume(grown(own)) - volume(own)).sum();
    let stride = ranks.div_ceil(SAMPLES);
    let meet = |a: Bounds, b: Bounds| (0..3).all(|axis| a[0][axis] < b[1][axis] && b[0][axis] < a[1][axis]);
    let sampled: Vec<Bounds> = all.iter().step_by(stride).map(|&own| grown(own)).collect();
    // A box meets itself, which does not count.
    let met: usize =
        sampled.iter().map(|&own| all.iter().filter(|&&other| meet(own, other)).count() - 1).sum();
    Boundary { ghosts: ghosts / ranks as f64, neighbours: met as f64 / sampled.len() as f64 }
}

/// The time of a step on a cluster.
pub fn estimate(loads: &[Load], coordinator: Coordinator, cluster: Cluster) -> Estimate {
    let Cluster { nodes, cores, network, .. } = cluster;
    let ranks = nodes * cluster.ranks;
    let all = (nodes * cores) as f64;
    let ideal = loads.iter().map(|load| load.work).sum::<f64>() / all;
    let mut waits = Vec::new();
    let (mut messages, mut bytes, mut memory, mut memory_at_start) = (0.0, 0.0, 0.0, 0.0);
    let (mut imbalance, mut packing, mut sending, mut own_most) = (0.0, 0.0, 0.0, 0.0f64);
    let mut idle = 0.0;
    let mut whole: Option<(&Load, f64)> = None;
    let mut whole_memory = 0.0;
    for load in loads {
        let Some(halo) = load.halo else {
            let time = load.work / cores as f64;
            if whole.is_none_or(|(_, most)| time > most) {
                whole = Some((load, time));
            }
            // A single node holds all participants; otherwise each has a node of its own.
            let own = load.particles * load.memory;
            whole_memory = if nodes == 1 { whole_memory + own } else { own.max(whole_memory) };
            own_most = own_most.max(load.particles);
            continue;
        };
        let used = halo.used(load.particles, ranks);
        let time = load.work / all * ranks as f64 / used as f64;
        let own = load.particles / used as f64;
        own_most = own_most.max(own);
        let cut = halo.boundary(load.particles, used);
        let kept = (own + cut.ghosts) * load.memory + load.particles * halo.everywhere;
        memory += kept * cluster.ranks as f64;
        let laid_out = if halo.in_parts { kept } else { load.particles * load.memory };
        memory_at_start += laid_out * cluster.ranks as f64;
        if ranks == 1 {
            continue;
        }
        idle += time - load.work / all;
        imbalance += (IMBALANCE - 1.0) * time;
        packing += (SEARCH * own + GHOST * cut.ghosts) * cluster.ranks as f64 / cores as f64;
        messages += cut.neighbours * halo.messages;
        bytes += cut.ghosts * halo.bytes;
        // Only data that leave a node use the network.
        if nodes > 1 {
            let out = halo.boundary(load.particles, nodes.min(used)).ghosts;
            sending += halo.messages * network.latency() + out * halo.bytes / network.bandwidth();
            sending += halo.collectives * network.latency() * (nodes as f64).log2().ceil();
        }
    }
    // Participants compute at the same time: an uncut one on its node, the cut ones on all nodes.
    if let Some((load, time)) = whole {
        let excess = (time.max(ideal) - ideal).max(0.0);
        waits.push((format!("{} on one node", load.name), excess));
    }
    let far = if nodes > 1 { 2.0 * network.latency() } else { 0.0 };
    let carried = if nodes > 1 { CONNECTION.min(network.bandwidth()) } else { CONNECTION };
    waits.push(("thin slabs".into(), idle));
    waits.push(("balance".into(), imbalance));
    waits.push(("ghosts".into(), packing));
    waits.push(("network".into(), sending));
    waits.push(("coordinator".into(), coordinator.work));
    waits.push(("calls".into(), coordinator.round_trips * (CALL + far) + coordinator.bytes / carried));
    let step = ideal + waits.iter().map(|(_, time)| time).sum::<f64>();
    let is_listed = |load: &&Load| load.halo.is_none_or(|halo| !halo.in_parts);
    let table = loads.iter().filter(is_listed).map(|load| TABLE * load.particles).sum::<f64>();
    Estimate {
        nodes,
        ranks,
        ideal,
        waits,
        step,
        memory: memory + whole_memory + table,
        memory_at_start: memory_at_start + whole_memory + table,
        messages,
        bytes,
        particles: own_most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALO: Halo = Halo {
        cut: Cut::Boxes,
        depth: 2.0,
        messages: 2.0,
        bytes: 56.0,
        collectives: 4.0,
        everywhere: 0.0,
        in_parts: false,
    };

    fn fluid(particles: f64) -> Load {
        Load { name: "water".into(), particles, work: 90e-9 * particles, memory: 300.0, halo: Some(HALO) }
    }

    const SILENT: Coordinator = Coordinator { work: 0.0, bytes: 0.0, round_trips: 0.0 };

    fn on(nodes: usize) -> Cluster {
        Cluster { nodes, cores: 64, ranks: 4, network: Network::Infiniband }
    }

    #[test]
    fn two_boxes_see_a_layer_of_each_other() {
        assert_eq!(boundary(1e6, 1, 2.0), Boundary::default());
        let two = boundary(1e6, 2, 2.0);
        assert!((two.ghosts - 2e4).abs() < 1e-6 && two.neighbours == 1.0, "{two:?}");
        // Two by four columns along x: a face across y, one or two across z.
        let eight = boundary(1e6, 8, 2.0);
        assert!((eight.ghosts - 100.0 * (52.0 * (25.0 + 3.0) - 50.0 * 25.0)).abs() < 1e-6, "{eight:?}");
        assert_eq!(eight.neighbours, 4.0);
    }

    #[test]
    fn slabs_see_layers_and_are_as_many_as_there_are_layers() {
        let halo = Halo { cut: Cut::Slabs(3, 4.0), everywhere: 5.0, ..HALO };
        let sheet = Halo { cut: Cut::Slabs(2, 1.0), ..halo };
        for (halo, ranks, ghosts, neighbours) in
            [(halo, 1, 0.0, 0.0), (halo, 2, 2e4, 1.0), (halo, 10, 1.8 * 2e4, 1.8), (sheet, 2, 2e3, 1.0)]
        {
            let found = halo.boundary(1e6, ranks);
            let errors = [found.ghosts - ghosts, found.neighbours - neighbours];
            assert!(errors.iter().all(|error| error.abs() < 1e-6), "{ranks}: {found:?}");
        }
        assert_eq!([10, 100].map(|ranks| halo.used(1e6, ranks)), [10, 25]);
        let tank = Load { halo: Some(halo), ..fluid(1e6) };
        let few = estimate(&[tank], SILENT, on(100));
        assert_eq!(few.longest_wait().0, "thin slabs");
        assert!((few.particles - 4e4).abs() < 1.0 && few.memory > 4.0 * 5.0 * 1e6, "{few:?}");
    }

    #[test]
    fn boxes_of_any_number_of_ranks_hold_the_cube() {
        for ranks in [1, 3, 5, 7, 64, 100] {
            let mut all = Vec::new();
            boxes([[0.0; 3], [10.0; 3]], ranks, 0.5, &mut all);
            let volumes = all.iter().map(|[low, high]| (0..3).map(|k| high[k] - low[k]).product::<f64>());
            let volumes: Vec<f64> = volumes.collect();
            assert!(
                volumes.iter().all(|v| (v * ranks as f64 / 1e3 - 1.0).abs() < 1e-9),
                "{ranks} {volumes:?}"
            );
        }
    }

    #[test]
    fn more_nodes_are_faster_and_less_efficient() {
        let estimates = [1, 2, 8, 64].map(|nodes| estimate(&[fluid(1e8)], SILENT, on(nodes)));
        for pair in estimates.windows(2) {
            assert!(pair[1].step < pair[0].step && pair[1].efficiency() < pair[0].efficiency());
            assert!(pair[1].memory < pair[0].memory);
        }
    }

    #[test]
    fn a_node_holds_its_ranks_and_what_is_not_cut() {
        let cloth = Load { name: "cloth".into(), halo: None, ..fluid(1e6) };
        let one = Cluster { ranks: 1, ..on(1) };
        let memory = |nodes: usize, loads: &[Load]| estimate(loads, SILENT, Cluster { nodes, ..one }).memory;
        let table = |particles: f64| TABLE * particles;
        assert_eq!(memory(1, &[fluid(1e6), cloth.clone(), cloth.clone()]), 9e8 + table(3e6));
        // Each participant has a node of its own.
        assert_eq!(memory(2, &[cloth.clone(), cloth]), 3e8 + table(2e6));
    }

    #[test]
    fn what_is_laid_out_in_parts_takes_no_more_at_the_start() {
        let whole = estimate(&[fluid(1e8)], SILENT, on(8));
        let halo = Some(Halo { in_parts: true, ..HALO });
        let parts = estimate(&[Load { halo, ..fluid(1e8) }], SILENT, on(8));
        assert_eq!(parts.memory_at_start, parts.memory);
        assert_eq!(parts.memory, whole.memory - TABLE * 1e8);
        assert!(whole.memory_at_start > 4.0 * 300.0 * 1e8);
    }

    #[test]
    fn what_is_not_cut_and_the_coordinator_become_the_wall() {
        let cloth = Load { name: "cloth".into(), halo: None, ..fluid(1e7) };
        let slow = estimate(&[fluid(1e8), cloth.clone()], SILENT, on(64));
        assert_eq!(slow.longest_wait().0, "cloth on one node");
        assert!((slow.step - cloth.work / 64.0) < 0.1 * slow.step);
        let coordinator = Coordinator { work: 0.2, ..SILENT };
        assert_eq!(estimate(&[fluid(1e8)], coordinator, on(64)).longest_wait().0, "coordinator");
    }
}
