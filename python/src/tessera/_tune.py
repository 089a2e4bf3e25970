"""``tessera tune``: searches settings of a job with Optuna, by the job's validations. It never reads the test part."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import runpy
import subprocess
import sys
import tempfile
import threading
import warnings
from typing import Any, Dict, List, Optional

OF_CLASSES = (
    "multiclass_accuracy", "multiclass_recall", "macro_precision", "macro_recall", "macro_f1", "macro_auc",
)  # fmt: skip
LARGER_IS_BETTER = (
    "auc", "gauc", "accuracy", "precision", "recall", "ndcg", "hit_rate", "recall_at_k", "mrr", *OF_CLASSES,
)  # fmt: skip
SMALLER_IS_BETTER = (
    "logloss", "normalized_entropy", "ne", "mse", "rmse", "mae",
    "multiclass_logloss", "multiclass_normalized_entropy",
)  # fmt: skip
DEFAULT_SPACES = (
    "table_defaults.optimizer.learning_rate=log:0.001..0.2",
    "dense_optimizer.learning_rate=log:0.0001..0.02",
)
WAIT_S = 0.2  # time between two looks at a trial's metrics


class Wrong(Exception):
    """Raised, with one sentence, if the command was used wrongly."""


class Space:
    """The values of one key: ``log:1e-4..1e-1``, ``0..0.5``, ``int:8..128``, ``int:log:8..128`` or ``a|b|c``."""

    def __init__(self, text: str) -> None:
        self.key, equals, values = text.partition("=")
        if not equals or not self.key or not values:
            raise Wrong(f'--space {text}: it takes KEY=VALUES, such as "dense_optimizer.learning_rate=log:1e-4..1e-2"')
        self.choices = values.split("|") if "|" in values else None
        if self.choices:
            if "" in self.choices or len(set(self.choices)) < len(self.choices):
                raise Wrong(f"--space {text}: the choices must differ, and none may be empty")
            return
        self.whole = values.startswith("int:")
        values = values[4:] if self.whole else values
        self.log = values.startswith("log:")
        low, dots, high = (values[4:] if self.log else values).partition("..")
        try:
            number = int if self.whole else float
            self.low, self.high = number(low), number(high)
        except ValueError:
            raise Wrong(f"--space {text}: it takes LOW..HIGH, log:LOW..HIGH, int:LOW..HIGH or A|B|C") from None
        if not dots or not -math.inf < self.low < self.high < math.inf:
            raise Wrong(f"--space {text}: the first number must be less than the second, and both finite")
        if self.log and self.low <= 0:
            raise Wrong(f"--space {text}: a logarithmic range must begin above 0")

    def of(self, trial: Any) -> str:
        """Returns a trial's value, in the form that ``--set`` takes."""
        if self.choices:
            return trial.suggest_categorical(self.key, self.choices)
        if self.whole:
            return str(trial.suggest_int(self.key, self.low, self.high, log=self.log))
        return repr(trial.suggest_float(self.key, self.low, self.high, log=self.log))


def metric_kind(name: str) -> str:
    """Returns the kind of a metric: ``hit_rate`` for ``rank.hit_rate@10``."""
    return re.sub(r"[?@].*", "", name.rsplit(".", 1)[-1])


def larger_is_better(name: str) -> bool:
    """True if larger values of the metric are better. Raises ``Wrong`` if its direction is not known."""
    kind = metric_kind(name)
    if kind not in LARGER_IS_BETTER + SMALLER_IS_BETTER:
        raise Wrong(f"--metric {name}: only {', '.join(LARGER_IS_BETTER + SMALLER_IS_BETTER)} can be tuned for")
    return kind in LARGER_IS_BETTER


