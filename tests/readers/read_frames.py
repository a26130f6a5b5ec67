#!/usr/bin/env python3
"""Reads all frames of a run with meshio, pyvista and VTK, and compares what they read.

    python3 tests/readers/read_frames.py out/NAME_OF_THE_SCENE

A reader that is not installed is left out, and said so; without any the script ends with exit code 0. Exit code 1: a
reader failed, or two of them disagree.
"""

import importlib
import pathlib
import re
import sys


def by_meshio(path):
    mesh = importlib.import_module("meshio").read(path)
    return mesh.points, dict(mesh.point_data)


def by_pyvista(path):
    grid = importlib.import_module("pyvista").read(path)
    return grid.points, {name: grid.point_data[name] for name in grid.point_data.keys()}


def by_vtk(path):
    """The reader that ParaView uses."""
    xml = importlib.import_module("vtkmodules.vtkIOXML")
    arrays = importlib.import_module("vtkmodules.util.numpy_support")
    core = importlib.import_module("vtkmodules.vtkCommonCore")
    failures = []
    reader = xml.vtkXMLUnstructuredGridReader()
    reader.AddObserver(core.vtkCommand.ErrorEvent, lambda *_: failures.append(path))
    reader.SetFileName(str(path))
    reader.Update()
    if failures:
        raise ValueError("vtkXMLUnstructuredGridReader reports an error")
    grid = reader.GetOutput()
    data = grid.GetPointData()
    names = [data.GetArrayName(i) for i in range(data.GetNumberOfArrays())]
    fields = {name: arrays.vtk_to_numpy(data.GetArray(name)) for name in names}
    if grid.GetNumberOfPoints() == 0:
        return [], fields
    return arrays.vtk_to_numpy(grid.GetPoints().GetData()), fields


READERS = {"meshio": by_meshio, "pyvista": by_pyvista, "vtk": by_vtk}


def installed():
    found = {}
    for name, read in READERS.items():
        try:
            importlib.import_module(name)
            found[name] = read
        except ImportError:
            print(f"{name} is not installed: left out")
    return found


def check(path, readers):
    """Raises ValueError if a reader fails, or reads something else than the header says or another reader reads."""
    import numpy

    header = path.read_bytes()[:20000].decode("latin-1")
    points = int(re.search(r'NumberOfPoints="(\d+)"', header).group(1))
    names = re.search(r"<PointData>(.*?)</PointData>", header, re.S).group(1)
    names = set(re.findall(r'Name="(\w+)"', names))
    first = None
    for reader, read in readers.items():
        try:
            positions, fields = read(path)
        except Exception as error:
            raise ValueError(f"{reader}: {error}") from error
        if len(positions) != points or set(fields) != names:
            read_names, header_names = sorted(fields), sorted(names)
            raise ValueError(f"{reader}: {len(positions)} points of {points}, {read_names} of {header_names}")
        # meshio has a column for each component, also for one.
        columns = {"points": positions, **fields} if points else {}
        values = {name: numpy.asarray(column).reshape(points, -1) for name, column in columns.items()}
        for name in sorted(values) if first else []:
            if not numpy.array_equal(values[name], first[1][name], equal_nan=values[name].dtype.kind == "f"):
                raise ValueError(f"{reader} and {first[0]} read different values of {name}")
        first = first or (reader, values)


def main(folder):
    readers = installed()
    if not readers:
        print("no reader is installed: nothing was read (pip install meshio pyvista)")
        return 0
    listed = [re.findall(r'file="([^"]+)"', text.read_text()) for text in sorted(folder.glob("*.pvd"))]
    frames = sorted({folder / file for files in listed for file in files})
    if not frames:
        print(f"{folder} holds no frames")
        return 1
    for path in frames:
        try:
            check(path, readers)
        except ValueError as error:
            print(f"{path}: {error}")
            return 1
    print(f"{len(frames)} frames are read alike by {', '.join(readers)}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1])))
