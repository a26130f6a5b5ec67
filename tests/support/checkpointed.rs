//! Scenes whose checkpoints are tested: each has a state of its own kind that a checkpoint must hold.

/// A fluid that is poured onto a sheet from nothing, while a drop falls into a sink; probes look at particles
/// that die.
pub(crate) const JET: &str = "
[scene]
name = 'jet'
[domain]
min = [-10, -10, -10]
max = [10, 10, 10]
[time]
duration = 0.16
frame_interval = 0.04
dt_max = 1e-3
[[participants]]
name = 'sheet'
solver = 'solid'
[participants.settings]
method = 'mass-spring'
[[participants.settings.bodies]]
type = 'sheet'
corner = [-0.2, -0.2, 0]
edge_u = [0.4, 0, 0]
edge_v = [0, 0.4, 0]
spacing = 0.04
area_density = 5.0
structural_stiffness = 1000.0
damping_ratio = 1.0
pinned = 'edges'
[[participants]]
name = 'grains'
solver = 'solid'
[participants.settings]
method = 'mass-spring'
[[participants.settings.bodies]]
type = 'points'
positions = [[0.0, 0.0, 0.06], [0.1, 0.0, 0.07]]
mass = [0.01, 0.02]
radius = [0.015, 0.02]
[[participants]]
name = 'water'
solver = 'fluid'
[participants.settings]
method = 'sph'
spacing = 0.04
sound_speed = 20.0
walls = false
[[participants.settings.shapes]]
type = 'box'
min = [2, 2, 0.91]
max = [2.08, 2.08, 0.99]
[[participants.settings.emitters]]
center = [0, 0, 0.2]
axis = [0, 0, -1]
radius = 0.08
speed = 2.0
until = 0.1
[[participants.settings.sinks]]
min = [1, 1, 0]
max = [3, 3, 0.9]
[[probes]]
name = 'dying'
quantity = 'displacement'
participant = 'water'
point = [2, 2, 0.93]
[[probes]]
name = 'sag'
quantity = 'displacement'
participant = 'sheet'
point = [0, 0, 0]
[[probes]]
name = 'energy'
quantity = 'energy'
[[probes]]
name = 'crossings'
quantity = 'crossings'
sheet = 'sheet'
of = 'water'
";

/// FLIP on springs that give way, so that other cells are occupied.
const SPRINGS: &str = "
[scene]
name = 'springs'
[domain]
min = [0.0, 0.0, -0.2]
max = [0.2, 0.2, 0.4]
[time]
duration = 0.16
frame_interval = 0.04
dt_max = 0.002
[coupling]
alpha = 0.0
[[participants]]
name = 'floor'
solver = 'solid'
[participants.settings]
method = 'mass-spring'
self_collision = false
[[participants.settings.bodies]]
type = 'sheet'
corner = [0.0125, 0.0125, 0.0]
edge_u = [0.175, 0.0, 0.0]
edge_v = [0.0, 0.175, 0.0]
spacing = 0.025
area_density = 12.5
structural_stiffness = 0.0
radius = 0.019
foundation = { stiffness = 400.0, damping = 5.0 }
[[participants]]
name = 'water'
solver = 'fluid'
[participants.settings]
method = 'flip'
spacing = 0.025
[[participants.settings.shapes]]
type = 'box'
min = [0.0, 0.0, 0.025]
max = [0.2, 0.2, 0.225]
[[probes]]
name = 'floor'
quantity = 'displacement'
participant = 'floor'
point = [0.1, 0.1, 0.0]
[[probes]]
name = 'energy'
quantity = 'energy'
";

/// FLIP from an emitter into a sink, past a sheet whose one edge is lifted: scripts have a clock of their
/// own.
const POUR: &str = "
[scene]
name = 'pour'
[domain]
min = [0.0, 0.0, 0.0]
max = [0.32, 0.2, 0.48]
[time]
duration = 0.16
frame_interval = 0.04
dt_max = 0.002
[[participants]]
name = 'sheet'
solver = 'solid'
[participants.settings]
method = 'mass-spring'
newton_iterations = 3
[[participants.settings.bodies]]
type = 'sheet'
corner = [0.05, 0.02, 0.2]
edge_u = [0.2, 0.0, 0.0]
edge_v = [0.0, 0.16, 0.0]
spacing = 0.02
area_density = 3.0
structural_stiffness = 2000.0
damping_ratio = 0.3
pinned = ['edge_u0', 'edge_u1']
scripted = [{ part = 'edge_u1', velocity = [0.0, 0.0, 0.5], until = 0.1 }]
[[participants]]
name = 'water'
solver = 'fluid'
[participants.settings]
method = 'flip'
spacing = 0.02
[[participants.settings.shapes]]
type = 'box'
min = [0.0, 0.0, 0.0]
max = [0.32, 0.2, 0.08]
[[participants.settings.emitters]]
center = [0.15, 0.1, 0.4]
axis = [0, 0, -1]
radius = 0.05
speed = 1.5
until = 1.0
[[participants.settings.sinks]]
min = [0.2, 0.0, 0.0]
max = [0.32, 0.2, 0.04]
[[probes]]
name = 'energy'
quantity = 'energy'
[[probes]]
name = 'edge'
quantity = 'displacement'
participant = 'sheet'
point = [0.25, 0.1, 0.2]
";

