"""Plans, sharders and DistributedModelParallel, with TorchRec's names."""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist
from torch import nn

from .. import _tables as _t
from .._collections import DistributedModelParallel as _Model
from .._runtime import ProcessGroup
from ._modules import Embeddings, EmbeddingBagCollection, EmbeddingCollection
from ._optim import FusedOptimizer, fused_optimizer
from ._state import sharded_tensor, tables_of_plan

_GIB = float(1 << 30)


def process_group(timeout_s: float = 30) -> ProcessGroup:
    """The ranks of ``torch.distributed``, met over Tessera's own transport; without it, those of the launcher."""
    if not dist.is_available() or not dist.is_initialized():
        return ProcessGroup(timeout_s=timeout_s)
    rank, world = dist.get_rank(), dist.get_world_size()
    where: List[Any] = [None]
    if rank == 0:  # MASTER_PORT is PyTorch's store
        address = os.environ.get("MASTER_ADDR", "127.0.0.1")
        with socket.socket() as probe:
            probe.bind(("", 0))
            where = [(address, probe.getsockname()[1], secrets.token_hex(16))]
    if world > 1:
        dist.broadcast_object_list(where, src=0)
    address, port, token = where[0]
    local = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 0))
    return ProcessGroup(
        rank=rank, world_size=world, local_rank=local[0], local_world_size=local[1], master_addr=address,
        master_port=port, token=token, timeout_s=timeout_s,
    )  # fmt: skip


class ModuleSharder:
    """Which modules are sharded, and by what optimizer their tables are updated in backward."""

    module_type: type = Embeddings

    def __init__(self, fused_params: Optional[Mapping[str, Any]] = None) -> None:
        self.fused_params = fused_params
        self.optimizer = fused_optimizer(fused_params)


class EmbeddingBagCollectionSharder(ModuleSharder):
    """``EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType.EXACT_SGD, "learning_rate": 0.1})``."""

    module_type = EmbeddingBagCollection


class EmbeddingCollectionSharder(ModuleSharder):
    module_type = EmbeddingCollection


def _found(module: nn.Module) -> Iterator[Tuple[str, Embeddings]]:
    for path, part in module.named_modules():
        if isinstance(part, Embeddings):
            yield path, part


class Topology:
    """The ranks that are planned for. Memory in bytes, per rank; None: TorchRec's figures."""

    def __init__(
        self,
        world_size: int,
        compute_device: str = "cpu",
        hbm_cap: Optional[int] = None,
        ddr_cap: Optional[int] = None,
        *,
        local_world_size: Optional[int] = None,
    ) -> None:
        self.world_size, self.compute_device = world_size, compute_device
        self.hbm_cap, self.ddr_cap, self.local_world_size = hbm_cap, ddr_cap, local_world_size


class ShardingPlan:
    """``plan``: module path -> table -> ``Sharding``; or, of a planner, ``made``: a ``tessera.Plan``."""

    def __init__(
        self, plan: Optional[Mapping[str, Mapping[str, _t.Sharding]]] = None, *, made: Optional[_t.Plan] = None
    ) -> None:
        self.plan = {path: dict(tables) for path, tables in (plan or {}).items()}
        self.made = made

    def __str__(self) -> str:
        return str(self.made) if self.made else str(self.plan)

    def _repr_html_(self) -> Optional[str]:
        return self.made._repr_html_() if self.made else None


class EmbeddingShardingPlanner:
    """Which sharding, and which ranks, for every table: ``plan(module, sharders)``."""

    def __init__(
        self,
        topology: Optional[Topology] = None,
        batch_size: Optional[int] = None,
        constraints: Optional[Mapping[str, _t.ParameterConstraints]] = None,
        timeout_seconds: Optional[int] = None,
        storage_reservation: Any = None,
        debug: bool = False,
        **settings: Any,
    ) -> None:
        """timeout_seconds: of the search. storage_reservation: TorchRec's heuristic one, of which the percentage is
        taken. debug has no effect: ``print`` a plan. settings: those of ``tessera.Planner``."""
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
        try:
            self._planner = _t.Planner(
                constraints=constraints or {},
                world_size=t.world_size,
                local_world_size=t.local_world_size,
                compute_device=t.compute_device,
                hbm_gib=None if t.hbm_cap is None else t.hbm_cap / _GIB,
                ddr_gib=None if t.ddr_cap is None else t.ddr_cap / _GIB,
                batch_size=batch_size,
                **settings,
            )
        except TypeError:
            raise NotImplementedError(
                f"EmbeddingShardingPlanner takes no {', '.join(settings)} here; see tessera.Planner for what there is"
            ) from None

    def plan(self, module: nn.Module, sharders: Optional[Sequence[ModuleSharder]] = None) -> ShardingPlan:
        """On equal input equal on every rank; talks to nobody."""
        modules = {path: part.description() for path, part in _found(module)}
        return ShardingPlan(made=_t.plan(modules, self._planner))

    def collective_plan(
        self, module: nn.Module, sharders: Optional[Sequence[ModuleSharder]] = None, pg: Any = None
    ) -> ShardingPlan:
        """Rank 0's plan, on all ranks of torch.distributed."""
        plan = self.plan(module, sharders) if not dist.is_initialized() or dist.get_rank() == 0 else ShardingPlan()
        if dist.is_initialized() and dist.get_world_size() > 1:
            texts = [plan.made.json if plan.made else None]
            dist.broadcast_object_list(texts, src=0)
            plan.made = plan.made or _t.Plan(texts[0])
        return plan


