"""Sends the progress and the validations of a training to MLflow or to Weights & Biases, without a network.

    python trackers.py mlflow|wandb JOB [FOLDER]

``mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db`` then shows the runs; ``wandb sync
FOLDER/wandb/offline-run-*`` sends them. Needs ``pip install mlflow`` or ``pip install wandb``. Without FOLDER the files
are in the current one.
"""

import pathlib
import sys

import tessera


def values_of(event):
    """The numbers of an event of ``watch``, by names that trackers group: ``train/loss``, ``validation/auc``."""
    if "validation" in event:
        return {"validation/" + name: value for name, value in event["validation"].items() if value is not None}
    return {"train/" + name: event[name] for name in ("epoch", "samples", "loss")}


def train_with_mlflow(job, folder):
    import mlflow

    mlflow.set_tracking_uri("sqlite:///%s" % (folder.absolute() / "mlflow.db"))
    if mlflow.get_experiment_by_name("tessera") is None:
        mlflow.create_experiment("tessera", artifact_location=(folder.absolute() / "mlflow").as_uri())
    mlflow.set_experiment("tessera")
    with mlflow.start_run():
        mlflow.log_artifact(job)
        report = tessera.train(job, watch=lambda event: mlflow.log_metrics(values_of(event), step=event["step"]))
        mlflow.log_metrics({"test/" + name: value for name, value in report["test"].items() if value is not None})
    return report


def train_with_wandb(job, folder):
    import wandb

    with wandb.init(project="tessera", mode="offline", dir=folder) as run:
        run.save(job)
        report = tessera.train(job, watch=lambda event: run.log(values_of(event), step=event["step"]))
        run.summary.update({"test/" + name: value for name, value in report["test"].items()})
    return report


if __name__ == "__main__":
    kinds = {"mlflow": train_with_mlflow, "wandb": train_with_wandb}
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    kinds[sys.argv[1]](sys.argv[2], pathlib.Path(sys.argv[3] if len(sys.argv) == 4 else "."))
