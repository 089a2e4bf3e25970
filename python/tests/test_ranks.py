"""The NumPy API on two ranks: real processes, started by `python -m tessera launch`."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent


def run(script, *arguments, ranks=2):
    command = [sys.executable, "-m", "tessera", "launch", "-n", str(ranks), "--", sys.executable, str(script)]
    told = subprocess.run(
        command + [str(a) for a in arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100
    )
    return told.returncode, told.stdout


def run_without_launcher(script, *arguments):
    """The output of two ranks, started as by torchrun: `tessera launch` ends the others when one has ended."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(2):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TESSERA_JOB_TOKEN="a test's")  # fmt: skip
        command = [sys.executable, str(script), *[str(a) for a in arguments]]
        ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        return [rank.communicate(timeout=100)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()


def test_the_example_learns(tmp_path):
    status, text = run(HERE.parent / "examples" / "train_tables.py", tmp_path / "saved")
    assert status == 0, text
    losses = [float(line.split("loss ")[1]) for line in text.splitlines() if "loss" in line]
    assert len(losses) == 3 and losses[0] < 0.72 and losses[2] < 0.4, text
    assert (tmp_path / "saved" / "save-1" / "checkpoint.json").exists()


def test_ranks_do_not_change_the_numbers(tmp_path):
    for ranks in (1, 2):
        status, text = run(HERE / "rank.py", "train", tmp_path, ranks=ranks)
        assert status == 0, text
    for cut in ("rows", "columns"):
        one, two = np.load(tmp_path / f"{cut}-1.npz"), np.load(tmp_path / f"{cut}-2.npz")
        for table in ("a", "b"):
            np.testing.assert_allclose(one[table], two[table], rtol=1e-5, atol=1e-6)
    status, text = run(HERE / "rank.py", "load", tmp_path)  # what one rank has saved, under another plan
    assert status == 0, text


@pytest.mark.parametrize("what", ["differ", "refused", "plans", "exchange"])
def test_what_all_ranks_see(what, tmp_path):
    status, text = run(HERE / "rank.py", what, tmp_path)
    assert status == 0 and text.count("done, rank") == 2, text


def test_a_killed_rank_is_named(tmp_path):
    told, _ = run_without_launcher(HERE / "rank.py", "killed", tmp_path)
    assert "told: " in told and "rank 1" in told.split("told: ")[1], told


def test_ctrl_c_ends_a_collective_on_all_ranks(tmp_path):
    first, second = run_without_launcher(HERE / "rank.py", "interrupted", tmp_path)
    assert "interrupted, rank 0" in first, first
    assert "told: " in second and "Ctrl-C" in second.split("told: ")[1], second
