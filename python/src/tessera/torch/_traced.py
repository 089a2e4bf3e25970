"""Lookups in PyTorch's own operators, for torch.export and torch.jit.trace: what they make needs no library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

import torch
from torch import Tensor

from ._sparse import KeyedTensor

if TYPE_CHECKING:
    from ._modules import EmbeddingBagCollection


def wanted() -> bool:
    """Whether this call is traced."""
    exporting = getattr(torch.compiler, "is_exporting", lambda: False)()
    return exporting or torch.jit.is_tracing()


def pooled(module: EmbeddingBagCollection, features: Any) -> KeyedTensor:
    """What the collection gives, without sizes that depend on the ids."""
    if module.core._group.world_size > 1:
        raise NotImplementedError("sharded tables cannot be exported: export the unsharded model with these weights")
    if features.variable_stride_per_key():
        raise NotImplementedError("features with different numbers of samples cannot be exported")
    keys, samples = features.keys(), features.stride()
    ids, lengths = features.values().long(), features.lengths().long().reshape(-1)
    bag = torch.repeat_interleave(torch.arange(lengths.shape[0]), lengths, output_size=ids.shape[0])
    weights = features.weights_or_none() if module.is_weighted() else None
    out: List[Tensor] = []
    for config, feature, _ in module.outputs_in_order():
        i = keys.index(feature)
        inside = (bag >= i * samples) & (bag < (i + 1) * samples)
        table = module._places()._modules[config.name].weight
        rows = table[torch.where(inside, ids, 0)].float() * inside[:, None]
        if weights is not None:
            rows = rows * weights[:, None]
        to = torch.where(inside, bag - i * samples, 0)
        rows = torch.zeros(samples, config.embedding_dim).index_add(0, to, rows)
        if str(getattr(config.pooling, "value", config.pooling)) == "MEAN":
            rows = rows / lengths[i * samples : (i + 1) * samples].clamp(min=1)[:, None]
        out.append(rows)
    names = list(module.core.outputs.items())
    return KeyedTensor([name for name, _ in names], [dim for _, dim in names], module._given(torch.cat(out, 1)))
