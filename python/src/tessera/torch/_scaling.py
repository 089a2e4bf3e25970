"""Support for PyTorch's GradScaler. Backward updates tables before the GradScaler unscales, so gradients of tables are
unscaled and checked for infinite values here."""

from __future__ import annotations

import functools
import threading
from typing import Any, Iterable, List, Optional, Tuple

import numpy as np
import torch
from torch import Tensor


def current() -> float:
    """The factor on the gradients of the backward that is running."""
    return _running[-1][1] if _running else 1.0


# The thread, factor and scaler of each backward that runs. All threads share the list, because autograd may run a
# function in another thread than the one that called backward.
_running: List[Tuple[int, float, Any]] = []


def forget_failed() -> None:
    """Forgets backwards of this thread that ended with an error. Lookups call it."""
    if _running and torch._C._current_graph_task_id() == -1:
        _running[:] = [entry for entry in _running if entry[0] != threading.get_ident()]


def scaled(gradients: List[Optional[Tensor]]) -> List[Optional[Tensor]]:
    """Scales gradients that autograd passes on, as the GradScaler expects."""
    factor = current()
    return gradients if factor == 1 else [g if g is None else g * factor for g in gradients]


def skips(group: Any, gradients: Iterable[Tensor]) -> bool:
    """True if a GradScaler must skip this step, because a gradient on any rank is not finite. Collective if the loss is
    scaled; otherwise False without communication."""
    if not _running:
        return False
    wrong = np.array([not all(torch.isfinite(gradient).all() for gradient in gradients)], np.int32)
    if group.world_size > 1:
        group.all_reduce(wrong, "max")
    if wrong[0]:
        _running[-1][2]._tessera_skips = True
    return bool(wrong[0])


def _began(factor: float, scaler: Any) -> None:
    entry = (threading.get_ident(), factor, scaler)
    _running.append(entry)
    torch.autograd.Variable._execution_engine.queue_callback(lambda: entry in _running and _running.remove(entry))


def watch() -> None:
    """Lets backward know the factor of a loss that a GradScaler has scaled, and lets a GradScaler know the steps that
    tables have skipped. ``import tessera.torch`` calls it."""
    scaler = getattr(getattr(torch.amp, "grad_scaler", None), "GradScaler", None)
    if scaler is None or hasattr(scaler.scale, "_tessera"):
        return
    plain_scale, plain_unscale, plain_update = scaler.scale, scaler._unscale_grads_, scaler.update

    @functools.wraps(plain_scale)
    def scale(self: Any, outputs: Any) -> Any:
        out = plain_scale(self, outputs)
        if self.is_enabled():
            factor = self.get_scale()
            for tensor in out if isinstance(out, (list, tuple)) else [out]:
                if isinstance(tensor, Tensor) and tensor.requires_grad:
                    tensor.register_hook(lambda _: _began(factor, self))
        return out

    @functools.wraps(plain_unscale)
    def unscale(self: Any, optimizer: Any, inv_scale: Tensor, found_inf: Tensor, *more: Any) -> Any:
        found = plain_unscale(self, optimizer, inv_scale, found_inf, *more)
        if not found and hasattr(optimizer, "fused_keys"):  # its parameters have no gradients to look through
            found[found_inf.device] = found_inf
        if getattr(self, "_tessera_skips", False):
            for flag in found.values():
                flag.fill_(1.0)
        return found

    @functools.wraps(plain_update)
    def update(self: Any, *args: Any, **kwargs: Any) -> None:
        plain_update(self, *args, **kwargs)
        self._tessera_skips = False

    scale._tessera = True  # type: ignore[attr-defined]
    scaler.scale, scaler._unscale_grads_, scaler.update = scale, unscale, update
