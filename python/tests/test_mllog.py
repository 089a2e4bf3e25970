"""The example that writes MLPerf's log: mlperf_logging's own checker lacks only what a small job cannot have."""

import json
import pathlib
import subprocess
import sys

import pytest
import test_trackers

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "mllog.py"
JOB = test_trackers.JOB + "[job]\nseed = 3\n"


def events_of(log):
    prefix = ":::MLLOG "
    return [json.loads(line[len(prefix) :]) for line in log.read_text().splitlines() if line.startswith(prefix)]


def run(folder, *target, job=JOB):
    (folder / "job.toml").write_text(job)
    command = [sys.executable, EXAMPLE, "job.toml", "log.txt", *target]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    return done, events_of(folder / "log.txt")


def test_the_log_has_the_run(tmp_path):
    pytest.importorskip("mlperf_logging")
    done, events = run(tmp_path)
    assert done.returncode == 0, done.stderr
    values = {event["key"]: event["value"] for event in events}
    assert (values["seed"], values["global_batch_size"], values["train_samples"]) == (3, 32, 507)
    counts = [event["metadata"]["samples_count"] for event in events if event["key"] == "eval_accuracy"]
    assert counts == [160, 320, 480, 512]
    keys = [event["key"] for event in events]
    assert keys.index("init_stop") < keys.index("run_start") < keys.index("eval_accuracy") < keys.index("run_stop")
    assert events[-1]["metadata"]["status"] == "success"


def test_a_target_ends_the_run(tmp_path):
    pytest.importorskip("mlperf_logging")
    _, events = run(tmp_path, "0.01")
    assert sum(event["key"] == "eval_accuracy" for event in events) == 1
    assert events[-1]["metadata"]["status"] == "success"
    (tmp_path / "log.txt").unlink()
    _, events = run(tmp_path, "1.01")
    assert events[-1]["metadata"]["status"] == "aborted"


def test_the_checker_misses_only_what_a_small_job_cannot_have(tmp_path):
    pytest.importorskip("mlperf_logging")
    pytest.importorskip("yaml")
    given = ["submission_org=us", "submission_platform=here", "max_sequence_length=64", "eval_every_data_pct=0.3"]
    given += ["opt_learning_rate_warmup_steps=0", "opt_learning_rate_warmup_start_lr=0"]
    run(tmp_path, *given, "lowest_numerical_precision_in_comm=fp32")
    checker = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--ruleset", "6.1.0", "log.txt"]
    done = subprocess.run(checker, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    wrong = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("CHECK for", "Required"))]
    keys = {line.split("'")[1] for line in wrong}
    rates = {"opt_base_learning_rate", "opt_sparse_base_learning_rate"}
    assert keys <= {"train_samples", "eval_samples", "eval_accuracy", *rates}, wrong
    assert "eval_samples" in keys


def test_a_job_without_validation_is_refused(tmp_path):
    pytest.importorskip("mlperf_logging")
    done, _ = run(tmp_path, job=JOB.replace("fraction = 0.2", "fraction = 0"))
    assert done.returncode == 1
    assert "has no validation" in done.stderr
