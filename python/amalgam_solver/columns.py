"""Columns: packed little-endian arrays in pieces over a stream of messages, and sets of cells."""

import numpy as np

#: Bytes of columns in a message that is sent.
CHUNK_BYTES = 512 << 10
#: Bytes of a message that is taken.
MESSAGE_BYTES_MAX = 4 << 20
#: Bytes of columns that a call may hold.
CALL_BYTES_MAX = 16 << 30
#: Bytes of a set of cells.
CELL_SET_BYTES_MAX = 64 << 20
#: Ids are below this.
ID_LIMIT = 1 << 48

POSITION_LIMIT = SPEED_LIMIT = 1e12
MOMENTUM_LIMIT = SLOPE_LIMIT = 1e62


class Broken(Exception):
    """A message that breaks the contract: answered with INVALID_ARGUMENT."""


def gather(messages, room):
    """Reads a stream: the header, and the columns that `room(header)` allows, a dict of bytes by name.

    What the header does not call for is refused as soon as it arrives.
    """
    header, allowed, pieces = None, {}, {}
    for message in messages:
        if message.HasField("header"):
            if header is not None:
                raise Broken("a second header in one stream")
            header = message.header
            allowed = room(header)
            if sum(allowed.values()) > CALL_BYTES_MAX:
                raise Broken(f"the columns that were announced need more than {CALL_BYTES_MAX} bytes")
        elif header is None:
            raise Broken("the stream ended without a header")
        for column in message.columns:
            if column.name not in allowed:
                raise Broken(f"column {column.name[:80]!r} is none that the header of this call calls for")
            data = pieces.setdefault(column.name, bytearray())
            data += column.data
            if len(data) > allowed[column.name]:
                raise Broken(f"column {column.name} holds more than the {allowed[column.name]} bytes that were announced")
    if header is None:
        raise Broken("the stream ended without a header")
    return header, Columns(pieces)


class Columns:
    """The columns of a call, by name."""

    def __init__(self, pieces):
        self._pieces = pieces

    def same(self):
        """A key that equal calls share."""
        return {name: bytes(data) for name, data in self._pieces.items()}

    def raw(self, name):
        """The bytes of a column."""
        return bytes(self._pieces.get(name, b""))

    def take(self, name, dtype, count, width=1, uniform=False):
        """`count` values of `width` numbers each; with `uniform` one may stand for all."""
        data, stride = self.raw(name), np.dtype(dtype).itemsize * width
        if uniform and count > 1 and len(data) == stride:
            data *= count
        if len(data) != count * stride:
            raise Broken(f"column {name} holds {len(data)} bytes, but {count} x {stride} were announced")
        values = np.frombuffer(data, dtype)
        return values.reshape(count, width) if width > 1 else values

    def vectors(self, name, count, limit, uniform=False):
        """Vectors of three numbers, each below a limit."""
        values = self.take(name, "<f8", count, 3, uniform)
        if not (np.abs(values) < limit).all():
            raise Broken(f"{name} holds a number that is not finite or not below {limit:g}")
        return values

    def ids(self, name, count):
        """Ids, none of them twice."""
        values = self.take(name, "<u8", count)
        if (values >= ID_LIMIT).any():
            raise Broken(f"{name} holds an id that is not below 2^48")
        if len(np.unique(values)) != len(values):
            raise Broken(f"{name}: an id stands twice")
        return values

    def cells(self, name):
        """A set of cells, as ascending keys."""
        return cells_from_bytes(self.raw(name))


def packets(kind, header, columns):
    """The messages of a stream: the header in the first, and the columns, cut where a message is full.

    `columns` maps names to arrays or bytes, those that are empty are left out.
    """
    message, room = kind(header=header), CHUNK_BYTES
    for name, values in columns.items():
        data = values if isinstance(values, bytes) else np.ascontiguousarray(values).tobytes()
        at = 0
        while at < len(data):
            if room == 0:
                yield message
                message, room = kind(), CHUNK_BYTES
            piece = data[at : at + room]
            message.columns.add(name=name, data=piece)
            at, room = at + len(piece), room - len(piece)
    yield message


def uniform(values):
    """A single value, if all are the same to the bit; else all values."""
    values = np.asarray(values)
    same = len(values) > 1 and values.tobytes() == values[:1].tobytes() * len(values)
    return values[:1] if same else values


# Cells: coordinates are raised by HALF and packed into a key, z first.
HALF = 1 << 20


def cell_of(position, origin, cell_size):
    """The cells that hold positions, saturated at 2^20 cells from the origin."""
    scaled = (position - origin) * (1.0 / cell_size)
    return np.floor(np.clip(scaled, -HALF, HALF - 1)).astype(np.int64)


def _pack(cell):
    x, y, z = (cell[..., axis].astype(np.uint64) for axis in range(3))
    return z << np.uint64(42) | y << np.uint64(21) | x


def occupied(position, radius, origin, cell_size):
    """The keys of all cells that the bounding boxes of spheres touch, ascending; radius 0 gives the cells of centres."""
    radius = np.broadcast_to(np.asarray(radius, float), (len(position),))[:, None]
    low, high = (cell_of(position + sign * radius, origin, cell_size) for sign in (-1, 1))
    found = [np.empty(0, np.uint64)]
    most = (high - low).max(axis=0, initial=0)
    for dz in range(most[2] + 1):
        for dy in range(most[1] + 1):
            for dx in range(most[0] + 1):
                cell = low + (dx, dy, dz)
                found.append(np.unique(_pack(cell[(cell <= high).all(axis=1)] + HALF)))
    return np.unique(np.concatenate(found))


def touches(keys, position, radius, origin, cell_size):
    """True for each sphere whose bounding box touches a cell of a set."""
    radius = np.broadcast_to(np.asarray(radius, float), (len(position),))[:, None]
    low, high = (cell_of(position + sign * radius, origin, cell_size) for sign in (-1, 1))
    hit = np.zeros(len(position), bool)
    most = (high - low).max(axis=0, initial=0)
    for dz in range(most[2] + 1):
        for dy in range(most[1] + 1):
            for dx in range(most[0] + 1):
                cell = low + (dx, dy, dz)
                hit |= (cell <= high).all(axis=1) & np.isin(_pack(cell + HALF), keys)
    return hit


def cells_to_bytes(keys):
    """Differences of ascending keys in base 128, low digits first."""
    out = bytearray()
    for gap in np.diff(keys.astype(object), prepend=0):
        while gap >= 0x80:
            out.append(gap & 0x7F | 0x80)
            gap >>= 7
        out.append(gap)
    return bytes(out)


def cells_from_bytes(data):
    """Reads the cells that `cells_to_bytes` wrote; raises `Broken`."""
    keys, last, gap, shift = [], -1, 0, 0
    for byte in data:
        gap |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            raise Broken("a cell key does not fit 63 bits")
        if byte & 0x80:
            continue
        key = gap if last < 0 else last + gap
        if key >= 1 << 63 or key == last:
            raise Broken("a cell stands twice or does not fit 63 bits")
        keys.append(key)
        last, gap, shift = key, 0, 0
    if shift:
        raise Broken("the last cell key is cut off")
    return np.array(keys, np.uint64)
