"""Sharders, plans and what makes them, with TorchRec's names and arguments."""

from __future__ import annotations

import enum
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch.distributed as dist
from torch import nn

from .. import _tables as _t
from ._counterpart import lacks, refuse, usual
from ._modules import EmbeddingBagCollection, EmbeddingCollection, Embeddings
from ._optim import fused_optimizer

_GIB = float(1 << 30)


class ShardingType(enum.Enum):
    """Ids of sharder plugins."""

    DATA_PARALLEL = "data_parallel"
    TABLE_WISE = "table_wise"
    COLUMN_WISE = "column_wise"
    ROW_WISE = "row_wise"
    TABLE_ROW_WISE = "table_row_wise"
    TABLE_COLUMN_WISE = "table_column_wise"
    GRID_SHARD = "grid_shard"


class EmbeddingComputeKernel(enum.Enum):
    """Those that there are on the CPU: rows with a fused optimizer, and copies whose gradients are reduced."""

    DENSE = "dense"
    FUSED = "fused"


def collections_of(module: nn.Module) -> Iterator[Tuple[str, Embeddings]]:
    """The collections in a module, with their paths."""
    for path, part in module.named_modules():
        if isinstance(part, Embeddings):
            yield path, part


@lacks("shard", "reshard", "compute_kernels", "shardable_parameters", "sharded_module_type", "storage_usage",
       instead="DistributedModelParallel shards, and the library's sharders say what they can")  # fmt: skip
class ModuleSharder:
    """Which modules are sharded, and by what optimizer their tables are updated in backward."""

    module_type: type = Embeddings

    def __init__(self, fused_params: Optional[Mapping[str, Any]] = None, **theirs: Any) -> None:
        """theirs: TorchRec's further arguments, None."""
        refuse(type(self).__name__, theirs, {**usual("qcomm_codecs_registry sharded_module_order_overwrite"),
                                             "use_index_dedup": False})  # fmt: skip
        self.fused_params = fused_params
        self.optimizer = fused_optimizer(fused_params)

    def sharding_types(self, compute_device_type: str = "cpu") -> List[str]:
        return [kind.value for kind in ShardingType]


class EmbeddingBagCollectionSharder(ModuleSharder):
    """``EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.EXACT_SGD, "learning_rate": 0.1})``."""

    module_type = EmbeddingBagCollection


class EmbeddingCollectionSharder(ModuleSharder):
    module_type = EmbeddingCollection


def get_default_sharders() -> List[ModuleSharder]:
    """Without optimizers: of tables that have their own."""
    return [EmbeddingBagCollectionSharder(), EmbeddingCollectionSharder()]


_LINKS = "hbm_mem_bw ddr_mem_bw ssd_mem_bw hbm_to_ddr_mem_bw intra_host_bw inter_host_bw generalized_comms_bandwidths"
_COSTS = "bwd_compute_multiplier weighted_feature_bwd_compute_multiplier uneven_sharding_perf_multiplier"


class Topology:
    """The ranks that are planned for. Memory in bytes, per rank; None: TorchRec's figures. What links and memory bring
    is measured (docs/calibration.md) and not given here: other arguments of TorchRec's are refused."""

    def __init__(
        self,
        world_size: int,
        compute_device: str = "cpu",
        hbm_cap: Optional[int] = None,
        ddr_cap: Optional[int] = None,
        ssd_cap: Optional[int] = None,
        local_world_size: Optional[int] = None,
        pod_size: Optional[int] = None,
        **theirs: Any,
    ) -> None:
        theirs.update(pod_size=pod_size)
        names = f"pod_size custom_topology_data created_by_factory {_LINKS} {_COSTS}"
        refuse("Topology", theirs, usual(names))
        self.world_size, self.compute_device = world_size, compute_device
        self.hbm_cap, self.ddr_cap, self.ssd_cap = hbm_cap, ddr_cap, ssd_cap
        self.local_world_size = local_world_size


class HeuristicalStorageReservation:
    """The part of the memory, 0 to 1, that a planner leaves free."""

    def __init__(self, percentage: float, **theirs: Any) -> None:
        refuse("HeuristicalStorageReservation", theirs, {"parameter_multiplier": 6.0, "dense_tensor_estimate": None})
        self._percentage = percentage


