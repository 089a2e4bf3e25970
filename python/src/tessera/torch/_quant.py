"""Quantized collections, which only infer."""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from .._batch import QuantCollection
from . import _ops, _traced
from ._counterpart import refuse, usual
from ._configs import EmbeddingBagConfig, EmbeddingConfig
from ._embeddings import Embeddings
from ._keyed import KeyedTensor
from ._lookups import batch_arguments
from ._modules import EmbeddingBagCollection, EmbeddingCollection, sequences_of
from ._sparse import JaggedTensor, KeyedJaggedTensor

_FORMATS = {torch.int8: "int8", torch.qint8: "int8", torch.uint8: "int8", torch.quint8: "int8",
            torch.quint4x2: "int4", torch.quint2x4: "int2", torch.float16: "fp16"}  # fmt: skip


def _format(dtype: Any) -> str:
    """The row format for a PyTorch type, a DataType of TorchRec, or a name such as "int8"."""
    if isinstance(dtype, torch.dtype):
        if dtype not in _FORMATS:
            raise NotImplementedError(f"rows of {dtype} have no counterpart; {', '.join(map(str, _FORMATS))} have")
        return _FORMATS[dtype]
    return str(getattr(dtype, "value", dtype)).lower()


class _Quantized(nn.Module):
    """The base of quantized collections, whose lookups are operators in graphs."""

    kind = ""

    def __init__(self, configs: List[Any], is_weighted: bool, core: QuantCollection) -> None:
        super().__init__()
        self._configs, self._is_weighted, self.core = configs, is_weighted, core
        self._names, self._dims = list(core.outputs), list(core.outputs.values())
        self._op_name = _ops.name_of(self, [config.name for config in configs])

    def asked_of_graph(self) -> Tuple[bool, None, List[Tensor]]:
        """Returns the values for a lookup without a backward."""
        return False, None, []

    def rows_in_graph(self) -> List[Tensor]:
        """Returns an empty list, because rows do not change."""
        return []

    def __getstate__(self) -> Dict[str, Any]:
        raise RuntimeError(
            "a quantized collection cannot be copied or pickled: keep the trained model and quantize() it again, or "
            "pack() it for tessera serve"
        )

    def _given(self, rows: Tensor) -> Tensor:
        return rows


class QuantEmbeddingBagCollection(_Quantized):
    """Pooled lookups in quantized tables, whole on this rank: ``forward(KeyedJaggedTensor) -> KeyedTensor`` without
    gradients. ``quantize`` makes it. Its rows are not in a state dict; quantize the trained model again."""

    kind = "bags"

    @classmethod
    def from_float(cls, module: EmbeddingBagCollection, use_precomputed_fake_quant: bool = False) -> nn.Module:
        """The collection with rows of the type that ``module.qconfig.weight`` has."""
        return _of_qconfig(module)

    def embedding_bag_configs(self) -> List[EmbeddingBagConfig]:
        """The tables."""
        return self._configs

    def is_weighted(self) -> bool:
        """True if ids have weights."""
        return self._is_weighted

    def rows_of(self, features: Any) -> Any:
        """Returns the pooled rows as an array."""
        return self.core.lookup(**batch_arguments(features, self.core.features, self._is_weighted))

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        """Returns the pooled rows of each sample, float32."""
        if isinstance(features, Proxy):
            return _traced.leaf(self, features)
        if _ops.wanted():
            return _ops.pooled(self, features)
        return KeyedTensor(list(self._names), list(self._dims), torch.from_numpy(self.rows_of(features)))


