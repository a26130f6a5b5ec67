"""The state machine of a served participant: the order of calls, and the effect of each. It knows nothing of gRPC."""

import hashlib
import time
import tomllib
from dataclasses import dataclass, field

import numpy as np

from .columns import (
    CELL_SET_BYTES_MAX,
    MOMENTUM_LIMIT,
    POSITION_LIMIT,
    SLOPE_LIMIT,
    SPEED_LIMIT,
    Broken,
    cells_to_bytes,
    gather,
    occupied,
    packets,
    uniform,
)
from .contract import METHODS, PROTOCOL_VERSION
from .near import Near, check_cells
from .participant import Answer, End, Groups, SectionError, SolverError, Stage, World

DT_MIN, DT_MAX = 1e-30, 1e15
NO_GROUP = 0xFFFF_FFFF
GRIDS_MAX = 8
NAME_BYTES_MAX = 512
SNAPSHOT_BYTES_PER_PARTICLE_MAX = 16 << 10


class Refused(Exception):
    """A refusal of a call: the name of a gRPC code, and the reason."""

    def __init__(self, code, text, faults=()):
        super().__init__(text)
        self.code, self.text, self.faults = code, text, faults


@dataclass
class Interest:
    """Questions of the coordinator at the start of a step."""

    wanted: str
    triangles: bool = False
    time: float = 0.0
    acceleration: float = 0.0
    origin: np.ndarray | None = None
    cell_size: float = 0.0
    margin: float = 0.0
    cells: np.ndarray | None = None
    listed: np.ndarray | None = None


@dataclass
class Run:
    """A participant between Initialize and Shutdown."""

    run_id: str
    epoch: int
    solver: object
    near: Near
    label: bytes
    step: int = 0
    #: "ready", "begun", or (stage, repetition) that was integrated last.
    phase: object = "ready"
    prepared: bool = False
    groups: Groups | None = None
    velocity: np.ndarray | None = None
    inertia: np.ndarray | None = None
    watch: np.ndarray | None = None
    occupied: np.ndarray | None = None
    dt: float = 0.0
    answer: Answer | None = None
    last_integrate: tuple | None = None  # request, answer
    last_commit: tuple | None = None  # header, columns, next
    group_number: np.ndarray = field(default_factory=lambda: np.empty(0, "<u4"))
    seconds: float = 0.0
    places: dict = field(default_factory=dict)

    def index(self):
        """Builds the index from ids to places."""
        self.places = {id: place for place, id in enumerate(self.solver.particles.id.tolist())}

    def find(self, column, ids):
        """The places of ids, all of which must be known."""
        try:
            return np.array([self.places[id] for id in ids.tolist()], np.int64)
        except KeyError as error:
            raise Broken(f"{column}: id {error.args[0]} is unknown to this solver") from None

    @property
    def is_between_steps(self):
        return self.phase in ("ready", "begun")

    def expect(self, in_order, call, step):
        """Refuses a call that is out of order."""
        if in_order and step == self.step:
            return
        expected = {"ready": f"Begin of step {self.step}", "begun": f"Integrate of step {self.step}, stage 1"}
        now = expected.get(self.phase, f"Integrate or Commit of step {self.step} after {self.phase}")
        raise Refused("FAILED_PRECONDITION", f"{call} of step {step} is out of order: expected {now}")


