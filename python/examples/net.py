"""A net of springs, explicit: forces at the start of a step give the velocities at its end.

python3 python/examples/net.py --listen 127.0.0.1:7402
"""

import numpy as np

from amalgam_solver import Answer, Participant, Particles, Report, SectionError, main

DEFAULTS = {
    "corner": [0.0, 0.0, 0.5],  # of the net, which lies in a plane of constant z [m]
    "nodes": [8, 8],  # along x and y
    "spacing": 0.05,  # of nodes, and rest length of the springs along x and y [m]
    "mass": 0.01,  # of a node [kg]
    "stiffness": 100.0,  # of a spring [N/m]
    "damping": 0.05,  # along a spring [N s/m]
    "pinned": True,  # whether the corners are held
}


class Net(Participant):
    name = "net"

    def __init__(self, section, world):
        if wrong := [(key, "there is no such key") for key in section.keys() - DEFAULTS.keys()]:
            raise SectionError(*wrong)
        given = DEFAULTS | section
        if wrong := [(key, "must be positive") for key in ("spacing", "mass", "stiffness") if not given[key] > 0]:
            raise SectionError(*wrong)
        nx, ny = given["nodes"]
        place = np.arange(nx * ny).reshape(ny, nx)
        y, x = np.mgrid[:ny, :nx]
        position = np.stack([x, y, 0 * x], axis=-1).reshape(-1, 3) * given["spacing"] + given["corner"]
        pinned = np.zeros(nx * ny, bool)
        pinned[place[[0, 0, -1, -1], [0, -1, 0, -1]]] = given["pinned"]
        self.particles = Particles(position, mass=given["mass"], radius=0.4 * given["spacing"], immovable=pinned)
        along = [(place[:, :-1], place[:, 1:]), (place[:-1], place[1:])]
        across = [(place[:-1, :-1], place[1:, 1:]), (place[:-1, 1:], place[1:, :-1])]
        self.springs = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in along + across])
        self.joined = self.springs.astype(np.uint64)
        a, b, c, d = place[:-1, :-1], place[:-1, 1:], place[1:, :-1], place[1:, 1:]
        corners = [np.stack([k.ravel() for k in triangle], axis=1) for triangle in ((a, b, d), (a, d, c))]
        self.triangles = np.concatenate(corners).astype(np.uint64)
        self.rest = np.linalg.norm(position[self.springs[:, 0]] - position[self.springs[:, 1]], axis=1)
        self.stiffness, self.damping, self.gravity = given["stiffness"], given["damping"], world.gravity

    def stable_dt(self):
        # Eight springs meet at a node: no mode is faster than that of all of them against it.
        return 0.5 / np.sqrt(16.0 * self.stiffness / self.particles.mass.min())

    def _stretch(self):
        """Direction and length of each spring."""
        i, j = self.springs.T
        arm = self.particles.position[j] - self.particles.position[i]
        length = np.linalg.norm(arm, axis=1)
        return arm / length[:, None], length

    def begin(self):
        particles = self.particles
        direction, length = self._stretch()
        i, j = self.springs.T
        closing = ((particles.velocity[j] - particles.velocity[i]) * direction).sum(axis=1)
        pull = (self.stiffness * (length - self.rest) + self.damping * closing)[:, None] * direction
        self.force = self.gravity * particles.mass[:, None]
        np.add.at(self.force, i, pull)
        np.add.at(self.force, j, -pull)

    def integrate(self, stage):
        impulse = self.force * stage.dt
        velocity = self.particles.velocity + impulse / self.particles.mass[:, None]
        velocity[self.particles.immovable] = 0.0
        return Answer(stage.groups.sum(impulse), velocity)

    def commit(self, end, velocity):
        self.advance(end, velocity)
        _, length = self._stretch()
        return Report(energies={"elastic": float(0.5 * self.stiffness * ((length - self.rest) ** 2).sum())})


if __name__ == "__main__":
    main(Net)
