"""Computing a scene with the program `amalgam`, and reading its results."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .frames import frames


@dataclass
class Results:
    """The folder of results of a run, and its summary."""

    folder: Path
    summary: dict

    @property
    def state_hash(self):
        """The hash of the last frame's state."""
        return self.summary["state_hash"]

    def frames(self, participant):
        """Pairs (time [s], frame) of a participant: see `read_vtu`."""
        return frames(self.folder, participant)


def run(scene, out, settings=None, program="amalgam", arguments=()):
    """Computes a scene and returns its `Results`.

    `settings` maps keys to values, as --set would: {"time.duration": 0.5}. `arguments` go to `amalgam run` as they are.
    Raises `RuntimeError` with what the program said if the run fails.
    """
    command = [str(program), "run", str(scene), "--out", str(out), "--json", "--quiet"]
    for key, value in (settings or {}).items():
        text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else value
        command += ["--set", f"{key}={text}"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return Results(Path(out), json.loads((Path(out) / "summary.json").read_text()))