class Session:
    """Service of one participant at a time. `program` is a class that derives from `Participant`."""

    def __init__(self, program):
        self.program, self.run = program, None

    # Calls without columns.

    def describe(self, request):
        program = self.program
        if request.protocol_version != PROTOCOL_VERSION:
            raise Refused(
                "FAILED_PRECONDITION",
                f"the coordinator speaks version {request.protocol_version} of amalgam.solver, {program.name} "
                f"{program.version} version {PROTOCOL_VERSION}",
            )
        return METHODS["Describe"].response(
            name=program.name,
            version=program.version,
            protocol_version=PROTOCOL_VERSION,
            integration=program.integration,
        )

    def initialize(self, request):
        for what, name in (("run_id", request.run_id), ("participant", request.participant)):
            if len(name.encode()) > NAME_BYTES_MAX:
                raise Broken(f"{what} has more than {NAME_BYTES_MAX} bytes")
        if self.run is not None:
            self._check_beginning(request)
        corners = (vector("domain_min", request, "domain_min"), vector("domain_max", request, "domain_max"))
        world = World(request.participant, corners, vector("gravity", request, "gravity"), request.seed)
        try:
            solver = self.program(tomllib.loads(request.section), world)
        except tomllib.TOMLDecodeError as error:
            raise Refused("INVALID_ARGUMENT", str(error), [("", str(error))]) from None
        except SectionError as error:
            raise Refused("INVALID_ARGUMENT", str(error), error.faults) from None
        check_table(solver)
        label = hashlib.sha256(request.section.encode())
        label.update(np.concatenate([*corners, world.gravity]).tobytes() + request.seed.to_bytes(8, "little"))
        self.run = Run(request.run_id, request.epoch, solver, Near(solver), label.digest())
        self.run.index()
        self.run.group_number = np.full(len(solver.particles), NO_GROUP, "<u4")
        return self._table(solver)

    def _check_beginning(self, request):
        run = self.run
        if request.run_id != run.run_id:
            if request.epoch > 1:
                raise Refused(
                    "FAILED_PRECONDITION",
                    f"the call is for run {request.run_id!r:.200}, epoch {request.epoch}, but this solver serves "
                    f"{run.run_id!r}, epoch {run.epoch}",
                )
        elif request.epoch <= run.epoch:
            raise Refused("FAILED_PRECONDITION", f"Initialize is out of order: expected an epoch above {run.epoch}")

    def _table(self, solver):
        particles, method = solver.particles, METHODS["Initialize"]
        header = {
            "particles": len(particles),
            "stable_dt": solver.stable_dt(),
            "triangles": len(solver.triangles),
            "bodies": solver.body is not None,
            "integration": solver.integration,
        }
        if solver.occupancy is not None:
            origin, cell_size = solver.occupancy
            header["occupancy"] = {"origin": vec3(origin), "cell_size": cell_size}
        columns = {
            "id": particles.id,
            "position": particles.position,
            "velocity": particles.velocity,
            "mass": uniform(particles.mass),
            "radius": uniform(particles.radius),
            "immovable": uniform(particles.immovable.astype("u1")),
            "triangles": np.asarray(solver.triangles, "<u8"),
        }
        if solver.body is not None:
            columns["body"] = np.asarray(solver.body, "<u8")
        return packets(method.response, header, columns)

    def shutdown(self, request):
        if self.run is not None:
            self._run("Shutdown", request.context)
        self.run = None
        return METHODS["Shutdown"].response()

    def _run(self, call, context):
        run = self.run
        if run is None:
            raise Refused("NOT_FOUND", f"{call} of step {context.step} is out of order: expected Initialize")
        if (context.run_id, context.epoch) != (run.run_id, run.epoch):
            raise Refused(
                "FAILED_PRECONDITION",
                f"the call is for run {context.run_id!r:.200}, epoch {context.epoch}, but this solver serves "
                f"{run.run_id!r}, epoch {run.epoch}",
            )
        return run

    def read(self, call, messages):
        """The header and columns of a call of the run. Columns that the call cannot need are refused as they arrive."""

        def room(header):
            run = self._run(call, header.context)
            return ROOMS[call](header, len(run.solver.particles))

        return gather(messages, room)

    # Before a step.

    def survey(self, request):
        run = self._run("Survey", request.context)
        run.expect(run.is_between_steps, "Survey", request.context.step)
        origin, cell_size = lattice(request.lattice)
        keys = run.near.survey(origin, cell_size, margin(request.margin))
        return packets(METHODS["Survey"].response, {}, {"cells": cells_to_bytes(keys)})

    def begin(self, header, columns):
        run = self._run("Begin", header.context)
        run.expect(run.is_between_steps, "Begin", header.context.step)
        wish = self._interest(run, header.interest, columns)
        if run.phase == "begun":
            run.near.told = None  # whoever asks again may not have taken over the last answer
        answer, columns = self._start(run, wish)
        return packets(METHODS["Begin"].response, answer, columns)

    def _interest(self, run, message, columns):
        wanted = dict(enumerate(("all", "near", "listed", "again"))).get(message.wanted)
        if wanted is None:
            raise Broken(f"wanted {message.wanted} is unknown")
        wish = Interest(wanted, message.triangles, message.contact_time, message.contact_acceleration)
        if not (0.0 <= wish.time <= 1e6 and 0.0 <= wish.acceleration <= 1e12):
            raise Broken("contact_time must be from 0 to 1e6 s, contact_acceleration from 0 to 1e12 m/s^2")
        if wanted == "near":
            wish.origin, wish.cell_size = lattice(message.lattice)
            wish.margin, wish.cells = margin(message.margin), columns.cells("interest")
            check_cells(run.solver.particles, wish.cell_size, wish.margin)
        if wanted == "listed":
            wish.listed = columns.ids("listed", message.listed)
            run.find("listed", wish.listed)
        if wanted == "again" and run.near.list is None:
            raise Broken("no particles were listed yet that could be wanted again")
        return wish

    def _start(self, run, wish):
        run.phase = "begun"
        particles, contacts, columns, as_before = run.near.begin(run.places, wish)
        return {"particles": particles, "contacts": contacts, "as_before": as_before}, columns

    # A step.

    def integrate(self, header, columns):
        run = self._run("Integrate", header.context)
        request = (header.SerializeToString(deterministic=True), columns.same())
        if run.last_integrate is not None and run.last_integrate[0] == request:
            return self._integrated(run.last_integrate[1])
        if header.stage == 0:
            raise Broken("stages count from 1")
        at = (header.stage, header.repetition)
        done = run.phase
        follows = isinstance(done, tuple) and at in ((done[0], done[1] + 1), (done[0] + 1, 0))
        call = f"Integrate of stage {at[0]}, repetition {at[1]},"
        run.expect(follows or (at == (1, 0) and done != "ready"), call, header.context.step)
        stage, watch = self._stage(run, header, columns)
        # Whatever fails from here on spoils the last answer: only stage 1 may follow.
        run.phase, run.last_integrate = "begun", None
        run.groups, run.velocity, run.inertia = stage.groups, stage.velocity, stage.inertia
        run.watch, run.occupied = watch, stage.occupied
        started = time.perf_counter()
        if not run.prepared:
            run.solver.begin()
            run.prepared = True
        answer = run.solver.integrate(stage)
        run.seconds += time.perf_counter() - started
        check_answer(run, stage, answer)
        run.answer, run.dt, run.phase = answer, header.dt, at
        travel = np.linalg.norm(answer.velocity, axis=1) * header.dt / run.solver.particles.radius
        travel[(run.groups.of >= 0) | run.solver.particles.immovable] = 0.0
        reply = (float(travel.max(initial=0.0)), run.watch)
        run.last_integrate = (request, (answer, *reply))
        return self._integrated(run.last_integrate[1])

    def _stage(self, run, header, columns):
        if not DT_MIN <= header.dt <= DT_MAX:
            raise Broken(f"dt is {header.dt}, but must be from 1e-30 to 1e15 s")
        if not 0.0 <= header.forcing < 1.0:
            raise Broken(f"forcing is {header.forcing}, but must be from 0 to below 1")
        count, groups, velocity, watch = header.groups, run.groups, run.velocity, run.watch
        occupied_cells = run.occupied
        if header.repetition == 0:
            sizes = columns.take("group_size", "<u4", count, uniform=True)
            if (sizes < 1).any() or int(sizes.sum(dtype=np.uint64)) != header.members:
                raise Broken(f"sizes of groups must be at least 1 and add up to {header.members} members")
            members = run.find("member", columns.ids("member", header.members))
            groups = Groups(len(run.solver.particles), sizes, members)
            velocity = columns.vectors("velocity", count, SPEED_LIMIT)
            ids = columns.ids("watch", header.watched)
            watch = run.find("watch", ids)
            if (groups.of[watch] >= 0).any():
                raise Broken("watch: a particle is a member of a group, not free")
            occupied_cells = columns.cells("occupied") if header.has_occupied else None
        elif groups is None or count != len(groups):
            raise Broken(f"{count} groups in a repetition, the stage has {0 if groups is None else len(groups)}")
        is_as_before = header.repetition > 0 and not columns.raw("inertia")
        inertia = run.inertia if is_as_before else columns.take("inertia", "<f8", count)
        if not ((inertia == np.inf) | ((inertia >= 1e-50) & (inertia < SLOPE_LIMIT))).all():
            raise Broken("inertia must be infinite, or from 1e-50 to 1e62 kg")
        impulse = columns.vectors("impulse", count, MOMENTUM_LIMIT, uniform=True)
        step, forcing = header.context.step, header.forcing
        at = (step, header.stage, header.repetition, header.dt, forcing)
        return Stage(*at, groups, inertia, velocity, impulse, occupied_cells), watch

    def _integrated(self, reply):
        answer, travel, watch = reply
        columns = {"momentum": answer.momentum, "watch_velocity": answer.velocity[watch]}
        slope = np.zeros((len(answer.momentum), 6)) if answer.slope is None else answer.slope
        columns["slope"] = uniform(slope)
        if answer.bodies is not None:
            for name in ("mass", "inertia", "centre", "velocity", "spin"):
                columns[f"body_{name}"] = np.array([getattr(body, name) for body in answer.bodies], "<f8")
        header = {"travel_max": travel, "bodies": answer.bodies is not None}
        return packets(METHODS["Integrate"].response, header, columns)

    def commit(self, header, columns):
        run = self._run("Commit", header.context)
        step = header.context.step
        if run.is_between_steps and step + 1 == run.step and run.last_commit is not None:
            run.near.told = None  # the answer was lost, and with it what was said of particles
            return self._committed(run, *run.last_commit)
        at = (header.stage, header.repetition)
        run.expect(run.phase == at, f"Commit of stage {at[0]}, repetition {at[1]},", step)
        end, number, track, grids, wish = self._end(run, header, columns)
        try:
            answer, said = self._apply(run, header, end, number, track, grids)
        except SolverError:
            self.run = None  # half a step was taken: no state is left that anyone could go on from
            raise
        run.last_commit = (answer, said, wish)
        return self._committed(run, *run.last_commit)

    def _end(self, run, header, columns):
        groups, count = run.groups, len(run.groups)
        if header.bodies != (run.solver.body is not None):
            raise Broken("spins must be committed where groups are bodies, and nowhere else")
        members = len(groups.members)
        if header.groups != count or header.members not in (0, members):
            raise Broken(
                f"{header.groups} groups and {header.members} members are committed, but the stage has {count} and {members}"
            )
        if len(header.grids) > GRIDS_MAX:
            raise Broken(f"more than {GRIDS_MAX} grids in one Commit")
        velocity = columns.vectors("group_velocity", count, SPEED_LIMIT)
        number = columns.take("group_number", "<u4", count)
        told = columns.vectors("member_velocity", header.members, SPEED_LIMIT)
        member = told if header.members else velocity[groups.group_of_member]
        spin = columns.vectors("group_spin", count, SPEED_LIMIT) if header.bodies else None
        track = run.find("track", columns.ids("track", header.tracked))
        grids = [lattice(grid) for grid in header.grids]
        wish = None
        if header.HasField("next"):
            if not header.next_within >= 0.0:
                raise Broken(f"next_within is {header.next_within}, but must not be negative")
            wish = (self._interest(run, header.next, columns), header.next_within)
        return End(run.dt, groups, velocity, member, spin), number, track, grids, wish

    def _apply(self, run, header, end, number, track, grids):
        solver = run.solver
        old = solver.particles
        ids, tracked = old.id.copy(), old.id[track]
        before, there = old.velocity.copy(), (old.position[track], old.velocity[track])
        started = time.perf_counter()
        report = solver.commit(end, run.answer.velocity)
        run.seconds += time.perf_counter() - started
        particles = solver.particles
        places = run.places
        if not np.array_equal(ids, particles.id):
            run.index()
            gone = np.full((1, 3), np.nan)
            before = np.concatenate([before, gone])[[places.get(id, -1) for id in particles.id.tolist()]]
        members = ids[end.groups.members].tolist()
        run.group_number = np.full(len(particles), NO_GROUP, "<u4")
        for id, group in zip(members, end.groups.group_of_member.tolist(), strict=True):
            if id in run.places:
                run.group_number[run.places[id]] = number[group]
        answer = totals(particles, before, end.dt, report)
        columns = {}
        at = [run.places.get(id, -1) for id in tracked.tolist()]
        for name, past, now in zip(("position", "velocity"), there, (particles.position, particles.velocity), strict=True):
            values = [now[k] if k >= 0 else past[n] for n, k in enumerate(at)]
            columns[f"track_{name}"] = np.array(values, "<f8")
        for k, (origin, cell_size) in enumerate(grids):
            columns[f"cells_{k}"] = cells_to_bytes(occupied(particles.position, 0.0, origin, cell_size))
        born = run.find("born", np.array(report.born, np.uint64))
        columns["born_id"] = particles.id[born]
        columns["born_mass"], columns["born_radius"] = uniform(particles.mass[born]), uniform(particles.radius[born])
        columns["born_immovable"] = uniform(particles.immovable[born].astype("u1"))
        columns["dead"] = np.array(report.dead, "<u8")
        if header.want_state_hash:
            answer["state_hash"] = state_hash(particles)
        answer |= {"stable_dt": solver.stable_dt(), "born": len(report.born), "dead": len(report.dead)}
        answer |= {"broken": report.broken, "given": report.given, "solver_seconds": run.seconds}
        answer["potential_energies"] = [{"name": name, "joule": joule} for name, joule in report.energies.items()]
        run.seconds, run.step = 0.0, run.step + 1
        run.phase, run.prepared, run.last_integrate, run.groups = "ready", False, None, None
        return answer, columns

    def _committed(self, run, answer, columns, wish):
        answer, columns = dict(answer), dict(columns)
        if wish is not None and run.near.drift() <= wish[1]:
            answer["next"], more = self._start(run, wish[0])
            columns |= more
        return packets(METHODS["Commit"].response, answer, columns)

    # Between steps.

    def frame(self, request):
        run = self._run("Frame", request.context)
        run.expect(run.is_between_steps, "Frame", request.context.step)
        particles = run.solver.particles
        order = np.argsort(particles.id)
        columns = {
            "id": particles.id[order],
            "position": particles.position[order],
            "velocity": particles.velocity[order],
            "radius": uniform(particles.radius[order]),
            "group": uniform(run.group_number[order]),
        }
        infos = []
        for k, (name, values) in enumerate(run.solver.fields().items()):
            values = np.asarray(values, "<f4")
            if not np.isfinite(values).all():
                raise SolverError(f"field {name} holds a number that is not finite: the solver is unstable")
            infos.append({"name": name, "components": 1 if values.ndim == 1 else 3})
            columns[f"field_{k}"] = values[order]
        header = {"particles": len(particles), "fields": infos}
        return packets(METHODS["Frame"].response, header, columns)

    def save(self, request):
        run = self._run("Save", request.context)
        run.expect(run.is_between_steps, "Save", request.context.step)
        run.near.told = None  # a run that is restored from here hears all ids; this one, too
        snapshot = run.label + run.solver.save()
        header = {"state_hash": state_hash(run.solver.particles)}
        return packets(METHODS["Save"].response, header, {"snapshot": snapshot})

    def restore(self, header, columns):
        run = self._run("Restore", header.context)
        if not run.is_between_steps:
            run.expect(False, "Restore", header.context.step)
        snapshot = columns.raw("snapshot")
        if snapshot[:32] != run.label:
            raise SolverError("the snapshot is one of another section, domain, gravity or seed, or is none")
        run.solver.restore(snapshot[32:])
        run.step, run.phase, run.prepared = header.context.step, "ready", False
        run.last_integrate = run.last_commit = run.groups = None
        run.near.forget()
        run.index()
        run.group_number = np.full(len(run.solver.particles), NO_GROUP, "<u4")
        return METHODS["Restore"].response(state_hash=state_hash(run.solver.particles))