def construct_module_sharding_plan(
    module: Embeddings, per_param_sharding: Mapping[str, _t.Sharding], *ignored: Any, **also_ignored: Any
) -> Dict[str, _t.Sharding]:
    """The shardings of one module, for ``ShardingPlan({path: ...})``: one for each of its tables."""
    tables = {table.name for table in module.description().tables}
    if tables != set(per_param_sharding):
        raise ValueError(
            f"the tables of the module are {', '.join(sorted(tables))}, and shardings are given for "
            f"{', '.join(sorted(per_param_sharding))}"
        )
    return dict(per_param_sharding)


class _Sharded(Embeddings):
    """Tables of a plan. ``whole``: state dicts have them gathered."""

    whole = False
    _planned: Dict[str, Dict[str, Any]]  # by table

    def _table_tensor(self, table: str, dtype: torch.dtype) -> Any:
        cut = None if self.whole else sharded_tensor(self.core, self._planned[table], table, dtype)
        return super()._table_tensor(table, dtype) if cut is None else cut


class ShardedEmbeddingBagCollection(_Sharded, EmbeddingBagCollection):
    """What DistributedModelParallel puts in the place of an EmbeddingBagCollection: same inputs and outputs."""


class ShardedEmbeddingCollection(_Sharded, EmbeddingCollection):
    """What DistributedModelParallel puts in the place of an EmbeddingCollection."""


_SHARDED: Dict[type, type] = {
    EmbeddingBagCollection: ShardedEmbeddingBagCollection,
    EmbeddingCollection: ShardedEmbeddingCollection,
}


def _sharded_type(kind: type) -> type:
    """Of a kind of collections, those that ``adopt`` makes too."""
    if kind not in _SHARDED:
        _SHARDED[kind] = type(f"Sharded{kind.__name__}", (_Sharded, kind), {"__doc__": kind.__doc__})
    return _SHARDED[kind]


def _shard(module: Embeddings) -> _Sharded:
    """The sharded module with the tables, optimizers and start values of an unsharded one."""
    kind = _sharded_type(type(module))
    out = kind.__new__(kind)
    nn.Module.__init__(out)
    for name in ("_configs", "_is_weighted", "_optimizers", "_need_indices", "_adopted"):
        if name in module.__dict__:
            out.__dict__[name] = module.__dict__[name]
    out.device, out._core, out._model = torch.device("cpu"), None, None
    out._anchor = torch.zeros((), requires_grad=True)
    return out


def _dense_of(module: nn.Module, tables: Mapping[str, Embeddings]) -> List[Tuple[str, torch.Tensor]]:
    """Parameters and buffers of everything else."""
    inside = tuple(path + "." for path in tables)
    named = [*module.named_parameters(), *module.named_buffers()]
    return [(name, value) for name, value in named if "" not in tables and not name.startswith(inside)]


