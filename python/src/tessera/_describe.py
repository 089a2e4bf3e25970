"""``tessera data describe`` for a program's own data: makes a job that fits it."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import warnings
from html import escape
from typing import Any, Dict, List, Optional, Sequence, Union

import numpy as np

from . import _check, _library as _l
from ._columns import TEXT, Column, blocks_of, wanted_as

_SPECIAL = re.compile(rb'[",;|\t\r\n]|^\s|\s$')
_DATA = "the data given to describe()"


class Description:
    """A job that was made from data. ``str(description)`` is its TOML, with findings about each column as comments.
    ``tessera.train(description, data)`` trains it.

    config: the job as a mapping with the keys of docs/config.md. Change it, and pass it to ``tessera.train``."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    @property
    def config(self) -> Dict[str, Any]:
        """The job's config as a dict. It needs Python 3.11 or the package tomli."""
        try:
            import tomllib
        except ImportError:  # before CPython 3.11
            try:
                import tomli as tomllib
            except ImportError:
                raise _l.FailedPrecondition(
                    "config reads TOML, which takes Python 3.11 or the package tomli: pip install tomli; "
                    "str(description) is the text"
                ) from None
        return tomllib.loads(self._text)

    def save(self, path: Union[str, os.PathLike]) -> None:
        """Writes the TOML, for ``tessera train FILE``. Raises ``AlreadyExists`` if the file exists."""
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(self._text)
        except FileExistsError:
            raise _l.AlreadyExists(f"{os.fspath(path)} exists: save to another file, or remove it first") from None

    def _repr_html_(self) -> str:
        """Shows the columns as a table, and the TOML, in a notebook."""
        try:
            columns = self.config.get("column", [])
        except _l.FailedPrecondition:
            columns = []
        rows = []
        for column in columns:
            names = column.get("name", "")
            more = [f"{key} = {value}" for key, value in column.items() if key not in ("name", "as")]
            cells = (", ".join(names) if isinstance(names, list) else names, column.get("as", ""), ", ".join(more))
            row = "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in cells)
            rows.append(f"<tr>{row}</tr>")
        head = "<tr><th>column</th><th>as</th><th>how</th></tr>"
        table = f"<table>{head}{''.join(rows)}</table>" if rows else ""
        return f"{table}<details><summary>TOML</summary><pre>{escape(self._text)}</pre></details>"


def describe(
    data: Any, label: Union[None, str, Sequence[str]] = None, *, rows: Optional[int] = None, reader: str = ""
) -> Description:
    """Returns a job whose columns fit the data: label, dense values and ids, as ``tessera data describe`` finds them.

    data: anything that ``tessera.train`` takes, or the path of a file or directory, or a pattern. label: the column to
    predict; several become heads; None: a column that is named or looks like a label, and the job's comments name it.
    rows: the number of rows to look at; None: the program's default. reader: for a path, such as "csv?delimiter=;";
    empty: chosen by the path's name. Frames are written to a temporary file for the program ``tessera``, which comes
    with the package, and then the job names no file. Raises ``NotFound`` if a file, a column or the program is
    missing."""
    if label is not None and not isinstance(label, str):
        if not isinstance(label, (list, tuple)) or not all(isinstance(one, str) for one in label) or not label:
            raise _l.InvalidArgument(f"label is the name of a column, or a list of names, not {label!r}")
    labels = [] if label is None else [label] if isinstance(label, str) else list(label)
    options = ["--label", ",".join(labels)] if labels else []
    options += ["--rows", str(_check.whole(rows, "rows", 1))] if rows is not None else []
    if isinstance(data, (str, os.PathLike)):
        if reader:
            options += ["--reader", reader]
        if not os.path.exists(data) and not re.search(r"[*?\[]", os.fspath(data)):
            raise _l.NotFound(f"there is no file or directory {os.fspath(data)}")
        return Description(_described(os.fspath(data), options))
    if reader:
        raise _l.InvalidArgument("reader needs a path: data given to describe() is read as it is")
    with tempfile.TemporaryDirectory(prefix="tessera-describe-") as folder:
        path = os.path.join(folder, "data.csv")
        _write_csv(path, data, labels)
        return Description(_without_file(_described(path, options, _DATA), path))


