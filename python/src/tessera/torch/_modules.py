"""EmbeddingBagCollection and EmbeddingCollection as PyTorch modules, on one rank or sharded."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Union

import torch
from torch import Tensor
from torch.fx import Proxy

from .._tables import Optimizer
from . import _ops, _traced, _weights
from ._awaitable import JaggedRows
from ._configs import EmbeddingBagConfig, EmbeddingConfig
from ._embeddings import Embeddings
from ._keyed import KeyedTensor
from ._lookups import Pooled, Sequences, Work, batch_arguments
from ._sparse import JaggedTensor, KeyedJaggedTensor


class EmbeddingBagCollection(Embeddings):
    """Pooled lookups: ``forward(KeyedJaggedTensor) -> KeyedTensor``, keys in the order of the tables' features.

    optimizer: the ``tessera.Optimizer`` that updates rows during backward; ``apply_optimizer_in_backward`` can also set
    it. device "meta": the collection has no rows until it is sharded.
    """

    kind = "bags"
    _rows_kind = _weights.BagRows

    def embedding_bag_configs(self) -> List[EmbeddingBagConfig]:
        """The tables, as they were given."""
        return self._configs

    def is_weighted(self) -> bool:
        """True if ids have weights."""
        return self._is_weighted

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Returns the pooled rows of each sample, by the tables' features."""
        if isinstance(features, Proxy):
            return _traced.leaf(self, features)
        if _ops.wanted():
            exported = _traced.exporting() and _traced.takes(self, features)
            if exported:
                _traced.refuse_training(self)
            return (_traced if exported or self.stands_in() else _ops).pooled(self, features)
        return self._look_up(features)

    def _look_up(self, features: KeyedJaggedTensor) -> KeyedTensor:
        core = self.core
        if self.settle():
            return _traced.pooled(self, features)
        batch = batch_arguments(features, core.features, self._is_weighted)
        if torch.is_grad_enabled():
            work = Work(self, batch, features)
            weights = features.weights_or_none() if self._is_weighted else None
            learnt = weights if weights is not None and weights.requires_grad else None
            if learnt is not None:
                work.remember(*work.dense)
            values = Pooled.apply(self._asked(), work, learnt, *work.dense)
        else:
            values = torch.from_numpy(core.lookup(**batch))
        return KeyedTensor(list(core.outputs), list(core.outputs.values()), self._given(values))

    def rows_of(self, features: Any) -> Any:
        """Returns the pooled rows; no backward can follow."""
        self.settle()
        return self.core.lookup(**batch_arguments(features, self.core.features, self._is_weighted))


def sequences_of(features: Any, rows: Dict[str, Tensor], need_indices: bool) -> Dict[str, JaggedTensor]:
    """Returns rows by output name, with the lengths of their features and, with need_indices, the ids as weights."""
    lengths = dict(zip(features.keys(), torch.split(features.lengths(), features.stride_per_key())))
    ids: Dict[str, Tensor] = {}
    if need_indices:
        ids = dict(zip(features.keys(), torch.split(features.values(), features.length_per_key())))
    named = ((name, name.split("@")[0], values) for name, values in rows.items())
    return JaggedRows({name: JaggedTensor(values, ids.get(key), lengths[key]) for name, key, values in named})


class EmbeddingCollection(Embeddings):
    """Lookups that are not pooled: ``forward(KeyedJaggedTensor) -> {name: JaggedTensor}``, a row for each id.
    need_indices: outputs have the ids as their weights."""

    kind = "sequences"
    _rows_kind = _weights.SequenceRows

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
        """The tables, as they were given."""
        return self._configs

    def need_indices(self) -> bool:
        """True if outputs have their ids as weights."""
        return self._need_indices

    def embedding_dim(self) -> int:
        """The dimension of the first table."""
        return self._configs[0].embedding_dim

    def embedding_names_by_table(self) -> List[List[str]]:
        """The outputs of each table."""
        features = [feature for config in self._configs for feature in config.feature_names]
        return [[f"{f}@{c.name}" if features.count(f) > 1 else f for f in c.feature_names] for c in self._configs]

    def forward(self, features: KeyedJaggedTensor) -> Dict[str, JaggedTensor]:
        """A row for each id, by the tables' features."""
        if isinstance(features, Proxy):
            return _traced.leaf(self, features)
        if _ops.wanted():
            plain = not _traced.exporting() and self.stands_in()
            rows = _traced.sequences(self, features) if plain else _ops.sequences(self, features)
            return sequences_of(features, dict(zip(self._names, rows)), self._need_indices)
        return self._look_up(features)

    def _look_up(self, features: KeyedJaggedTensor) -> Dict[str, JaggedTensor]:
        core = self.core
        if self.settle():
            rows = _traced.sequences(self, features)
        elif torch.is_grad_enabled():
            work = Work(self, batch_arguments(features, core.features, False, False), features)
            rows = [self._given(one) for one in Sequences.apply(self._asked(), work, *work.dense)]
        else:
            rows = [self._given(torch.from_numpy(one)) for one in self.rows_of(features).values()]
        return sequences_of(features, dict(zip(core.outputs, rows)), self._need_indices)

    def rows_of(self, features: Any) -> Any:
        """Returns the rows of each output; no backward can follow."""
        self.settle()
        return self.core._forward(**batch_arguments(features, self.core.features, False, False)).outputs
