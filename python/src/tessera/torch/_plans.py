"""Sharders, plans and planners, with TorchRec's names and arguments."""

from __future__ import annotations

import enum
from typing import Any, Dict, Generic, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from .. import _tables as _t
from ._counterpart import lacks, refuse, usual
from ._embeddings import Embeddings
from ._modules import EmbeddingBagCollection, EmbeddingCollection
from ._optim import COLLECTS, fused_optimizer

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
    """The compute kernels on the CPU: rows with a fused optimizer, and copies whose gradients are all-reduced."""

    DENSE = "dense"
    FUSED = "fused"


def collections_of(module: nn.Module) -> Iterator[Tuple[str, Embeddings]]:
    """The collections in a module, with their paths."""
    for path, part in module.named_modules():
        if isinstance(part, Embeddings):
            yield path, part


def optimizers_of(part: Embeddings, sharders: Sequence[ModuleSharder]) -> List[Optional[_t.Optimizer]]:
    """The optimizer of each table: its own, or the sharder's."""
    of_type = [s.optimizer for s in sharders if s.optimizer is not None and isinstance(part, s.module_type)]
    return [own or (of_type[0] if of_type else None) for own in part.optimizers()]


Kind = TypeVar("Kind")


@lacks("reshard", "compute_kernels", "shardable_parameters", "sharded_module_type", "storage_usage",
       instead="DistributedModelParallel shards, and the library's sharders say what they can")  # fmt: skip
class ModuleSharder(Generic[Kind]):
    """Names the modules to shard, and the optimizer that updates their tables in backward."""

    module_type: type = Embeddings
    use_index_dedup = False

    def __init__(self, fused_params: Optional[Mapping[str, Any]] = None, **theirs: Any) -> None:
        """theirs: TorchRec's other arguments, which must be None."""
        refuse(type(self).__name__, theirs, {**usual("qcomm_codecs_registry sharded_module_order_overwrite"),
                                             "use_index_dedup": False})  # fmt: skip
        self.fused_params = fused_params
        self.optimizer = fused_optimizer(fused_params)

    def shard(
        self,
        module: Embeddings,
        params: Mapping[str, _t.Sharding],
        env: Any = None,
        device: Any = None,
        module_fqn: Optional[str] = None,
    ) -> nn.Module:
        """Shards a collection over all ranks. params: ``plan.plan[PATH]``. Collective. env and device have no effect,
        because all ranks share the tables, on the CPU."""
        from ._parallel import shard_one

        refuse(f"{type(self).__name__}.shard", {"device": None if device is None else torch.device(device).type},
               {"device": "cpu"})  # fmt: skip
        return shard_one(module, ShardingPlan({"": dict(params)}), self)

    def sharding_types(self, compute_device_type: str = "cpu") -> List[str]:
        """The sharding types that tables may have."""
        return [kind.value for kind in ShardingType]


class EmbeddingBagCollectionSharder(ModuleSharder[EmbeddingBagCollection]):
    """``EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.EXACT_SGD, "learning_rate": 0.1})``."""

    module_type = EmbeddingBagCollection


class EmbeddingCollectionSharder(ModuleSharder[EmbeddingCollection]):
    """The same for an EmbeddingCollection. use_index_dedup: if a batch repeats a row, the row and the sum of its
    gradients travel once between two ranks."""

    module_type = EmbeddingCollection

    def __init__(
        self,
        fused_params: Optional[Mapping[str, Any]] = None,
        qcomm_codecs_registry: None = None,
        use_index_dedup: bool = False,
        **theirs: Any,
    ) -> None:
        super().__init__(fused_params, qcomm_codecs_registry=qcomm_codecs_registry, **theirs)
        self.use_index_dedup = use_index_dedup


def get_default_sharders() -> List[ModuleSharder]:
    """Returns sharders without optimizers, for tables that have their own."""
    return [EmbeddingBagCollectionSharder(), EmbeddingCollectionSharder()]