class Validations:
    """Reads the validations from a run's ``report.metrics`` file while the run writes it."""

    def __init__(self, path: str) -> None:
        self._path, self._at = path, 0

    def new(self) -> List[Dict[str, float]]:
        """Returns the metrics of validations since the last call."""
        out = []
        try:
            with open(self._path, encoding="utf-8") as file:
                file.seek(self._at)
                for line in iter(file.readline, ""):
                    if not line.endswith("\n"):
                        break
                    self._at = file.tell()
                    values = json.loads(line).get("validation")
                    if values:
                        out.append({name: value for name, value in values.items() if name != "samples"})
        except FileNotFoundError:
            pass
        return out


class Tuning:
    """A search: its spaces, its study, and the runs of its trials."""

    def __init__(self, options: argparse.Namespace, optuna: Any) -> None:
        self._options, self._optuna = options, optuna
        self._spaces = [Space(text) for text in options.space or DEFAULT_SPACES]
        keys = [space.key for space in self._spaces]
        for key in keys:
            if keys.count(key) > 1:
                raise Wrong(f"--space names {key} twice")
        fixed = [change.split("=")[0] for change in options.set]
        for key in keys:
            if key in fixed:
                raise Wrong(f"{key} is in --space and in --set: leave it out of one of them")
        self._lock = threading.Lock()
        self._running: List[subprocess.Popen] = []
        self.metric: Optional[str] = options.metric
        self.study: Any = None

    def _fingerprint(self) -> str:
        with open(self._options.job, "rb") as file:
            job = file.read()
        words = [job.hex(), self._options.metric or "", self._options.model, *sorted(self._options.set)]
        words += sorted(self._options.space or DEFAULT_SPACES)
        return hashlib.sha256("\0".join(words).encode()).hexdigest()

    def open(self) -> None:
        """Opens or begins the study. Raises ``Wrong`` if the file has trials of another job."""
        optuna, options = self._optuna, self._options
        try:
            journal = optuna.storages.journal.JournalFileBackend
        except AttributeError:  # before Optuna 4
            journal = optuna.storages.JournalFileStorage
        storage = optuna.storages.JournalStorage(journal(options.storage))
        self.study = self._begin(storage)
        if not finished(self.study):  # without a finished trial, the study starts anew, perhaps with another metric
            optuna.delete_study(study_name="tessera", storage=storage)
            self.study = self._begin(storage)
        # A continued search must not draw the same settings again.
        self.study.sampler = optuna.samplers.TPESampler(seed=options.seed + len(self.study.trials))
        fingerprint = self._fingerprint()
        before = self.study.user_attrs.get("fingerprint")
        if before is None:
            self.study.set_user_attr("fingerprint", fingerprint)
        elif before != fingerprint:
            raise Wrong(
                f"{options.storage} has trials of another job, space or metric: name another file with --storage, or "
                "remove it"
            )

    def _begin(self, storage: Any) -> Any:
        """Returns the study in this storage, or a new one."""
        pruner = self._optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2)
        maximize = larger_is_better(self.metric) if self.metric else True
        return self._optuna.create_study(
            storage=storage, study_name="tessera", load_if_exists=True, pruner=pruner,
            direction="maximize" if maximize else "minimize",
        )  # fmt: skip

    def _command(self, changes: Dict[str, str], metrics: str) -> List[str]:
        command = [self._options.program, "train", "--config", self._options.job]
        for change in self._options.set:
            command += ["--set", change]
        for key, value in changes.items():
            command += ["--set", f"{key}={value}"]
        if self._options.model:
            command += ["--model", self._options.model]
        return command + ["--set", f"report.metrics={metrics}"]

    def _score(self, values: Dict[str, float]) -> float:
        if self.metric is None:
            with self._lock:
                self.metric = self.metric or next(iter(values))
            if not larger_is_better(self.metric):
                raise Wrong(f"the first metric of a validation is {self.metric}: name it with --metric {self.metric}")
        if self.metric not in values:
            raise Wrong(f"--metric {self.metric}: the validations have {', '.join(values)}")
        return values[self.metric]

    def run(self, trial: Any) -> float:
        """Trains with a trial's settings, and returns its best validation."""
        changes = {space.key: space.of(trial) for space in self._spaces}
        best: Optional[float] = None
        with tempfile.TemporaryDirectory() as folder:
            metrics = os.path.join(folder, "metrics.jsonl")
            with open(os.path.join(folder, "output"), "w+", encoding="utf-8", errors="replace") as said:
                process = subprocess.Popen(
                    self._command(changes, metrics), stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
                )
                with self._lock:
                    self._running.append(process)
                try:
                    best = self._watch(trial, process, Validations(metrics))
                finally:
                    if process.poll() is None:
                        process.terminate()
                        process.wait()
                    with self._lock:
                        self._running.remove(process)
                if process.returncode != 0:
                    said.seek(0)
                    lines = [line for line in said.read().splitlines() if line.startswith("tessera")] or ["no sentence"]
                    raise Wrong(f"a trial ended with status {process.returncode}: {lines[-1]}")
        if best is None:
            raise Wrong("the job has no validation, by which tune chooses: set validation.fraction=0.1")
        self._say(trial, changes, best)
        return best

    def _watch(self, trial: Any, process: subprocess.Popen, validations: Validations) -> Optional[float]:
        best, step = None, 0
        while True:
            ended = process.poll() is not None
            for values in validations.new():
                score = self._score(values)
                larger = larger_is_better(self.metric or "")
                if score == score:
                    best = score if best is None else max(best, score) if larger else min(best, score)
                    trial.report(best, step)
                step += 1
            if ended:
                return best
            if step and trial.should_prune():
                process.terminate()
                process.wait()
                print(f"trial {trial.number + 1}: {self.metric} {best:.5f}, ended early", flush=True)
                raise self._optuna.TrialPruned()
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                pass

    def _say(self, trial: Any, changes: Dict[str, str], score: float) -> None:
        words = " ".join(f"{key.rsplit('.', 2)[-2]}.{key.rsplit('.', 1)[-1]}={value[:8]}" if "." in key else
                         f"{key}={value[:8]}" for key, value in changes.items())  # fmt: skip
        print(f"trial {trial.number + 1}: {self.metric} {score:.5f}  {words}", flush=True)

    def end(self) -> None:
        """Ends the runs that are still going, after an interruption."""
        with self._lock:
            for process in self._running:
                process.terminate()


