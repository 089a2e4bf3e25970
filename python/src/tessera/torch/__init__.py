"""Tessera for PyTorch: TorchRec's names over Tessera's tables. Begin with ``import tessera.torch as torchrec``.

The library holds the rows, looks them up, and updates them during backward. Everything else is plain PyTorch on the
CPU. Modules have the same paths as in TorchRec, below this one: ``from tessera.torch.distributed.planner import
Topology``. A name without a counterpart raises ``NotImplementedError`` with a sentence that names it.
"""

from typing import TYPE_CHECKING
from typing import Any as _Any

import torch.distributed as _dist

from .._tables import DataType, PoolingType, data_parallel, grid_shard, table_column_wise, table_row_wise
from ._adopt import adopt, release
from ._awaitable import Awaitable, LazyAwaitable, LazyNoWait, NoWait
from ._counterpart import absent as _absent
from ._counterpart import make_paths as _make_paths
from ._clipping import watch as _watch_clipping
from ._configs import EmbeddingBagConfig, EmbeddingConfig
from ._fused import FusedOptimizer
from ._modules import EmbeddingBagCollection, EmbeddingCollection
from ._optim import (
    LAMB,
    SGD,
    Adagrad,
    Adam,
    CombinedOptimizer,
    EmbOptimType,
    KeyedOptimizerWrapper,
    LarsSGD,
    PartialRowWiseAdam,
    PartialRowWiseLAMB,
    RowWiseAdagrad,
    apply_optimizer_in_backward,
    in_backward_optimizer_filter,
)
from ._pack import Layer, pack
from ._parallel import (
    DistributedModelParallel,
    ShardedEmbeddingBagCollection,
    ShardedEmbeddingCollection,
    ShardingEnv,
    process_group,
)
from ._pipeline import (
    EvalPipelineSparseDist,
    Multistreamable,
    Pipelineable,
    TrainPipelineBase,
    TrainPipelineSparseDist,
)
from ._plans import (
    EmbeddingBagCollectionSharder,
    EmbeddingCollectionSharder,
    EmbeddingComputeKernel,
    EmbeddingShardingPlanner,
    HeuristicalStorageReservation,
    ModuleSharder,
    ParameterConstraints,
    ShardingPlan,
    ShardingType,
    Topology,
    apply_to_all,
    column_wise,
    construct_module_sharding_plan,
    get_default_sharders,
    row_wise,
    table_wise,
)
from ._ops import register as _register_ops
from ._scaling import watch as _watch
from ._quant import QuantEmbeddingBagCollection, QuantEmbeddingCollection, quantize, quantize_embeddings
from ._keyed import KeyedTensor
from ._sparse import JaggedTensor, KeyedJaggedTensor
from ._trees import register as _register_trees
from ._wrappers import (
    GradientClipping,
    GradientClippingOptimizer,
    OptimizerWrapper,
    WarmupOptimizer,
    WarmupPolicy,
    WarmupStage,
)

_watch()
_watch_clipping()
_register_trees()
_register_ops()
if _dist.is_available():
    from ._backend import register as _register

    _register()

__all__ = [
    "Adagrad", "Adam", "Awaitable", "CombinedOptimizer", "DataType", "DistributedModelParallel", "EmbOptimType",
    "EmbeddingBagCollection", "EmbeddingBagCollectionSharder", "EmbeddingBagConfig", "EmbeddingCollection",
    "EmbeddingCollectionSharder", "EmbeddingComputeKernel", "EmbeddingConfig", "EmbeddingShardingPlanner",
    "EvalPipelineSparseDist", "FusedOptimizer", "GradientClipping", "GradientClippingOptimizer",
    "HeuristicalStorageReservation", "JaggedTensor", "KeyedJaggedTensor", "KeyedOptimizerWrapper", "KeyedTensor",
    "LAMB", "LarsSGD", "Layer", "LazyAwaitable", "LazyNoWait", "ModuleSharder", "Multistreamable", "NoWait",
    "OptimizerWrapper", "ParameterConstraints", "PartialRowWiseAdam", "PartialRowWiseLAMB", "Pipelineable",
    "PoolingType", "QuantEmbeddingBagCollection", "QuantEmbeddingCollection", "RowWiseAdagrad", "SGD",
    "ShardedEmbeddingBagCollection", "ShardedEmbeddingCollection", "ShardingEnv", "ShardingPlan", "ShardingType",
    "Topology", "TrainPipelineBase", "TrainPipelineSparseDist", "WarmupOptimizer", "WarmupPolicy", "WarmupStage",
    "adopt", "apply_optimizer_in_backward", "apply_to_all", "column_wise", "construct_module_sharding_plan",
    "data_parallel", "get_default_sharders", "grid_shard", "in_backward_optimizer_filter", "pack", "process_group",
    "quantize", "quantize_embeddings", "release", "row_wise", "table_column_wise", "table_row_wise", "table_wise",
]  # fmt: skip
_make_paths()


if not TYPE_CHECKING:  # a type checker knows the names

    def __getattr__(name: str) -> _Any:
        raise AttributeError(name) if name.startswith("_") else _absent(name)
