"""Trains a job, and writes the lines of a log that MLPerf's training rules ask for (``:::MLLOG ...``).

    python mllog.py JOB LOG [TARGET] [KEY=VALUE ...]

The run is a success if a validation reaches TARGET in ``validation.monitor``, which ends it; without TARGET, if it
comes to its end. The time between two validations is a block, with the validation in it. Needs ``pip install
mlperf-logging``, whose ``python -m mlperf_logging.compliance_checker --ruleset 6.1.0 LOG`` names what a submission
still lacks. KEY=VALUE adds a key that no setting of the job has, ``submission_org=us`` or ``max_sequence_length=64``,
or replaces one.
"""

import json
import sys
import tomllib

import tessera
from mlperf_logging import mllog

PRECISIONS = {"float32": "fp32", "bfloat16": "bfloat16"}


def settings_of(job, report, config):
    """The keys of MLPerf's rules that a job's settings have: those of its report, and of the config in it."""
    dense, tables = config["dense_optimizer"], config["table_defaults"]["optimizer"]
    precision = PRECISIONS[report["dense_precision"]]
    return {
        "submission_benchmark": "dlrmv4",
        "submission_division": "open",
        "submission_status": "onprem",
        "config_filename": job,
        "tensor_parallelism": 1,
        "pipeline_parallelism": 1,
        "context_parallelism": 1,
        "expert_parallelism": 1,
        "micro_batch_size": config["data"]["batch"] // report["world_size"],
        mllog.constants.SEED: config["job"]["seed"],
        mllog.constants.GLOBAL_BATCH_SIZE: config["data"]["batch"] * config["job"]["accumulate"],
        mllog.constants.GRADIENT_ACCUMULATION_STEPS: config["job"]["accumulate"],
        mllog.constants.TRAIN_SAMPLES: report["data"]["train_rows"],
        mllog.constants.EVAL_SAMPLES: report["test"]["samples"],
        mllog.constants.OPT_NAME: dense["name"],
        mllog.constants.OPT_BASE_LR: dense["learning_rate"],
        mllog.constants.OPT_ADAM_BETA_1: dense["beta1"],
        mllog.constants.OPT_ADAM_BETA_2: dense["beta2"],
        mllog.constants.OPT_ADAM_EPSILON: dense["eps"],
        mllog.constants.OPT_WEIGHT_DECAY: dense["weight_decay"],
        mllog.constants.OPT_GRADIENT_CLIP_NORM: dense["max_gradient_norm"],
        mllog.constants.OPT_SPARSE_NAME: tables["name"],
        mllog.constants.OPT_SPARSE_BASE_LR: tables["learning_rate"],
        mllog.constants.LOWEST_NUMERICAL_PRECISION_IN_LINEAR: precision,
        mllog.constants.LOWEST_NUMERICAL_PRECISION_IN_ATTN: precision,
    }


def main(job, file, target, given):
    mllog.config(filename=file)
    log = mllog.get_mllogger()
    log.event("cache_clear", value=True)
    log.start("init_start")
    report = tessera.train(job, max_steps=0)  # which evaluates the new model
    config = tomllib.loads(report["config"])
    if not config["validation"]["fraction"]:
        sys.exit("%s has no validation, which MLPerf's rules need: set validation.fraction" % job)
    for key, value in {**settings_of(job, report, config), **given}.items():
        log.event(key, value)
    log.end("init_stop")

    monitor = config["validation"]["monitor"]
    reached = target is None

    def watch(event):
        nonlocal reached
        if "validation" not in event:
            return False
        seen = {"samples_count": event["step"] * config["data"]["batch"]}
        metrics = {name: value for name, value in event["validation"].items() if name != "samples"}
        accuracy = metrics[monitor] if monitor else next(iter(metrics.values()))
        log.event("eval_accuracy", accuracy, seen)
        log.end("block_stop", metadata=seen)
        reached = reached or accuracy >= target
        if target is not None and reached:
            return True
        log.start("block_start", metadata=seen)
        return False

    log.start("run_start")
    log.start("block_start", metadata={"samples_count": 0})
    tessera.train(job, watch=watch)
    log.end("run_stop", metadata={"status": "success" if reached else "aborted"})


def value_of(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if "=" not in word]
    if len(words) not in (2, 3):
        sys.exit(__doc__)
    pairs = (word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    main(words[0], words[1], float(words[2]) if len(words) == 3 else None, {k: value_of(v) for k, v in pairs})
