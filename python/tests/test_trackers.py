"""The example that sends progress to MLflow and to Weights & Biases: both keep what the report says."""

import json
import pathlib
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "trackers.py"
JOB = """
[model]
embedding_dim = 4
bottom_mlp = [8, 4]
top_mlp = [8, 1]
[data]
reader = "synthetic"
columns = 3
rows = [100, 50, 20]
dense = 4
samples = 640
test_samples = 128
batch = 32
[validation]
every_steps = 5
fraction = 0.2
[report]
log_every = 5
metrics = "metrics.jsonl"
"""


def train(tracker, folder):
    (folder / "job.toml").write_text(JOB)
    subprocess.run([sys.executable, EXAMPLE, tracker, "job.toml", folder], cwd=folder, check=True, timeout=300)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_mlflow_keeps_each_value(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    lines = train("mlflow", tmp_path)
    mlflow.set_tracking_uri("sqlite:///%s" % (tmp_path / "mlflow.db"))
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("tessera").experiment_id])
    losses = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "train/loss")]
    assert losses == [(line["step"], line["loss"]) for line in lines if "loss" in line]
    aucs = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "validation/auc")]
    assert aucs == [(line["step"], line["validation"]["auc"]) for line in lines if "validation" in line]
    assert "test/auc" in run.data.metrics
    assert [f.path for f in client.list_artifacts(run.info.run_id)] == ["job.toml"]


def test_wandb_keeps_an_offline_run(tmp_path):
    pytest.importorskip("wandb")
    train("wandb", tmp_path)
    (run,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    kept = run.read_bytes()
    assert b"train/loss" in kept and b"validation/auc" in kept and b"test/auc" in kept
