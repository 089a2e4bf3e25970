"""send and recv between two ranks: a connection for each direction, made by the first message."""

from __future__ import annotations

import queue
import re
import threading
import time
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import torch
import torch.distributed as dist

from .._library import TesseraError
from .._runtime import ProcessGroup

# Makes a process group of two ranks from (store, rank, timeout).
Meet = Callable[[Any, int, timedelta], ProcessGroup]


class Message(dist._Work):
    """The result of isend and irecv: ``wait`` raises the error, if any."""

    def __init__(self, future: Future, tensors: List[torch.Tensor]) -> None:
        super().__init__()
        self._future, self._tensors = future, tensors

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Waits until the message has been sent or received. Raises the error, if any."""
        self._future.result()  # the group's own deadline ends it
        return True

    def is_completed(self) -> bool:
        """True if the message has been sent or received, or has failed."""
        return self._future.done()

    def is_success(self) -> bool:
        """True if the message has been sent or received."""
        return self._future.done() and self._future.exception() is None

    def result(self) -> List[torch.Tensor]:
        """The tensors, after ``wait()``."""
        self.wait()
        return self._tensors


def _when_said(store: Any, key: str, timeout: timedelta) -> bytes:
    """Waits for a key of a store, and returns its value. It polls, because a ``get`` that waits would block the store
    for the other threads of this process."""
    end, pause = time.monotonic() + timeout.total_seconds(), 0.0005
    while not store.check([key]):
        if time.monotonic() > end:
            raise TimeoutError(f"the other rank has not come within {timeout.total_seconds():g} s")
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return store.get(key)


class _Store:
    """The keys with one prefix in a PyTorch store, for two ranks that make a group."""

    def __init__(self, store: Any, prefix: str, timeout: timedelta) -> None:
        self._store, self._prefix, self._timeout = store, prefix, timeout

    def set(self, key: str, value: str) -> None:
        self._store.set(self._prefix + key, value)

    def get(self, key: str) -> bytes:
        return _when_said(self._store, self._prefix + key, self._timeout)


class _Direction:
    """Messages from one rank to another, in the order in which they were sent: a header (tag, bytes), then the bytes.
    Only its thread uses the connection. It is a daemon thread, so the process can end."""

    def __init__(self, store: Any, meet: Meet, timeout: timedelta, ends: Tuple[int, int], rank: int) -> None:
        self._store = _Store(store, f"p2p/{ends[0]}/{ends[1]}/", timeout)
        self._meet, self._timeout, self._ends, self._sends = meet, timeout, ends, rank == ends[0]
        self._group: Optional[ProcessGroup] = None
        self._early: Dict[int, List[np.ndarray]] = {}  # messages with other tags than awaited, by tag
        self._waiting: queue.SimpleQueue = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._work, name=f"tessera-messages-{ends[0]}-{ends[1]}", daemon=True
        )
        self._thread.start()

    def submit(self, data: np.ndarray, tag: int, done: Callable[[], Any]) -> Future:
        future: Future = Future()
        self._waiting.put((future, data, tag, done))
        return future

    def _work(self) -> None:
        while True:
            message = self._waiting.get()
            if message is None:
                break
            future, *arguments = message
            try:
                future.set_result(self._run(*arguments))
            except BaseException as error:
                future.set_exception(error)
            del message, future, arguments  # frees their tensors
        if self._group is not None:
            self._group.close()

    def _run(self, data: np.ndarray, tag: int, done: Callable[[], Any]) -> None:
        what = f"rank {self._ends[0]} sends to rank {self._ends[1]}"
        try:
            if self._group is None:
                self._group = self._meet(self._store, 0 if self._sends else 1, self._timeout)
            if self._sends:
                self._group.broadcast(np.array([tag, data.size], np.int64), 0)
                if data.size:
                    self._group.broadcast(data, 0)
            else:
                self._receive(data, tag)
            done()
        except TesseraError as error:  # it names ranks 0 and 1 of the group of two
            named = re.sub(r"\brank ([01])\b", lambda m: f"rank {self._ends[int(m[1])]}", str(error))
            raised = type(error)(named)
            raised.rank = self._ends[error.rank] if error.rank in (0, 1) else -1
            raise raised from None
        except TimeoutError as error:
            raise TimeoutError(f"{what}: {error}") from None

    def _receive(self, into: np.ndarray, tag: int) -> None:
        early = self._early.get(tag)
        if early:
            return self._take(into, early.pop(0), tag)
        assert self._group is not None
        header = np.zeros(2, np.int64)
        while True:
            self._group.broadcast(header, 0)
            size = int(header[1])
            wanted = int(header[0]) == tag
            memory = into if wanted and size == into.size else np.empty(size, np.uint8)
            if size:
                self._group.broadcast(memory, 0)
            if wanted:
                return self._take(into, memory, tag)
            self._early.setdefault(int(header[0]), []).append(memory)

    def _take(self, into: np.ndarray, data: np.ndarray, tag: int) -> None:
        if data.size != into.size:
            raise ValueError(
                f"rank {self._ends[0]} has sent {data.size} bytes with tag {tag}, but the tensor to receive them has "
                f"{into.size}: both ranks need tensors of one size and type"
            )
        if data is not into:
            np.copyto(into, data)

    def close(self) -> None:
        """Closes after all queued messages have been sent."""
        self._waiting.put(None)

    def join(self, seconds: float) -> None:
        """Waits for the end of the thread. A process that ends while its thread frees tensors would abort."""
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def abort(self, reason: str) -> None:
        if self._group is not None:
            self._group.abort(reason)


class PointToPoint:
    """All messages of a rank of a process group, to and from the others."""

    def __init__(self, store: Any, meet: Meet, rank: int, timeout: timedelta) -> None:
        self._store, self._meet, self._rank, self._timeout = store, meet, rank, timeout
        self._directions: Dict[Tuple[int, int], _Direction] = {}
        self._lock = threading.Lock()

    def _direction(self, ends: Tuple[int, int]) -> _Direction:
        if ends[0] == ends[1]:
            raise ValueError(f"rank {ends[0]} cannot send to itself")
        with self._lock:
            if ends not in self._directions:
                self._directions[ends] = _Direction(self._store, self._meet, self._timeout, ends, self._rank)
            return self._directions[ends]

    def send(self, data: np.ndarray, to: int, tag: int, tensors: List[torch.Tensor]) -> Message:
        """Sends bytes to a rank."""
        return Message(self._direction((self._rank, to)).submit(data, tag, lambda: None), tensors)

    def receive(
        self, data: np.ndarray, of: int, tag: int, tensors: List[torch.Tensor], done: Callable[[], Any]
    ) -> Message:
        """Receives bytes of a rank into ``data``, and then calls ``done``."""
        return Message(self._direction((of, self._rank)).submit(data, tag, done), tensors)

    def close(self) -> None:
        """Closes all connections, after waiting some seconds for unsent data."""
        for direction in self._directions.values():
            direction.close()
        end = time.monotonic() + 5
        for direction in self._directions.values():
            direction.join(max(0.0, end - time.monotonic()))

    def abort(self, reason: str) -> None:
        """Ends all connections. Waiting messages fail with the reason."""
        for direction in self._directions.values():
            direction.abort(reason)
