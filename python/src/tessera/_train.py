"""The trainer of ``tessera train``, fed by a program's own data."""

from __future__ import annotations

import ctypes as c
import json
import os
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Union

from . import _library as _l
from ._pictures import Report
from ._readers import ReaderPart
from ._runtime import ProcessGroup, Runtime

_DATA, _TEST = "data", "test"  # what the reader of a program's own data is told as a path
_Watch = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_char_p)


def to_toml(config: Mapping[str, Any]) -> str:
    """A job as TOML: sections are mappings, [[tables]] lists of them, and what is None is left out."""
    lines: List[str] = []
    nested = {key: value for key, value in config.items() if isinstance(value, Mapping) or _is_sections(value)}
    lines += [f"{key} = {_toml(value)}" for key, value in config.items() if key not in nested and value is not None]
    for key, value in nested.items():
        for section in [value] if isinstance(value, Mapping) else value:
            lines.append(f"[{key}]" if isinstance(value, Mapping) else f"[[{key}]]")
            lines += [f"{name} = {_toml(inner)}" for name, inner in section.items() if inner is not None]
    return "\n".join(lines) + "\n"


def _is_sections(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(v, Mapping) for v in value)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items() if inner is not None) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(inner) for inner in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    return json.dumps(os.fspath(value), ensure_ascii=False).replace("\x7f", "\\u007f")


class _Source:
    """A program's own data, by the path that its reader is given. An iterator can be drained once: what was read is
    kept for whoever opens it again."""

    def __init__(self, data: Any, test: Any) -> None:
        self._data = {_DATA: data, _TEST: test}

    def forget(self) -> None:
        self._data.clear()

    def __call__(self, path: str) -> Any:
        data = self._data[path]
        if hasattr(data, "__next__"):
            data = self._data[path] = list(data)
        return data


def _config_text(config: Union[str, os.PathLike, Mapping[str, Any]]) -> str:
    if isinstance(config, Mapping):
        return to_toml(config)
    with open(config, encoding="utf-8") as file:
        return file.read()


def _directory(path: Union[None, str, os.PathLike]) -> Optional[bytes]:
    return None if path is None else os.fspath(path).encode()


def train(
    config: Union[str, os.PathLike, Mapping[str, Any]],
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
    keep: int = 2,
    max_steps: Optional[int] = None,
    watch: Optional[Callable[[Dict[str, Any]], Any]] = None,
    group: Optional[ProcessGroup] = None,
) -> Report:
    """Trains the model of a job (docs/config.md) as ``tessera train`` does, and evaluates it on the test part,
    with ``save_best`` the best one; its report, a dict that a
    notebook shows as a picture: ``["test"]["auc"]``, ``["losses"]``, ... Collective; ``group`` None:
    this rank alone.

    config: a file of TOML, or a mapping with the same keys: ``{"table": [{"name": "film", "rows": 1682}], ...}``.
    data: in the place of ``[data]``'s reader and path: anything with ``__arrow_c_stream__`` (pyarrow, polars, DuckDB,
    pandas), a mapping of columns, or an iterable of batches of either kind; ``[[column]]`` says what columns are. It is
    read once and kept; every rank gives all of it, and trains its share. test: likewise, instead of what
    ``data.test`` says. overrides: ``"data.epochs=2"``. save, save_every, save_best, load, overwrite, new_data, keep and
    max_steps: the options of ``tessera train``; max_steps None: to the end, 0: the model is evaluated as it is, which
    rows that arrive without end are refused for. watch: is told, on rank 0, of progress
    (``{"step", "epoch", "samples", "loss"}``, every ``report.log_every`` steps) and of validations, and ends training
    where it returns True. All ranks give one, or none.
    Ctrl-C ends it behind a step, with a checkpoint where one was asked for.

    ``ValueError`` and the like: what in the config or the data cannot be. On several ranks it ends the group."""
    overrides, parts, source = list(overrides), [], _Source(data, test)
    if data is not None:
        parts.append(ReaderPart("python.data", source, called="the data given to train()"))
        overrides += ['data.reader="python.data"', f'data.path="{_DATA}"']
        if test is not None:
            overrides += [f'data.test_path="{_TEST}"', 'data.test=""', "data.test_fraction=0.1"]
    elif test is not None:
        raise _l.InvalidArgument("test is for data that is given, too: a job's own has data.test_path")
    if max_steps == 0:  # which says "to the end" in C
        overrides.append("data.epochs=0")
    runtime = Runtime(_parts=parts)
    group = group or ProcessGroup(rank=0, world_size=1, runtime=runtime)
    raised: List[BaseException] = []

    def asked(user: Any, event: Optional[bytes]) -> int:
        group._calls += 2  # it goes on: Ctrl-C ends it here, instead of the group
        try:
            if max_steps == 0:
                raise _l.InvalidArgument("max_steps=0 is for data that has an end, and these rows arrive without one")
            return int(watch is not None and event is not None and watch(json.loads(event)) is True)
        except BaseException as error:  # KeyboardInterrupt, too
            raised.append(error)
            return 1

    callback, texts = _Watch(asked), _l.texts(overrides)
    options = _l.TrainOptions(
        config=_config_text(config).encode(), num_overrides=len(overrides), overrides=texts, save=_directory(save),
        save_best=_directory(save_best), load=_directory(load), save_every=save_every, keep=keep,
        max_steps=max_steps or 0, new_data=new_data, overwrite=overwrite, watch=c.cast(callback, c.c_void_p),
        source=None if isinstance(config, Mapping) else os.fspath(config).encode(),
    )  # fmt: skip
    report = c.c_void_p()
    try:
        group._call(
            _l.lib.tsr_train, runtime._handle.value, group._handle.value, c.addressof(options), c.addressof(report)
        )
    finally:
        source.forget()  # the part stays for as long as the process
        if raised:
            raise raised[0]
    return Report(json.loads(_l.text(report)))
