"""Models of other libraries: their tables taken over, and given back."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn

from .._tables import DataType, Optimizer, PoolingType
from ._modules import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig, Embeddings
from ._sparse import KeyedJaggedTensor

_MODES = {"sum": PoolingType.SUM, "mean": PoolingType.MEAN}


class AdoptedEmbeddingBag(EmbeddingBagCollection):
    """Replaces an ``nn.EmbeddingBag`` and takes the same arguments."""

    def forward(
        self, input: Tensor, offsets: Optional[Tensor] = None, per_sample_weights: Optional[Tensor] = None
    ) -> Tensor:
        if input.dim() == 2:
            if offsets is not None:
                raise ValueError("offsets are for indices of one dimension")
            bags, width = input.shape
            offsets = torch.arange(0, bags * width + 1, width) if width else torch.zeros(bags + 1, dtype=torch.int64)
            weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
            input = input.reshape(-1)
        else:
            end = torch.tensor([input.numel()], dtype=offsets.dtype)
            offsets, weights = torch.cat([offsets, end]), per_sample_weights
        if weights is None and self._is_weighted:
            weights = torch.ones(input.numel())
        features = KeyedJaggedTensor([self._configs[0].name], input, weights, offsets=offsets)
        return super().forward(features).values()


class AdoptedEmbedding(EmbeddingCollection):
    """Replaces an ``nn.Embedding``."""

    def forward(self, input: Tensor) -> Tensor:
        ids = input.reshape(-1)
        name = self._configs[0].name
        features = KeyedJaggedTensor([name], ids, lengths=torch.tensor([ids.numel()]))
        rows = super().forward(features)[name].values()
        return rows.reshape(*input.shape, rows.shape[-1])


def _refuse_options(module: nn.Module, path: str) -> None:
    for option, usual in (("padding_idx", None), ("max_norm", None), ("scale_grad_by_freq", False), ("sparse", False)):
        if getattr(module, option, usual) not in (usual, True if option == "sparse" else usual):
            raise NotImplementedError(f"{option} of {path} has no counterpart in tessera.torch")
    if getattr(module, "include_last_offset", False):
        raise NotImplementedError(f"include_last_offset of {path} has no counterpart in tessera.torch")


def _counterpart(module: nn.Module, path: str, optimizer: Optimizer) -> Optional[Tuple[Embeddings, Dict[str, Tensor]]]:
    """Ours for a module, and its weights by table; None: it has no tables of its own. PyTorch's have one, named by the
    path."""
    name = path.replace(".", "_")
    if isinstance(module, Embeddings):
        return None
    if isinstance(module, nn.EmbeddingBag):
        _refuse_options(module, path)
        if module.mode not in _MODES:
            raise NotImplementedError(f"mode {module.mode} of {path} has no counterpart in tessera.torch")
        pooling = _MODES[module.mode]
        config = EmbeddingBagConfig(module.num_embeddings, module.embedding_dim, name, pooling=pooling)
        return AdoptedEmbeddingBag([config], pooling is PoolingType.SUM, optimizer=optimizer), {name: module.weight}
    if isinstance(module, nn.Embedding):
        _refuse_options(module, path)
        config = EmbeddingConfig(module.num_embeddings, module.embedding_dim, name)
        return AdoptedEmbedding([config], optimizer=optimizer), {name: module.weight}
    if hasattr(module, "embedding_bag_configs") and hasattr(module, "embedding_bags"):  # TorchRec's
        bags = module.embedding_bag_configs()
        configs = [_config(EmbeddingBagConfig, c, pooling=PoolingType(c.pooling.value)) for c in bags]
        ours: Embeddings = EmbeddingBagCollection(configs, module.is_weighted(), optimizer=optimizer)
        return ours, {c.name: module.embedding_bags[c.name].weight for c in configs}
    if hasattr(module, "embedding_configs") and hasattr(module, "embeddings"):
        configs = [_config(EmbeddingConfig, c) for c in module.embedding_configs()]
        ours = EmbeddingCollection(configs, need_indices=module.need_indices(), optimizer=optimizer)
        return ours, {c.name: module.embeddings[c.name].weight for c in configs}
    return None


def _config(kind: Any, theirs: Any, **more: Any) -> Any:
    return kind(theirs.num_embeddings, theirs.embedding_dim, theirs.name, DataType(theirs.data_type.value),
                list(theirs.feature_names), **more)  # fmt: skip


def adopt(model: nn.Module, optimizer: Optimizer, plan: Optional[Any] = None) -> List[str]:
    """Replaces the ``nn.EmbeddingBag``, ``nn.Embedding`` and TorchRec collections of a model by ours, with their
    weights. Their paths. Rows are updated during backward by ``optimizer``; make the model's own optimizer afterwards.
    What they were is kept for ``release``.

    plan: how tables are cut over the ranks of torch.distributed, a ``ShardingPlan`` or a mapping from table to
    ``row_wise()`` and the like; collective then, as lookups and ``release`` are. A table of PyTorch has the name of its
    module, with ``_`` for each dot. None: all tables are on this rank alone, until ``DistributedModelParallel`` shards
    them."""
    adopted = []
    for path, module in list(model.named_modules()):
        if not path or any(path.startswith(outer + ".") for outer in adopted):
            continue
        found = _counterpart(module, path, optimizer)
        if found is None:
            continue
        ours, weights = found
        for table, weight in weights.items():
            ours.core.set_weight(table, weight.detach().float())
        ours.__dict__["_adopted"] = module
        _replace(model, path, ours)
        adopted.append(path)
    if plan is not None and adopted:
        from ._parallel import shard_in_place

        shard_in_place(model, plan)
    return adopted


def release(model: nn.Module) -> List[str]:
    """Gives the modules that ``adopt`` has replaced back, with the rows as they are now. Their paths."""
    released = []
    for path, ours in list(model.named_modules()):
        theirs = ours.__dict__.get("_adopted")
        if theirs is None:
            continue
        tables = {ours._configs[0].name: theirs} if isinstance(theirs, (nn.EmbeddingBag, nn.Embedding)) else dict(
            getattr(theirs, "embedding_bags", None) or theirs.embeddings)  # fmt: skip
        for table, module in tables.items():
            with torch.no_grad():
                module.weight.copy_(torch.from_numpy(ours.core.weight(table)))
        _replace(model, path, theirs)
        released.append(path)
    return released


def _replace(model: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)