_LINKS = "hbm_mem_bw ddr_mem_bw ssd_mem_bw hbm_to_ddr_mem_bw intra_host_bw inter_host_bw generalized_comms_bandwidths"
_COSTS = "bwd_compute_multiplier weighted_feature_bwd_compute_multiplier uneven_sharding_perf_multiplier"


class Topology:
    """The ranks for which to plan. Memory is in bytes per rank; None: TorchRec's figures. Bandwidths are measured
    (docs/calibration.md) and not given here, so TorchRec's other arguments are refused."""

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
    """Limits on the planner's choices for a table: TorchRec's arguments, then the ones of
    tessera.ParameterConstraints."""

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


def _sharding(table: Mapping[str, Any]) -> _t.Sharding:
    """Returns the sharding of a table's entry in a plan of the library."""
    ranks = [shard["rank"] for shard in table["shards"]]
    kind, kernel = table["sharding_type"], table["compute_kernel"]
    if kind in ("table_wise", "column_wise", "table_column_wise"):
        return _t.Sharding(kind, ranks, kernel, pieces=len(ranks) if kind != "table_wise" else None)
    if kind in ("row_wise", "data_parallel"):
        return _t.Sharding(kind, compute_kernel=kernel)
    return _t.Sharding(kind, sorted(set(ranks)), kernel)


def _ranks_text(sharding: _t.Sharding) -> str:
    return "all" if sharding.ranks is None else ", ".join(str(rank) for rank in sharding.ranks)


