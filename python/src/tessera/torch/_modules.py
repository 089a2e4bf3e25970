"""EmbeddingBagCollection and EmbeddingCollection as PyTorch modules, on one rank or sharded."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import numpy as np
import torch
from torch import Tensor, nn

from .._collections import Collection, DistributedModelParallel
from .._tables import DataType, Module, Optimizer, PoolingType
from .._tables import EmbeddingBagConfig as _BagConfig
from .._tables import EmbeddingConfig as _Config
from ._counterpart import refuse
from ._sparse import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from ._state import load_table


_OF_TABLES = "num_embeddings_post_pruning input_dim total_num_buckets virtual_table_eviction_policy"
_STORED = {"FP16": torch.float16, "BF16": torch.bfloat16}


@dataclass
class EmbeddingConfig:
    """A table: TorchRec's fields. Start values are uniform in [weight_init_min, weight_init_max], which are as far
    below 0 as above; None: 1 / sqrt(num_embeddings). init_fn changes a tensor with all rows in place instead. The
    others of TorchRec's fields are refused unless they are as when left out."""

    num_embeddings: int
    embedding_dim: int
    name: str = ""
    data_type: DataType = DataType.FP32
    feature_names: List[str] = field(default_factory=list)
    weight_init_max: Optional[float] = None
    weight_init_min: Optional[float] = None
    num_embeddings_post_pruning: Optional[int] = None
    init_fn: Optional[Callable[[Tensor], Optional[Tensor]]] = None
    need_pos: bool = False
    input_dim: Optional[int] = None
    total_num_buckets: Optional[int] = None
    use_virtual_table: bool = False
    virtual_table_eviction_policy: Any = None
    enable_embedding_update: bool = False
    stash_weights: bool = False

    def __post_init__(self) -> None:
        names = f"{_OF_TABLES} need_pos use_virtual_table enable_embedding_update stash_weights".split()
        refuse(f"table {self.name}", {name: getattr(self, name) or None for name in names}, dict.fromkeys(names))

    def get_weight_init_max(self) -> float:
        return self.num_embeddings**-0.5 if self.weight_init_max is None else self.weight_init_max

    def get_weight_init_min(self) -> float:
        return -(self.num_embeddings**-0.5) if self.weight_init_min is None else self.weight_init_min

    def num_features(self) -> int:
        return len(self.feature_names)


@dataclass
class EmbeddingBagConfig(EmbeddingConfig):
    """A table whose rows are pooled."""

    pooling: PoolingType = PoolingType.SUM


def _value(kind: Any) -> str:
    return str(getattr(kind, "value", kind))


def core_config(config: Any, kind: str, optimizer: Optional[Optimizer]) -> _Config:
    """Our table of a config here or of TorchRec's own."""
    above, below = config.weight_init_max, config.weight_init_min
    if (above is None) != (below is None) or (above is not None and above != -below):
        raise NotImplementedError(
            f"table {config.name}: a weight_init_min other than -weight_init_max has no counterpart; give init_fn"
        )
    common = dict(
        num_embeddings=config.num_embeddings,
        embedding_dim=config.embedding_dim,
        name=config.name,
        data_type=_value(config.data_type),
        feature_names=list(config.feature_names),
        init_range=above,
        optimizer=optimizer,
    )
    return _BagConfig(**common, pooling=_value(config.pooling)) if kind == "bags" else _Config(**common)


def _array(tensor: Tensor) -> np.ndarray:
    if not tensor.is_cpu:
        raise ValueError(f"a tensor on {tensor.device} is not taken: bring it to the cpu")
    if tensor.requires_grad:
        tensor = tensor.detach()
    return tensor.numpy() if tensor.is_contiguous() else tensor.contiguous().numpy()


def outside_graphs(function: Callable) -> Callable:
    """Excludes a function and everything it calls from ``torch.compile``, with one graph break. torch.compiler.disable
    does that but takes a second to import, so it is used only if the compiler is loaded."""
    disabled: List[Callable] = []

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    run._torchdynamo_disable = True  # type: ignore[attr-defined]
    run._torchdynamo_disable_msg = "tables are looked up in Tessera's library"  # type: ignore[attr-defined]
    return run


