"""Runs the trainer of ``tessera train`` on a program's own data."""

from __future__ import annotations

import ctypes as c
import json
import os
import re
import warnings
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Union

import numpy as np

from . import _check, _library as _l
from ._describe import Description
from ._pictures import Report
from ._readers import ReaderComponent
from ._runtime import ProcessGroup, Runtime

_DATA, _TEST = "data", "test"  # the paths under which the reader finds a program's own data
_Watch = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_char_p)


def to_toml(config: Mapping[str, Any]) -> str:
    """Writes a job as TOML: mappings become sections, lists of mappings become [[tables]], and None is left out."""
    lines: List[str] = []
    nested = {key: value for key, value in config.items() if isinstance(value, Mapping) or _is_sections(value)}
    lines += [f"{_key(k)} = {_toml(value, k)}" for k, value in config.items() if k not in nested and value is not None]
    for key, value in nested.items():
        for section in [value] if isinstance(value, Mapping) else value:
            lines.append(f"[{_key(key)}]" if isinstance(value, Mapping) else f"[[{_key(key)}]]")
            lines += [
                f"{_key(name)} = {_toml(inner, f'{key}.{name}')}"
                for name, inner in section.items()
                if inner is not None
            ]
    return "\n".join(lines) + "\n"


def _doubts(report: Mapping[str, Any]) -> List[str]:
    """Returns the warnings of ``tessera train`` about a doubtful test."""
    out = [
        f"test rows: {column}: {100 * count['unknown'] // count['ids']} % of the {count['ids']} ids were not in the "
        "vocabulary, so they all count as one: are these other data, or are they written in another way?"
        for column, count in report.get("unknown_ids", {}).items()
    ]
    test = report.get("test") or {}
    for name, value in test.items() if test.get("samples") else ():
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            if name.rsplit(".", 1)[-1] == "auc" and value is None:
                out.append(f"the test has no {name}: all its labels are the same")
            continue
        if name.rsplit(".", 1)[-1] == "auc" and value >= 0.9995:
            out.append(
                f"so high an {name} as {value:.4f} often means that a column tells the label: leave out what is known "
                "only after it"
            )
        if name.rsplit(".", 1)[-1] == "normalized_entropy" and value > 1:
            out.append(f"a test {name} above 1, {value:.3f}, means that the mean of the labels predicts better")
    return out


def _is_sections(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(v, Mapping) for v in value)


def _key(name: Any) -> str:
    if not isinstance(name, str):
        raise _l.InvalidArgument(f"a key of the config is {name!r}, but must be a text")
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(value: Any, name: str) -> str:
    if isinstance(value, Mapping):
        inner = [f"{_key(key)} = {_toml(one, f'{name}.{key}')}" for key, one in value.items() if one is not None]
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, (list, tuple, np.ndarray)):
        return "[" + ", ".join(_toml(one, name) for one in value) + "]"
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    if isinstance(value, (str, os.PathLike)):
        return _quoted(os.fspath(value))
    raise _l.InvalidArgument(
        f"{name} of the config is of type {type(value).__name__}: use texts, numbers, truth values, lists and "
        "mappings"
    )


class _Source:
    """A program's own data, by the paths that its reader gets. An iterator can be read only once, so its values are
    kept in case it is opened again."""

    def __init__(self, data: Any, test: Any) -> None:
        self._data = {_DATA: data, _TEST: test}

    def forget(self) -> None:
        self._data.clear()

    def __call__(self, path: str) -> Any:
        if path not in self._data:
            raise ValueError(f'data.test_path of the job is "{path}", but data is given: give test as well')
        data = self._data[path]
        if hasattr(data, "__next__"):
            data = self._data[path] = list(data)
        return data


