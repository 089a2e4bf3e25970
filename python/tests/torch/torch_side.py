"""A case of torchrec_cases.py in tessera.torch, and how its outcome is compared."""

import numpy as np
import torch

import tessera.torch as tt

OPTIONS = {"EXACT_SGD": {}, "EXACT_ADAGRAD": {"eps": 1e-6}, "EXACT_ROWWISE_ADAGRAD": {"eps": 1e-6}}
CUTS = {"row": lambda _: tt.row_wise(), "table": tt.table_wise, "column": tt.column_wise}


def _model(case, group):
    kind, pooling = (tt.EmbeddingConfig, {}) if case["kind"] == "sequences" else (tt.EmbeddingBagConfig, {})
    if case["kind"] == "bags":
        pooling = {"pooling": tt.PoolingType[case["pooling"]]}
    configs = [kind(t["rows"], t["dim"], t["name"], feature_names=t["features"], **pooling) for t in case["tables"]]
    fused = {"optimizer": tt.EmbOptimType[case["optimizer"]], "learning_rate": 0.1, **OPTIONS[case["optimizer"]]}
    if case["kind"] == "bags":
        module = tt.EmbeddingBagCollection(configs, case["weighted"], device="meta")
        sharder = tt.EmbeddingBagCollectionSharder(fused)
    else:
        module, sharder = tt.EmbeddingCollection(configs, device="meta"), tt.EmbeddingCollectionSharder(fused)
    wanted = {table["name"]: CUTS[table["cut"][0]](table["cut"][1]) for table in case["tables"]}
    plan = tt.ShardingPlan({"e": tt.construct_module_sharding_plan(module, wanted)})
    return tt.DistributedModelParallel(torch.nn.ModuleDict({"e": module}), plan=plan, sharders=[sharder], group=group)


def ours(case, start, rank, group, kjt=tt.KeyedJaggedTensor):
    """Our version of ``theirs``; ``kjt`` is the class of KeyedJaggedTensor that the module gets."""
    model = _model(case, group)
    keys = [f for table in case["tables"] for f in table["features"]]
    inside = "embedding_bags" if case["kind"] == "bags" else "embeddings"
    assert set(model.state_dict()) == {f"e.{inside}.{name}.weight" for name in start}
    model.load_state_dict({f"e.{inside}.{name}.weight": torch.from_numpy(rows) for name, rows in start.items()})
    out = {"outputs": [], "weight_grads": []}
    for batches in case["batches"]:
        batch, more = batches[rank], {}
        weights = torch.from_numpy(batch["weights"].copy()) if case["weighted"] else None
        if weights is not None and not case["variable"]:
            weights.requires_grad_()
        if case["variable"]:
            more["stride_per_key_per_rank"] = [[n] for n in batch["strides"]]
            more["inverse_indices"] = (keys, torch.from_numpy(batch["inverse"]))
        lengths = torch.from_numpy(batch["lengths"])
        rows = model.module["e"](kjt(keys, torch.from_numpy(batch["ids"]), weights, lengths, **more))
        if case["kind"] == "bags":
            assert rows.keys() == keys
            out["outputs"].append(rows.values().detach().numpy().copy())
            (rows.values() * torch.from_numpy(batch["grad"])).sum().backward()
        else:
            assert set(rows) == set(keys)
            parts = np.cumsum([0, *[len(batch["lengths"]) // len(keys)] * len(keys)])
            for key, begin, end in zip(keys, parts, parts[1:]):
                assert rows[key].lengths().tolist() == batch["lengths"][begin:end].tolist()
            out["outputs"].append({key: rows[key].values().detach().numpy().copy() for key in keys})
            sum((rows[key].values() * torch.from_numpy(batch["grads"][key])).sum() for key in keys).backward()
        if weights is not None and weights.requires_grad:
            out["weight_grads"].append(weights.grad.numpy().copy())
    out["end"] = {key.split(".")[-2]: rows.numpy() for key, rows in model.full_state_dict().items()}
    return out


def compare(mine, expected):
    for a, b in zip(mine["outputs"], expected["outputs"]):
        for key in a if isinstance(a, dict) else [...]:
            np.testing.assert_allclose(a[key], b[key], rtol=1e-4, atol=1e-5)
    assert len(mine.get("weight_grads", expected["weight_grads"])) == len(expected["weight_grads"])
    for a, b in zip(mine.get("weight_grads", []), expected["weight_grads"]):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert set(mine["end"]) == set(expected["end"])
    for name, rows in expected["end"].items():
        np.testing.assert_allclose(mine["end"][name], rows, rtol=1e-3, atol=1e-4)


if __name__ == "__main__":  # on each rank: the cases that were recorded
    import sys
    from pathlib import Path

    import torch.distributed as dist

    sys.path.insert(0, str(Path(__file__).parent.parent))
    import recorded

    dist.init_process_group("tessera")
    ranks = tt.process_group()
    of_world = recorded.cases(dist.get_world_size())
    for one in of_world:
        compare(ours(one, one["start"], dist.get_rank(), ranks), recorded.of_rank(one, dist.get_rank()))
    assert len(of_world) == 30
    print("all agree", flush=True)
    dist.barrier()
    dist.destroy_process_group()
