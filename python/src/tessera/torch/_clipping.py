"""PyTorch's clip_grad_norm_ over sharded tables: each rank has other rows, and the norm is over all rows."""

from __future__ import annotations

import functools
import math
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grad

from . import _weights


def _shards(gradients: Sequence[Tensor]) -> Tuple[List[Tensor], List[Tensor], Any]:
    """Splits gradients into those of sharded tables and those that are equal on all ranks. Also returns the tables'
    process group, or None if no gradient is of a sharded table."""
    own, group = set(), None
    for parameter, (found, table) in _weights.known():
        planned = getattr(found, "_planned", {}).get(table)
        if planned is not None and planned["combine"] != "replica" and parameter.grad is not None:
            if found.core._group.world_size > 1:
                own.add(id(parameter.grad))
                group = found.core._group
    return [g for g in gradients if id(g) in own], [g for g in gradients if id(g) not in own], group


def _over_ranks(norm: Tensor, kind: float, group: Any) -> float:
    """Returns the norm over all ranks' parts, given this rank's norm. kind: the p of the p-norm. Collective."""
    total = np.array([float(norm) if math.isinf(kind) else float(norm) ** kind], np.float32)
    group.all_reduce(total, "max" if math.isinf(kind) else "sum")
    return float(total[0]) if math.isinf(kind) else float(total[0]) ** (1 / kind)


def _refuse() -> None:
    """Lets clip_grad_norm_ refuse gradients of shards, for a PyTorch that has no separate function for the norm."""
    plain = clip_grad.clip_grad_norm_

    @functools.wraps(plain)
    def clip_grad_norm_(parameters: Any, *args: Any, **kwargs: Any) -> Tensor:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        if _shards([p.grad for p in given if p.grad is not None])[0]:
            raise NotImplementedError("clip_grad_norm_ over sharded tables needs a newer PyTorch, such as 2.14")
        return plain(given, *args, **kwargs)

    if not hasattr(plain, "_tessera"):
        clip_grad_norm_._tessera = True  # type: ignore[attr-defined]
        clip_grad.clip_grad_norm_ = torch.nn.utils.clip_grad_norm_ = clip_grad_norm_


def watch() -> None:
    """Lets clip_grad_norm_ know which gradients are shards. ``import tessera.torch`` calls it."""
    plain = getattr(clip_grad, "_get_total_norm", None)
    if plain is None:
        return _refuse()
    if hasattr(plain, "_tessera"):
        return None

    @functools.wraps(plain)
    def total_norm(tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: Any = None) -> Any:
        given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        shards, alike, group = _shards(given)
        if not shards:
            return plain(given, norm_type, error_if_nonfinite, foreach)
        kind = float(norm_type)

        def norm(parts: List[Tensor]) -> Optional[Tensor]:
            return plain([part for part in parts if part.numel()], kind, False, foreach)

        both = torch.stack([torch.tensor(_over_ranks(norm(shards), kind, group)), torch.as_tensor(norm(alike)).float()])
        return plain([torch.linalg.vector_norm(both, kind)], 2.0, error_if_nonfinite, foreach)

    total_norm._tessera = True  # type: ignore[attr-defined]
    clip_grad._get_total_norm = total_norm
    if hasattr(torch.nn.utils, "get_total_norm"):
        torch.nn.utils.get_total_norm = total_norm