def _config_text(config: Any) -> str:
    if isinstance(config, Description):
        return str(config)
    if isinstance(config, Mapping):
        return to_toml(config)
    if not isinstance(config, (str, os.PathLike)):
        raise _l.InvalidArgument(
            "config is the path of a TOML file, a mapping with its keys or what tessera.describe gives, not an object "
            f"of type {type(config).__name__}"
        )
    try:
        with open(config, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise _l.NotFound(f"there is no config {os.fspath(config)}") from None
    except IsADirectoryError:
        raise _l.InvalidArgument(f"config is the path of a TOML file, and {os.fspath(config)} is a directory") from None


def _directory(path: Any, name: str) -> Optional[bytes]:
    if path is None:
        return None
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise _l.InvalidArgument(f"{name} is the path of a directory, not {path!r}")
    return os.fspath(path).encode()


def _check_given(data: Any, test: Any, overrides: Any, watch: Any, group: Any) -> None:
    """Refuses arguments that are impossible or have no effect, before anything is read."""
    for given, name in ((data, "data"), (test, "test")):
        if isinstance(given, (str, bytes, os.PathLike)):
            raise _l.InvalidArgument(
                f"an object of type {type(given).__name__} is not data: {name} takes rows, such as a frame or a "
                'mapping of columns; for a file, set {"data": {"reader": "csv", "path": ...}} in the config'
            )
    if test is not None and test is data:
        raise _l.InvalidArgument("test is data itself: a test on rows of training praises the model for its memory")
    if test is not None and data is None:
        raise _l.InvalidArgument("test needs data: for a job's own data, set data.test_path")
    listed = hasattr(overrides, "__iter__") and not isinstance(overrides, (str, bytes, Mapping))
    if not listed or not all(isinstance(one, str) for one in overrides):
        raise _l.InvalidArgument('overrides is a list of texts, such as ["data.epochs=2"]')
    for one in overrides if data is not None else ():
        if re.match(r"\s*data\.(reader|path)\s*=", one):
            raise _l.InvalidArgument(f"the override {one} has no effect with data: leave one of the two out")
    if watch is not None and not callable(watch):
        raise _l.InvalidArgument(f"watch is a function of an event, not an object of type {type(watch).__name__}")
    if group is not None:
        _check.of_type(group, ProcessGroup, "group", "a tessera.ProcessGroup")


def _check_saving(save: Any, save_every: int, keep: Optional[int], load: Any, new_data: bool) -> None:
    if save is None and save_every:
        raise _l.InvalidArgument("save_every has no effect without save: name a directory")
    if save is None and keep is not None:
        raise _l.InvalidArgument("keep has no effect without save: name a directory")
    if load is None and new_data:
        raise _l.InvalidArgument("new_data has no effect without load: name the checkpoint to continue from")


def _warn_of_sections(text: str) -> None:
    for section, whose in (("plugins", "runtime"), ("comm", "process group")):
        if re.search(rf"^\s*\[{section}\]", text, re.MULTILINE):
            warnings.warn(
                f"[{section}] of the config has no effect in train(): the {whose} is the program's", stacklevel=3
            )


def train(
    config: Union[str, os.PathLike, Mapping[str, Any], Description],
    data: Any = None,
    *,
    test: Any = None,
    overrides: Iterable[str] = (),
    save: Union[None, str, os.PathLike] = None,
    save_every: int = 0,
    save_best: Union[None, str, os.PathLike] = None,
    load: Union[None, str, os.PathLike] = None,
    overwrite: bool = False,
    new_data: bool = False,
    keep: Optional[int] = None,
    max_steps: Optional[int] = None,
    watch: Optional[Callable[[Dict[str, Any]], Any]] = None,
    group: Optional[ProcessGroup] = None,
) -> Report:
    """Trains the model of a job (docs/config.md) as ``tessera train`` does, and evaluates it on the test part. With
    ``save_best`` it evaluates the best model. Returns the report, a dict that a notebook shows as a picture:
    ``["test"]["auc"]``, ``["losses"]``, ... With ``save`` the report has the model: ``report.model.predict(frame)``.
    Collective; ``group`` None: only this rank.

    config: a file of TOML, a mapping with the same keys, ``{"table": [{"name": "film", "rows": 1682}], ...}``, or a
    result of ``tessera.describe``.
    data: replaces the reader and the path of ``[data]``. It is an object with ``__arrow_c_stream__`` (pyarrow, polars,
    DuckDB, pandas), a mapping of columns, or an iterable of batches of either kind; ``[[column]]`` describes its
    columns. It is read once and kept. Every rank passes all data, and trains its share. test: the same for the test
    part, instead of ``data.test``. overrides: ``"data.epochs=2"``. save, save_every, save_best, load, overwrite,
    new_data, keep and max_steps: the options of ``tessera train``; max_steps None: train to the end; 0: only evaluate
    the model, which is refused for rows that arrive without end. watch: a function that rank 0 calls with progress
    (``{"step", "epoch", "samples", "loss"}``, every ``report.log_every`` steps) and with validations. If it returns
    True, training ends. Either all ranks pass one, or none.
    Ctrl-C ends training after the current step, with a checkpoint if one was asked for.

    Raises ``ValueError`` and the like for mistakes in the config or the data. On several ranks an error ends the
    group."""
    overrides = list(overrides) if hasattr(overrides, "__next__") else overrides
    _check_given(data, test, overrides, watch, group)
    _check_saving(save, _check.whole(save_every, "save_every", 0), keep, load, new_data)
    max_steps = None if max_steps is None else _check.whole(max_steps, "max_steps", 0)
    text, parts, source = _config_text(config), [], _Source(data, test)
    _warn_of_sections(text)
    overrides = list(overrides)
    if data is not None:
        if "column" not in text:
            raise _l.InvalidArgument(
                "the config has no [[column]]s, which say what the columns are: tessera.describe(data) writes them"
            )
        parts.append(ReaderComponent("python.data", source, called="the data given to train()"))
        overrides += ['data.reader="python.data"', f'data.path="{_DATA}"']
        if test is not None:
            overrides += [f'data.test_path="{_TEST}"', 'data.test=""', "data.test_fraction=0.1"]
    if max_steps == 0:  # in C, 0 steps means to train to the end
        overrides.append("data.epochs=0")
    runtime = Runtime(_parts=parts)
    group = group or ProcessGroup(rank=0, world_size=1, runtime=runtime)
    raised: List[BaseException] = []

    def asked(user: Any, event: Optional[bytes]) -> int:
        group._calls += 2  # shows that the call makes progress, so that Ctrl-C ends training here and not the group
        try:
            if max_steps == 0:
                raise _l.InvalidArgument("max_steps=0 needs data that ends, but these rows arrive without end")
            return int(watch is not None and event is not None and watch(json.loads(event)) is True)
        except BaseException as error:  # includes KeyboardInterrupt
            raised.append(error)
            return 1

    callback, texts = _Watch(asked), _l.texts(overrides)
    options = _l.TrainOptions(
        config=text.encode(), num_overrides=len(overrides), overrides=texts, save=_directory(save, "save"),
        save_best=_directory(save_best, "save_best"), load=_directory(load, "load"), save_every=save_every,
        keep=0 if keep is None else _check.whole(keep, "keep", 1, 2**31 - 1),
        max_steps=max_steps or 0, new_data=_check.truth(new_data, "new_data"),
        overwrite=_check.truth(overwrite, "overwrite"), watch=c.cast(callback, c.c_void_p),
        source=os.fspath(config).encode() if isinstance(config, (str, os.PathLike)) else None,
    )  # fmt: skip
    report = c.c_void_p()
    try:
        group._call(
            _l.lib.tsr_train, runtime._handle.value, group._handle.value, c.addressof(options), c.addressof(report)
        )
    except _l.InvalidArgument as error:
        if data is None or f"{_DATA} has no rows to train on" not in str(error):
            raise
        once = ": an iterator can be read only once" if hasattr(data, "__next__") else ""
        raise _l.InvalidArgument(
            f"there is nothing to train: the data given to train() has no rows to train on{once}"
        ) from None
    finally:
        source.forget()  # frees the data, because the component lives as long as the process
        if raised:
            raise raised[0]
    out = Report(json.loads(_l.text(report)))
    for sentence in _doubts(out):
        warnings.warn(sentence, stacklevel=2)
    of = save_best or save or (load if max_steps == 0 else None)
    out._directory = None if of is None else os.fspath(of)
    return out
