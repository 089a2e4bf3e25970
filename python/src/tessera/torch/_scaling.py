"""PyTorch's GradScaler: tables are updated in backward, before it unscales, so their gradients are unscaled here."""

from __future__ import annotations

import functools
from typing import Any, List, Optional

import torch
from torch import Tensor


def current() -> float:
    """The factor on the gradients of the backward that this thread is in."""
    return _factors[-1] if _factors else 1.0


# The engine may run functions of the CPU in the thread that called backward, or in another one: one list for all.
_factors: List[float] = []


def scaled(gradients: List[Optional[Tensor]]) -> List[Optional[Tensor]]:
    """Gradients that leave the tables, as the GradScaler expects them."""
    factor = current()
    return gradients if factor == 1 else [g if g is None else g * factor for g in gradients]


def _began(factor: float) -> None:
    _factors.append(factor)
    torch.autograd.Variable._execution_engine.queue_callback(_factors.pop)


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
