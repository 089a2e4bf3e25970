"""DistributedModelParallel, with TorchRec's names."""

from __future__ import annotations

import os
import secrets
import socket
import warnings
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from .. import _tables as _t
from .._collections import DistributedModelParallel as _Model
from .._runtime import ProcessGroup
from ._counterpart import lacks, refuse, usual
from ._embeddings import Embeddings, drawn_seed
from ._modules import EmbeddingBagCollection, EmbeddingCollection
from ._fused import FusedOptimizer
from ._optim import COLLECTS
from ._plans import ModuleSharder, ShardingPlan, collections_of, optimizers_of
from ._state import sharded_tensor, tables_of_plan, watch_checkpoints, watch_steps
from ._weights import Rows


def process_group(timeout_s: float = 30) -> ProcessGroup:
    """Returns a group of the ranks of ``torch.distributed`` or, without it, of the launcher, over Tessera's own
    transport."""
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
    """The base of sharded collections. ``whole``: state dicts have whole tables, which is collective."""

    whole = False
    _rows_kind = Rows
    _planned: Dict[str, Dict[str, Any]]  # the plan's entries by table

    def _table_tensor(self, table: str) -> Any:
        self.settle()
        cut = None if self.whole else sharded_tensor(self, table)
        if cut is not None:
            return cut
        held = [(parameter, shard) for parameter, name, shard in self._held if name == table]
        rows, dim = self.core.tables[table]
        everybodys = self._planned[table]["combine"] == "replica" or self.core._group.world_size == 1
        if everybodys and not self.whole and len(held) == 1 and (held[0][1].rows, held[0][1].cols) == (rows, dim):
            self.refresh(table)
            return held[0][0]
        dtype = self._places()._modules[table].weight.dtype
        return torch.from_numpy(self.core.weight(table)).to(dtype)

    def __repr__(self) -> str:
        cuts = (f"  ({name}): {t['sharding_type']}, {self.core.tables[name][0]} x {self.core.tables[name][1]}, "
                f"{self._named(name)}" for name, t in self._planned.items())  # fmt: skip
        return f"{type(self).__name__}(\n" + "\n".join(cuts) + "\n)"

    def _named(self, table: str) -> str:
        optimizer = self._optimizer(table)
        return "no optimizer" if optimizer is None else repr(optimizer)


class ShardedEmbeddingBagCollection(_Sharded, EmbeddingBagCollection):
    """DistributedModelParallel's replacement for an EmbeddingBagCollection, with the same inputs and outputs."""


class ShardedEmbeddingCollection(_Sharded, EmbeddingCollection):
    """DistributedModelParallel's replacement for an EmbeddingCollection."""


_SHARDED: Dict[type, type] = {
    EmbeddingBagCollection: ShardedEmbeddingBagCollection,
    EmbeddingCollection: ShardedEmbeddingCollection,
}


def _sharded_type(kind: type) -> type:
    """Returns the sharded type of a collection type, such as those of ``adopt``."""
    if kind not in _SHARDED:
        _SHARDED[kind] = type(f"Sharded{kind.__name__}", (_Sharded, kind), {"__doc__": kind.__doc__})
    return _SHARDED[kind]


def _shard(module: Embeddings, optimizers: List[Optional[_t.Optimizer]]) -> _Sharded:
    """Returns a sharded module with the tables and start values of an unsharded one, and these optimizers."""
    kind = _sharded_type(type(module))
    out = kind.__new__(kind)
    nn.Module.__init__(out)
    hooks = {name: value for name, value in module.__dict__.items() if "_hook" in name}
    out.__dict__.update(hooks, training=module.training)
    out._set_up(module._configs, module._is_weighted, optimizers)
    for name, value in module.__dict__.items():  # attributes that a subclass or a program has added
        out.__dict__.setdefault(name, value)
    out._dtype = module._dtype
    out.device = torch.device("cpu")
    out.collects_gradients = not all(optimizers)
    return out


