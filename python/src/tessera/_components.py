"""Components written in Python: makes a class or a function a plugin of this process (abi/plugin.h)."""

from __future__ import annotations

import ctypes as c
from typing import Any, Callable, Dict, List, Optional

from . import _library as _l

_i32, _u32 = c.c_int32, c.c_uint32
_ABI_MAJOR, _ABI_EPOCH = 1, 3  # of the structs here, which follow abi/*.h
_MUST_UNDERSTAND = 0xFFFF0000
_Err = c.POINTER(_l.Error)
_Create = c.CFUNCTYPE(_i32, c.c_void_p, c.c_void_p, c.c_char_p, c.c_void_p, c.POINTER(c.c_void_p), _Err)
_Destroy = c.CFUNCTYPE(None, c.c_void_p)


class _Component(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("priority", _i32),
        ("id", c.c_char_p),
        ("kind", c.c_char_p),
        ("version", c.c_char_p),
        ("about", c.c_char_p),
        ("api", c.c_void_p),
        ("probe", c.c_void_p),
        ("create", _Create),
        ("destroy", _Destroy),
        ("extension", c.c_void_p),
        ("data", c.c_void_p),
    ]


class _Plugin(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("abi_major", _u32),
        ("epoch", _u32),
        ("abi_minor", _u32),
        ("min_host_minor", _u32),
        ("num_components", _u32),
        ("name", c.c_char_p),
        ("version", c.c_char_p),
        ("build", c.c_char_p),
        ("components", c.POINTER(c.POINTER(_Component))),
    ]


# The library's codes for exceptions of a user's Python code.
_CODES = [
    (NotImplementedError, 12), (FileNotFoundError, 5), (LookupError, 5), (MemoryError, 8), (OSError, 14),
    (ValueError, 3), (TypeError, 3),
]  # fmt: skip
_UNKNOWN = 2


def _code_of(error: BaseException) -> int:
    for code, kind in _l.ERRORS.items():
        if isinstance(error, kind):
            return code
    return next((code for kind, code in _CODES if isinstance(error, kind)), _UNKNOWN)


def guarded(part: str, function: str, err: Any, body: Callable[[], Optional[int]]) -> int:
    """Runs a callback and returns its code, without letting an exception out. ``err`` gets one sentence with the
    component and, if given, the function; the exception becomes the cause of the error that the library's caller
    gets."""
    try:
        return body() or 0
    except BaseException as error:
        words = " ".join(str(error).split())
        what = words if isinstance(error, _l.TesseraError) else f"{type(error).__name__}: {words}"
        err.contents.code = code = _code_of(error)
        where = f"{part} (in Python), {function}" if function else part
        err.contents.message = f"{where}: {what}".encode()[:499]
        _l.causes.append(error)
        return code


def check_flags(**structs: Any) -> None:
    """Refuses structs of the library with flags that must be understood and are unknown here (abi/base.h)."""
    for name, raw in structs.items():
        if raw.flags & _MUST_UNDERSTAND:
            raise NotImplementedError(f"tsr_{name} has flags {raw.flags}, which ask for something unknown")


class Component:
    """One component. An object that ``make`` returns lives as long as the library's object. The tables live as long as
    the process, because the library requires that."""

    def __init__(self, kind: str, id: str, about: str, table: c.Structure, make: Callable[[], Any]) -> None:
        if not isinstance(id, str) or not id or set(id) - set("abcdefghijklmnopqrstuvwxyz0123456789_.-"):
            raise _l.InvalidArgument(
                f'"{id}" is not the name of a component: it takes small letters, digits, "_", "." and "-"'
            )
        self.id, self.objects = id, {}  # type: str, Dict[int, Any]
        self._make, self._next = make, 0
        self._table = table
        line = (about or "").strip().splitlines() or ["written in Python"]
        self._component = _Component(
            c.sizeof(_Component), 0, id.encode(), kind.encode(), b"0", line[0].encode(), c.addressof(table), None,
            _Create(self._create), _Destroy(self._destroy), None, None,
        )  # fmt: skip
        self._components = (c.POINTER(_Component) * 1)(c.pointer(self._component))
        self.plugin = _Plugin(
            c.sizeof(_Plugin), _ABI_MAJOR, _ABI_EPOCH, 0, 0, 1, b"Python", b"0", b"",
            c.cast(self._components, c.POINTER(c.POINTER(_Component))),
        )  # fmt: skip
        _kept.append(self)

    def _create(self, component: Any, host: Any, options: bytes, inner: Any, out: Any, err: Any) -> int:
        def make() -> None:
            if options not in (b"{}", b""):
                raise _l.InvalidArgument(f"it takes no options, but these are given: {options.decode()}")
            self._next += 1
            self.objects[self._next] = self._make()
            out[0] = self._next

        return guarded(self.id, "create", err, make)

    def _destroy(self, handle: int) -> None:
        self.objects.pop(handle, None)


_kept: List[Component] = []  # components that the library may still point to
registered: Dict[str, Component] = {}  # by kind and id; every runtime that is opened later has them


def register(kind: str, part: Component) -> None:
    """Adds the component to runtimes that are opened later. It replaces one of the same name, for example if a notebook
    cell runs again."""
    from ._runtime import Runtime

    registered[f"{kind} {part.id}"] = part
    Runtime.forget_default()


def plugins(parts: List[Component]) -> Any:
    """Returns a tsr_plugin*[] of these, for one call."""
    return (c.c_void_p * max(1, len(parts)))(*[c.addressof(part.plugin) for part in parts])


def instance(of: Any) -> Any:
    """Returns a new object if ``of`` is a class, otherwise ``of`` itself."""
    return of() if isinstance(of, type) else of
