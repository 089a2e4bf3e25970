"""Tables of a sharded model in ``state_dict()``: ShardedTensors over each rank's shards, as in TorchRec."""

from __future__ import annotations

import copy
import functools
import importlib
import sys
import warnings
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Set, Tuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .._step import Shard
from ._weights import table_of, trained_in_backward

if TYPE_CHECKING:
    from ._embeddings import Embeddings

_CPU = "rank:{}/cpu"


def tables_of_plan(plan: Dict[str, Any], path: str) -> Dict[str, Dict[str, Any]]:
    """Returns a plan's entries for a module's tables, by name."""
    for module in plan["modules"]:
        if module["path"] == path:
            return {table["name"]: table for table in module["tables"]}
    return {}


def _cut(module: Embeddings, table: str) -> Optional[List[Tuple[List[int], List[int], int]]]:
    """Returns offsets, sizes and rank of each shard of a table, or None if a state dict cannot have it as a
    ShardedTensor: the ranks are not those of torch.distributed, ranks have copies of rows, or the sharder's own rule
    gives each row its rank, so that shards are not rectangles."""
    group, planned = module.core._group, getattr(module, "_planned", {}).get(table)
    if planned is None or not dist.is_available() or not dist.is_initialized() or planned.get("routed"):
        return None
    if (dist.get_rank(), dist.get_world_size()) != (group.rank, group.world_size):
        return None
    if planned["combine"] == "replica" or any(shard.get("replica") for shard in planned["shards"]):
        return None
    return [(shard["offsets"], shard["sizes"], shard["rank"]) for shard in planned["shards"] if shard["sizes"][0]]


def _ask_placement_for_device() -> None:
    """Lets a ShardedTensor without a shard on this rank take its device from its placement. PyTorch takes CUDA, unless
    the backend is gloo."""
    from torch.distributed._shard.sharded_tensor.api import _SHARDED_OPS

    asked = torch.Tensor.device.__get__  # type: ignore[attr-defined]
    plain = _SHARDED_OPS.get(asked)
    if plain is None or hasattr(plain, "_tessera"):
        return

    def device(types: Any, args: Any, kwargs: Any, group: Any) -> torch.device:
        places = args[0].metadata().shards_metadata
        if not args[0]._local_shards and places and places[0].placement.device().type == "cpu":
            return torch.device("cpu")
        return plain(types, args, kwargs, group)

    device._tessera = True  # type: ignore[attr-defined]
    _SHARDED_OPS[asked] = device