/// A scene, and after how many steps checkpoints are taken.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) source: Source,
    /// Changes of the scene, as for `--set`.
    pub(crate) set: &'static [&'static str],
    pub(crate) steps: [u64; 3],
    /// True if fields are left out one by one.
    pub(crate) is_for_fields: bool,
}

/// Source of a scene.
pub(crate) enum Source {
    /// A file of the repository.
    File(&'static str),
    Text(&'static str),
}

use Source::{File, Text};

/// Small ones, which are soon drawn.
const PICTURES: [&str; 2] = ["output.pictures.width=160", "output.pictures.height=120"];

const LAW: &str = "coupling.method=\"contact-law\"";
const MERGE: &str = "coupling.method=\"merge-split\"";

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "drop, merging",
        source: File("scenes/small/drop.toml"),
        set: &[MERGE],
        steps: [100, 300, 500],
        is_for_fields: true,
    },
    Case {
        name: "drop, contact law",
        source: File("scenes/small/drop.toml"),
        set: &[LAW],
        steps: [40, 100, 160],
        is_for_fields: true,
    },
    Case {
        name: "balls: two implicit",
        source: File("scenes/small/balls.toml"),
        set: &[],
        steps: [40, 60, 80],
        is_for_fields: false,
    },
    Case {
        name: "balls, contact law",
        source: File("scenes/small/balls.toml"),
        set: &[LAW],
        steps: [40, 60, 80],
        is_for_fields: true,
    },
    Case {
        name: "balls, HHT-alpha",
        source: File("scenes/small/balls.toml"),
        set: &[
            "participants.cloth.settings.integrator=\"hht-alpha\"",
            "participants.balls.settings.integrator=\"hht-alpha\"",
        ],
        steps: [40, 60, 80],
        is_for_fields: false,
    },
    Case {
        name: "soft bodies",
        source: File("scenes/small/soft-bodies.toml"),
        set: &[
            "time.duration=0.24",
            "coupling.method=\"merge-split\"",
            "participants.cloth.settings.bodies[0].spacing=0.03",
            PICTURES[0],
            PICTURES[1],
        ],
        steps: [20, 40, 60],
        is_for_fields: false,
    },
    Case {
        name: "tumble: grains that spin and rigid bodies",
        source: File("scenes/small/tumble.toml"),
        set: &[
            "time.duration=0.4",
            "participants.grains.settings.bodies[0].spacing=0.06",
            PICTURES[0],
            PICTURES[1],
        ],
        steps: [20, 140, 180],
        is_for_fields: true,
    },
    Case {
        name: "FLIP on a bed",
        source: File("scenes/small/flip-bed.toml"),
        set: &[
            "time.duration=0.2",
            "time.frame_interval=0.04",
            PICTURES[0],
            PICTURES[1],
            "output.surfaces.water.every=1",
        ],
        steps: [30, 60, 90],
        is_for_fields: false,
    },
    Case {
        name: "FLIP on springs",
        source: Text(SPRINGS),
        set: &[],
        steps: [10, 30, 50],
        is_for_fields: true,
    },
    Case { name: "jet and sink", source: Text(JET), set: &[], steps: [20, 70, 110], is_for_fields: true },
    Case {
        name: "breaking bonds",
        source: File("scenes/brittle-wall.toml"),
        set: &[
            "participants.wall.settings.bodies[0].spacing=0.05",
            "participants.ball.settings.bodies[0].spacing=0.05",
            "participants.wall.settings.bodies[0].fracture_energy=9",
            "participants.wall.settings.bodies[0].held[0].max=[1, 1, 0.05]",
            "time.duration=0.02",
            "time.frame_interval=0.005",
        ],
        steps: [5, 15, 25],
        is_for_fields: true,
    },
    Case {
        name: "a cloth on itself",
        source: File("tests/determinism.toml"),
        set: &[],
        steps: [5, 20, 45],
        is_for_fields: false,
    },
    Case {
        name: "a cloth on itself, contact law",
        source: File("tests/determinism.toml"),
        set: &[LAW],
        steps: [5, 30, 45],
        is_for_fields: false,
    },
    Case {
        name: "FLIP from an emitter",
        source: Text(POUR),
        set: &[],
        steps: [20, 40, 60],
        is_for_fields: false,
    },
    Case {
        name: "discs with gravity of their own",
        source: File("scenes/planet-of-discs.toml"),
        set: &["time.duration=1.5", "output.pictures.width=120", "output.pictures.height=120"],
        steps: [40, 80, 160],
        is_for_fields: false,
    },
    Case {
        name: "breaking bonds, explicit",
        source: File("scenes/brittle-wall.toml"),
        set: &[
            "participants.wall.settings.integrator=\"velocity-verlet\"",
            "participants.wall.settings.bodies[0].spacing=0.05",
            "participants.ball.settings.bodies[0].spacing=0.05",
            "participants.wall.settings.bodies[0].fracture_energy=9",
            "participants.wall.settings.bodies[0].held[0].max=[1, 1, 0.05]",
            "time.duration=0.01",
            "time.frame_interval=0.0025",
        ],
        steps: [20, 40, 80],
        is_for_fields: false,
    },
    Case {
        name: "drop, penalties",
        source: File("scenes/small/drop.toml"),
        set: &["coupling.method=\"penalty\""],
        steps: [100, 300, 500],
        is_for_fields: false,
    },
    Case {
        name: "drop, impulses of pairs",
        source: File("scenes/small/drop.toml"),
        set: &["coupling.method=\"pairwise-impulse\""],
        steps: [100, 300, 500],
        is_for_fields: false,
    },
];