def check_table(solver):
    """Refuses particles that no coordinator would take."""
    particles = solver.particles
    rules = (
        ((np.abs(particles.position) < POSITION_LIMIT).all(), "positions must be finite and below 1e12 m"),
        ((np.abs(particles.velocity) < SPEED_LIMIT).all(), "velocities must be finite and below 1e12 m/s"),
        (((particles.mass >= 1e-50) & (particles.mass <= 1e50)).all(), "masses must be from 1e-50 to 1e50 kg"),
        (((particles.radius >= 1e-30) & (particles.radius <= 1e12)).all(), "radii must be from 1e-30 to 1e12 m"),
        (len(np.unique(particles.id)) == len(particles), "ids must not stand twice"),
    )
    for holds, rule in rules:
        if not holds:
            raise Refused("INVALID_ARGUMENT", rule, [("", rule)])


def check_answer(run, stage, answer):
    """Refuses an invalid answer of a solver before it spoils others."""
    count, groups = len(run.solver.particles), len(stage.groups)
    assert np.shape(answer.momentum) == (groups, 3), "momentum of the answer: one vector for each group"
    assert np.shape(answer.velocity) == (count, 3), "velocity of the answer: one vector for each particle"
    assert answer.slope is None or np.shape(answer.slope) == (groups, 6), "slope of the answer: six numbers for each group"
    assert (answer.bodies is None) == (run.solver.body is None), "bodies of the answer"
    answer.momentum, answer.velocity = (np.asarray(values, "<f8") for values in (answer.momentum, answer.velocity))
    free = stage.groups.of < 0
    wrong = np.flatnonzero(free & ~(np.abs(answer.velocity) < SPEED_LIMIT).all(axis=1))
    if len(wrong):
        id = run.solver.particles.id[wrong[0]]
        raise SolverError(f"particle {id} got velocity {answer.velocity[wrong[0]]}: the solver is unstable")
    if not (np.abs(answer.momentum) < MOMENTUM_LIMIT).all():
        raise SolverError("a group got a momentum that is not finite: the solver is unstable")