def _gather_as_cut() -> None:
    """Lets PyTorch gather a ShardedTensor by its shards for ``StateDictOptions(full_state_dict=True)``. PyTorch itself
    assumes that each rank has an equal block of rows."""
    from torch.distributed import _state_dict_utils as utils

    plain = utils._all_gather_sharded_tensor
    if hasattr(plain, "_tessera"):
        return

    @functools.wraps(plain)
    def gathered(sharded: Any, pg: Any = None, device: Any = None) -> Tensor:
        places, rows = sharded.metadata().shards_metadata, sharded.size()[0]
        block = -(-rows // dist.get_world_size(pg))
        if all(p.shard_offsets[0] == i * block and p.shard_sizes[0] == min(block, rows - i * block)
               and list(p.shard_sizes[1:]) == list(sharded.size()[1:]) and p.placement.rank() == i
               for i, p in enumerate(places)):  # fmt: skip
            return plain(sharded, pg, device)
        out = torch.zeros(sharded.size(), dtype=sharded.dtype, device="cpu")
        for shard in sharded.local_shards():
            at = shard.metadata
            part = tuple(slice(o, o + n) for o, n in zip(at.shard_offsets, at.shard_sizes))
            out[part] = shard.tensor.detach()
        dist.all_reduce(out, group=pg)
        return out

    gathered._tessera = True  # type: ignore[attr-defined]
    utils._all_gather_sharded_tensor = gathered


def _sharded(
    local: List[Tuple[Tensor, List[int], List[int]]],
    everywhere: List[Tuple[List[int], List[int], int]],
    size: List[int],
    rank: int,
    dtype: torch.dtype,
) -> Any:
    """Makes a ShardedTensor without communication. local: (tensor, offsets, sizes) of this rank's shards. everywhere:
    (offsets, sizes, rank) of all shards."""
    from torch.distributed._shard.metadata import ShardMetadata
    from torch.distributed._shard.sharded_tensor import Shard as TorchShard
    from torch.distributed._shard.sharded_tensor import ShardedTensor, ShardedTensorMetadata, TensorProperties

    _ask_placement_for_device()
    _gather_as_cut()

    def metadata(offsets: List[int], sizes: List[int], of: int) -> ShardMetadata:
        return ShardMetadata(shard_offsets=list(offsets), shard_sizes=list(sizes), placement=_CPU.format(of))

    shards = [TorchShard(tensor=tensor, metadata=metadata(at, sizes, rank)) for tensor, at, sizes in local]
    places = [metadata(*place) for place in everywhere]
    whole = ShardedTensorMetadata(places, torch.Size(size), TensorProperties(dtype=dtype))
    return ShardedTensor._init_from_local_shards_and_global_metadata(shards, whole)


def _held(module: Embeddings, table: str) -> List[Tuple[Tensor, Shard]]:
    return [(p.detach(), shard) for p, name, shard in module._held if name == table and shard.rows > 0]


def sharded_tensor(module: Embeddings, table: str) -> Any:
    """Returns a table as a ShardedTensor over its own memory, or None if ``_cut`` has none."""
    cut = _cut(module, table)
    if cut is None:
        return None
    module.refresh(table)
    held = _held(module, table)
    local = [(tensor, [s.row, s.col], [s.rows, s.cols]) for tensor, s in held]
    dtype = module._places()._modules[table].weight.dtype
    return _sharded(local, cut, list(module.core.tables[table]), module.core._group.rank, dtype)


def _state_places(cut: List[Tuple[List[int], List[int], int]]) -> Tuple[Dict[Tuple[int, int], int], int]:
    """For states with one value per row: returns each shard's first index in the whole state, by the shard's offsets,
    and the length of the whole state. As in TorchRec, the states of column shards are one after the other."""
    rows = max(at[0] + sizes[0] for at, sizes, _ in cut)
    if all(at[1] == 0 for at, _, _ in cut):
        return {(at[0], at[1]): at[0] for at, _, _ in cut}, rows
    columns = {col: i for i, col in enumerate(sorted({at[1] for at, _, _ in cut}))}
    return {(at[0], at[1]): columns[at[1]] * rows + at[0] for at, _, _ in cut}, rows * len(columns)


def sharded_state(module: Embeddings, table: str) -> Dict[str, Any]:
    """Returns a table's states: ShardedTensors, or tensors if the table cannot be a ShardedTensor. They are over the
    optimizer's own memory, except for ShardedTensors of states that are not contiguous."""
    module.refresh(table)
    held = [(shard, module._states[shard.index]) for _, name, shard in module._held if name == table and shard.rows > 0]
    cut = _cut(module, table)
    if cut is None:
        if len(held) == 1:
            return dict(held[0][1])
        return {f"{name}#{i}": value for i, (_, states) in enumerate(held) for name, value in states.items()}
    out: Dict[str, Any] = {}
    places, length = _state_places(cut)
    for name in held[0][1] if held else ():  # as in TorchRec, only ranks with a shard have its states
        local, per_row = [], held[0][1][name].dim() == 1
        for shard, states in held:
            at, sizes = [shard.row, shard.col], [shard.rows, shard.cols]
            if per_row:
                at, sizes = [places[shard.row, shard.col]], [shard.rows]
            local.append((states[name].contiguous(), at, sizes))  # a copy if rows of two states alternate in memory
        everywhere = cut
        size = list(module.core.tables[table])
        if per_row:
            everywhere = [([places[at[0], at[1]]], [sizes[0]], rank) for at, sizes, rank in cut]
            size = [length]
        out[name] = _sharded(local, everywhere, size, module.core._group.rank, torch.float32)
    return out


def state_memory(module: Embeddings, table: str) -> Dict[str, List[Tensor]]:
    """Returns the optimizer's own memory for the states of ``sharded_state``, by name and shard."""
    held = [(shard, module._states[shard.index]) for _, name, shard in module._held if name == table and shard.rows > 0]
    if _cut(module, table) is None and len(held) > 1:
        return {f"{name}#{i}": [value] for i, (_, states) in enumerate(held) for name, value in states.items()}
    return {name: [states[name] for _, states in held] for name in (held[0][1] if held else ())}


def _held_shard(parameter: Tensor) -> Optional[Tuple[Embeddings, str, List[Tuple[Tensor, Shard]]]]:
    """Returns the collection, the table and the tensors with their shards for a parameter of a sharded table, or None
    for other parameters."""
    place = table_of(parameter)
    if place is None or place[0]._core is None or place[0].core._group.world_size == 1:
        return None
    module, table = place
    if getattr(module, "_planned", {}).get(table, {}).get("combine", "replica") == "replica":
        return None
    return module, table, [(p, shard) for p, _, shard in module._held if p is parameter and shard.rows > 0]


def optimizer_state(parameter: Tensor, state: Dict[str, Any]) -> Dict[str, Any]:
    """Returns a parameter's state of a PyTorch optimizer. Values for each row of a shard become ShardedTensors, because
    other ranks have other values under the same key."""
    found = _held_shard(parameter)
    if found is None:
        return state
    module, table, held = found
    cut = _cut(module, table)
    ranks = [] if cut is None else [rank for _, _, rank in cut]
    if cut is None or len(set(ranks)) < len(ranks):
        raise NotImplementedError(
            f"the optimizer's state of table {table} has no ShardedTensor, because its rows are dealt out or a rank "
            "has several of its shards: let the table have an optimizer of its own, or save each rank's state alone"
        )
    size, rank = list(module.core.tables[table]), module.core._group.rank
    out = {}
    for name, value in state.items():
        if isinstance(value, Tensor) and value.dim() == 2 and value.shape == parameter.shape:
            local = [(value, [s.row, s.col], [s.rows, s.cols]) for _, s in held]
            value = _sharded(local, cut, size, rank, value.dtype)
        out[name] = value
    return out


def local_state(parameter: Tensor, state: Dict[str, Any]) -> Dict[str, Any]:
    """Returns a copy of this rank's part of an ``optimizer_state``."""
    out = {}
    for name, value in state.items():
        if hasattr(value, "local_shards"):
            parts = [shard.tensor for shard in value.local_shards()] or [torch.zeros_like(parameter)]
            if len(parts) > 1 or parts[0].shape != parameter.shape:
                raise ValueError(f"{name} is cut otherwise in the state dict: take the same plan, or load it by DCP")
            value = parts[0]
        out[name] = value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)
    return out