def _shard_all(
    module: nn.Module,
    group: ProcessGroup,
    plan: Optional[ShardingPlan],
    sharders: Sequence[ModuleSharder],
    seed: int,
) -> Tuple[_Model, Dict[str, _Sharded]]:
    """The collections of a model, each in its place, sharded: by path. Collective."""
    found = dict(_found(module))
    if not found:
        raise ValueError("the model has no EmbeddingBagCollection and no EmbeddingCollection of tessera.torch")
    descriptions = {}
    for path, part in found.items():
        of_type = [s.optimizer for s in sharders if s.optimizer and isinstance(part, s.module_type)]
        descriptions[path] = part.description(of_type[0] if of_type else None)
    requests = {name: s for tables in (plan.plan if plan else {}).values() for name, s in tables.items()}
    tables = _Model(
        descriptions,
        group=group,
        plan=plan.made if plan else None,
        planner=_t.Planner(shardings=requests),
        seed=seed,
        dense={name: value.shape for name, value in _dense_of(module, found)},
    )
    out: Dict[str, _Sharded] = {}
    made = tables.plan.to_dict()
    for path, part in found.items():
        sharded = out[path] = _shard(part)
        sharded._planned = tables_of_plan(made, path)
        sharded.attach(tables[path])
        if part.device.type != "meta":  # its rows
            for table in part.core.tables:
                sharded.core.set_weight(table, part.core.weight(table))
        if path:
            parent, _, name = path.rpartition(".")
            setattr(module.get_submodule(parent), name, sharded)
    return tables, out


def shard_in_place(module: nn.Module, plan: Union[ShardingPlan, Mapping[str, _t.Sharding]]) -> None:
    """The collections inside of a model become sharded ones, with their rows. Collective."""
    named = plan if isinstance(plan, ShardingPlan) else ShardingPlan({"": plan})
    _shard_all(module, process_group(), named, [], 0)


class DistributedModelParallel(nn.Module):
    """A model whose EmbeddingBagCollections and EmbeddingCollections are sharded over all ranks, and whose dense part
    is replicated, by DistributedDataParallel. Collective.

    plan: of a planner, of ``construct_module_sharding_plan``, or None: rank 0 plans. sharders: the optimizers of tables
    that have none. Tables that exist keep their rows; those on the meta device get start values. group: ranks of
    Tessera; None: those of torch.distributed, or of the launcher.
    """

    def __init__(
        self,
        module: nn.Module,
        env: Any = None,
        device: Optional[torch.device] = None,
        plan: Optional[ShardingPlan] = None,
        sharders: Optional[Sequence[ModuleSharder]] = None,
        *,
        group: Optional[ProcessGroup] = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if device is not None and torch.device(device).type != "cpu":
            raise NotImplementedError(f"DistributedModelParallel on {device} has no counterpart: only the cpu has")
        self.group = group or process_group()
        self._tables, self._sharded = _shard_all(module, self.group, plan, sharders or [], seed)
        self._inner: nn.Module = self._sharded.get("") or module
        dense = any(p.requires_grad for p in self._inner.parameters())
        self.module: nn.Module = self._inner
        if dense and self.group.world_size > 1:
            if not dist.is_initialized():
                raise RuntimeError("the dense part is trained by DistributedDataParallel: init_process_group first")
            self.module = nn.parallel.DistributedDataParallel(self._inner)
        self.fused_optimizer = FusedOptimizer({path: part.core for path, part in self._sharded.items()})

    @property
    def plan(self) -> _t.Plan:
        return self._tables.plan

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        """Under the names of the model itself. Tables are ShardedTensors of what each rank holds, for
        ``torch.distributed.checkpoint``; whole where torch.distributed is not initialized, and data-parallel ones.
        Collective."""
        return self._inner.state_dict(*args, **kwargs)

    def full_state_dict(self) -> Dict[str, Any]:
        """With whole tables, on every rank. Collective."""
        for part in self._sharded.values():
            part.whole = True
        try:
            return self._inner.state_dict()
        finally:
            for part in self._sharded.values():
                part.whole = False

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
        """Of ``full_state_dict``, which every rank gives and takes what it holds of; or of ``state_dict``, under the
        same plan."""
        return self._inner.load_state_dict(state_dict, strict=strict)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[Tuple[str, nn.Parameter]]:
        """The dense ones: rows are no parameters of PyTorch."""
        return self._inner.named_parameters(*args, **kwargs)

    def save(self, directory: Union[str, os.PathLike], progress: str = "", keep: int = 2) -> None:
        """A checkpoint of the tables, their optimizers' state (docs/checkpoints.md) and the dense part, as float32, for
        any plan; the state of the dense part's optimizer is not in it. Collective."""
        for name, value in _dense_of(self._inner, self._sharded):
            self._tables.dense(name)[...] = value.detach().float().numpy()
        self._tables.save(directory, progress, keep)

    def load(self, directory: Union[str, os.PathLike]) -> str:
        """The newest one there; its ``progress``. Collective."""
        progress = self._tables.load(directory)
        with torch.no_grad():
            for name, value in _dense_of(self._inner, self._sharded):
                value.copy_(torch.from_numpy(self._tables.dense(name).copy()))
        return progress
