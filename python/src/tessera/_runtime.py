"""The runtime, which finds plugins, and the ranks of a job."""

from __future__ import annotations

import ctypes as c
import json
import os
import signal
import threading
import time
import weakref
from typing import Any, Optional, Sequence

import numpy as np

from . import _check, _library as _l
from ._arrays import Tensor, as_array
from ._components import Component, plugins, registered

_OPERATIONS = {"sum": 0, "max": 1, "min": 2}


class Runtime:
    """Finds plugins, checks them, and creates their components. One for each process is enough: ``Runtime.default()``.

    plugin_path: absolute directories that are searched first. require: ids of components that must be usable; otherwise
    ``FailedPrecondition`` or ``NotFound`` says why one is not. threads: the number for large lookups and planning; -1:
    one for each core. A runtime has the components that ``tessera.sharder`` and ``tessera.reader`` made before it was
    opened. Several threads may use it."""

    _default: Optional[Runtime] = None
    _lock = threading.Lock()

    def __init__(
        self,
        plugin_path: Sequence[str] = (),
        require: Sequence[str] = (),
        threads: int = 1,
        *,
        _parts: Sequence[Component] = (),
    ) -> None:
        threads = _check.whole(threads, "threads", -1, 1024)
        if isinstance(plugin_path, (str, os.PathLike)):
            raise _l.InvalidArgument(f"plugin_path is a list of directories, not {plugin_path!r}")
        plugin_path = [_check.path(path, "one of plugin_path") for path in plugin_path]
        require = _check.texts(require, "require")
        parts = [*registered.values(), *_parts]
        held = plugins(parts)
        options = _l.RuntimeOptions(threads=threads, num_plugin_paths=len(plugin_path), num_required=len(require))
        options.plugin_path = _l.texts([os.fspath(path) for path in plugin_path])
        options.require = _l.texts(list(require))
        options.plugins, options.num_plugins = c.addressof(held), len(parts)
        self._handle = _l.Handle("runtime")
        _l.call("runtime_open", c.byref(options), self._handle.out)

    @classmethod
    def default(cls) -> Runtime:
        """Returns the runtime of this process, which the first call opens."""
        with cls._lock:
            if cls._default is None:
                cls._default = cls()
            return cls._default

    @classmethod
    def forget_default(cls) -> None:
        """Makes the next ``default()`` open a new runtime."""
        with cls._lock:
            cls._default = None

    def plugins(self) -> list[dict[str, str]]:
        """The components that were found, each with ``id``, ``kind``, ``state``, ``reason``, ..."""
        out = c.c_void_p()
        _l.call("runtime_report", self._handle.value, c.byref(out))
        return json.loads(_l.text(out))["plugins"]


class _Interrupts:
    """Handles Ctrl-C while a call waits for other ranks. Python's own handler would only run after the call returns.

    A thread gets signals through ``signal.set_wakeup_fd``, and aborts the groups with a waiting call. The call then
    returns, here and on the other ranks, and Python raises KeyboardInterrupt."""

    PATIENCE_S = 0.1  # a call that still runs after this time counts as waiting

    def __init__(self) -> None:
        self._groups: weakref.WeakSet[ProcessGroup] = weakref.WeakSet()
        self._heard = -1
        self._before = -1

    def watch(self, group: ProcessGroup) -> None:
        self._groups.add(group)
        if self._heard >= 0 or threading.current_thread() is not threading.main_thread():
            return
        self._heard, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(self._heard, True)
        self._before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # a child must not report its signals here
        threading.Thread(target=self._listen, name="tessera-interrupts", daemon=True).start()

    def _listen(self) -> None:
        while True:
            signals = os.read(self._heard, 64)
            if self._before >= 0:
                try:
                    os.write(self._before, signals)
                except OSError:
                    pass  # nobody reads the pipe
            if signal.SIGINT in signals and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._abort_what_waits()

    def _abort_what_waits(self) -> None:
        # The signal may arrive just before a call, so check for a while.
        for _ in range(10):
            before = {group: group._calls for group in list(self._groups)}
            time.sleep(self.PATIENCE_S)
            stuck = [group for group, calls in before.items() if calls % 2 and group._calls == calls]
            for group in stuck:
                group.abort(f"rank {group.rank} was interrupted (Ctrl-C)")
            if stuck:
                return


_interrupts = _Interrupts()