def watch_checkpoints(always: bool) -> None:
    """Lets PyTorch's get_optimizer_state_dict refuse states of shards, which it would save wrongly, because each rank's
    state has the same key. DistributedModelParallel calls it. always: even if nothing has imported that module yet,
    which takes half a second."""
    name = "torch.distributed.checkpoint.state_dict"
    if not dist.is_available() or not (always or name in sys.modules):
        return
    theirs = importlib.import_module(name)
    plain = getattr(theirs, "_get_optim_state_dict", None)
    if plain is None or hasattr(plain, "_tessera"):
        return

    @functools.wraps(plain)
    def checked(model: Any, optimizers: Any, *args: Any, **kwargs: Any) -> Any:
        for optimizer in optimizers:
            if hasattr(optimizer, "fused_keys"):
                raise NotImplementedError(
                    "get_optimizer_state_dict does not take a fused optimizer: save model.fused_optimizer.state_dict()"
                )
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                found = _held_shard(parameter)
                if found is not None and not hasattr(optimizer, "params"):
                    raise NotImplementedError(
                        f"get_optimizer_state_dict would save one rank's state of table {found[1]} for all ranks: make "
                        "the optimizer by KeyedOptimizerWrapper, and save its state_dict()"
                    )
        return plain(model, optimizers, *args, **kwargs)

    checked._tessera = True  # type: ignore[attr-defined]
    theirs._get_optim_state_dict = checked


_hooks: List[Any] = []


# PyTorch's optimizers that update each value from its own gradient and state, so that a shard's rows can be alone.
_BY_VALUE = {
    "ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam",
}  # fmt: skip
_warned: Set[type] = set()


def watch_steps() -> None:
    """Watches the steps of PyTorch's optimizers, because an optimizer may mistake a shard for a whole parameter.
    DistributedModelParallel calls it."""
    if not _hooks:
        _hooks.append(register_optimizer_step_pre_hook(_check_shards))


def _check_shards(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Refuses optimizers that are wrong over the shards of a table, and warns once of those that may be."""
    kind = type(optimizer)
    bases = [base for base in kind.__mro__ if base.__module__.split(".")[:2] == ["torch", "optim"]]
    if bases[0].__name__ in _BY_VALUE or kind.__module__.startswith(("tessera.", "torchrec.")):
        return
    zero = kind.__name__ == "ZeroRedundancyOptimizer"
    if not zero and kind in _warned:
        return
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        found = _held_shard(parameter)
        if found is None or (not zero and trained_in_backward(parameter)):
            continue
        if zero:
            raise NotImplementedError(
                f"ZeroRedundancyOptimizer would send one rank's rows of table {found[1]} to all ranks: give it the "
                "dense parameters alone, and the tables an optimizer of their own"
            )
        partly = f"over whole parameters, but a rank has only its own rows of table {found[1]}"
        if bases[0] is not torch.optim.Optimizer:
            raise NotImplementedError(
                f"{kind.__name__} computes {partly}: give the table another optimizer, such as torch.optim.Adam"
            )
        _warned.add(kind)
        return warnings.warn(
            f"if {kind.__name__} computes norms or means {partly}, so they are wrong: use an optimizer that updates "
            "each value alone",
            stacklevel=4,
        )


def load_table(module: Embeddings, table: str, value: Any) -> Optional[str]:
    """Loads a table's rows from a state dict: a whole tensor, a DTensor, or a ShardedTensor that is sharded like the
    table. Returns the error as a text, or None."""
    core = module.core
    if hasattr(value, "local_shards"):
        pieces = {tuple(shard.metadata.shard_offsets): shard.tensor for shard in value.local_shards()}
        held = [shard for shard in core.shards() if shard.table == table and shard.rows > 0]
        fits: List[bool] = [
            (shard.row, shard.col) in pieces and tuple(pieces[shard.row, shard.col].shape) == (shard.rows, shard.cols)
            for shard in held
        ]
        if not all(fits) or len(pieces) != len(held):
            return f"the ShardedTensor of table {table} is cut otherwise: give full_state_dict(), or take the same plan"
        for shard in held:
            core.write_shard(shard, pieces[shard.row, shard.col].detach().float())
        return None
    whole: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    core.set_weight(table, whole.detach().float())
    return None
