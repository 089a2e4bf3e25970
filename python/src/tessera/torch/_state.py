"""Tables of a sharded model in ``state_dict()``: ShardedTensors of what each rank holds, as TorchRec has them."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch
import torch.distributed as dist
from torch import Tensor

from .._collections import Collection

_CPU = "rank:{}/cpu"


def tables_of_plan(plan: Dict[str, Any], path: str) -> Dict[str, Dict[str, Any]]:
    """A plan's entries for a module's tables, by name."""
    for module in plan["modules"]:
        if module["path"] == path:
            return {table["name"]: table for table in module["tables"]}
    return {}


def sharded_tensor(core: Collection, planned: Dict[str, Any], table: str, dtype: torch.dtype) -> Any:
    """A table as a ShardedTensor of copies; None where it is none: ranks of torch.distributed are missing or others,
    every rank has a copy, or its rows are dealt out, so that its pieces are no rectangles."""
    group = core._group
    if not dist.is_available() or not dist.is_initialized() or planned.get("routed"):
        return None
    if (dist.get_rank(), dist.get_world_size()) != (group.rank, group.world_size):
        return None
    if planned["combine"] == "replica" or any(shard.get("replica") for shard in planned["shards"]):
        return None
    from torch.distributed._shard.metadata import ShardMetadata
    from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor, ShardedTensorMetadata, TensorProperties

    def metadata(row: int, col: int, rows: int, cols: int, rank: int) -> ShardMetadata:
        return ShardMetadata(shard_offsets=[row, col], shard_sizes=[rows, cols], placement=_CPU.format(rank))

    local = [
        Shard(
            tensor=torch.from_numpy(core.read_shard(held)[0]).to(dtype),
            metadata=metadata(held.row, held.col, held.rows, held.cols, group.rank),
        )
        for held in core.shards()
        if held.table == table and held.rows > 0
    ]
    everywhere = [
        metadata(*shard["offsets"], *shard["sizes"], shard["rank"]) for shard in planned["shards"] if shard["sizes"][0]
    ]
    whole = ShardedTensorMetadata(everywhere, torch.Size(core.tables[table]), TensorProperties(dtype=dtype))
    return ShardedTensor._init_from_local_shards_and_global_metadata(local, whole)


def load_table(core: Collection, table: str, value: Any) -> Optional[str]:
    """A table's rows become those of a state dict: a whole tensor, a DTensor, or a ShardedTensor that is cut as the
    table is. What is wrong, or None."""
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
