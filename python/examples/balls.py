"""Balls in free fall, explicit: the same as solver-kit/examples/balls.rs, to the bit.

python3 python/examples/balls.py --listen 127.0.0.1:7401
"""

from amalgam_solver import Answer, Participant, Particles, SectionError, main

KEYS = {"positions", "velocities", "mass", "radius", "self_collision"}


class Balls(Participant):
    name = "balls"

    def __init__(self, section, world):
        if wrong := [(key, "there is no such key") for key in section.keys() - KEYS]:
            raise SectionError(*wrong)
        if wrong := [(key, "give a value") for key in ("positions", "mass", "radius") if key not in section]:
            raise SectionError(*wrong)
        velocities = section.get("velocities") or None
        if velocities and len(velocities) != len(section["positions"]):
            raise SectionError(("velocities", "give one velocity for each position, or none"))
        self.particles = Particles(section["positions"], velocities, section["mass"], section["radius"])
        self.self_colliding = section.get("self_collision", False)
        self.gravity = world.gravity

    def integrate(self, stage):
        weight = self.gravity * self.particles.mass[:, None] * stage.dt
        velocity = self.particles.velocity + self.gravity * stage.dt
        return Answer(stage.groups.sum(weight), velocity)


if __name__ == "__main__":
    main(Balls)