class ShardingPlan:
    """``plan``: module path -> table -> ``Sharding``. ``made``: the ``tessera.Plan`` that a planner made."""

    def __init__(
        self, plan: Optional[Mapping[str, Mapping[str, _t.Sharding]]] = None, *, made: Optional[_t.Plan] = None
    ) -> None:
        self.plan = {path: dict(tables) for path, tables in (plan or {}).items()}
        self.made = made
        if made is not None:
            modules = made.to_dict()["modules"]
            self.plan = {m["path"]: {t["name"]: _sharding(t) for t in m["tables"]} for m in modules}

    def get_plan_for_module(self, module_path: str) -> Optional[Dict[str, _t.Sharding]]:
        """The shardings of a module's tables by name, or None."""
        return self.plan.get(module_path)

    def __getattr__(self, name: str) -> Any:
        """Gives the attributes of ``made``: ``save``, ``to_dict``, ``json`` and ``report``."""
        if name.startswith("_") or vars(self).get("made") is None:
            raise AttributeError(f"a {type(self).__name__} has no {name}")
        return getattr(self.made, name)

    def __str__(self) -> str:
        """Returns a table for each module, the same on every rank. ``made.report`` has the planner's estimates."""
        out = []
        for path, tables in self.plan.items():
            rows = [["table", "sharding type", "compute kernel", "ranks"]]
            rows += [[name, s.sharding_type, s.compute_kernel or "", _ranks_text(s)] for name, s in tables.items()]
            widths = [max(len(row[i]) for row in rows) for i in range(4)]
            lines = [" | ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() for row in rows]
            out.append("\n".join([f"module: {path}", *lines]))
        return "\n\n".join(out)

    def _repr_html_(self) -> Optional[str]:
        return self.made._repr_html_() if self.made else None


_PARTS = "enumerator proposer partitioner performance_model stats callbacks plan_loader"
_SETTINGS = tuple(_t.Planner.__dataclass_fields__)


@lacks("get_search_space", "get_selected_options", "hash_planner_context_inputs", "hash_planner_context_inputs_str",
       instead="print(plan) says what was chosen")  # fmt: skip
class EmbeddingShardingPlanner:
    """Chooses the sharding and the ranks of every table: ``plan(module, sharders)``."""

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
        """timeout_seconds: limit of the search. storage_reservation: TorchRec's heuristic one; only its percentage is
        used. debug has no effect; ``print`` the plan instead. settings: as in ``tessera.Planner``. TorchRec's
        enumerator, proposer, partitioner and the like are refused, because the library has its own."""
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
        """Makes a plan without communication. Equal input gives an equal plan on every rank."""
        parts = dict(collections_of(module))
        optimizers = {path: optimizers_of(part, sharders or []) for path, part in parts.items()}
        modules = {path: part.description(COLLECTS, optimizers[path]) for path, part in parts.items()}
        return ShardingPlan(made=_t.plan(modules, self._planner))

    def collective_plan(
        self, module: nn.Module, sharders: Optional[Sequence[ModuleSharder]] = None, pg: Any = None
    ) -> ShardingPlan:
        """Returns rank 0's plan, or raises its error, on all ranks of torch.distributed."""
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return self.plan(module, sharders)
        told: List[Any] = [None, None]
        if dist.get_rank() == 0:
            try:
                made = self.plan(module, sharders).made
                told[0] = (made.json, made.report)
            except Exception as error:
                told[1] = error
        dist.broadcast_object_list(told, src=0)
        if told[1] is not None:
            raise told[1]
        return ShardingPlan(made=_t.Plan(*told[0]))


def _kernel(constructor: str, compute_kernel: Any) -> Optional[str]:
    name = None if compute_kernel is None else str(getattr(compute_kernel, "value", compute_kernel))
    if name not in (None, *(kernel.value for kernel in EmbeddingComputeKernel)):
        raise NotImplementedError(f"{constructor}: the compute kernel {name} has no counterpart in tessera.torch")
    return name


def table_wise(rank: int = 0, device: Optional[str] = None, compute_kernel: Optional[str] = None) -> _t.Sharding:
    """Puts the whole table on one rank."""
    refuse("table_wise", {"device": device}, {"device": "cpu"})
    return _t.Sharding("table_wise", [rank], _kernel("table_wise", compute_kernel))


def row_wise(
    sizes_placement: Any = None, compute_kernel: Optional[str] = None, num_buckets: Optional[int] = None
) -> _t.Sharding:
    """Puts an equal part of the rows on each rank."""
    refuse("row_wise", {"sizes_placement": sizes_placement, "num_buckets": num_buckets},
           usual("sizes_placement num_buckets"))  # fmt: skip
    return _t.Sharding("row_wise", compute_kernel=_kernel("row_wise", compute_kernel))


def column_wise(
    ranks: Optional[Sequence[int]] = None,
    size_per_rank: Optional[Sequence[int]] = None,
    compute_kernel: Optional[str] = None,
    device_types: Optional[Sequence[str]] = None,
) -> _t.Sharding:
    """Splits the columns, with one shard for each entry of ``ranks``."""
    refuse("column_wise", {"size_per_rank": size_per_rank}, {"size_per_rank": None})
    refuse("column_wise", {"device_types": set(device_types or ["cpu"])}, {"device_types": {"cpu"}})
    if not ranks:
        raise ValueError("column_wise needs ranks: one for each piece")
    return _t.Sharding("column_wise", list(ranks), _kernel("column_wise", compute_kernel), pieces=len(ranks))


def apply_to_all(
    module: Embeddings, parameter_sharding_generator: _t.Sharding, sharder: Optional[ModuleSharder] = None
) -> Dict[str, _t.Sharding]:
    """Gives every table of a module one sharding."""
    return {table.name: parameter_sharding_generator for table in module.description().tables}


def construct_module_sharding_plan(
    module: Embeddings,
    per_param_sharding: Mapping[str, _t.Sharding],
    sharder: Optional[ModuleSharder] = None,
    local_size: Optional[int] = None,
    world_size: Optional[int] = None,
    device_type: Optional[str] = None,
) -> Dict[str, _t.Sharding]:
    """Returns the shardings of one module, one for each table, for ``ShardingPlan({path: ...})``. sharder, local_size
    and world_size have no effect, because DistributedModelParallel takes them from its ranks."""
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
