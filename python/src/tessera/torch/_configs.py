"""Tables, as TorchRec describes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, List, Optional

import torch
from torch import Tensor

from .._tables import DataType, Optimizer, PoolingType
from .._tables import EmbeddingBagConfig as _BagConfig
from .._tables import EmbeddingConfig as _Config
from ._counterpart import refuse

_OF_TABLES = "num_embeddings_post_pruning input_dim total_num_buckets virtual_table_eviction_policy"
_STORED = {"FP16": torch.float16, "BF16": torch.bfloat16}


@dataclass
class EmbeddingConfig:
    """A table, with TorchRec's fields. Start values are uniform in [weight_init_min, weight_init_max]; the default is
    +-1 / sqrt(num_embeddings). Instead, init_fn may change a tensor with all rows in place. TorchRec's other fields are
    refused unless they have their default values."""

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
        """The upper bound of start values."""
        return self.num_embeddings**-0.5 if self.weight_init_max is None else self.weight_init_max

    def get_weight_init_min(self) -> float:
        """The lower bound of start values."""
        return -(self.num_embeddings**-0.5) if self.weight_init_min is None else self.weight_init_min

    def num_features(self) -> int:
        """The number of features that look rows up."""
        return len(self.feature_names)


@dataclass
class EmbeddingBagConfig(EmbeddingConfig):
    """A table whose rows are pooled."""

    pooling: PoolingType = PoolingType.SUM


def _value(kind: Any) -> str:
    return str(getattr(kind, "value", kind))


def stored_dtype(config: Any) -> torch.dtype:
    """Returns the type in which a table's rows are stored."""
    return _STORED.get(_value(config.data_type), torch.float32)


def drawn_here(config: Any) -> bool:
    """True if PyTorch draws a table's start values: with init_fn, or between bounds that are not symmetric about 0. The
    library draws only from symmetric bounds."""
    above, below = config.weight_init_max, config.weight_init_min
    return config.init_fn is not None or (above is None) != (below is None) or (above is not None and above != -below)


def core_config(config: Any, kind: str, optimizer: Optional[Optimizer]) -> _Config:
    """Returns Tessera's table for a config of this module or of TorchRec."""
    common = dict(
        num_embeddings=config.num_embeddings,
        embedding_dim=config.embedding_dim,
        name=config.name,
        data_type=_value(config.data_type),
        feature_names=list(config.feature_names),
        init_range=None if drawn_here(config) else config.weight_init_max,
        optimizer=optimizer,
    )
    return _BagConfig(**common, pooling=_value(config.pooling)) if kind == "bags" else _Config(**common)
