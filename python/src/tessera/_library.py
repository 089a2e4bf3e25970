"""Calls libtessera through ctypes: has the structs and functions of tessera.h, and raises errors as exceptions.

Other modules call ``check`` and the functions of ``lib``. ctypes releases the GIL during a call.
"""

from __future__ import annotations

import ctypes as c
import os
from typing import NoReturn


class TesseraError(Exception):
    """An error from outside the program. ``str(error)`` is the library's sentence, unchanged; ``error.rank`` is the
    rank at fault, -1 if unknown.

    Every error is also an instance of the matching Python exception, so ``except ValueError`` works.
    """

    rank = -1


def _error(name: str, base: type, doc: str) -> type:
    return type(name, (TesseraError, base), {"__doc__": doc, "__module__": "tessera"})


InvalidArgument = _error("InvalidArgument", ValueError, "The caller's input is wrong.")
NotFound = _error("NotFound", LookupError, "There is nothing of that name.")
DeadlineExceeded = _error("DeadlineExceeded", TimeoutError, "A deadline passed; the sentence says who was late.")
AlreadyExists = _error("AlreadyExists", FileExistsError, "There is something else already.")
PermissionDenied = _error("PermissionDenied", PermissionError, "It is not allowed.")
ResourceExhausted = _error("ResourceExhausted", MemoryError, "There is no memory, or room on the disk.")
FailedPrecondition = _error("FailedPrecondition", RuntimeError, "The right call at the wrong moment.")
Aborted = _error("Aborted", ConnectionAbortedError, "Another rank failed or aborted; this one is not at fault.")
Cancelled = _error("Cancelled", InterruptedError, "abort() was called on this rank.")
OutOfRange = _error("OutOfRange", IndexError, "A row, rank or position that is not there.")
Unimplemented = _error("Unimplemented", NotImplementedError, "This component cannot do that.")
Internal = _error("Internal", RuntimeError, "A defect of the library.")
Unavailable = _error("Unavailable", ConnectionError, "A rank, file or service cannot be reached.")
DataLoss = _error("DataLoss", OSError, "A file or message is damaged.")

# Error types by tsr_code (tessera/abi/base.h).
ERRORS = {
    1: Cancelled, 2: Internal, 3: InvalidArgument, 4: DeadlineExceeded, 5: NotFound, 6: AlreadyExists,
    7: PermissionDenied, 8: ResourceExhausted, 9: FailedPrecondition, 10: Aborted, 11: OutOfRange, 12: Unimplemented,
    13: Internal, 14: Unavailable, 15: DataLoss,
}  # fmt: skip


class Error(c.Structure):
    """``tsr_error``: the error of a call of the library."""
    _fields_ = [
        ("struct_size", c.c_uint32),
        ("code", c.c_int32),
        ("rank", c.c_int32),
        ("message", c.c_char * 500),
    ]

    def __init__(self) -> None:
        super().__init__(c.sizeof(Error))


def _sized(*fields: tuple[str, type]) -> type:
    """Makes a type of structs that begin with their own size."""

    class Struct(c.Structure):
        _fields_ = [("struct_size", c.c_uint32), *fields]

        def __init__(self, **values: object) -> None:
            super().__init__(c.sizeof(type(self)), **values)

    return Struct


