"""The programs here share this: rows that do not depend on a seed, and the numbers that they tell."""

import json

import torch
import torch.distributed as dist


def rows(name, shape):
    """Rows of a table by its name."""
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    return torch.rand(*shape, generator=generator) - 0.5


def set_rows(model):
    """Writes them into a model's state dict, sharded or not."""
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if "embedding" not in key:
                continue
            whole = rows(key.split(".")[-2], tuple(value.size()))
            if not hasattr(value, "local_shards"):
                value.copy_(whole)
                continue
            for shard in value.local_shards():
                (row, col), (n, dim) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
                shard.tensor.copy_(whole[row : row + n, col : col + dim])
    return model


def whole_tables(model):
    """All tables by key, on every rank."""
    out = {}
    for key, value in model.state_dict().items():
        if "embedding" in key and hasattr(value, "local_shards"):
            full = torch.zeros(value.size())
            for shard in value.local_shards():
                (row, col), (n, dim) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
                full[row : row + n, col : col + dim] = shard.tensor
            dist.all_reduce(full)
            out[key] = full
        elif "embedding" in key:
            out[key] = value.detach().clone()
    return out


def waited(result):
    """A result that may have to be waited for."""
    return result.wait() if hasattr(result, "wait") else result


def tell(**numbers):
    """Prints numbers of rank 0."""
    if not dist.is_initialized() or dist.get_rank() == 0:
        plain = {k: v.detach().double().reshape(-1).tolist() if isinstance(v, torch.Tensor) else v
                 for k, v in numbers.items()}  # fmt: skip
        print("told: " + json.dumps(plain), flush=True)


def tell_tables(model):
    """Prints the sum of each row of the first 8 rows of all tables."""
    tell(**{key: full[:8].sum(1) for key, full in sorted(whole_tables(model).items())})