def _keep_flags(module: Embeddings, sharded: Embeddings) -> None:
    """Copies requires_grad of each table, so that frozen tables stay frozen."""
    for name, place in module._places()._modules.items():
        for parameter in sharded._places()._modules[name]._parameters.values():
            parameter.requires_grad_(place.weight.requires_grad)


def _dense_of(module: nn.Module, tables: Mapping[str, Embeddings]) -> List[Tuple[str, torch.Tensor]]:
    """Returns the parameters and buffers outside of tables, with their names."""
    inside = tuple(path + "." for path in tables)
    named = [*module.named_parameters(), *module.named_buffers()]
    return [(name, value) for name, value in named if "" not in tables and not name.startswith(inside)]


def _trained(parts: Sequence[nn.Module]) -> List[Any]:
    """Returns a list that changes when a parameter or module of these modules is replaced, frozen or unfrozen."""
    own = [(id(p), p.requires_grad) for part in parts for p in part._parameters.values() if p is not None]
    return own + [id(child) for part in parts for child in part._modules.values()]


def _refuse_ties(module: nn.Module, found: Mapping[str, Embeddings]) -> None:
    """Refuses a table whose weight another module also has, because the rows move into shards."""
    weights = {id(weight): path for path, part in found.items() for weight in part.parameters()}
    first: Dict[int, str] = {}
    for path, part in module.named_modules():
        for name, parameter in part._parameters.items():
            here = f"{path}.{name}" if path else name
            if id(parameter) in weights and first.setdefault(id(parameter), here) != here:
                raise NotImplementedError(
                    f"{first[id(parameter)]} and {here} are one weight, and a table that is sharded has its weight "
                    "alone: give each its own"
                )


def _refuse_own(found: Mapping[str, Embeddings]) -> None:
    """Refuses collections with other parameters than tables, because their gradients would not be reduced."""
    for path, part in found.items():
        inside, named = part._inside(), [*part.named_parameters(), *part.named_buffers()]
        own = [name for name, _ in named if not name.startswith(f"{inside}.")]
        own += [name for name, _ in part.named_children() if name != inside]
        if own:
            raise NotImplementedError(
                f"{path or 'the collection'} has {own[0]} besides its tables, and a collection that is sharded has "
                "tables only: put both into a module"
            )


def _materialise(module: nn.Module) -> None:
    """Allocates dense parameters and buffers that are on the meta device. ``reset_parameters`` sets start values."""
    made: Dict[int, torch.Tensor] = {}
    for part in module.modules():
        if isinstance(part, (Embeddings, Rows)):
            continue
        on_meta = False
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is None or not tensor.is_meta:
                    continue
                if id(tensor) not in made:
                    values: torch.Tensor = torch.zeros_like(tensor, device="cpu")
                    flag = tensor.requires_grad
                    made[id(tensor)] = nn.Parameter(values, flag) if isinstance(tensor, nn.Parameter) else values
                tensors[name], on_meta = made[id(tensor)], True  # type: ignore[assignment]
        if on_meta and hasattr(part, "reset_parameters"):
            part.reset_parameters()
        elif on_meta:
            kind = type(part).__name__
            warnings.warn(f"a {kind} was on the meta device and has no reset_parameters(): its values begin as 0")


def _requests(
    plan: Mapping[str, Mapping[str, _t.Sharding]], found: Mapping[str, Embeddings]
) -> Dict[str, _t.Sharding]:
    """Returns the shardings of a plan that was made by hand, by table."""
    if set(plan) != {""} and set(plan) != set(found):  # adopt() gives one for all modules
        raise ValueError(
            f"the plan is for the modules {_listed(plan)}, and the model's collections are {_listed(found)}: give a "
            "plan for each of them, with data_parallel() for tables that every rank is to have"
        )
    out: Dict[str, _t.Sharding] = {}
    for name, sharding in (pair for tables in plan.values() for pair in tables.items()):
        if out.setdefault(name, sharding) != sharding:
            raise NotImplementedError(
                f"two collections have a table {name}, and the plan cuts them otherwise: give the tables different "
                "names"
            )
    return out


def _listed(paths: Iterable[str]) -> str:
    return ", ".join(sorted(f'"{path}"' for path in paths)) or "none"


