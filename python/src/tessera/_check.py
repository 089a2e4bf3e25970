"""Checks a caller's values before the library gets them; an invalid value gives one sentence."""

from __future__ import annotations

import math
import os
from typing import Any, Sequence

from ._library import InvalidArgument


def of_type(value: Any, kinds: Any, name: str, what: str) -> None:
    """Raises ``InvalidArgument`` unless the value is of one of these types. ``name`` and ``what`` are for the sentence:
    "group", "a tessera.ProcessGroup"."""
    if not isinstance(value, kinds):
        raise InvalidArgument(f"{name} is {what}, not {_shown(value)}")


def _shown(value: Any) -> str:
    text = repr(value)
    kind = type(value).__name__
    return f"{text} of type {kind}" if len(text) <= 60 and "\n" not in text else f"an object of type {kind}"


def whole(value: Any, name: str, least: int, most: int = 2**63 - 1) -> int:
    """Returns a whole number of Python or NumPy as an int. ``InvalidArgument`` names it if it is out of bounds."""
    is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not is_whole or not least <= value.__index__() <= most:
        bound = f"{least} or more" if most == 2**63 - 1 else f"{least} to {most}"
        raise InvalidArgument(f"{name} is a whole number, {bound}, not {_shown(value)}")
    return value.__index__()


def number(value: Any, name: str, least: float = -math.inf, above: float = -math.inf) -> float:
    """Returns the value as a float. ``InvalidArgument`` names it if it is out of bounds or not a number."""
    try:
        good = not isinstance(value, (bool, str)) and math.isfinite(value) and value >= least and value > above
    except TypeError:
        good = False
    if not good:
        bound = f", {least:g} or more" if least > -math.inf else f", above {above:g}" if above > -math.inf else ""
        raise InvalidArgument(f"{name} is a finite number{bound}, not {_shown(value)}")
    return float(value)


def path(value: Any, name: str) -> str:
    """Returns the value as a path's text. ``InvalidArgument`` names it if it is empty or not a path."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise InvalidArgument(f"{name} is a path, not {_shown(value)}")
    return os.fspath(value)


def text(value: Any, name: str) -> str:
    """Returns the value, which must be a str."""
    of_type(value, str, name, "a text")
    return value


def texts(value: Any, name: str) -> Sequence[str]:
    """Returns a list of texts. It refuses a single text, whose letters would otherwise be taken as the list."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise InvalidArgument(f"{name} is a list of texts, not {_shown(value)}")
    out = list(value)
    for one in out:
        of_type(one, str, f"one of {name}", "a text")
    return out


def truth(value: Any, name: str) -> bool:
    """Returns the value, which must be True or False."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise InvalidArgument(f"{name} is True or False, not {_shown(value)}")
    return bool(value)


def plain(value: Any) -> Any:
    """Converts NumPy's numbers for JSON."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return value.item()
    raise InvalidArgument(f"{_shown(value)} cannot be in a description: use texts, numbers, lists and mappings")