def batch_arguments(features: Any, known: List[str], is_weighted: bool) -> Dict[str, Any]:
    """The arguments for a collection with these features, from a KeyedJaggedTensor, ours or TorchRec's."""
    keys, lengths = features.keys(), features.lengths_or_none()
    batch: Dict[str, Any] = {"values": _array(features.values())}
    if keys != known:
        batch["keys"] = keys
    if lengths is not None:
        batch["lengths"] = _array(lengths)
    else:
        batch["offsets"] = _array(features.offsets())
    if is_weighted:
        weights = features.weights_or_none()
        if weights is not None:
            batch["weights"] = _array(weights.float())
    if features.variable_stride_per_key():
        batch["strides"] = features.stride_per_key()
        inverse = features.inverse_indices_or_none()
        if inverse is not None:
            order = [inverse[0].index(key) for key in keys]
            batch["inverse"] = inverse[1][order]
    return batch


class _Pooled(torch.autograd.Function):
    """Rows of a batch; its backward updates the tables. ``anchor`` asks for gradients where nothing else does."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, collection: Collection, batch: Dict[str, Any], weights: Optional[Tensor]
    ) -> Tensor:
        ctx.step, ctx.batch = collection.forward(**batch), batch if weights is not None else None
        return torch.from_numpy(ctx.step.output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[None, None, None, Optional[Tensor]]:
        of_weights = None
        if ctx.batch is not None:
            core = ctx.step._collection  # of the rows before the update
            of_weights = torch.from_numpy(core.weight_gradients(_array(grad), **ctx.batch))
        ctx.step.backward(_array(grad))
        return None, None, None, of_weights


class _Sequences(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, collection: Collection, batch: Dict[str, Any]) -> Tuple[Tensor, ...]:
        ctx.step = collection.forward(**batch)
        ctx.set_materialize_grads(False)
        return tuple(torch.from_numpy(rows) for rows in ctx.step.outputs.values())

    @staticmethod
    def backward(ctx: Any, *grads: Optional[Tensor]) -> Tuple[None, None, None]:
        named = zip(ctx.step.outputs, grads)
        ctx.step.backward({name: _array(grad) for name, grad in named if grad is not None})
        return None, None, None


class Embeddings(nn.Module):
    """The base of the collections. Rows belong to the library and are not PyTorch parameters. They are in
    ``state_dict()`` under TorchRec's names, and a fused optimizer updates them during backward."""

    kind = ""

    def __init__(
        self,
        tables: List[EmbeddingConfig],
        is_weighted: bool = False,
        device: Union[None, str, torch.device] = None,
        *,
        optimizer: Optional[Optimizer] = None,
    ) -> None:
        super().__init__()
        names = [config.name for config in tables]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"two tables are called {twice[0]}")
        self.device = torch.device(device or "cpu")
        if self.device.type not in ("cpu", "meta"):
            raise NotImplementedError(f"tables on {self.device} have no counterpart here: cpu and meta have")
        self._configs = list(tables)
        self._is_weighted = is_weighted
        self._optimizers: List[Optional[Optimizer]] = [optimizer] * len(self._configs)
        self._core: Optional[Collection] = None
        self._model: Optional[DistributedModelParallel] = None
        self._anchor = torch.zeros((), requires_grad=True)

    # ---- tables

    def set_optimizer(self, optimizer: Optimizer) -> None:
        if self._core is not None:
            raise RuntimeError("the tables exist already: choose the optimizer before they are used or sharded")
        self._optimizers = [optimizer] * len(self._configs)

    def description(self, otherwise: Optional[Optimizer] = None) -> Module:
        """For the library; ``otherwise``: of tables without an optimizer."""
        pairs = zip(self._configs, self._optimizers)
        tables = [core_config(config, self.kind, optimizer or otherwise) for config, optimizer in pairs]
        return Module(tables, self.kind, self._is_weighted)

    def attach(self, core: Collection) -> None:
        """The tables are those from now on; start values of init_fn are written."""
        self._core = core
        for config in self._configs:
            if config.init_fn is not None:
                rows = torch.empty(config.num_embeddings, config.embedding_dim)
                changed = config.init_fn(rows)
                core.set_weight(config.name, (rows if changed is None else changed).detach())

    @property
    def core(self) -> Collection:
        """The library's collection: rows, shards, rates, as docs/python.md says."""
        if self._core is None:
            if self.device.type == "meta":
                raise RuntimeError("these tables are on the meta device: shard them, or make them on the cpu")
            self._model = DistributedModelParallel({"": self.description()})
            self.attach(self._model[""])
        return self._core

    # ---- state dict

    def _named_tables(self) -> List[Tuple[str, str]]:
        inside = "embedding_bags" if self.kind == "bags" else "embeddings"
        return [(config.name, f"{inside}.{config.name}.weight") for config in self._configs]

    def _save_to_state_dict(self, destination: Dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for config, (table, key) in zip(self._configs, self._named_tables()):
            dtype = _STORED.get(_value(config.data_type), torch.float32)
            shape = (config.num_embeddings, config.embedding_dim)
            if self._core is None and self.device.type == "meta":
                destination[prefix + key] = torch.empty(shape, dtype=dtype, device="meta")
            else:
                destination[prefix + key] = self._table_tensor(table, dtype)

    def _table_tensor(self, table: str, dtype: torch.dtype) -> Any:
        return torch.from_numpy(self.core.weight(table)).to(dtype)

    def _load_from_state_dict(
        self,
        state_dict: Dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: List[str],
        unexpected_keys: List[str],
        error_msgs: List[str],
    ) -> None:
        known = {prefix + key for _, key in self._named_tables()}
        if strict:
            unexpected_keys += [key for key in state_dict if key.startswith(prefix) and key not in known]
        for config, (table, key) in zip(self._configs, self._named_tables()):
            value = state_dict.get(prefix + key)
            shape = (config.num_embeddings, config.embedding_dim)
            if value is None:
                if strict:
                    missing_keys.append(prefix + key)
            elif tuple(value.shape) != shape:
                error_msgs.append(f"{prefix + key} is {list(value.shape)}, and the table is {list(shape)}")
            else:
                wrong = load_table(self.core, table, value)
                if wrong:
                    error_msgs.append(wrong)


class EmbeddingBagCollection(Embeddings):
    """Pooled lookups: ``forward(KeyedJaggedTensor) -> KeyedTensor``, keys in the order of the tables' features.

    optimizer: what updates rows during backward, a ``tessera.Optimizer``; or ``apply_optimizer_in_backward``. device
    "meta": only describes, to be sharded.
    """

    kind = "bags"

    def embedding_bag_configs(self) -> List[EmbeddingBagConfig]:
        return self._configs

    def is_weighted(self) -> bool:
        return self._is_weighted

    @outside_graphs
    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        core = self.core
        batch = batch_arguments(features, core.features, self._is_weighted)
        if torch.is_grad_enabled():
            weights = features.weights_or_none() if self._is_weighted else None
            learnt = weights if weights is not None and weights.requires_grad else None
            values = _Pooled.apply(self._anchor, core, batch, learnt)
        else:
            values = torch.from_numpy(core.lookup(**batch))
        return KeyedTensor(list(core.outputs), list(core.outputs.values()), values)


def sequences_of(features: Any, rows: Dict[str, Tensor], need_indices: bool) -> Dict[str, JaggedTensor]:
    """Rows by output name, with the lengths of their features, and with need_indices their ids as weights."""
    lengths = dict(zip(features.keys(), torch.split(features.lengths(), features.stride_per_key())))
    ids: Dict[str, Tensor] = {}
    if need_indices:
        ids = dict(zip(features.keys(), torch.split(features.values(), features.length_per_key())))
    named = ((name, name.split("@")[0], values) for name, values in rows.items())
    return {name: JaggedTensor(values, ids.get(key), lengths[key]) for name, key, values in named}


class EmbeddingCollection(Embeddings):
    """Lookups that are not pooled: ``forward(KeyedJaggedTensor) -> {name: JaggedTensor}``, a row for each id.
    need_indices: what comes out has the ids as its weights, too."""

    kind = "sequences"

    def __init__(
        self,
        tables: List[EmbeddingConfig],
        device: Union[None, str, torch.device] = None,
        need_indices: bool = False,
        use_gather_select: bool = False,
        use_gather_select_per_sharding: Any = None,
        *,
        optimizer: Optional[Optimizer] = None,
    ) -> None:
        """use_gather_select and use_gather_select_per_sharding have no effect."""
        super().__init__(tables, False, device, optimizer=optimizer)
        self._need_indices = need_indices

    def embedding_configs(self) -> List[EmbeddingConfig]:
        return self._configs

    def need_indices(self) -> bool:
        return self._need_indices

    def embedding_dim(self) -> int:
        """The dimension of the first table."""
        return self._configs[0].embedding_dim

    def embedding_names_by_table(self) -> List[List[str]]:
        """The outputs of each table."""
        features = [feature for config in self._configs for feature in config.feature_names]
        return [[f"{f}@{c.name}" if features.count(f) > 1 else f for f in c.feature_names] for c in self._configs]

    @outside_graphs
    def forward(self, features: KeyedJaggedTensor) -> Dict[str, JaggedTensor]:
        core = self.core
        batch = batch_arguments(features, core.features, False)
        rows = _Sequences.apply(self._anchor, core, batch)
        return sequences_of(features, dict(zip(core.outputs, rows)), self._need_indices)
