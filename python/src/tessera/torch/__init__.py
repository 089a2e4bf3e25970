"""Tessera for PyTorch: TorchRec's names over Tessera's tables. ``import tessera.torch as torchrec`` is where to begin.

Rows live in the library, are looked up there and updated during backward; everything else is plain PyTorch on the CPU.
What has no counterpart raises ``NotImplementedError`` with a sentence that names it.
"""

import torch.distributed as _dist

from .._tables import (
    DataType,
    ParameterConstraints,
    PoolingType,
    column_wise,
    data_parallel,
    grid_shard,
    row_wise,
    table_column_wise,
    table_row_wise,
    table_wise,
)
from ._adopt import adopt, release
from ._modules import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig
from ._optim import (
    CombinedOptimizer,
    EmbOptimType,
    FusedOptimizer,
    KeyedOptimizerWrapper,
    apply_optimizer_in_backward,
)
from ._pack import Layer, pack
from ._parallel import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    EmbeddingCollectionSharder,
    EmbeddingShardingPlanner,
    ShardedEmbeddingBagCollection,
    ShardedEmbeddingCollection,
    ShardingPlan,
    Topology,
    construct_module_sharding_plan,
    process_group,
)
from ._pipeline import EvalPipelineSparseDist, TrainPipelineBase, TrainPipelineSparseDist
from ._quant import QuantEmbeddingBagCollection, QuantEmbeddingCollection, quantize, quantize_embeddings
from ._sparse import JaggedTensor, KeyedJaggedTensor, KeyedTensor

if _dist.is_available():
    from ._backend import register as _register

    _register()

__all__ = [name for name in dir() if not name.startswith("_")]
