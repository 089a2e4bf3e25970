"""Errors for names of TorchRec that tessera.torch lacks, each with one sentence that names it."""

from __future__ import annotations

import difflib
import importlib
import sys
from types import ModuleType
from typing import Any, Callable, Dict, List, Mapping, TypeVar

HERE = "tessera.torch"

# TorchRec's names without a counterpart, and the alternative to each.
_ABSENT = {
    "distributed training": (
        "DMPCollection HybridEvalDMP DataParallelWrapper DefaultDataParallelWrapper ShardingEnv2D shard_modules shard "
        "ShardedTensor ParameterSharding ShardedModule QCommsConfig CommType "
        "get_qcomm_codecs_registry sharded_model_copy get_local_rank get_local_size ShardedEmbeddingTower",
        "DistributedModelParallel over all ranks is what there is",
    ),
    "planning": (
        "EmbeddingPlannerBase EmbeddingEnumerator GreedyProposer UniformProposer GridSearchProposer "
        "DynamicProgrammingProposer EmbeddingOffloadScaleupProposer GreedyPerfPartitioner "
        "MemoryBalancedPartitioner EmbeddingPerfEstimator EmbeddingStorageEstimator EmbeddingStats "
        "NoopStorageReservation FixedPercentageStorageReservation InferenceStorageReservation NoopPerfModel "
        "Perf Storage Shard ShardingOption "
        "ShardEstimator Enumerator Proposer Partitioner PerfModel Stats PlanLoader CacheParams KeyValueParams "
        "CacheAlgorithm BoundsCheckMode GeneralizedCommsBandwidth BasicCommsBandwidths CustomTopologyData",
        "the planner's parts are the library's, and tessera.Planner has its settings",
    ),
    "training": (
        "TrainPipeline TrainPipelinePT2 TrainPipelineSemiSync TrainPipelineSparseDistLite StagedTrainPipeline "
        "TrainPipelineFusedSparseDist TrainPipelineSparseDistCompAutograd PrefetchTrainPipelineSparseDist "
        "EvalPipelineFusedSparseDist DataLoadingThread PipelineStage",
        "TrainPipelineBase and TrainPipelineSparseDist are what there is",
    ),
    "optimizers": (
        "KeyedOptimizer FusedOptimizerModule SemisyncOptimizer",
        "KeyedOptimizerWrapper, CombinedOptimizer and OptimizerWrapper are what there is",
    ),
    "modules": (
        "EmbeddingBagCollectionInterface EmbeddingCollectionInterface EmbeddingTower EmbeddingTowerCollection "
        "FeatureProcessedEmbeddingBagCollection FeatureProcessor PositionWeightedModule "
        "PositionWeightedModuleCollection FusedEmbeddingBagCollection FusedEmbeddingCollection "
        "ManagedCollisionCollection ManagedCollisionEmbeddingBagCollection ManagedCollisionEmbeddingCollection "
        "MCHManagedCollisionModule KeyedJaggedTensorPool TensorPool ITEPEmbeddingBagCollection",
        "EmbeddingBagCollection and EmbeddingCollection are what there is",
    ),
    "dense modules and data": (
        "MLP Perceptron SwishLayerNorm DeepFM FactorizationMachine CrossNet LowRankCrossNet VectorCrossNet "
        "LowRankMixtureCrossNet SimpleDeepFMNN DLRM DLRM_DCN DLRM_Projection DLRMTrain SparseArch DenseArch OverArch "
        "InteractionArch RecMetricModule RecMetric RandomRecDataset",
        "take TorchRec's own: dense modules work over these tables as they are",
    ),
    "inference": (
        "PredictFactory PredictModule BatchingMetadata QualNameMetadata quantize_inference_model shard_quant_model "
        "quantize_dense quantize_feature set_pruning_data",
        "quantize(model) infers in PyTorch, and pack(model, DIRECTORY) is for tessera serve",
    ),
}
_REASONS = {name: instead for names, instead in _ABSENT.values() for name in names.split()}

# This maps a subpackage of TorchRec that tessera.torch lacks to what users can take instead.
_ABSENT_MODULES = {
    "metrics": "take TorchRec's own, such as torchrec.metrics.metric_module.RecMetricModule; tessera.train "
    "has the metrics of docs/training.md",
    "models": "take TorchRec's own, such as torchrec.models.dlrm.DLRM, and give it a collection of tessera.torch",
    "datasets": "take TorchRec's own, because tables take its KeyedJaggedTensor; tessera.train reads files and frames",
    "modules": _ABSENT["modules"][1] + "; of dense modules " + _ABSENT["dense modules and data"][1],
    "optim": _ABSENT["optimizers"][1],
    "distributed": _ABSENT["distributed training"][1],
    "inference": _ABSENT["inference"][1],
    "quant": _ABSENT["inference"][1],
    **dict.fromkeys("experimental fx pt2 schema sparse tensor_types test_utils types utils".split(), ""),
}