_i32, _u32, _i64, _text = c.c_int32, c.c_uint32, c.c_int64, c.c_char_p
RuntimeOptions = _sized(
    ("threads", _i32),
    ("plugin_path", c.POINTER(_text)),
    ("require", c.POINTER(_text)),
    ("num_plugin_paths", _u32),
    ("num_required", _u32),
    ("plugins", c.c_void_p),
    ("log", c.c_void_p),
    ("log_user", c.c_void_p),
    ("num_plugins", _u32),
    ("flags", _u32),
)
GroupOptions = _sized(
    ("world_size", _i32),
    ("rank", _i32),
    ("local_rank", _i32),
    ("local_world_size", _i32),
    ("master_port", _i32),
    ("master_addr", _text),
    ("token", _text),
    ("backend", _text),
    ("timeout_s", c.c_double),
)
GroupInfo = _sized(
    ("rank", _i32),
    ("world_size", _i32),
    ("local_rank", _i32),
    ("local_world_size", _i32),
    ("reserved", _i32),
    ("backend", _text),
)
ModelOptions = _sized(("flags", _u32), ("model", _text), ("plan", _text), ("planner", _text))
CollectionInfo = _sized(
    ("kind", _i32),
    ("num_tables", _u32),
    ("num_features", _u32),
    ("num_outputs", _u32),
    ("num_shards", _u32),
    ("width", _i64),
    ("steps", _i64),
    ("dropped_ids", _i64),
)
TableInfo = _sized(("reserved", _u32), ("name", _text), ("key", _text), ("rows", _i64), ("dim", _i64))
OutputInfo = _sized(("table", _u32), ("name", _text), ("dim", _i64), ("column", _i64))
Batch = _sized(
    ("num_keys", _u32),
    ("keys", c.c_void_p),
    ("values", c.c_void_p),
    ("lengths", c.c_void_p),
    ("offsets", c.c_void_p),
    ("weights", c.c_void_p),
    ("strides", c.c_void_p),
    ("inverse", c.c_void_p),
    ("finished", _i32),
    ("flags", _u32),
    ("refused", c.c_void_p),
)
StepInfo = _sized(("num_outputs", _u32), ("all_finished", _i32), ("any_finished", _i32))
ShardInfo = _sized(
    ("table", _u32),
    ("shard", _i32),
    ("num_states", _u32),
    ("rows", _i64),
    ("cols", _i64),
    ("row", _i64),
    ("col", _i64),
    ("on_demand", _i32),
    ("reserved", _u32),
)
PackOptions = _sized(
    ("num_collections", _u32),
    ("collections", c.c_void_p),
    ("graph", _text),
    ("names", c.POINTER(_text)),
    ("tensors", c.c_void_p),
    ("settings", _text),
    ("num_tensors", _u32),
    ("flags", _u32),
)
TrainOptions = _sized(
    ("num_overrides", _u32),
    ("config", _text),
    ("source", _text),
    ("overrides", c.POINTER(_text)),
    ("save", _text),
    ("save_best", _text),
    ("load", _text),
    ("save_every", _i64),
    ("max_steps", _i64),
    ("keep", _i32),
    ("new_data", _i32),
    ("watch", c.c_void_p),
    ("user", c.c_void_p),
    ("overwrite", _i32),
    ("flags", _u32),
)
SaveOptions = _sized(("flags", _u32), ("progress", _text), ("keep", _i32), ("reserved", _u32))
OpenOptions = _sized(
    ("threads", _i32),
    ("plugin_path", _text),
    ("kernel", _text),
    ("runtime", c.c_void_p),
    ("log", c.c_void_p),
    ("log_user", c.c_void_p),
)
ModelInfo = _sized(
    ("is_weighted", _i32),
    ("name", _text),
    ("version", _text),
    ("type", _text),
    ("dense_inputs", _i64),
    ("num_features", _u32),
    ("num_tables", _u32),
    ("num_outputs", _u32),
    ("reserved", _u32),
    ("encoding", _text),
)
ModelFeature = _sized(("reserved", _u32), ("name", _text), ("ids", _i64))
ModelOutput = _sized(("probability", _i32), ("name", _text), ("width", _i64))
ModelInput = _sized(
    ("num_features", _u32),
    ("dense", c.c_void_p),
    ("values", c.c_void_p),
    ("lengths", c.c_void_p),
    ("weights", c.c_void_p),
)
# dtype is a DLDataType, at present always float32.
StateInfo = _sized(("kind", _i32), ("dtype", _u32), ("reserved", _u32), ("name", _text))
STATE_PER_ELEMENT = 1  # tessera/abi/optimizer.h


