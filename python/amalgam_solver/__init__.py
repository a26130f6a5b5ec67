"""Participants of Amalgam in Python.

`Participant` is what a solver derives from; `main` serves it. `run` computes a scene with the program `amalgam`, and
`read_vtu` and `frames` read what it wrote. `amalgam-record` keeps what crosses the wire, `amalgam-play` stands in for a
participant that was recorded.
"""

from .driver import Results, run
from .frames import frames, read_vtu
from .participant import (
    EXPLICIT,
    IMPLICIT,
    PROJECTION,
    Answer,
    Body,
    End,
    Groups,
    Particles,
    Participant,
    Report,
    SectionError,
    SolverError,
    Stage,
    World,
)
from .serve import main, serve

__all__ = [
    "EXPLICIT",
    "IMPLICIT",
    "PROJECTION",
    "Answer",
    "Body",
    "End",
    "Groups",
    "Participant",
    "Particles",
    "Report",
    "Results",
    "SectionError",
    "SolverError",
    "Stage",
    "World",
    "frames",
    "main",
    "read_vtu",
    "run",
    "serve",
]