# TorchRec's modules, so that only the package's name changes: from tessera.torch.distributed.planner import Topology
_PATHS = (
    "distributed distributed.embedding distributed.embedding_types distributed.embeddingbag distributed.model_parallel "
    "distributed.planner distributed.planner.planners distributed.planner.storage_reservations "
    "distributed.planner.types distributed.sharding_plan distributed.train_pipeline "
    "distributed.train_pipeline.train_pipelines distributed.types inference inference.modules modules "
    "modules.embedding_configs modules.embedding_modules optim optim.apply_optimizer_in_backward optim.clipping "
    "optim.keyed optim.optimizers optim.rowwise_adagrad optim.warmup quant quant.embedding_modules sparse "
    "sparse.jagged_tensor streamable"
)


class _Path(ModuleType):
    """A module path of TorchRec. It gives all names of tessera.torch; in TorchRec's module of quantized collections,
    they have names without ``Quant``."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        quantized = self.__name__.startswith(HERE + ".quant") and name.startswith("Embedding")
        return getattr(sys.modules[HERE], "Quant" + name if quantized else name)

    def __reduce__(self) -> Any:
        return importlib.import_module, (self.__name__,)


class _Absent:
    """The last import finder. It lets the import of a module that only TorchRec has fail with a sentence."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        """Raises for TorchRec's modules, and finds none."""
        top = name[len(HERE) + 1 :].partition(".")[0]
        if name.startswith(HERE + ".") and top in _ABSENT_MODULES:
            raise ModuleNotFoundError(_no_counterpart(name[len(HERE) + 1 :], _ABSENT_MODULES[top]), name=name)


def _no_counterpart(name: str, instead: str) -> str:
    return f"torchrec's {name} has no counterpart in tessera.torch" + (f": {instead}" if instead else "")


def make_paths() -> None:
    """Makes TorchRec's module paths work below this package. ``import tessera.torch`` calls it."""
    sys.meta_path.append(_Absent)  # type: ignore[arg-type]
    for path in _PATHS.split():
        made = _Path(f"{HERE}.{path}", _Path.__doc__)
        made.__path__ = []  # type: ignore[attr-defined]
        sys.modules[made.__name__] = made
        parent, _, name = made.__name__.rpartition(".")
        if name not in vars(sys.modules[HERE]):  # optim.apply_optimizer_in_backward is the function
            setattr(sys.modules[parent], name, made)


def absent(name: str) -> Exception:
    """Returns the exception for a name that tessera.torch lacks."""
    instead = _REASONS.get(name, _ABSENT_MODULES.get(name))
    if instead is not None:
        return NotImplementedError(_no_counterpart(name, instead))
    near = difflib.get_close_matches(name, [n for n in vars(sys.modules[HERE]) if not n.startswith("_")], 1)
    return AttributeError(f"tessera.torch has no {name}" + (f": the nearest name is {near[0]}" if near else ""))


def refuse(of: str, given: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Refuses arguments. ``given`` has TorchRec's arguments that may only have their usual values. Others are
    unknown."""
    for name, value in given.items():
        if name not in usual:
            near = difflib.get_close_matches(name, usual, 1)
            raise TypeError(f"{of} takes no {name}" + (f": the nearest is {near[0]}" if near else ""))
        if value is not usual[name] and value is not None and value != usual[name]:
            raise NotImplementedError(
                f"{of}: {name} has no counterpart in tessera.torch, and was given as {value!r:.60}"
            )


Kind = TypeVar("Kind", bound=type)

# Methods of PyTorch's optimizers that optimizers with states by name lack, as in TorchRec.
STATE_HOOKS = [f"register_{of}_{when}_hook" for of in ("state_dict", "load_state_dict") for when in ("pre", "post")]


def lacks(*names: str, instead: str = "") -> Callable[[Kind], Kind]:
    """Gives a class those methods of TorchRec that only raise an error with a sentence."""

    def with_them(kind: Kind) -> Kind:
        for name in names:
            setattr(kind, name, _method(kind.__name__, name, instead))
        return kind

    return with_them


def _method(kind: str, name: str, instead: str) -> Callable:
    def method(self: Any, *_: Any, **__: Any) -> None:
        text = f"{kind}.{name} of torchrec has no counterpart in tessera.torch"
        raise NotImplementedError(text + (f": {instead}" if instead else ""))

    method.__name__ = name
    method.__doc__ = f"Refused: it has no counterpart{f'; {instead}' if instead else ''}."
    return method


def usual(names: str, value: Any = None) -> Dict[str, Any]:
    """Returns a mapping from these names to one value."""
    out: List[str] = names.split()
    return dict.fromkeys(out, value)