class ParameterConstraints(_t.ParameterConstraints):
    """Limits on the planner's choices for a table: TorchRec's arguments, then those of tessera.ParameterConstraints."""

    def __init__(
        self,
        sharding_types: Optional[Sequence[str]] = None,
        compute_kernels: Optional[Sequence[str]] = None,
        min_partition: Optional[int] = None,
        pooling_factors: Optional[Sequence[float]] = None,
        num_poolings: Optional[Sequence[float]] = None,
        batch_sizes: Optional[Sequence[float]] = None,
        is_weighted: Optional[bool] = None,
        **more: Any,
    ) -> None:
        own = {key: more.pop(key) for key in _t.ParameterConstraints.__dataclass_fields__ if key in more}
        theirs = "cache_params enforce_hbm stochastic_rounding bounds_check_mode feature_names output_dtype"
        refuse("ParameterConstraints", more, {**usual(f"{theirs} device_group key_value_params"),
                                              "use_virtual_table": False})  # fmt: skip
        super().__init__(
            sharding_types=_names(sharding_types), compute_kernels=_names(compute_kernels), min_partition=min_partition,
            pooling_factors=pooling_factors, num_poolings=num_poolings, batch_sizes=batch_sizes,
            is_weighted=is_weighted, **own,
        )  # fmt: skip


def _names(kinds: Optional[Sequence[Any]]) -> Optional[List[str]]:
    return None if kinds is None else [str(getattr(kind, "value", kind)) for kind in kinds]


class ShardingPlan:
    """``plan``: module path -> table -> ``Sharding``; or, of a planner, ``made``: a ``tessera.Plan``."""

    def __init__(
        self, plan: Optional[Mapping[str, Mapping[str, _t.Sharding]]] = None, *, made: Optional[_t.Plan] = None
    ) -> None:
        self.plan = {path: dict(tables) for path, tables in (plan or {}).items()}
        self.made = made

    def get_plan_for_module(self, module_path: str) -> Optional[Dict[str, _t.Sharding]]:
        return self.plan.get(module_path)

    def __str__(self) -> str:
        return str(self.made) if self.made else str(self.plan)

    def _repr_html_(self) -> Optional[str]:
        return self.made._repr_html_() if self.made else None


_PARTS = "enumerator proposer partitioner performance_model stats callbacks plan_loader"
_SETTINGS = tuple(_t.Planner.__dataclass_fields__)


@lacks("get_search_space", "get_selected_options", "hash_planner_context_inputs", "hash_planner_context_inputs_str",
       instead="print(plan) says what was chosen")  # fmt: skip
class EmbeddingShardingPlanner:
    """Which sharding, and which ranks, for every table: ``plan(module, sharders)``."""

    def __init__(
        self,
        topology: Optional[Topology] = None,
        batch_size: Optional[int] = None,
        *,
        constraints: Optional[Mapping[str, _t.ParameterConstraints]] = None,
        timeout_seconds: Optional[int] = None,
        storage_reservation: Any = None,
        debug: bool = False,
        **settings: Any,
    ) -> None:
        """timeout_seconds: of the search. storage_reservation: TorchRec's heuristic one, of which the percentage is
        taken. debug has no effect: ``print`` a plan. settings: those of ``tessera.Planner``. TorchRec's enumerator,
        proposer, partitioner and the like are refused: the library has its own."""
        theirs = {key: value for key, value in settings.items() if key not in _SETTINGS}
        refuse("EmbeddingShardingPlanner", theirs, usual(_PARTS))
        settings = {key: value for key, value in settings.items() if key in _SETTINGS}
        if timeout_seconds is not None:
            settings["time_limit_s"] = timeout_seconds
        if storage_reservation is not None:
            if not hasattr(storage_reservation, "_percentage"):
                kind = type(storage_reservation).__name__
                raise NotImplementedError(
                    f"the storage reservation {kind} has no counterpart: give reserved_percentage"
                )
            settings["reserved_percentage"] = storage_reservation._percentage
        self.topology = topology or Topology(dist.get_world_size() if dist.is_initialized() else 1)
        t = self.topology
        self._planner = _t.Planner(
            constraints=constraints or {},
            world_size=t.world_size,
            local_world_size=t.local_world_size,
            compute_device=t.compute_device,
            hbm_gib=None if t.hbm_cap is None else t.hbm_cap / _GIB,
            ddr_gib=None if t.ddr_cap is None else t.ddr_cap / _GIB,
            ssd_gib=None if t.ssd_cap is None else t.ssd_cap / _GIB,
            batch_size=batch_size,
            **settings,
        )

    def plan(self, module: nn.Module, sharders: Optional[Sequence[ModuleSharder]] = None) -> ShardingPlan:
        """On equal input equal on every rank; talks to nobody."""
        modules = {path: part.description() for path, part in collections_of(module)}
        return ShardingPlan(made=_t.plan(modules, self._planner))

    def collective_plan(
        self, module: nn.Module, sharders: Optional[Sequence[ModuleSharder]] = None, pg: Any = None
    ) -> ShardingPlan:
        """Rank 0's plan, or what it failed with, on all ranks of torch.distributed."""
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return self.plan(module, sharders)
        told: List[Any] = [None, None]
        if dist.get_rank() == 0:
            try:
                told[0] = self.plan(module, sharders).made.json
            except Exception as error:
                told[1] = error
        dist.broadcast_object_list(told, src=0)
        if told[1] is not None:
            raise told[1]
        return ShardingPlan(made=_t.Plan(told[0]))


