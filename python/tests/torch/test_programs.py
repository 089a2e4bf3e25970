"""Programs for TorchRec, run with its import changed, tell the numbers that they tell with TorchRec."""

import json
import math

import pytest

torch = pytest.importorskip("torch")

import tessera.torch  # noqa: E402, F401
from program import text_of  # noqa: E402
from test_torch import run_ranks  # noqa: E402

PROGRAMS = {  # and the ranks that TorchRec's planner takes for them
    "quickstart": 1, "inference": 1, "tutorial_introduction": 1, "dlrm_main": 2, "two_tower": 2, "checkpoint": 2,
    "bert4rec": 2, "golden_training": 2, "transfer_learning": 2, "tutorial_sharding": 2,
}  # fmt: skip


def numbers(told):
    """The numbers that a program has told, line by line."""
    return [json.loads(line[6:]) for line in told.splitlines() if line.startswith("told: ")]


def same(a, b):
    """Equal, but for the last digits of numbers."""
    if isinstance(a, float) or isinstance(b, float):
        both = isinstance(a, (int, float)) and isinstance(b, (int, float))
        return both and math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_with_its_import_changed(name):
    pytest.importorskip("torchrec")
    theirs, ours = text_of("torchrec", name).splitlines(), text_of("tessera", name).splitlines()
    changed = [line for line, other in zip(theirs, ours) if line != other]
    assert changed and all(line.startswith(("import torchrec", "from torchrec")) for line in changed)
    ranks = PROGRAMS[name]
    told = [numbers(run_ranks("program.py", library, name, ranks=ranks, timeout=300, ends=[0] * ranks))
            for library in ("torchrec", "tessera")]  # fmt: skip
    assert len(told[0]) == len(told[1]) and told[0]
    for theirs, ours in zip(*told):
        assert same(theirs, ours), (theirs, ours)


def test_everyday_programs_on_one_rank():
    pytest.importorskip("torchrec")
    from everyday import OTHERWISE, PROGRAMS as small

    told = [{name: out for one in numbers(run_ranks("everyday.py", library, ranks=1, timeout=600, ends=[0]))
             for name, out in one.items()} for library in ("torchrec", "tessera")]  # fmt: skip
    assert set(told[0]) == set(told[1]) == set(small)
    unlike = {name: (out, told[1][name]) for name, out in told[0].items() if not same(out, told[1][name])}
    assert set(unlike) <= set(OTHERWISE), {name: unlike[name] for name in set(unlike) - set(OTHERWISE)}


def test_everyday_programs_on_two_ranks():
    pytest.importorskip("torchrec")
    from everyday_ranks import OTHERWISE, PROGRAMS as small

    told = [{name: out for one in numbers(run_ranks("everyday_ranks.py", library, timeout=600)) for name, out in
             one.items()} for library in ("torchrec", "tessera")]  # fmt: skip
    assert set(told[0]) == set(told[1]) == set(small)
    for name, reason in OTHERWISE.items():
        assert not same(told[0][name], told[1][name]), reason
        assert told[1][name][0] not in (False, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"), told[1][name]
    unlike = {name: (out, told[1][name]) for name, out in told[0].items() if not same(out, told[1][name])}
    assert set(unlike) <= set(OTHERWISE), {name: unlike[name] for name in set(unlike) - set(OTHERWISE)}


def test_everyday_programs_on_two_ranks_without_torchrec():
    from everyday_ranks import OTHERWISE

    names = [*OTHERWISE, "combined_state", "unused_layer", "freeze_dense_by_name"]
    found = numbers(run_ranks("everyday_ranks.py", "tessera", *names))
    told = {name: out for one in found for name, out in one.items()}
    assert all(isinstance(out[0] if name in OTHERWISE else out, (list, dict, bool)) for name, out in told.items()), told
    assert told["freeze_and_unfreeze"][0] and told["frozen_from_the_start"][0] and told["another_head"][0]
    assert told["vectors"][0] and same(*told["combined_state"])