class DLTensor(c.Structure):
    """DLPack's struct of a tensor."""
    _fields_ = [
        ("data", c.c_void_p),
        ("device_type", _i32),
        ("device_id", _i32),
        ("ndim", _i32),
        ("code", c.c_uint8),
        ("bits", c.c_uint8),
        ("lanes", c.c_uint16),
        ("shape", c.POINTER(_i64)),
        ("strides", c.POINTER(_i64)),
        ("byte_offset", c.c_uint64),
    ]


class ManagedTensor(c.Structure):
    """DLPack 1.0's DLManagedTensorVersioned."""

    _fields_ = [
        ("major", _u32),
        ("minor", _u32),
        ("context", c.c_void_p),
        ("deleter", c.CFUNCTYPE(None, c.c_void_p)),
        ("flags", c.c_uint64),
        ("tensor", DLTensor),
    ]


def home() -> str:
    """Returns the folder with lib/libtessera.so and bin/tessera: the wheel's own, or the one around TESSERA_LIBRARY."""
    library = os.environ.get("TESSERA_LIBRARY")
    if library:
        return os.path.dirname(os.path.dirname(os.path.realpath(library)))
    return os.path.join(os.path.dirname(os.path.realpath(__file__)), "_native")


# Debian's packages of the libraries that libtessera and its plugins need.
_PACKAGES = {
    "libtomlplusplus.so": "libtomlplusplus3", "libdnnl.so": "libdnnl2", "libhwy.so": "libhwy1", "libz.so": "zlib1g",
    "libcrypto.so": "libssl3", "libzstd.so": "libzstd1", "librdkafka.so": "librdkafka1",
}  # fmt: skip


def _to_install(sentence: str) -> str:
    """Says what to install, if a sentence says that a library is missing."""
    if "cannot open shared object file" in sentence:
        for name, package in _PACKAGES.items():
            if name in sentence:
                return f"install Debian's package {package}, or the wheel of a release, which has this library inside"
    return ""


def _load() -> c.CDLL:
    path = os.environ.get("TESSERA_LIBRARY") or os.path.join(home(), "lib", "libtessera.so.1")
    try:
        return c.CDLL(path)
    except OSError as error:
        otherwise = "install the package (pip install python/), or let TESSERA_LIBRARY name the library of a build"
        raise ImportError(f"libtessera cannot be loaded ({error}): {_to_install(str(error)) or otherwise}") from error


lib = _load()

# The types of arguments as letters: p pointer, i int32, u uint32, l int64, d double, s text. All functions except the
# few below return a code and have a tsr_error as last argument.
_LETTERS = {"p": c.c_void_p, "i": _i32, "u": _u32, "l": _i64, "d": c.c_double, "s": _text}
_FUNCTIONS = {
    "runtime_open": "pp", "runtime_report": "pp", "plan": "psspp", "process_group_connect": "ppp",
    "process_group_describe": "pp", "process_group_all_reduce": "ppi", "process_group_broadcast": "ppi",
    "process_group_all_gather": "ppp", "process_group_reduce_scatter": "pppi", "process_group_all_to_all": "ppppp",
    "process_group_barrier": "p", "process_group_abort": "ps",
    "model_parallel_create": "pppp", "model_parallel_plan": "pp", "model_parallel_save": "psp",
    "model_parallel_load": "pspp", "model_parallel_dense": "psp", "model_parallel_collection": "psp",
    "collection_describe": "pp", "collection_stats": "pip",
    "collection_get_table": "pup", "collection_get_feature": "pup", "collection_get_output": "pup",
    "collection_forward": "pppp", "step_describe": "pp", "step_output": "pup", "step_backward": "ppup",
    "collection_set_learning_rate": "psd", "collection_get_learning_rate": "psp", "collection_set_steps": "pl",
    "collection_read_rows": "pslp", "collection_write_rows": "pslp", "collection_get_shard": "pup",
    "shard_get_state": "puup", "shard_read": "pulppu", "shard_write": "pulppu", "shard_ids": "pulp",
    "shard_export": "puip", "shard_next_rows": "puppppup",
    "pack": "spp", "train": "pppp", "collection_weight_gradients": "pppp",
    "model_open": "spp", "model_describe": "pp", "model_get_feature": "pup", "model_get_output": "pup",
    "model_predict": "pppu", "words": "psp", "model_predict_rows": "ppsspup",
    "collection_quantize": "psp", "quant_collection_bytes": "pp", "quant_collection_forward": "ppp",
    "quant_collection_sequences": "pppu",
}  # fmt: skip
for _name, _arguments in _FUNCTIONS.items():
    _function = getattr(lib, "tsr_" + _name)
    _function.restype = _i32
    _function.argtypes = [_LETTERS[letter] for letter in _arguments] + [c.c_void_p]
