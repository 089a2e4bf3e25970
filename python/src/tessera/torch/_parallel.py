"""DistributedModelParallel, with TorchRec's names."""

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
from ._counterpart import lacks, refuse, usual
from ._modules import Embeddings, EmbeddingBagCollection, EmbeddingCollection
from ._optim import FusedOptimizer
from ._plans import ModuleSharder, ShardingPlan, collections_of
from ._state import sharded_tensor, tables_of_plan


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


class _Sharded(Embeddings):
    """Tables of a plan. ``whole``: state dicts have them gathered."""

    whole = False
    _planned: Dict[str, Dict[str, Any]]  # by table

    def _table_tensor(self, table: str, dtype: torch.dtype) -> Any:
        cut = None if self.whole else sharded_tensor(self.core, self._planned[table], table, dtype)
        return super()._table_tensor(table, dtype) if cut is None else cut


class ShardedEmbeddingBagCollection(_Sharded, EmbeddingBagCollection):
    """DistributedModelParallel's replacement for an EmbeddingBagCollection, with the same inputs and outputs."""


class ShardedEmbeddingCollection(_Sharded, EmbeddingCollection):
    """DistributedModelParallel's replacement for an EmbeddingCollection."""


_SHARDED: Dict[type, type] = {
    EmbeddingBagCollection: ShardedEmbeddingBagCollection,
    EmbeddingCollection: ShardedEmbeddingCollection,
}


def _sharded_type(kind: type) -> type:
    """The sharded type of a collection type, also of those that ``adopt`` makes."""
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
    found = dict(collections_of(module))
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


class ShardingEnv:
    """TorchRec's: ranks by number, or those of a group of torch.distributed, which has to be all of them."""

    def __init__(self, world_size: int, rank: int, pg: Any = None, output_dtensor: bool = False) -> None:
        refuse("ShardingEnv", {"output_dtensor": output_dtensor}, {"output_dtensor": False})
        self.world_size, self.rank, self.process_group = world_size, rank, pg

    @classmethod
    def from_process_group(cls, pg: Any) -> ShardingEnv:
        return cls(dist.get_world_size(pg), dist.get_rank(pg), pg)

    @classmethod
    def from_local(cls, world_size: int, rank: int) -> ShardingEnv:
        return cls(world_size, rank)


@lacks("reshard", instead="save(DIRECTORY), and load it under another plan")
@lacks("copy", "get_delta_tracker", "init_torchrec_delta_tracker", "write")
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
        init_data_parallel: bool = True,
        *,
        group: Optional[ProcessGroup] = None,
        seed: int = 0,
        **theirs: Any,
    ) -> None:
        """init_data_parallel: False: the method of that name is called later. theirs: TorchRec's further arguments,
        as they are there when left out."""
        super().__init__()
        refuse("DistributedModelParallel", theirs, {**usual("data_parallel_wrapper model_tracker_configs"),
                                                    "init_parameters": True})  # fmt: skip
        if device is not None and torch.device(device).type != "cpu":
            raise NotImplementedError(f"DistributedModelParallel on {device} has no counterpart: only the cpu has")
        self.group = group or process_group()
        if env is not None and (env.world_size, env.rank) != (self.group.world_size, self.group.rank):
            raise NotImplementedError(
                f"an env of {env.world_size} of {self.group.world_size} ranks has no counterpart: all have the tables"
            )
        self._tables, self._sharded = _shard_all(module, self.group, plan, sharders or [], seed)
        self._inner: nn.Module = self._sharded.get("") or module
        self.module: nn.Module = self._inner
        if init_data_parallel:
            self.init_data_parallel()
        self.fused_optimizer = FusedOptimizer({path: part.core for path, part in self._sharded.items()})

    def init_data_parallel(self) -> None:
        """The dense part becomes DistributedDataParallel's, once. Collective."""
        dense = any(p.requires_grad for p in self._inner.parameters())
        if dense and self.group.world_size > 1 and self.module is self._inner:
            if not dist.is_initialized():
                raise RuntimeError("the dense part is trained by DistributedDataParallel: init_process_group first")
            self.module = nn.parallel.DistributedDataParallel(self._inner)

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
        """Loads a ``full_state_dict``, which every rank passes and of which it takes its shards; or a ``state_dict``
        made under the same plan."""
        return self._inner.load_state_dict(state_dict, strict=strict)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[Tuple[str, nn.Parameter]]:
        """The dense parameters; rows are not PyTorch parameters."""
        return self._inner.named_parameters(*args, **kwargs)

    def bare_named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[Tuple[str, nn.Parameter]]:
        return self._inner.named_parameters(prefix, recurse)

    def sparse_grad_parameter_names(self, destination: Optional[List[str]] = None, prefix: str = "") -> List[str]:
        """An empty list, because rows are not parameters."""
        return [] if destination is None else destination

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