def _kernel(constructor: str, compute_kernel: Any) -> Optional[str]:
    name = None if compute_kernel is None else str(getattr(compute_kernel, "value", compute_kernel))
    if name not in (None, *(kernel.value for kernel in EmbeddingComputeKernel)):
        raise NotImplementedError(f"{constructor}: the compute kernel {name} has no counterpart in tessera.torch")
    return name


def table_wise(rank: int = 0, device: Optional[str] = None, compute_kernel: Optional[str] = None) -> _t.Sharding:
    """The whole table on one rank."""
    refuse("table_wise", {"device": device}, {"device": "cpu"})
    return _t.Sharding("table_wise", [rank], _kernel("table_wise", compute_kernel))


def row_wise(
    sizes_placement: Any = None, compute_kernel: Optional[str] = None, num_buckets: Optional[int] = None
) -> _t.Sharding:
    """An equal part of the rows on each rank."""
    refuse("row_wise", {"sizes_placement": sizes_placement, "num_buckets": num_buckets},
           usual("sizes_placement num_buckets"))  # fmt: skip
    return _t.Sharding("row_wise", compute_kernel=_kernel("row_wise", compute_kernel))


def column_wise(
    ranks: Optional[Sequence[int]] = None,
    size_per_rank: Optional[Sequence[int]] = None,
    compute_kernel: Optional[str] = None,
    device_types: Optional[Sequence[str]] = None,
) -> _t.Sharding:
    """Columns, one piece for each entry of ``ranks``."""
    refuse("column_wise", {"size_per_rank": size_per_rank}, {"size_per_rank": None})
    refuse("column_wise", {"device_types": set(device_types or ["cpu"])}, {"device_types": {"cpu"}})
    if not ranks:
        raise ValueError("column_wise needs ranks: one for each piece")
    return _t.Sharding("column_wise", list(ranks), _kernel("column_wise", compute_kernel), pieces=len(ranks))


def apply_to_all(
    module: Embeddings, parameter_sharding_generator: _t.Sharding, sharder: Optional[ModuleSharder] = None
) -> Dict[str, _t.Sharding]:
    """One sharding for every table of a module."""
    return {table.name: parameter_sharding_generator for table in module.description().tables}


def construct_module_sharding_plan(
    module: Embeddings,
    per_param_sharding: Mapping[str, _t.Sharding],
    sharder: Optional[ModuleSharder] = None,
    local_size: Optional[int] = None,
    world_size: Optional[int] = None,
    device_type: Optional[str] = None,
) -> Dict[str, _t.Sharding]:
    """The shardings of one module, for ``ShardingPlan({path: ...})``: one for each of its tables. sharder, local_size
    and world_size have no effect: DistributedModelParallel has them of its ranks."""
    refuse("construct_module_sharding_plan", {"device_type": device_type}, {"device_type": "cpu"})
    if not isinstance(module, Embeddings):
        raise TypeError(f"a {type(module).__name__} has no tables: give a collection of tessera.torch")
    tables = {table.name for table in module.description().tables}
    if tables != set(per_param_sharding):
        raise ValueError(
            f"the tables of the module are {', '.join(sorted(tables))}, and shardings are given for "
            f"{', '.join(sorted(per_param_sharding))}"
        )
    return dict(per_param_sharding)