def finished(study: Any) -> List[Any]:
    """Returns the trials that ended, including those that ended early."""
    return [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]


def dots(trials: List[Any], x: str, values: List[float], metric: str, log: bool) -> Dict[str, Any]:
    """Returns a chart of scores over the trials or over a parameter, with a point for each trial."""
    series = []
    for name, state in (("finished", "COMPLETE"), ("ended early", "PRUNED")):
        own = [(value, t) for value, t in zip(values, trials) if t.state.name == state]
        tips = [
            f"trial {t.number + 1}: {t.value:.5f}, " + ", ".join(f"{k} = {v}" for k, v in t.params.items())
            for _, t in own
        ]
        if own:
            points = [[value, t.value] for value, t in own]
            series.append({"name": name, "dots": True, "points": points, "tips": tips})
    return {"chart": {"kind": "lines", "title": f"{metric} over {x}", "x": x, "logX": log, "series": series}}


def page_parts(study: Any, metric: str, spaces: List[Space]) -> List[Dict[str, Any]]:
    """Returns the trials as parts of a page."""
    trials = [t for t in finished(study) if t.value is not None and math.isfinite(t.value)]
    best = sorted(trials, key=lambda t: t.value, reverse=larger_is_better(metric))
    facts = [[f"best {metric}, in trial {t.number + 1}", t.value] for t in best[:1]]
    charts = [dots(trials, "trial", [t.number + 1 for t in trials], metric, False)]
    charts += [
        dots(trials, s.key, [t.params[s.key] for t in trials], metric, s.log) for s in spaces if s.choices is None
    ]
    rows = [{"trial": t.number + 1, metric: t.value, "end": t.state.name.lower(), **t.params} for t in best]
    return [
        {"facts": [*facts, ["trials", len(trials)]]},
        {"text": f"A point is a trial, its height the best {metric} of its validations."},
        *charts,
        {"heading": "Trials"},
        {"table": rows},
    ]