def totals(particles, before, dt, report):
    """The sums and largest values of the answer to Commit."""
    x, v, m = particles.position, particles.velocity, particles.mass[:, None]
    if not (np.isfinite(x).all() and (np.abs(v) < SPEED_LIMIT).all()):
        raise SolverError("a particle has no finite position or velocity any more: the solver is unstable")

    def square(vectors):
        return vectors[:, 0] * vectors[:, 0] + vectors[:, 1] * vectors[:, 1] + vectors[:, 2] * vectors[:, 2]

    speed, change = square(v), np.nan_to_num(square(v - before), nan=0.0)
    return {
        "particles": len(particles),
        "momentum": vec3((m * v).sum(axis=0)),
        "angular_momentum": vec3(np.cross(x, m * v).sum(axis=0) + report.spin_momentum),
        "mass_moment": vec3((m * x).sum(axis=0)),
        "kinetic_energy": float(0.5 * (particles.mass * speed).sum() + report.spin_energy),
        "speed_max": float(np.sqrt(speed.max(initial=0.0))),
        "radius_rate_max": float(np.sqrt((speed / (particles.radius * particles.radius)).max(initial=0.0))),
        "acceleration_max": float(np.sqrt(change.max(initial=0.0)) / dt),
    }


def mix(x):
    """The finaliser of SplitMix64, on arrays of uint64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def state_hash(particles):
    """The hash of ids, positions and velocities that docs/reference/protocol.md defines."""
    with np.errstate(over="ignore"):
        hashes = mix(particles.id.astype(np.uint64))
        for column in (particles.position, particles.velocity):
            for axis in range(3):
                hashes = mix(hashes ^ np.ascontiguousarray(column[:, axis]).view(np.uint64))
        return int(hashes.sum(dtype=np.uint64))


def vec3(values):
    """A vector for a header."""
    x, y, z = (float(value) for value in values)
    return {"x": x, "y": y, "z": z}


def vector(name, message, field):
    """A finite vector from a header."""
    if not message.HasField(field):
        raise Broken(f"field {name} is missing")
    value = getattr(message, field)
    value = np.array([value.x, value.y, value.z])
    if not (np.abs(value) < 1e100).all():
        raise Broken(f"{name} must be finite and below 1e100")
    return value


def lattice(message):
    """Origin and cell size of a lattice."""
    if not 0.0 < message.cell_size < np.inf:
        raise Broken(f"cell_size is {message.cell_size}, but must be positive and finite")
    return vector("origin", message, "origin"), message.cell_size


def margin(value):
    """A margin, from 0 to 4."""
    if not 0.0 <= value <= 4.0:
        raise Broken(f"margin is {value}, but must be from 0 to 4")
    return value


def _count(what, count, most):
    if count > most:
        raise Broken(f"{what} is {count}, but at most {most} are possible")
    return count


def _interest_room(interest, count):
    if interest.wanted == 1:
        return {"interest": CELL_SET_BYTES_MAX}
    return {"listed": 8 * _count("listed", interest.listed, count)} if interest.wanted == 2 else {}


def _integrate_room(header, count):
    groups = _count("groups", header.groups, count)
    room = {"inertia": 8 * groups, "impulse": 24 * groups}
    if header.repetition == 0:
        room |= {"group_size": 4 * groups, "velocity": 24 * groups}
        room["member"] = 8 * _count("members", header.members, count)
        room["watch"] = 8 * _count("watched", header.watched, count)
        if header.has_occupied:
            room["occupied"] = CELL_SET_BYTES_MAX
    return room


def _commit_room(header, count):
    groups = _count("groups", header.groups, count)
    room = {"group_velocity": 24 * groups, "group_number": 4 * groups}
    room["member_velocity"] = 24 * _count("members", header.members, count)
    room["track"] = 8 * _count("tracked", header.tracked, count)
    if header.bodies:
        room["group_spin"] = 24 * groups
    return room | (_interest_room(header.next, count) if header.HasField("next") else {})


def _restore_room(header, count):
    return {"snapshot": SNAPSHOT_BYTES_PER_PARTICLE_MAX * max(header.particles, count) + (1 << 20)}


#: The columns that a header calls for, with their bytes, by call.
ROOMS = {
    "Begin": lambda header, count: _interest_room(header.interest, count),
    "Integrate": _integrate_room,
    "Commit": _commit_room,
    "Restore": _restore_room,
}
