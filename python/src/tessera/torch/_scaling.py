"""PyTorch's GradScaler: tables are updated in backward, before it unscales, so their gradients are unscaled here."""

from __future__ import annotations

import functools
import threading
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor


def current() -> float:
    """The factor on the gradients of the backward that is running."""
    return _factors[-1][1] if _factors else 1.0


# The threads that began a backward, and their factors. There is one list for all threads, because the engine may run
# functions of the CPU in the thread that called backward, or in another one.
_factors: List[Tuple[int, float]] = []


def forget_failed() -> None:
    """Forgets the factors of backwards of this thread that an error has ended. A lookup asks for this."""
    if _factors and torch._C._current_graph_task_id() == -1:
        _factors[:] = [entry for entry in _factors if entry[0] != threading.get_ident()]


def scaled(gradients: List[Optional[Tensor]]) -> List[Optional[Tensor]]:
    """Gradients that leave the tables, as the GradScaler expects them."""
    factor = current()
    return gradients if factor == 1 else [g if g is None else g * factor for g in gradients]


def _began(factor: float) -> None:
    entry = (threading.get_ident(), factor)
    _factors.append(entry)
    torch.autograd.Variable._execution_engine.queue_callback(lambda: entry in _factors and _factors.remove(entry))


def watch() -> None:
    """Lets backward know the factor of a loss that a GradScaler has scaled. Done by ``import tessera.torch``."""
    scaler = getattr(getattr(torch.amp, "grad_scaler", None), "GradScaler", None)
    if scaler is None or hasattr(scaler.scale, "_tessera"):
        return
    plain = scaler.scale

    @functools.wraps(plain)
    def scale(self: Any, outputs: Any) -> Any:
        out = plain(self, outputs)
        if self.is_enabled():
            factor = self.get_scale()
            for tensor in out if isinstance(out, (list, tuple)) else [out]:
                if isinstance(tensor, Tensor) and tensor.requires_grad:
                    tensor.register_hook(lambda _: _began(factor))
        return out

    scale._tessera = True  # type: ignore[attr-defined]
    scaler.scale = scale