def _shard_all(
    module: nn.Module,
    group: ProcessGroup,
    plan: Optional[ShardingPlan],
    sharders: Sequence[ModuleSharder],
    seed: int,
) -> Tuple[_Model, Dict[str, _Sharded]]:
    """Replaces the collections of a model by sharded ones. Returns the tables and the new collections by path.
    Collective."""
    found = dict(collections_of(module))
    if not found:
        raise ValueError("the model has no EmbeddingBagCollection and no EmbeddingCollection of tessera.torch")
    again = next((path for path, part in found.items() if isinstance(part, _Sharded)), None)
    if again is not None:
        raise RuntimeError(f"the tables of {again or 'the module'} are sharded already: make the model anew")
    _refuse_ties(module, found)
    _refuse_own(found)
    _materialise(module)
    optimizers = {path: optimizers_of(part, sharders) for path, part in found.items()}
    descriptions = {path: part.description(COLLECTS, optimizers[path]) for path, part in found.items()}
    for path, part in found.items():
        once = any(s.use_index_dedup for s in sharders if isinstance(part, s.module_type))
        for table in descriptions[path].tables:
            table.use_index_dedup = once
    requests = _requests(plan.plan, found) if plan is not None and plan.made is None else {}
    tables = _Model(
        descriptions,
        group=group,
        plan=plan.made if plan else None,
        planner=_t.Planner(shardings=requests),
        seed=seed,
        dense={name: value.shape for name, value in _dense_of(module, found)},
    )
    out: Dict[str, _Sharded] = {}
    made, everywhere = tables.plan.to_dict(), list(module.named_modules(remove_duplicate=False))
    for path, part in found.items():
        sharded = out[path] = _shard(part, optimizers[path])
        sharded._planned = tables_of_plan(made, path)
        of_part = {} if part.device.type == "meta" else {t: part.core.weight(t) for t in part.core.tables}
        for rows in of_part.values() if group.world_size > 1 else ():
            group.broadcast(rows)  # DistributedDataParallel does the same for the dense part
        sharded.attach(tables[path], {t: torch.from_numpy(rows) for t, rows in of_part.items()} or None)
        _keep_flags(part, sharded)
        for place in [p for p, other in everywhere if other is part and p]:
            parent, _, name = place.rpartition(".")
            setattr(module.get_submodule(parent), name, sharded)
    return tables, out


def shard_in_place(module: nn.Module, plan: Union[ShardingPlan, Mapping[str, _t.Sharding]]) -> None:
    """Replaces the collections inside a model by sharded ones with the same rows. Collective."""
    named = plan if isinstance(plan, ShardingPlan) else ShardingPlan({"": plan})
    _, sharded = _shard_all(module, process_group(), named, [], 0)
    _ignore_in_ddp(module, sharded)


def _ignore_in_ddp(module: nn.Module, sharded: Mapping[str, Embeddings]) -> List[str]:
    """Lets DistributedDataParallel ignore shards, which differ between ranks. Returns the names that it ignores."""
    pairs = [(path, name) for path, part in sharded.items() for name, _ in part.named_parameters()]
    names = [f"{path}.{name}" if path else name for path, name in pairs]
    before = list(getattr(module, "_ddp_params_and_buffers_to_ignore", []))
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, [*before, *names])
    return names


def shard_one(module: Embeddings, plan: ShardingPlan, sharder: ModuleSharder) -> nn.Module:
    """Shards a collection over all ranks. Collective."""
    group = process_group()
    return _shard_all(module, group, plan, [sharder], _seed_of(group))[1][""]


def _seed_of(group: ProcessGroup) -> int:
    """Returns a seed that rank 0 draws from PyTorch's generator. Collective."""
    seed = np.array([drawn_seed()], np.int64)
    group.broadcast(seed)
    return int(seed[0])