def _described(path: str, options: List[str], called: str = "") -> str:
    program = os.path.join(_l.home(), "bin", "tessera")
    if not os.path.exists(program):
        raise _l.NotFound(f"describe() runs the program tessera, and there is none at {program}")
    done = subprocess.run(
        [program, "data", "describe", path, *options], capture_output=True, text=True, errors="replace",
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode == 0:
        return done.stdout
    said = [line for line in done.stderr.splitlines() if line.strip()]
    sentence = said[-1] if said else f"tessera data describe ended with status {done.returncode}"
    for before in ("tessera data: ", "tessera: ", "error: "):
        sentence = sentence[len(before) :] if sentence.startswith(before) else sentence
    sentence = sentence.replace("--label NAME", 'label="NAME"')
    if called:
        sentence = sentence.replace(path, called)
    raise (_l.NotFound if "there is no" in sentence else _l.InvalidArgument)(sentence)


def _without_file(text: str, path: str) -> str:
    """Returns a job's TOML without the file and the reader, because the file was temporary."""
    out, section = [], ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip()
        if section == "[data]" and re.match(r"\s*(path|reader)\s*=", line):
            continue
        line = line.replace("tessera train --config THIS_FILE --save DIR", "tessera.train(job, data, save=DIR)")
        out.append(line.replace(path, _DATA))
    return "\n".join(out) + "\n"


def _write_csv(path: str, data: Any, labels: Sequence[str]) -> None:
    """Writes the data as CSV, every value as the word by which training knows it."""
    names: List[str] = []
    with open(path, "wb") as file:
        for block in blocks_of(data):
            if not names:
                names = [name for name, column in block.items() if column.refused is None]
                for name in [name for name in block if name not in names]:
                    warnings.warn(f'describe() leaves out column "{name}": {block[name].refused}', stacklevel=4)
                missing = [name for name in labels if name not in names]
                if missing:
                    raise _l.NotFound(f'{_DATA} has no column "{missing[0]}": it has {", ".join(names)}')
                if not names:
                    raise _l.InvalidArgument(f"{_DATA} has no columns")
                file.write(b",".join(_field(name.encode()) for name in names) + b"\n")
            unknown = [name for name in names if name not in block]
            if unknown:
                raise _l.NotFound(f'a batch of {_DATA} has no column "{unknown[0]}", which others have')
            columns = [_fields(block[name]) for name in names]
            file.writelines(b",".join(row) + b"\n" for row in zip(*columns))
    if not names:
        raise _l.InvalidArgument(f"{_DATA} has no rows")


def _field(word: bytes) -> bytes:
    return b'"' + word.replace(b'"', b'""') + b'"' if _SPECIAL.search(word) else word


def _fields(column: Column) -> List[bytes]:
    """Returns a column's fields for CSV. Missing values are empty, and lists are JSON."""
    if column.refused is not None:
        raise column.refused
    texts = wanted_as(column, TEXT, column.lists is not None, " ")
    words = texts.words()
    if texts.weights is not None:
        return _weighted_fields(words, texts)
    if texts.lists is None:
        return [_field(word) if word else b"" for word in words]
    quoted = [b'"' + word.replace(b'"', b"'") + b'"' if column.type == TEXT else word for word in words]
    at = texts.lists.tolist()
    return [_field(b"[" + b", ".join(quoted[begin:end]) + b"]") for begin, end in zip(at, at[1:])]


def _weighted_fields(words: List[bytes], column: Column) -> List[bytes]:
    """Returns fields such as ``3:0.5;17:1``. If no list is longer than one value, each is written twice, because a
    single ``3:0.5`` may also be a word."""
    at = column.lists.tolist()
    times = 2 if len(at) > 1 and max(np.diff(at)) == 1 else 1
    # A separator inside a word would divide it, and which words there are does not matter to a description.
    items = [word.replace(b";", b",") + b":" + repr(w).encode() for word, w in zip(words, column.weights.tolist())]
    return [_field(b";".join(items[begin:end] * times)) for begin, end in zip(at, at[1:])]
