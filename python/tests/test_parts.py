"""Columns, cells, pairs and frames by themselves."""

import numpy as np
import pytest

from amalgam_solver.columns import Broken, cells_from_bytes, cells_to_bytes, gather, occupied, packets, touches
from amalgam_solver.contract import METHODS, message
from amalgam_solver.near import near_pairs
from amalgam_solver.session import mix


def test_the_contract_is_whole():
    assert set(METHODS) == {
        "Describe", "Initialize", "Survey", "Begin", "Integrate", "Commit", "Frame", "Save", "Restore", "Shutdown",
    }
    assert METHODS["Commit"].path == "/amalgam.solver.v1.Solver/Commit"
    assert METHODS["Restore"].request_streams and not METHODS["Restore"].response_streams


def test_columns_are_cut_and_put_together():
    values = np.arange(300_000, dtype="<f8")
    sent = list(packets(message("BeginResponse"), {"particles": 5}, {"id": values, "velocity": values[:0]}))
    assert len(sent) == 5 and all(m.ByteSize() < 600_000 for m in sent)
    header, columns = gather(iter(sent), lambda header: {"id": 8 * 300_000})
    assert header.particles == 5
    assert np.array_equal(columns.take("id", "<f8", 300_000), values)
    with pytest.raises(Broken, match="announced"):
        gather(iter(sent), lambda header: {"id": 8 * 299_999})
    with pytest.raises(Broken, match="none that the header"):
        gather(iter(sent), lambda header: {"position": 8})


def test_sets_of_cells_come_back():
    keys = np.unique(np.random.default_rng(1).integers(0, 1 << 62, 500).astype(np.uint64))
    assert np.array_equal(cells_from_bytes(cells_to_bytes(keys)), keys)
    for wrong in (b"\xff" * 40, b"\x05\x00", b"\x80"):
        with pytest.raises(Broken):
            cells_from_bytes(wrong)


def test_spheres_touch_the_cells_that_they_occupy():
    random = np.random.default_rng(2)
    position, radius = random.uniform(-1, 1, (50, 3)), random.uniform(0.05, 0.3, 50)
    keys = occupied(position, radius, np.zeros(3), 0.11)
    assert touches(keys, position, radius, np.zeros(3), 0.11).all()
    assert not touches(keys, position + 100.0, radius, np.zeros(3), 0.11).any()


def test_near_pairs_are_all_pairs():
    random = np.random.default_rng(3)
    position, reach = random.uniform(-1, 1, (200, 3)), random.uniform(0.02, 0.2, 200)
    i, j = np.triu_indices(200, 1)
    close = np.linalg.norm(position[i] - position[j], axis=1) < reach[i] + reach[j]
    assert np.array_equal(near_pairs(position, reach), np.stack([i[close], j[close]], axis=1))


def test_mix_is_splitmix64():
    # The first outputs of SplitMix64 for seed 0.
    with np.errstate(over="ignore"):
        assert int(mix(np.array([0], np.uint64))[0]) == 0xE220A8397B1DCDAF