class ProcessGroup:
    """The ranks of a job, and their collective operations. Creating it is collective: it returns when all ranks have
    met.

    Without ``world_size``, rank and world size come from the environment, as torchrun, ``tessera launch``, mpirun and
    Slurm set it. Without any of these launchers there is one rank, which needs no network. One thread at a time uses a
    group and all collections over it, except for ``abort()``; otherwise ``FailedPrecondition`` is raised. A forked
    child cannot use them. ``DeadlineExceeded`` names the ranks that are missing after ``timeout_s`` seconds.
    """

    def __init__(
        self,
        *,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        local_rank: Optional[int] = None,
        local_world_size: int = 0,
        master_addr: Optional[str] = None,
        master_port: Optional[int] = None,
        token: Optional[str] = None,
        backend: str = "auto",
        timeout_s: float = 30,
        runtime: Optional[Runtime] = None,
    ) -> None:
        timeout_s = _check.number(timeout_s, "timeout_s", above=0)
        options = _l.GroupOptions(backend=_check.text(backend, "backend").encode(), timeout_s=timeout_s)
        if (rank is None) != (world_size is None):
            raise _l.InvalidArgument("rank and world_size are given both, or neither")
        if world_size is not None:
            if _check.whole(world_size, "world_size", -(2**31)) < 1:
                raise _l.InvalidArgument(f"world_size is {world_size}, but must be at least 1")
            rank = _check.whole(rank, "rank", 0, 2**31 - 1)
            local_world_size = _check.whole(local_world_size, "local_world_size", 0, 2**31 - 1)
            options.rank, options.world_size, options.local_world_size = rank, world_size, local_world_size
            options.local_rank = rank % local_world_size if local_rank is None and local_world_size else local_rank or 0
            options.master_addr = _check.text(
                "127.0.0.1" if master_addr is None else master_addr, "master_addr"
            ).encode()
            port = 29500 if master_port is None else master_port
            options.master_port = _check.whole(port, "master_port", 1, 65535)
        else:
            where = {
                "local_rank": local_rank, "local_world_size": local_world_size or None, "master_addr": master_addr,
                "master_port": master_port,
            }  # fmt: skip
            for name in [name for name, value in where.items() if value is not None][:1]:
                raise _l.InvalidArgument(
                    f"{name} has no effect without rank and world_size: the environment says who this process is"
                )
        if token is not None:
            options.token = _check.text(token, "token").encode()
        if runtime is not None:
            _check.of_type(runtime, Runtime, "runtime", "a tessera.Runtime")
        self._runtime = runtime or Runtime.default()
        self._check_backend(backend)
        self._handle = _l.Handle("process_group")
        self._used = threading.Lock()
        self._patience_s = 0.0  # how long a thread waits for another one to leave the group
        self._calls = 0  # odd while a call waits
        self._error = _l.Error()
        self._error_address = c.addressof(self._error)
        _l.call("process_group_connect", self._runtime._handle.value, c.byref(options), self._handle.out)
        info = _l.GroupInfo()
        _l.call("process_group_describe", self._handle.value, c.byref(info))
        self.rank: int = info.rank
        self.world_size: int = info.world_size
        self.local_rank: int = info.local_rank
        self.local_world_size: int = info.local_world_size
        self.backend: str = info.backend.decode()
        if self.world_size > 1:
            _interrupts.watch(self)

    def _check_backend(self, backend: str) -> None:
        """Checks the name of the transport for a group of one rank, which needs none and would accept any name."""
        if backend in ("auto", "local"):
            return
        known = [part["id"] for part in self._runtime.plugins() if part["kind"].startswith("tessera.collective/")]
        if backend.split("?")[0] not in known:
            raise _l.NotFound(f'there is no backend "{backend}": {", ".join(sorted(known))} and auto are known')

    def _enter(self) -> None:
        """Lets this thread into the group until it releases ``_used``. Only one thread may be in it, because there is
        one set of buffers for calls."""
        if not self._used.acquire(True, self._patience_s):
            raise _l.FailedPrecondition(
                "another thread is in this process group, or in a model over it: one thread at a time may use them"
            )

    def let_threads_wait(self) -> None:
        """Makes later threads wait for their turn instead of being refused. Their order is random, so only a group of
        one rank may do this."""
        if self.world_size > 1:
            raise _l.FailedPrecondition("threads of several ranks would take turns in different orders")
        self._patience_s = 60.0

    def _wait(self, function: Any, *arguments: Any) -> None:
        """Makes a call that may wait for other ranks. The thread must have entered."""
        self._calls += 1
        code = function(*arguments, self._error_address)
        self._calls += 1
        if code:
            _l.raise_error(code, self._error)

    def _call(self, function: Any, *arguments: Any) -> None:
        self._enter()
        try:
            self._wait(function, *arguments)
        finally:
            self._used.release()

    def all_reduce(self, array: Any, op: str = "sum") -> None:
        """Replaces the array by its sum, max or min over all ranks. It is writable and contiguous, of float32, float64,
        int32 or int64."""
        tensor = Tensor(_in_place(array))
        self._call(_l.lib.tsr_process_group_all_reduce, self._handle.value, tensor.address, _operation(op))

    def broadcast(self, array: Any, root: int = 0) -> None:
        """Copies rank ``root``'s values to all ranks, in place. The array is writable and contiguous."""
        root = _check.whole(root, "root", 0, 2**31 - 1)
        tensor = Tensor(_in_place(array))
        self._call(_l.lib.tsr_process_group_broadcast, self._handle.value, tensor.address, root)

    def all_gather(self, array: Any, out: Optional[np.ndarray] = None) -> np.ndarray:
        """Returns the arrays of all ranks, in rank order: ``[world_size, *shape]``, in new memory or in ``out``, which
        has as many elements. All arrays have the same shape and dtype."""
        sent = as_array(array, "the array")
        out = np.empty((self.world_size, *sent.shape), sent.dtype) if out is None else _in_place(out)
        send, recv = Tensor(sent), Tensor(out)
        self._call(_l.lib.tsr_process_group_all_gather, self._handle.value, send.address, recv.address)
        return out

    def reduce_scatter(self, array: Any, op: str = "sum", out: Optional[np.ndarray] = None) -> np.ndarray:
        """Returns the sum, max or min of all parts for this rank, ``[*shape]``. ``array`` is ``[world_size, *shape]``,
        with a part for each rank. It has a type of ``all_reduce``."""
        sent = as_array(array, "the array")
        if len(sent.shape) == 0 or sent.shape[0] != self.world_size:
            raise _l.InvalidArgument(f"the array must be [{self.world_size}, ...]: a piece for each rank")
        out = np.empty(sent.shape[1:], sent.dtype) if out is None else _in_place(out)
        send, recv = Tensor(sent), Tensor(out)
        function = _l.lib.tsr_process_group_reduce_scatter
        self._call(function, self._handle.value, send.address, recv.address, _operation(op))
        return out

    def all_to_all(
        self, array: Any, send_counts: Sequence[int], recv_counts: Sequence[int], out: Optional[np.ndarray] = None
    ) -> np.ndarray:
        """Exchanges parts of any length: ``send_counts[r]`` elements of ``array`` go to rank r, and ``recv_counts[r]``
        elements of the result ``[n]`` come from it. Parts are in rank order."""
        sent = as_array(array, "the array")
        if len(send_counts) != self.world_size or len(recv_counts) != self.world_size:
            raise _l.InvalidArgument(f"there is a count for each of the {self.world_size} ranks")
        out = np.empty(sum(recv_counts), sent.dtype) if out is None else _in_place(out)
        send, recv = Tensor(sent), Tensor(out)
        to, of = ((c.c_int64 * self.world_size)(*counts) for counts in (send_counts, recv_counts))
        function = _l.lib.tsr_process_group_all_to_all
        addresses = send.address, c.addressof(to), recv.address, c.addressof(of)
        self._call(function, self._handle.value, *addresses)
        return out

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self._call(_l.lib.tsr_process_group_barrier, self._handle.value)

    def abort(self, reason: str) -> None:
        """Ends all waiting operations of this group on all ranks with the error ``reason``. The group cannot be used
        afterwards. Any thread may call it."""
        _l.call("process_group_abort", self._handle.value, _check.text(reason, "reason").encode())

    def close(self) -> None:
        """Closes the group. Collections over it keep it open until they are gone."""
        self._handle.close()
        self._handle = _Closed()


class _Closed:
    """The handle of a group that was closed."""

    @property
    def value(self) -> Any:
        raise _l.InvalidArgument("this process group was closed: make another one")

    def close(self) -> None:
        pass


def _operation(op: str) -> int:
    if op not in _OPERATIONS:
        raise _l.InvalidArgument(f'op is "{op}"; {", ".join(_OPERATIONS)} are known')
    return _OPERATIONS[op]


def _in_place(array: Any) -> np.ndarray:
    out = as_array(array, "the array")
    shares = out is array or (not isinstance(array, (list, tuple)) and np.shares_memory(out, as_view(array)))
    if not shares or not out.flags.writeable:
        raise _l.InvalidArgument("the array is changed in place, but must be writable and contiguous")
    return out


def as_view(array: Any) -> np.ndarray:
    """Returns the array itself, or another library's array as a NumPy array, over the same memory if possible."""
    return array if isinstance(array, np.ndarray) else np.asarray(array)