class QuantEmbeddingCollection(_Quantized):
    """Lookups that are not pooled in quantized tables: ``forward(KeyedJaggedTensor) -> {name: JaggedTensor}``, without
    gradients; like ``QuantEmbeddingBagCollection``."""

    kind = "sequences"

    def __init__(self, configs: List[EmbeddingConfig], core: QuantCollection, need_indices: bool = False) -> None:
        super().__init__(configs, False, core)
        self._need_indices = need_indices

    @classmethod
    def from_float(cls, module: EmbeddingCollection, use_precomputed_fake_quant: bool = False) -> nn.Module:
        """The collection with rows of the type that ``module.qconfig.weight`` has."""
        return _of_qconfig(module)

    def embedding_configs(self) -> List[EmbeddingConfig]:
        """The tables."""
        return self._configs

    def rows_of(self, features: Any) -> Any:
        """Returns the rows of each output, as arrays by name."""
        ids, bags = features.values().contiguous().numpy(), features.lengths().contiguous().numpy()
        return self.core.sequences(ids, bags, keys=features.keys())

    def forward(self, features: KeyedJaggedTensor) -> Dict[str, JaggedTensor]:
        """A row for each id, float32."""
        if isinstance(features, Proxy):
            return _traced.leaf(self, features)
        if _ops.wanted():
            rows = _ops.sequences(self, features)
        else:
            rows = [torch.from_numpy(one) for one in self.rows_of(features).values()]
        return sequences_of(features, dict(zip(self._names, rows)), self._need_indices)


def _of_qconfig(module: Embeddings) -> nn.Module:
    """The quantized collection that the module's ``qconfig`` asks for, as ``torch.ao.quantization`` sets it."""
    config = getattr(module, "qconfig", None)
    if config is None:
        raise ValueError("the module has no qconfig: quantize_dynamic of PyTorch sets one, or use quantize()")
    return _quantized(module, "", config.weight().dtype, {})


def _quantized(part: Embeddings, path: str, dtype: Any, per_table: Mapping[str, Any]) -> nn.Module:
    if type(part).forward not in (EmbeddingBagCollection.forward, EmbeddingCollection.forward):
        raise NotImplementedError(f"{path or 'the module'} is a {type(part).__name__}: collections are quantized here")
    part.settle()
    own = {config.name: _format(per_table[config.name]) for config in part._configs if config.name in per_table}
    core = part.core.quantize(_format(dtype), own)
    if part.kind == "sequences":
        return QuantEmbeddingCollection(part._configs, core, part.need_indices())
    return QuantEmbeddingBagCollection(part._configs, part._is_weighted, core)


def quantize(
    module: nn.Module,
    dtype: Union[torch.dtype, str, Any] = torch.int8,
    inplace: bool = False,
    additional_qconfig_spec_keys: Optional[List[Any]] = None,
    additional_mapping: Optional[Mapping[Any, Any]] = None,
    output_dtype: torch.dtype = torch.float32,
    per_table_weight_dtype: Optional[Mapping[str, Any]] = None,
) -> nn.Module:
    """Returns a model, sharded or not, whose collections have quantized rows and only infer. TorchRec calls this
    ``quantize_embeddings``. Collective if tables are sharded: then every rank gets all rows.

    dtype: torch.int8, torch.quint4x2, torch.quint2x4, torch.float16, a DataType, or "fp8". inplace: replace the
    collections of ``module`` itself. Outputs are float32. Raises ``ValueError`` for a row with NaN or infinity, and for
    a dim that the type cannot have."""
    from ._parallel import DistributedModelParallel

    theirs = {"additional_qconfig_spec_keys": additional_qconfig_spec_keys, "additional_mapping": additional_mapping,
              "output_dtype": output_dtype}  # fmt: skip
    refuse("quantize", theirs, {**usual(" ".join(theirs)), "output_dtype": torch.float32})
    if isinstance(module, DistributedModelParallel):
        module = module._inner
    per_table = dict(per_table_weight_dtype or {})
    found = {path: part for path, part in module.named_modules() if isinstance(part, Embeddings)}
    unknown = set(per_table) - {config.name for part in found.values() for config in part._configs}
    if unknown:
        raise KeyError(f"there is no table {sorted(unknown)[0]}")
    made = {path: _quantized(part, path, dtype, per_table) for path, part in found.items()}
    if not inplace:
        memo: Dict[int, Any] = {id(found[path]): part for path, part in made.items()}
        return copy.deepcopy(module, memo)
    for path, part in made.items():
        if not path:
            return part
        parent, _, name = path.rpartition(".")
        setattr(module.get_submodule(parent), name, part)
    return module


quantize_embeddings = quantize
