"""60 models as TorchRec 1.9.2 has them: outputs and updated rows, for row-wise, table-wise and column-wise plans."""

import recorded

import tessera


def test_as_torchrec_on_one_rank():
    assert recorded.check_all() == 30


def test_as_torchrec_on_two_ranks():
    assert tessera.launch(recorded.check_all, 2) == [30, 30]
    kinds = [(case["kind"], case["weighted"], case["variable"]) for case in recorded.cases(2)]
    assert {("bags", True, False), ("bags", False, True), ("sequences", False, False)} <= set(kinds)
