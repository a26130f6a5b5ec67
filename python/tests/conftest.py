"""Fixtures of the tests: the programs of the repository, and services of the examples."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "python" / "examples"


def _built(variable, path):
    """A program that was built, by an environment variable or where cargo puts it."""
    program = Path(os.environ.get(variable, ROOT / "target" / "release" / path))
    if not program.exists():
        pytest.skip(f"{program} is not built; {variable} may say where it is")
    return program


@pytest.fixture
def amalgam():
    """The program `amalgam`."""
    return _built("AMALGAM", "amalgam")


@pytest.fixture
def rust_balls():
    """The example `balls` in Rust."""
    return _built("AMALGAM_BALLS", "examples/balls")


@pytest.fixture
def cpp_balls():
    """The participant in C++."""
    return _built("AMALGAM_CPP_BALLS", "../cpp/balls")


def example(name):
    """A class of an example, for example `example("balls").Balls`."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def served():
    """Serves a participant in this process: `served(Balls)` is an address."""
    from amalgam_solver import serve

    servers = []

    def start(program):
        server, address = serve(program, "127.0.0.1:0")
        servers.append(server)
        return address

    yield start
    for server in servers:
        server.stop(grace=None)
