"""Reading the frames of a run as arrays."""

import re
import xml.etree.ElementTree as xml
import zlib
from pathlib import Path

import numpy as np

_TYPES = {"Float64": "<f8", "Float32": "<f4", "UInt64": "<u8", "Int64": "<i8", "UInt32": "<u4", "Int32": "<i4", "UInt8": "u1"}


def read_vtu(path):
    """One frame, in one file or in the parts that a `.pvtu` file names: a dict of arrays by name, ascending by id.

    `position` (n, 3), `id`, `velocity` (n, 3), `group` (-1 for none), the solver's own fields, `triangles` (m, 3) as places,
    and `time` [s].
    """
    path = Path(path)
    if path.suffix == ".pvtu":
        sources = [piece.get("Source") for piece in xml.parse(path).getroot().iter("Piece")]
        return _joined([read_vtu(path.with_name(source)) for source in sources])
    data = path.read_bytes()
    head, mark, tail = data.partition(b'<AppendedData encoding="raw">')
    if not mark:
        raise ValueError(f"{path} has no appended data: it is no frame of amalgam")
    root = xml.fromstring(head + b"</VTKFile>")
    start = len(head) + len(mark) + tail.index(b"_") + 1
    compressed = root.get("compressor") is not None
    arrays = {}
    for group in root.iter():
        for array in group.findall("DataArray"):
            arrays[(group.tag, array.get("Name"))] = _values(data, start, array, compressed)
    frame = {name: values for (group, name), values in arrays.items() if group == "PointData"}
    frame["position"] = next(values for (group, _), values in arrays.items() if group == "Points")
    frame["time"] = float(arrays["FieldData", "TimeValue"][0]) if ("FieldData", "TimeValue") in arrays else None
    kinds, corners = arrays["Cells", "types"], arrays["Cells", "connectivity"]
    triangles = int((kinds == 5).sum())
    frame["triangles"] = corners[len(corners) - 3 * triangles :].reshape(-1, 3)
    return frame


def _joined(parts):
    """The frame of all parts. Parts have no triangles."""
    order = np.argsort(np.concatenate([part["id"] for part in parts]))
    whole = {"time": parts[0]["time"], "triangles": parts[0]["triangles"]}
    columns = (name for name in parts[0] if name not in whole)
    return whole | {name: np.concatenate([part[name] for part in parts])[order] for name in columns}


def _values(data, start, array, compressed):
    dtype, width = np.dtype(_TYPES[array.get("type")]), int(array.get("NumberOfComponents", "1"))
    if array.get("format") != "appended":
        values = np.array((array.text or "").split(), dtype)
    else:
        at = start + int(array.get("offset"))
        values = np.frombuffer(_block(data, at, compressed), dtype)
    return values.reshape(-1, width) if width > 1 else values


def _block(data, at, compressed):
    def word(k):
        return int.from_bytes(data[at + 8 * k : at + 8 * k + 8], "little")

    if not compressed:
        return data[at + 8 : at + 8 + word(0)]
    blocks, out = word(0), []
    place = at + 8 * (3 + blocks)
    for size in (word(3 + k) for k in range(blocks)):
        out.append(zlib.decompress(data[place : place + size]))
        place += size
    return b"".join(out)


def frames(folder, participant):
    """The frames of a participant in a folder of results, in the order of time: pairs (time [s], frame)."""
    folder = Path(folder)
    text = (folder / f"{participant}.pvd").read_text()
    for entry in re.findall(r"<DataSet\b[^>]*>", text):
        time, file = (re.search(rf'\b{key}="([^"]*)"', entry).group(1) for key in ("timestep", "file"))
        yield float(time), read_vtu(folder / file)