class ShardingEnv:
    """TorchRec's description of the ranks: by number, or as a group of torch.distributed, which must have all ranks."""

    def __init__(self, world_size: int, rank: int, pg: Any = None, output_dtensor: bool = False) -> None:
        refuse("ShardingEnv", {"output_dtensor": output_dtensor}, {"output_dtensor": False})
        self.world_size, self.rank, self.process_group = world_size, rank, pg

    @classmethod
    def from_process_group(cls, pg: Any) -> ShardingEnv:
        """The ranks of a group of torch.distributed."""
        return cls(dist.get_world_size(pg), dist.get_rank(pg), pg)

    @classmethod
    def from_local(cls, world_size: int, rank: int) -> ShardingEnv:
        """Ranks by number, without a group."""
        return cls(world_size, rank)


@lacks("reshard", instead="save(DIRECTORY), and load it under another plan")
@lacks("copy", "get_delta_tracker", "init_torchrec_delta_tracker", "write")
class DistributedModelParallel(nn.Module):
    """A model whose EmbeddingBagCollections and EmbeddingCollections are sharded over all ranks, and whose dense part
    is replicated, by DistributedDataParallel. Collective.

    plan: from a planner or from ``construct_module_sharding_plan``; None: rank 0 plans. sharders: give optimizers to
    tables that have none. Existing tables keep rank 0's rows; tables on the meta device get start values. group: a
    group of Tessera; None: the ranks of torch.distributed, or of the launcher.
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
        seed: Optional[int] = None,
        **theirs: Any,
    ) -> None:
        """init_data_parallel: False if you call the method of that name later. seed: of start values; None: drawn from
        PyTorch's generator on rank 0. theirs: TorchRec's other arguments, which must have their default values."""
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
        self.device = torch.device("cpu")
        self.sharders = list(sharders or [])
        seed = _seed_of(self.group) if seed is None else seed
        self._tables, self._sharded = _shard_all(module, self.group, plan, sharders or [], seed)
        inner = self._sharded.get("")
        self.__dict__["_inner"] = module if inner is None else inner
        self.__dict__["_reduced"] = None  # the dense part's modules, and their _trained() when wrapped
        self._dmp_wrapped_module: nn.Module = self._inner
        self._ddp_params_and_buffers_to_ignore = _ignore_in_ddp(self._inner, self._sharded)
        if self.group.world_size > 1:
            watch_steps()
        watch_checkpoints(self.group.world_size > 1 and any(part._plain for part in self._sharded.values()))
        if init_data_parallel:
            self.init_data_parallel()
        self.fused_optimizer = FusedOptimizer(self._sharded)
        if self.group.world_size == 1:
            self.group.let_threads_wait()

    @property
    def module(self) -> nn.Module:
        """The sharded model, without any wrapper."""
        return self._inner

    def init_data_parallel(self) -> None:
        """Wraps the dense part in DistributedDataParallel, once. Collective."""
        if self.group.world_size == 1 or self._dmp_wrapped_module is not self._inner:
            return
        if not dist.is_initialized():
            if any(value.requires_grad for _, value in _dense_of(self._inner, self._sharded)):
                raise RuntimeError("the dense part is trained by DistributedDataParallel: init_process_group first")
            return
        self._wrap()

    def _wrap(self) -> None:
        """Wraps the dense part with TorchRec's options. DistributedDataParallel reduces the gradients of those
        parameters that are there and trained when it is made, so it is made anew when they have changed. Collective."""
        ddp = nn.parallel.DistributedDataParallel
        if isinstance(self._dmp_wrapped_module, ddp):
            self._dmp_wrapped_module._remove_autograd_hooks()
        inside = tuple(f"{path}." for path in self._sharded)
        parts = [part for path, part in self._inner.named_modules()
                 if "" not in self._sharded and path not in self._sharded and not path.startswith(inside)]  # fmt: skip
        self.__dict__["_reduced"] = (parts, _trained(parts))
        everything = [*self.named_parameters(), *self.named_buffers()]  # so that a second wrapper is refused
        self._ddp_params_and_buffers_to_ignore = [name for name, _ in everything]
        if any(value.requires_grad for part in parts for value in part.parameters(False)):
            with warnings.catch_warnings():  # PyTorch 2.14 has another name for broadcast_buffers, and it means more
                warnings.simplefilter("ignore", FutureWarning)
                self._dmp_wrapped_module = ddp(
                    self._inner, broadcast_buffers=False, static_graph=True, gradient_as_bucket_view=True
                )
        else:
            self._dmp_wrapped_module = self._inner

    @property
    def plan(self) -> ShardingPlan:
        """The plan of all tables, with the attributes of a ``tessera.Plan``."""
        return ShardingPlan(made=self._tables.plan)

    _plan = plan

    def __getstate__(self) -> Dict[str, Any]:
        raise RuntimeError("a DistributedModelParallel cannot be copied or pickled: save() it, or full_state_dict()")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model. Collective."""
        if self._reduced is not None and not torch.compiler.is_compiling():
            parts, before = self._reduced
            if _trained(parts) != before:
                self._wrap()
        return self._dmp_wrapped_module(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        """Returns a state dict with the names of the model itself. Tables are ShardedTensors over this rank's memory,
        so ``torch.distributed.checkpoint`` loads directly into the tables. Data-parallel tables are this rank's copies.
        Tables are gathered, which is collective, only if torch.distributed is not initialized."""
        return self._inner.state_dict(*args, **kwargs)

    def full_state_dict(self) -> Dict[str, Any]:
        """Returns a state dict with whole tables, on every rank. Collective."""
        for part in self._sharded.values():
            part.whole = True
        try:
            return self._inner.state_dict()
        finally:
            for part in self._sharded.values():
                part.whole = False

    def load_state_dict(  # type: ignore[override]
        self, state_dict: Mapping[str, Any], prefix: str = "", strict: bool = True
    ) -> Any:
        """Loads a ``full_state_dict``, which every rank passes and from which each takes its shards, or a
        ``state_dict`` made under the same plan. prefix: the prefix of the keys, as in ``state_dict(prefix=...)``."""
        if not isinstance(prefix, str):
            raise TypeError(f"the prefix of keys is a text, not {prefix!r}: give strict by its name, as for TorchRec's")
        if prefix:
            state_dict = {k[len(prefix) :]: v for k, v in state_dict.items() if k.startswith(prefix)}
        return self._inner.load_state_dict(state_dict, strict=strict)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[Tuple[str, nn.Parameter]]:
        """Yields the parameters of the model: the dense part's, and this rank's shards of tables."""
        return self._inner.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[Tuple[str, torch.Tensor]]:
        """The buffers of the model, under its own names."""
        return self._inner.named_buffers(*args, **kwargs)

    def bare_named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[Tuple[str, nn.Parameter]]:
        """The parameters under the model's own names."""
        return self._inner.named_parameters(prefix, recurse)

    def sparse_grad_parameter_names(self, destination: Optional[List[str]] = None, prefix: str = "") -> List[str]:
        """An empty list: gradients of tables without an optimizer are dense."""
        return [] if destination is None else destination

    def save(self, directory: Union[str, os.PathLike], progress: str = "", keep: int = 2) -> None:
        """Writes a checkpoint of the tables, their optimizers' state and the dense part, as float32
        (docs/checkpoints.md). It loads under any plan. It does not have the state of the dense part's optimizer.
        Collective."""
        for part in self._sharded.values():
            part.settle()
        self.fused_optimizer.hand_on_rates()
        for name, value in _dense_of(self._inner, self._sharded):
            self._tables.dense(name)[...] = value.detach().float().numpy()
        self._tables.save(directory, progress, keep)

    def load(self, directory: Union[str, os.PathLike]) -> str:
        """Loads the newest checkpoint there, and returns its ``progress``. Learning rates stay as they are; a warning
        says so if the checkpoint was saved with others. Collective."""
        progress = self._tables.load(directory)
        if self._tables.group.rank == 0:
            self.fused_optimizer.compare_rates(os.fspath(directory))
        with torch.no_grad():
            for name, value in _dense_of(self._inner, self._sharded):
                value.copy_(torch.from_numpy(self._tables.dense(name).copy()))
        return progress
