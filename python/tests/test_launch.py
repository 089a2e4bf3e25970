"""tessera.launch: functions on ranks, from a program or a notebook."""

import importlib.util
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import tessera


def total(start):
    group = tessera.ProcessGroup(timeout_s=20)
    values = np.array([start + group.rank])
    group.all_reduce(values)
    print("here is rank", group.rank)
    group.barrier()
    return int(values[0]), group.rank


def fails(where):
    if int(os.environ["RANK"]) == where:
        raise LookupError("no such film")
    time.sleep(60)


def ends(status):
    os._exit(status)


def sleeps():
    time.sleep(60)


def test_every_ranks_result_comes_back(capfd):
    assert tessera.launch(total, 2, 10) == [(21, 0), (21, 1)]
    printed = capfd.readouterr().out
    assert "here is rank 0" in printed and "here is rank 1" in printed


def test_a_failure_is_told_and_ends_the_others(monkeypatch):
    monkeypatch.setattr("tessera._launch._GRACE_S", 0.1)
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="(?s)rank 1 failed:.*no such film"):
        tessera.launch(fails, 2, 1)
    assert time.monotonic() - begin < 30
    with pytest.raises(RuntimeError, match="rank 0 ended with status 3"):
        tessera.launch(ends, 1, 3)


def test_it_does_not_wait_for_ever():
    with pytest.raises(TimeoutError, match="still running: 0"):
        tessera.launch(sleeps, 1, timeout_s=0.5)
    with pytest.raises(ValueError, match="at least 1"):
        tessera.launch(sleeps, 0)


PROGRAM = """
import tessera

def rank(): return tessera.ProcessGroup().rank

if __name__ == "__main__":
    factor = 7
    print(tessera.launch(rank, 2), tessera.launch(lambda: factor * tessera.ProcessGroup().world_size, 2))
"""


def test_functions_of_the_program_itself(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    told = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=100)
    if importlib.util.find_spec("cloudpickle"):
        assert told.returncode == 0 and "[0, 1] [14, 14]" in told.stdout, told.stderr
    else:
        assert told.returncode == 1 and "pip install cloudpickle" in told.stderr, told.stderr
