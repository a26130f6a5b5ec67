"""The examples against the programs of the repository: the rules of the contract, hashes, recorder and player."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import EXAMPLES, ROOT, example

from amalgam_solver import run
from amalgam_solver.play import play
from amalgam_solver.record import read, record

SCENE = """
[scene]
name = "{name}"
[domain]
min = [-3, -3, -5]
max = [3, 3, 5]
[time]
duration = 0.1
frame_interval = 0.02
dt_max = 0.002
[coupling]
{coupling}
"""
PARTICIPANT = """
[[participants]]
name = "{name}"
address = "{address}"
[participants.settings]
{settings}
"""


def scene(folder, name, participants, coupling=""):
    """A scene file of participants (name, address, section)."""
    text = SCENE.format(name=name, coupling=coupling)
    for own, address, settings in participants:
        text += PARTICIPANT.format(name=own, address=address, settings=settings)
    file = folder / f"{name}.toml"
    file.write_text(text)
    return file


def section(name):
    """The section that stands beside an example."""
    return (EXAMPLES / f"{name}.toml").read_text()


@pytest.mark.parametrize("name", ["balls", "net", "rigid"])
def test_examples_keep_every_rule(amalgam, name):
    command = [amalgam, "conform", "--settings", EXAMPLES / f"{name}.toml", "--"]
    done = subprocess.run([*command, sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = int(done.stdout.splitlines()[-1].split()[0])
    assert kept >= 45, done.stdout


class Process:
    """A service as a process of its own."""

    def __init__(self, program):
        self.process = subprocess.Popen([program, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self.process.stdout.readline().removeprefix("listening ").strip()

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)


@pytest.mark.parametrize("coupling", ['method = "merge-split"', 'method = "contact-law"'])
@pytest.mark.parametrize("other", ["rust_balls", "cpp_balls"])
def test_balls_have_the_same_hash_in_every_language(amalgam, request, served, tmp_path, other, coupling):
    with Process(request.getfixturevalue(other)) as compiled:
        hashes = []
        for name, address in (("compiled", compiled), ("python", served(example("balls").Balls))):
            file = scene(tmp_path, name, [("balls", address, section("balls"))], coupling)
            results = run(file, tmp_path / name, program=amalgam)
            assert results.summary["steps"] > 10
            hashes.append(results.state_hash)
    assert hashes[0] == hashes[1]


def test_frames_are_arrays(amalgam, served, tmp_path):
    file = scene(tmp_path, "net", [("net", served(example("net").Net), section("net"))])
    for compression in ("none", "zlib"):
        arguments = {"output.compression": f'"{compression}"'}
        results = run(file, tmp_path / compression, arguments, amalgam)
        frames = list(results.frames("net"))
        assert len(frames) == 6
        time, frame = frames[-1]
        assert time == pytest.approx(0.1)
        assert frame["position"].shape == (20, 3) and frame["triangles"].shape == (24, 3)
        corners = [0, 4, 15, 19]
        assert np.array_equal(frame["position"][corners], frames[0][1]["position"][corners])
        assert frame["position"][:, 2].min() < 0.5 - 1e-4


def test_a_net_catches_balls_written_in_another_language(amalgam, rust_balls, served, tmp_path):
    with Process(rust_balls) as rust:
        balls = "positions = [[0.1, 0.075, 0.55]]\nvelocities = [[0, 0, -1.0]]\nmass = 0.02\nradius = 0.02"
        parts = [("net", served(example("net").Net), section("net")), ("ball", rust, balls)]
        file = scene(tmp_path, "caught", parts, 'method = "merge-split"\nalpha = 0.0')
        results = run(file, tmp_path / "caught", program=amalgam)
    positions = [frame["position"][0, 2] for _, frame in results.frames("ball")]
    free = 0.55 - 1.0 * 0.1 - 0.5 * 9.81 * 0.1**2
    assert positions[-1] > free + 0.005, "the net holds the ball back"


def test_frames_in_parts_are_those_of_one_rank(amalgam, tmp_path):
    settings = {"output.pictures.every": 1000, "output.surfaces.water.every": 1000}
    file, both = ROOT / "scenes" / "small" / "drop.toml", []
    for ranks in (1, 3):
        arguments = ("--frames=2", f"--ranks=water={ranks}")
        both.append(run(file, tmp_path / f"ranks-{ranks}", settings, amalgam, arguments))
    assert (tmp_path / "ranks-3" / "frames" / "water_000002.pvtu").exists()
    for (_, one), (_, parts) in zip(*(results.frames("water") for results in both), strict=True):
        assert one.keys() == parts.keys()
        assert all(np.array_equal(one[name], parts[name]) for name in one)


def test_a_player_stands_in_for_what_was_recorded(amalgam, served, tmp_path):
    balls, file = served(example("balls").Balls), tmp_path / "balls.recording"
    server, address = record(balls, file, "127.0.0.1:0")
    recorded = run(scene(tmp_path, "recorded", [("balls", address, section("balls"))]), tmp_path / "a", program=amalgam)
    server.stop(grace=None)
    names = [call.name for call in read(file)]
    assert names[0] == "Describe" and "Integrate" in names and names[-1] == "Shutdown"
    requests, answers = next(call for call in read(file) if call.name == "Initialize").messages()
    assert requests[0].participant == "balls" and answers[0].header.particles == 4

    server, address = play(file, "127.0.0.1:0")
    played = run(scene(tmp_path, "played", [("balls", address, section("balls"))]), tmp_path / "b", program=amalgam)
    assert played.state_hash == recorded.state_hash
    other = scene(tmp_path, "other", [("balls", address, section("balls").replace("2.0\nradius", "3.0\nradius"))])
    with pytest.raises(RuntimeError, match="not the one that was recorded"):
        run(other, tmp_path / "c", program=amalgam)
    server.stop(grace=None)


def test_the_examples_are_where_the_readme_says():
    text = (ROOT / "python" / "README.md").read_text()
    for name in ("balls", "net", "rigid"):
        assert f"examples/{name}.py" in text
