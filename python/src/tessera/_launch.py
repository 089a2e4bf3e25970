"""Starts ranks from a program or a notebook. Each is a new Python process, as a launcher would start it."""

from __future__ import annotations

import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _check, _library as _l

_GRACE_S = 5.0  # after a rank has failed, the others have this long to report what they saw


def launch(
    fn: Callable[..., Any], n: int, *args: Any, env: Optional[Dict[str, str]] = None, timeout_s: Optional[float] = None
) -> List[Any]:
    """Runs ``fn(*args)`` in n new processes on this host, and returns their results by rank.

    In each process, ``tessera.ProcessGroup()`` and ``torch.distributed.init_process_group()`` meet the other ranks.
    Their output appears here. A function of a notebook or of the main program is pickled by the package cloudpickle; a
    function of a module does not need that package. env: additional environment variables. Raises ``RuntimeError`` with
    the traceback or the signal if a rank fails, and ``TimeoutError`` after ``timeout_s`` seconds. In both cases, and
    after Ctrl-C, all ranks are ended."""
    if not callable(fn):
        raise _l.InvalidArgument(f"fn is a function, not an object of type {type(fn).__name__}")
    if _check.whole(n, "n", -(2**31), 2**20) < 1:
        raise _l.InvalidArgument(f"n is {n}, but must be at least 1")
    if env is not None:
        _check.of_type(env, dict, "env", "a dict of variables")
    if timeout_s is not None:
        timeout_s = _check.number(timeout_s, "timeout_s", above=0)
    work = _pickler(fn)((fn, args))
    with tempfile.TemporaryDirectory(prefix="tessera-launch-") as folder:
        Path(folder, "work").write_bytes(work)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        common = dict(os.environ, WORLD_SIZE=str(n), LOCAL_WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port), TESSERA_JOB_TOKEN=secrets.token_hex(16), PYTHONUNBUFFERED="1",
                      PYTHONPATH=os.pathsep.join(path for path in sys.path if path), **(env or {}))  # fmt: skip
        ranks = [_Rank(folder, rank, common) for rank in range(n)]
        try:
            _wait(ranks, timeout_s)
        finally:
            for rank in ranks:
                rank.end()
        return [rank.result() for rank in ranks]


def _pickler(fn: Callable[..., Any]) -> Callable[[Any], bytes]:
    try:
        import cloudpickle
    except ImportError:
        if getattr(fn, "__module__", None) == "__main__" or "<" in getattr(fn, "__qualname__", ""):
            raise _l.FailedPrecondition(
                "launch() sends a function of the notebook or program itself by cloudpickle, which is not installed: "
                "pip install cloudpickle, or put the function into a module"
            ) from None
        return pickle.dumps
    return cloudpickle.dumps


class _Rank:
    """One process, and a thread that prints its output."""

    def __init__(self, folder: str, rank: int, env: Dict[str, str]) -> None:
        self.rank = rank
        self._out = Path(folder, str(rank))
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from tessera._launch import _run; _run()", folder],
            env=dict(env, RANK=str(rank), LOCAL_RANK=str(rank)),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        self._reader = threading.Thread(target=self._print, daemon=True)
        self._reader.start()

    def _print(self) -> None:
        for line in self.process.stdout or ():
            sys.stdout.write(line)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(2)
        if self.process.stdout:
            self.process.stdout.close()

    def _told(self) -> Optional[Tuple[bool, Any]]:
        return pickle.loads(self._out.read_bytes()) if self._out.exists() else None

    def why_it_failed(self) -> str:
        told = self._told()
        if told and not told[0]:
            return f"rank {self.rank} failed:\n{told[1]}"
        status = self.process.returncode
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"rank {self.rank} {how}"

    def result(self) -> Any:
        told = self._told()
        if not told:
            raise RuntimeError(f"{self.why_it_failed()} before its function returned")
        return told[1]


def _wait(ranks: List[_Rank], timeout_s: Optional[float]) -> None:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    patience = None  # the time until which other ranks may go on after a failure
    first: Optional[_Rank] = None
    while True:
        running = [rank for rank in ranks if rank.process.poll() is None]
        now = time.monotonic()
        if first is None:
            first = next((rank for rank in ranks if rank not in running and rank.process.returncode), None)
            patience = None if first is None else now + _GRACE_S
        if first is not None and (not running or now > patience):
            raise RuntimeError(first.why_it_failed())
        if not running:
            return
        if deadline is not None and now > deadline:
            late = ", ".join(str(rank.rank) for rank in running)
            raise _l.DeadlineExceeded(f"after {timeout_s:g} s these ranks were still running: {late}")
        time.sleep(0.01)


def _run() -> None:
    """Runs a rank's work and stores its result."""
    folder, rank = sys.argv[1], os.environ["RANK"]
    done = False
    try:
        fn, args = pickle.loads(Path(folder, "work").read_bytes())
        value: Any = fn(*args)
        told = _pickler(fn)((True, value))
        done = True
    except BaseException:
        told = pickle.dumps((False, traceback.format_exc()))
    whole = Path(folder, f"{rank}.part")
    whole.write_bytes(told)
    whole.replace(Path(folder, rank))
    if not done:
        sys.exit(1)