_CLOSE = {}
for _name in ("runtime", "process_group", "model_parallel", "collection", "step", "quant_collection", "model"):
    _CLOSE[_name] = getattr(lib, f"tsr_{_name}_close")
    _CLOSE[_name].argtypes = [c.c_void_p]
    _CLOSE[_name].restype = None
lib.tsr_text_data.argtypes = [c.c_void_p]
lib.tsr_text_data.restype = _text
lib.tsr_text_free.argtypes = [c.c_void_p]
lib.tsr_text_free.restype = None
lib.tsr_version.restype = _text


# Exceptions of components written in Python, until the library's caller raises its error.
causes: list[BaseException] = []


def raise_error(code: int, error: Error) -> None:
    """Raises the exception of a code, with the library's sentence and, if a component in Python failed, its cause."""
    sentence = error.message.decode("utf-8", "replace") or f"failed with code {code}"
    missing = _to_install(sentence)
    raised = ERRORS.get(code, Internal)(f"{sentence}: {missing}" if missing else sentence)
    raised.rank = error.rank
    cause = next((one for one in reversed(causes) if " ".join(str(one).split())[:60] in sentence), None)
    causes.clear()
    raise raised from cause


def call(function: str, *arguments: object) -> None:
    """Calls tsr_<function>(*arguments), and raises its error."""
    error = Error()
    code = getattr(lib, "tsr_" + function)(*arguments, c.byref(error))
    if code:
        raise_error(code, error)


def text_bytes(handle: c.c_void_p) -> bytes:
    """Returns the contents of a tsr_text, and frees it."""
    try:
        return lib.tsr_text_data(handle)
    finally:
        lib.tsr_text_free(handle)


def text(handle: c.c_void_p) -> str:
    """Returns the text of a ``tsr_text``, and frees it."""
    return text_bytes(handle).decode()


class Handle:
    """Owns a handle of the library, and closes it when the last reference to this object ends."""

    __slots__ = ("value", "_close", "__weakref__")

    def __init__(self, kind: str) -> None:
        self.value = c.c_void_p()
        self._close = _CLOSE[kind]

    @property
    def out(self) -> object:
        """Returns a pointer to the handle, for the library to set it."""
        return c.byref(self.value)

    def close(self) -> None:
        """Frees the object. A second call does nothing."""
        # This uses no name of the module, which may be gone before the object.
        value = getattr(self, "value", None)  # None: __init__ did not run
        if value is not None and value.value:
            address, value.value = value.value, None
            self._close(address)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "an object of the library is neither copied nor pickled: save tables by save(DIRECTORY) and load() them, "
            "and call load_model(DIRECTORY) in each process"
        )

    def __del__(self) -> None:
        self.close()


def texts(values: list[str]) -> object:
    """Returns a char*[] of these texts, for one call."""
    return (_text * max(1, len(values)))(*[v.encode() for v in values])
