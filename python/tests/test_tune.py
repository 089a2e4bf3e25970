"""``tessera tune``: ranges, metrics, and a search with Optuna where it is installed."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).parents[1] / "src/tessera/_tune.py"


def load():
    spec = importlib.util.spec_from_file_location("tune", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Trial:
    """Records what is asked for, and suggests the lower end."""

    def __init__(self):
        self.asked = []

    def suggest_float(self, key, low, high, log):
        self.asked.append((key, low, high, log))
        return low

    suggest_int = suggest_float

    def suggest_categorical(self, key, choices):
        self.asked.append((key, choices))
        return choices[-1]


@pytest.mark.parametrize(
    "text, asked, value",
    [
        ("a.b=log:1e-4..1e-1", ("a.b", 1e-4, 1e-1, True), "0.0001"),
        ("a.b=0..0.5", ("a.b", 0.0, 0.5, False), "0.0"),
        ("a.b=-2..-1", ("a.b", -2.0, -1.0, False), "-2.0"),
        ("n=int:8..128", ("n", 8, 128, False), "8"),
        ("n=int:log:8..128", ("n", 8, 128, True), "8"),
        ("c=[16]|[32,16]", ("c", ["[16]", "[32,16]"]), "[32,16]"),
    ],
)
def test_space(text, asked, value):
    trial = Trial()
    assert load().Space(text).of(trial) == value
    assert trial.asked == [asked]


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("a.b", "it takes KEY=VALUES"),
        ("=1..2", "it takes KEY=VALUES"),
        ("a=1", "LOW..HIGH"),
        ("a=2..1", "less than the second"),
        ("a=0..inf", "both finite"),
        ("a=log:0..1", "above 0"),
        ("a=int:1.5..2", "LOW..HIGH"),
        ("a=x|x", "must differ"),
        ("a=x|", "none may be empty"),
    ],
)
def test_wrong_spaces(text, sentence):
    tune = load()
    with pytest.raises(tune.Wrong, match=sentence):
        tune.Space(text)


def test_directions():
    tune = load()
    assert [tune.larger_is_better(m) for m in ("auc", "click.auc?bins=9", "rank.hit_rate@10", "stars.rmse", "ne")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert tune.larger_is_better("kind.multiclass_accuracy?k=2") and tune.larger_is_better("macro_auc")
    assert not tune.larger_is_better("multiclass_logloss")
    with pytest.raises(tune.Wrong, match="calibration"):
        tune.larger_is_better("calibration")


def test_validations_as_they_come(tmp_path):
    tune = load()
    file = tmp_path / "m.jsonl"
    lines = tune.Validations(str(file))
    assert lines.new() == []
    validation = json.dumps({"step": 3, "validation": {"samples": 9, "auc": 0.5}})
    file.write_text(json.dumps({"step": 1, "loss": 2}) + "\n" + validation + "\n" + validation[:9])
    assert lines.new() == [{"auc": 0.5}]
    assert lines.new() == []
    file.write_text(file.read_text() + validation[9:] + "\n")
    assert lines.new() == [{"auc": 0.5}]


JOB = """
[model]
embedding_dim = 4
bottom_mlp = [8, 4]
top_mlp = [8, 1]
[data]
reader = "synthetic"
samples = 2000
columns = 2
rows = [50]
dense = 3
batch = 64
[validation]
fraction = 0.1
every_steps = 10
"""


def tuned(job, *more):
    from tessera._library import home

    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parents[1])}
    command = [sys.executable, str(SOURCE), os.path.join(home(), "bin", "tessera")]
    run = "import runpy, sys; sys.exit(runpy.run_path(sys.argv[1])['main'](['--program', *sys.argv[2:]]))"
    return subprocess.run(
        [sys.executable, "-c", run, *command[1:], *more, str(job)], capture_output=True, text=True, env=environment
    )


def test_search_goes_on_and_refuses(tmp_path):
    pytest.importorskip("optuna")
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    page = tmp_path / "page.html"
    first = tuned(job, "--trials", "2", "--html", str(page))
    assert first.returncode == 0, first.stderr
    assert "trial 1: auc 0." in first.stdout and "best: auc 0." in first.stdout
    assert "--set dense_optimizer.learning_rate=" in first.stdout
    data = json.loads(page.read_text().split('id="data">')[1].split("</script>")[0])
    charts = [part["chart"] for part in data["parts"] if "chart" in part]
    assert [chart["x"].rsplit(".", 1)[-1] for chart in charts] == ["trial", "learning_rate", "learning_rate"]
    assert [len(chart["series"][0]["points"]) for chart in charts] == [2, 2, 2]
    assert len(data["parts"][-1]["table"]) == 2 and "auc" in data["parts"][-1]["table"][0]
    again = tuned(job, "--trials", "3")
    assert "has 2 trials of this job; 1 are left" in again.stdout and "trial 3: auc" in again.stdout
    lines = (first.stdout + again.stdout).splitlines()
    rates = [line.split("auc")[1].split()[1:] for line in lines if line.startswith("trial ")]
    assert len({str(one) for one in rates}) == 3, "no trial is drawn twice"
    assert "Warning" not in first.stderr
    other = tuned(job, "--trials", "3", "--space", "data.batch=32|64")
    assert other.returncode == 2 and "trials of another job, space or metric" in other.stderr
    without = tuned(job, "--trials", "1", "--storage", str(tmp_path / "s"), "--set", "validation.fraction=0")
    assert without.returncode == 2 and "the job has no validation" in without.stderr
    wrong = tuned(job, "--trials", "1", "--storage", str(tmp_path / "t"), "--space", "model.nope=1..2")
    assert wrong.returncode == 2 and 'unknown key "nope"' in wrong.stderr


@pytest.mark.parametrize(
    "option, file, sentence",
    [
        ("--storage", "no/trials", "there is no directory .*no$"),
        ("--storage", "notes.txt", "notes.txt: this is no file of trials"),
        ("--storage", "", "this is a directory, not a file"),
        ("--html", "no/page.html", "there is no directory .*no$"),
    ],
)
def test_files_are_checked_before_a_trial(tmp_path, option, file, sentence):
    pytest.importorskip("optuna")
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    (tmp_path / "notes.txt").write_text("hello\n")
    done = tuned(job, "--trials", "1", option, str(tmp_path / file))
    assert done.returncode == 2 and "Traceback" not in done.stderr and "trial 1" not in done.stdout
    assert re.search(sentence, done.stderr.strip()), done.stderr
    assert (tmp_path / "notes.txt").read_text() == "hello\n"


def test_a_search_without_trials_does_not_fix_the_direction(tmp_path):
    pytest.importorskip("optuna")
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    space = ["--space", "dense_optimizer.learning_rate=log:1e-7..1e-2"]
    wrong = tuned(job, "--trials", "1", "--metric", "nope.auc", *space)
    assert wrong.returncode == 2 and "the validations have auc" in wrong.stderr
    done = tuned(job, "--trials", "3", "--metric", "logloss", *space)
    assert done.returncode == 0, done.stderr
    scores = [float(line.split("logloss")[1].split()[0].strip(",")) for line in done.stdout.splitlines() if
              line.startswith("trial ")]  # fmt: skip
    assert f"best: logloss {min(scores):.5f}" in done.stdout
