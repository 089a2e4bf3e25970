"""Lookups by PyTorch's own operators: for torch.export and torch.jit.trace, whose results then need no library, and for
tensors that replace a table's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn import functional

from ._keyed import KeyedTensor

if TYPE_CHECKING:
    from ._modules import EmbeddingBagCollection, EmbeddingCollection


def exporting() -> bool:
    """True if this call is exported or traced, so that its result may run without this package."""
    return getattr(torch.compiler, "is_exporting", lambda: False)() or torch.jit.is_tracing()


def leaf(module: nn.Module, features: Proxy) -> Any:
    """Keeps the call of a module as one node in a graph of torch.fx, as for PyTorch's own modules."""
    tracer: Any = features.tracer
    return tracer.create_proxy("call_module", tracer.path_of_module(module), (features,), {})


def refuse_training(module: Any, also: bool = False) -> None:
    """Refuses to export tables that backward would train, because the exported model does not train them. also: refuse
    tables without an optimizer as well."""
    if module.training and torch.is_grad_enabled() and (module.trains() or (also and module.dense_weights())):
        raise NotImplementedError(
            "an exported or traced model does not train its tables: call eval() before, or export without gradients"
        )


def takes(module: EmbeddingBagCollection, features: Any) -> bool:
    """True if a lookup can be done by PyTorch's own operators, with sizes that do not depend on the ids."""
    return module.core._group.world_size == 1 and not features.variable_stride_per_key()


def pooled(module: EmbeddingBagCollection, features: Any) -> KeyedTensor:
    """Returns the pooled rows of the collection, without sizes that depend on the ids."""
    if features.variable_stride_per_key():
        raise NotImplementedError(
            "a tensor stands in for a table's rows, and the features have different numbers of samples: give all "
            "features the same number"
        )
    keys, samples = features.keys(), features.stride()
    ids, lengths = features.values().long(), features.lengths().long().reshape(-1)
    bag = torch.repeat_interleave(torch.arange(lengths.shape[0]), lengths, output_size=ids.shape[0])
    weights = features.weights_or_none()
    if module.is_weighted() != (weights is not None):
        told = "the collection is weighted, and the features have no weights"
        raise ValueError(told if weights is None else "the collection is not weighted, and the features have weights")
    out: List[Tensor] = []
    for config, feature, _ in module.outputs_in_order():
        i = keys.index(feature)
        inside = (bag >= i * samples) & (bag < (i + 1) * samples)
        table = module._places()._modules[config.name].weight
        rows = table[torch.where(inside, ids, 0)].float() * inside[:, None]
        if weights is not None:
            rows = rows * weights[:, None]
        to = torch.where(inside, bag - i * samples, 0)
        rows = rows.new_zeros(samples, config.embedding_dim).index_add(0, to, rows)
        if str(getattr(config.pooling, "value", config.pooling)) == "MEAN":
            rows = rows / lengths[i * samples : (i + 1) * samples].clamp(min=1)[:, None]
        out.append(rows)
    names = list(module.core.outputs.items())
    return KeyedTensor([name for name, _ in names], [dim for _, dim in names], module._given(torch.cat(out, 1)))


def sequences(module: EmbeddingCollection, features: Any) -> List[Tensor]:
    """Returns a row for each id, for each output."""
    ids = dict(zip(features.keys(), torch.split(features.values().long(), features.length_per_key())))
    tables = module._places()._modules
    rows = [functional.embedding(ids[key], tables[config.name].weight) for config, key, _ in module.outputs_in_order()]
    return [module._given(one.float()) for one in rows]
