"""A rigid body of particles that turns, explicit, for the contact law.

python3 python/examples/rigid.py --listen 127.0.0.1:7403
"""

import numpy as np

from amalgam_solver import Answer, Body, Participant, Particles, Report, SectionError, main

DEFAULTS = {
    "center": [0.0, 0.0, 1.0],  # [m]
    "particles": [3, 3, 2],  # along the edges, two or more
    "spacing": 0.05,  # [m]
    "density": 500.0,  # of a particle's cube of this edge [kg/m^3]
    "velocity": [0.0, 0.0, 0.0],  # [m/s]
    "angular_velocity": [0.0, 0.0, 0.0],  # [rad/s]
}


class Rigid(Participant):
    name = "rigid"

    def __init__(self, section, world):
        if wrong := [(key, "there is no such key") for key in section.keys() - DEFAULTS.keys()]:
            raise SectionError(*wrong)
        given = DEFAULTS | section
        if len(given["particles"]) != 3 or min(given["particles"]) < 2:
            raise SectionError(("particles", "give three numbers of at least 2"))
        places = np.stack(np.mgrid[tuple(slice(n) for n in given["particles"])], axis=-1).reshape(-1, 3)
        self.arms = (places - places.mean(axis=0)) * given["spacing"]  # in the body's axes [m]
        mass = given["density"] * given["spacing"] ** 3
        self.particles = Particles(self.arms, mass=mass, radius=0.5 * given["spacing"])
        self.body = np.zeros(len(self.arms), np.uint64)
        self.mass = mass * len(self.arms)
        self.inertia = mass * (np.eye(3) * (self.arms**2).sum() - self.arms.T @ self.arms)  # in the body's axes
        self.centre, self.velocity = (np.array(given[key], float) for key in ("center", "velocity"))
        self.orientation = np.array([1.0, 0.0, 0.0, 0.0])
        self.turn_momentum = self.inertia @ np.array(given["angular_velocity"], float)
        self.gravity = world.gravity
        self._place(self.orientation, self.centre, self.velocity)

    def _inertia(self, orientation):
        """Moment of inertia in the world's axes."""
        axes = matrix(orientation)
        return axes @ self.inertia @ axes.T

    def _spin(self, orientation):
        return np.linalg.solve(self._inertia(orientation), self.turn_momentum)

    def _turned(self, dt):
        """The orientation at the end of a step, by the spin in its middle: the angular momentum stays as it is."""
        middle = turn(self._spin(self.orientation) * (0.5 * dt), self.orientation)
        return turn(self._spin(middle) * dt, self.orientation)

    def _velocities(self, orientation, velocity):
        return velocity + np.cross(self._spin(orientation), self.arms @ matrix(orientation).T)

    def _place(self, orientation, centre, velocity):
        self.particles.position[...] = centre + self.arms @ matrix(orientation).T
        self.particles.velocity[...] = self._velocities(orientation, velocity)

    def integrate(self, stage):
        velocity = self.velocity + self.gravity * stage.dt
        momentum = np.tile(self.gravity * self.mass * stage.dt, (len(stage.groups), 1))
        inertia = self._inertia(self.orientation)
        entries = inertia[[0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]]
        body = Body(self.mass, entries, self.centre, velocity, self._spin(self.orientation))
        velocities = self._velocities(self._turned(stage.dt), velocity)
        return Answer(momentum, velocities, bodies=[body] * len(stage.groups))

    def commit(self, end, velocity):
        self.velocity += self.gravity * end.dt
        if len(end.groups):
            self.velocity[...] = end.group_velocity[0]
            self.turn_momentum[...] = self._inertia(self.orientation) @ end.group_spin[0]
        self.orientation[...] = self._turned(end.dt)
        self.centre += self.velocity * end.dt
        self._place(self.orientation, self.centre, self.velocity)
        return Report()

    def state(self):
        own = {"centre": self.centre, "v": self.velocity, "q": self.orientation, "L": self.turn_momentum}
        return super().state() | own


def matrix(q):
    """The rotation of a unit quaternion (w, x, y, z)."""
    w, x, y, z = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def turn(rotation, q):
    """A quaternion after a rotation vector [rad] in the world's axes."""
    angle = np.linalg.norm(rotation)
    half = 0.5 * np.sinc(0.5 * angle / np.pi) * rotation
    w, v = np.cos(0.5 * angle), half
    turned = np.concatenate([[w * q[0] - v @ q[1:]], w * q[1:] + q[0] * v + np.cross(v, q[1:])])
    return turned / np.linalg.norm(turned)


if __name__ == "__main__":
    main(Rigid)
