"""The base class of solvers, and the values that their methods take."""

import hashlib
import math
from dataclasses import dataclass, field

import numpy as np

EXPLICIT, IMPLICIT, PROJECTION = 1, 2, 3


class SectionError(Exception):
    """Faults of a participant's section: (path of the key, description and what to write), one or more."""

    def __init__(self, *faults):
        super().__init__("; ".join(f"{key}: {text}" for key, text in faults))
        self.faults = faults


class SolverError(Exception):
    """The solver cannot go on: one sentence for the user, with the particle's id where there is one."""


@dataclass
class World:
    """The world that every participant of a scene is told of at the start."""

    participant: str
    domain: tuple  # two corners [m]
    gravity: np.ndarray  # [m/s^2]
    seed: int


class Particles:
    """The committed state: columns of the same length."""

    def __init__(self, position, velocity=None, mass=1.0, radius=0.01, immovable=False, id=None):
        self.position = np.array(position, float).reshape(-1, 3)
        count = len(self.position)
        self.velocity = np.zeros((count, 3)) if velocity is None else np.array(velocity, float).reshape(count, 3)
        self.mass, self.radius = (np.array(np.broadcast_to(np.asarray(v, float), (count,))) for v in (mass, radius))
        self.immovable = np.array(np.broadcast_to(np.asarray(immovable, bool), (count,)))
        self.id = np.arange(count, dtype=np.uint64) if id is None else np.array(id, np.uint64)

    def __len__(self):
        return len(self.id)


class Groups:
    """Groups of particles that move as one. `of` holds the group of each particle, -1 for those that are free."""

    def __init__(self, count, sizes=(), members=()):
        self.sizes = np.asarray(sizes, np.int64)
        self.members = np.asarray(members, np.int64)  # places, group after group
        self.group_of_member = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.of = np.full(count, -1)
        self.of[self.members] = self.group_of_member

    def __len__(self):
        return len(self.sizes)

    def sum(self, values):
        """The sum of values of particles over each group's members, one after the other."""
        total = np.zeros((len(self), *values.shape[1:]))
        np.add.at(total, self.group_of_member, values[self.members])
        return total

    def first(self):
        """The first member of each group."""
        return self.members[np.cumsum(self.sizes) - self.sizes] if len(self) else self.members


@dataclass
class Stage:
    """A request to integrate, tentatively: the state at the start of the step must stay as it is."""

    step: int
    stage: int
    repetition: int
    dt: float
    forcing: float
    groups: Groups
    inertia: np.ndarray  # of each group [kg], infinite if its velocity is prescribed
    velocity: np.ndarray  # of each group at the start of the step [m/s]
    impulse: np.ndarray  # that others give each group [kg m/s]
    occupied: np.ndarray | None = None  # keys of cells that anyone occupies


@dataclass
class Body:
    """A group as a rigid body: `inertia` is xx, yy, zz, yz, xz, xy about the centre, in the world's axes."""

    mass: float
    inertia: np.ndarray
    centre: np.ndarray  # at the start of the step
    velocity: np.ndarray  # at its end, without others
    spin: np.ndarray


@dataclass
class Answer:
    """The answer of a solver to a `Stage`: momentum and slope of each group, velocity of each particle."""

    momentum: np.ndarray
    velocity: np.ndarray
    slope: np.ndarray | None = None  # (groups, 6), xx, yy, zz, yz, xz, xy; zero if absent
    bodies: list | None = None


@dataclass
class End:
    """The end of a step, as the coordinator decided it."""

    dt: float
    groups: Groups
    group_velocity: np.ndarray
    member_velocity: np.ndarray
    group_spin: np.ndarray | None


@dataclass
class Report:
    """Events and energies of a step that the particles do not show."""

    energies: dict = field(default_factory=dict)  # stored [J] by name, without gravity; {"stored": 0.0} if there are none
    given: float = 0.0  # energy [J] from outside: work of scripts, and of what was born less that of what died
    spin_momentum: np.ndarray = field(default_factory=lambda: np.zeros(3))  # of the particles' own spin [kg m^2/s]
    spin_energy: float = 0.0  # [J]
    broken: int = 0
    born: list = field(default_factory=list)  # ids
    dead: list = field(default_factory=list)


class Participant:
    """A body of particles and its physics.

    Derive from it, set `name`, build `self.particles` in `__init__` and write `integrate`. Everything else has a default.
    """

    #: Name of the program, as a scene calls it with `solver = "..."`.
    name = "participant"
    version = "0.1.0"
    integration = EXPLICIT
    #: Whether own particles collide with each other.
    self_colliding = False
    #: Pairs of ids that are no contact wherever they are, (count, 2): those joined by springs.
    joined = np.empty((0, 2), np.uint64)
    #: Triangles between own particles, (count, 3) ids.
    triangles = np.empty((0, 3), np.uint64)
    #: The id of one particle of each particle's body, if bodies turn.
    body = None
    #: The grid on which the solver wants to know what anyone occupies: (origin, cell size).
    occupancy = None

    particles: Particles

    def __init__(self, section, world):
        """Checks `section`, a dict, and builds the particles; raises `SectionError`."""
        raise NotImplementedError

    def stable_dt(self):
        """The longest next step [s]."""
        return math.inf

    def begin(self):
        """Work of a step that does not depend on groups."""

    def integrate(self, stage):
        """Integrates tentatively and returns an `Answer`."""
        raise NotImplementedError

    def commit(self, end, velocity):
        """Advances to the end of the step; `velocity` is that of the last answer. Returns a `Report`."""
        self.advance(end, velocity)
        return Report()

    def advance(self, end, velocity):
        """Moves free particles by `velocity`, members by the velocity of their group, and sets all velocities."""
        particles, groups = self.particles, end.groups
        free = groups.of < 0
        particles.position[free] += velocity[free] * end.dt
        particles.velocity[free] = velocity[free]
        particles.position[groups.members] += end.group_velocity[groups.group_of_member] * end.dt
        movable = ~particles.immovable[groups.members]
        particles.velocity[groups.members[movable]] = end.member_velocity[movable]

    def fields(self):
        """Fields of particles for frames: name and array, (count,) or (count, 3)."""
        return {}

    def state(self):
        """The arrays that the next step depends on, by name: changed in place when a snapshot is restored."""
        return {"position": self.particles.position, "velocity": self.particles.velocity}

    def save(self):
        """The whole state, exact, with a checksum."""
        data = b"".join(np.ascontiguousarray(values, "<f8").tobytes() for values in self.state().values())
        return hashlib.sha256(data).digest() + data

    def restore(self, snapshot):
        """Restores a snapshot of `save`; raises `SolverError` for other bytes."""
        state, data = self.state(), snapshot[32:]
        if len(data) != sum(8 * values.size for values in state.values()):
            raise SolverError("the snapshot is not one of as many particles")
        if hashlib.sha256(data).digest() != snapshot[:32]:
            raise SolverError("the snapshot is damaged: its checksum is wrong")
        at = 0
        for values in state.values():
            values[...] = np.frombuffer(data, "<f8", values.size, at).reshape(values.shape)
            at += 8 * values.size
