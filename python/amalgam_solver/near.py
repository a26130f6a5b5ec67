"""Particles reported before a step: those that may touch others, and those in contact within the participant."""

import numpy as np

from .columns import Broken, occupied, touches

#: Cells along the radius of the largest particle, at most.
CELLS_PER_RADIUS_MAX = 16.0
#: Particles that hit others in a row are followed over this many hits.
HITS = 4


def check_cells(particles, cell_size, margin):
    """Refuses cells so small that a particle would fill millions of them."""
    smallest = particles.radius.max(initial=0.0) * (1.0 + margin) / CELLS_PER_RADIUS_MAX
    if not cell_size >= smallest:
        raise Broken(f"cells of {cell_size:g} m are too small for these particles: use {smallest:g} m or more")


class Near:
    """The particles that a coordinator asks for, and those of its last list."""

    def __init__(self, solver):
        self.solver = solver
        self.forget()

    def forget(self):
        """Forgets all, after particles have been moved to other places."""
        self.surveyed = None  # positions by id at the last Survey
        self.list = None  # ids
        self.told = None  # ids of the last answer

    def survey(self, origin, cell_size, margin):
        """The cells that particles touch."""
        particles = self.solver.particles
        check_cells(particles, cell_size, margin)
        self.surveyed = (particles.id.copy(), particles.position.copy())
        return occupied(particles.position, particles.radius * (1.0 + margin), origin, cell_size)

    def drift(self):
        """The largest displacement since the last Survey, relative to the radius; infinite without one."""
        particles = self.solver.particles
        if self.surveyed is None or not np.array_equal(self.surveyed[0], particles.id):
            return np.inf
        moved = np.linalg.norm(particles.position - self.surveyed[1], axis=1)
        return (moved / particles.radius).max(initial=0.0)

    def begin(self, places, interest):
        """The answer to Begin: (particles and contacts of the header, columns, True if the particles are as before)."""
        particles = self.solver.particles
        corners = interest.triangles and interest.wanted in ("near", "listed")
        if interest.wanted == "all":
            wanted = np.arange(len(particles))
        elif interest.wanted == "near":
            reach = particles.radius * (1.0 + interest.margin)
            near = touches(interest.cells, particles.position, reach, interest.origin, interest.cell_size)
            wanted = np.flatnonzero(near)
        else:
            ids = self.list if interest.wanted == "again" else interest.listed
            wanted = np.array([places[id] for id in ids.tolist() if id in places], np.int64)
        if corners and len(self.solver.triangles):
            triangles = np.array([[places[id] for id in ids] for ids in self.solver.triangles.tolist()])
            hit = np.isin(triangles, wanted).any(axis=1)
            wanted = np.union1d(wanted, triangles[hit].ravel())
        if interest.wanted == "listed":
            self.list = particles.id[wanted].copy()
        contacts = self.contacts(places, interest.time, interest.acceleration)
        if len(contacts):
            wanted = np.union1d(wanted, contacts.ravel())
        ids = particles.id[wanted]
        as_before = self.told is not None and np.array_equal(self.told, ids)
        self.told = ids
        columns = {} if as_before else {"id": ids}
        columns["position"], columns["velocity"] = particles.position[wanted], particles.velocity[wanted]
        columns["contacts"] = np.searchsorted(wanted, contacts).astype("<u4")
        return len(wanted), len(contacts), columns, as_before

    def contacts(self, places, time, acceleration):
        """Pairs of places in contact, the lower first, ascending: pairs that intersect, or may within `time`."""
        particles = self.solver.particles
        if not self.solver.self_colliding or len(particles) < 2:
            return np.empty((0, 2), np.int64)
        speed = np.linalg.norm(particles.velocity, axis=1) + acceleration * time
        # A blow may be handed on, so that slower particles come as far as the fastest one.
        reach = particles.radius + 2.0 * speed.max() * time
        pairs = near_pairs(particles.position, reach)
        i, j = pairs.T
        pairs = pairs[~(particles.immovable[i] & particles.immovable[j])]
        pairs = pairs[~self._joined(pairs, places)]
        i, j = pairs.T
        difference = particles.position[i] - particles.position[j]
        square = difference[:, 0] ** 2 + difference[:, 1] ** 2 + difference[:, 2] ** 2
        gap = np.sqrt(square) - particles.radius[i] - particles.radius[j]
        for _ in range(HITS if time > 0.0 else 0):
            before = speed.copy()
            meets = gap < 2.0 * time * (before[i] + before[j])
            np.maximum.at(speed, i[meets], before[j[meets]])
            np.maximum.at(speed, j[meets], before[i[meets]])
            if np.array_equal(speed, before):
                break
        reach = particles.radius[i] + particles.radius[j]
        if time > 0.0:
            reach = reach + (2.0 * speed[i] * time + 2.0 * speed[j] * time)
        return pairs[square < reach * reach]

    def _joined(self, pairs, places):
        joined = np.asarray(self.solver.joined)
        if not len(joined) or not len(pairs):
            return np.zeros(len(pairs), bool)
        count = len(self.solver.particles)
        ends = np.sort([[places.get(a, 0), places.get(b, 0)] for a, b in joined.tolist()], axis=1)
        return np.isin(pairs[:, 0] * count + pairs[:, 1], ends[:, 0] * count + ends[:, 1])


def near_pairs(position, reach):
    """All pairs (i, j), i < j, ascending, whose spheres of these radii intersect."""
    size = 2.0 * reach.max()
    cell = np.floor((position - position.min(axis=0)) / size).astype(np.int64) + 1
    stride = cell.max(axis=0) + 2
    key = (cell[:, 0] * stride[1] + cell[:, 1]) * stride[2] + cell[:, 2]
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    found = [np.empty((0, 2), np.int64)]
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            for dz in (-1, 0, 1):
                other = key + (dx * stride[1] + dy) * stride[2] + dz
                first, last = (np.searchsorted(ordered, other, side) for side in ("left", "right"))
                count = last - first
                i = np.repeat(np.arange(len(position)), count)
                at = np.arange(len(i)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
                j = order[at]
                ahead = i < j
                i, j = i[ahead], j[ahead]
                apart = np.linalg.norm(position[i] - position[j], axis=1)
                found.append(np.stack([i, j], axis=1)[apart < reach[i] + reach[j]])
    pairs = np.concatenate(found)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