def check_files(options: argparse.Namespace) -> None:
    """Raises ``Wrong`` if a file of the command cannot be written, before the first trial."""
    for name in ("storage", "html"):
        path = getattr(options, name)
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise Wrong(f"--{name} {path}: there is no directory {folder}")
        if os.path.isdir(path):
            raise Wrong(f"--{name} {path}: this is a directory, not a file")
    if os.path.exists(options.storage):
        with open(options.storage, "rb") as file:  # Optuna would append to any file
            first = file.readline()
        if first and b'"op_code"' not in first:
            raise Wrong(f"--storage {options.storage}: this is no file of trials of tessera tune")


def page_text(options: argparse.Namespace, parts: List[Dict[str, Any]]) -> str:
    """Returns the page. Raises ``Wrong`` if the files for pages are not installed."""
    page = runpy.run_path(os.path.join(os.path.dirname(__file__), "_page.py"))["page"]
    text = page(os.path.dirname(os.path.dirname(options.program)), "tessera tune", parts)
    if text is None:
        raise Wrong("--html: this Tessera has no share/tessera/page.html, which pages are made from: install it again")
    return text


def parsed(words: List[str]) -> argparse.Namespace:
    """Parses the words of ``tessera tune``, which has checked the names of options."""
    parser = argparse.ArgumentParser(prog="tessera tune")
    parser.add_argument("--program", required=True)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    for name in ("metric", "storage", "html", "model"):
        parser.add_argument("--" + name, default="")
    parser.add_argument("--space", action="append", default=[])
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("job")
    options = parser.parse_args(words)
    options.metric = options.metric or None
    options.storage = options.storage or options.job + ".tune"
    return options


def tune(options: argparse.Namespace) -> int:
    """Searches, and prints the best settings. Returns the exit status."""
    try:
        import optuna
    except ImportError:
        raise Wrong("tune needs Optuna: pip install optuna, for the Python that python3 is") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    tuning = Tuning(options, optuna)
    check_files(options)
    if options.html:
        page_text(options, [])
    tuning.open()
    done = len(finished(tuning.study))
    if done:
        print(f"{options.storage} has {done} trials of this job; {max(options.trials - done, 0)} are left", flush=True)
    try:
        if options.trials > done:
            tuning.study.optimize(tuning.run, n_trials=options.trials - done, n_jobs=options.parallel)
    except KeyboardInterrupt:
        tuning.end()
        print(f"interrupted: the same command goes on with the trials in {options.storage}", file=sys.stderr)
        return 130
    trials = [trial for trial in finished(tuning.study) if trial.value is not None]
    if not trials:
        raise Wrong("no trial has finished")
    best = tuning.study.best_trial
    metric = tuning.metric or tuning.study.user_attrs.get("metric", "score")
    tuning.study.set_user_attr("metric", metric)
    if options.html:
        with open(options.html, "w", encoding="utf-8") as file:
            file.write(page_text(options, page_parts(tuning.study, metric, tuning._spaces)))
    print(f"best: {metric} {best.value:.5f}, in trial {best.number + 1} of {len(tuning.study.trials)}")
    print(f"  tessera train --config {options.job}" + "".join(f" --set {c}" for c in options.set), end="")
    for key, value in best.params.items():
        print(f" \\\n    --set {key}={value}", end="")
    print()
    return 0


def main(words: List[str]) -> int:
    """The entry that ``tessera tune`` starts. Returns the exit status."""
    try:
        return tune(parsed(words))
    except Wrong as error:
        print(f"tessera tune: {error}", file=sys.stderr)
        return 2
