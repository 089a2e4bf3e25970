"""The small programs of every day share this: names of either library, models, and their numbers."""

import importlib

import torch
import torch.distributed as dist
from torch import nn

PROGRAMS = {}


class _Names:
    """TorchRec's names, of the library that is tried."""

    def choose(self, library):
        self.library = library
        if library == "tessera":
            import tessera.torch

            return vars(self).update({name: getattr(tessera.torch, name) for name in tessera.torch.__all__})
        import torchrec
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from torchrec.distributed import DistributedModelParallel, embeddingbag, sharding_plan, types
        from torchrec.optim import apply_optimizer_in_backward, keyed, optimizers

        for module in (torchrec, embeddingbag, sharding_plan, types, keyed, optimizers):
            vars(self).update({k: v for k, v in vars(module).items() if not k.startswith("_")})
        vars(self).update(EmbOptimType=EmbOptimType, DistributedModelParallel=DistributedModelParallel,
                          apply_optimizer_in_backward=apply_optimizer_in_backward)  # fmt: skip


tr = _Names()


def of(path, *names):
    """Names of a module of the library that is tried."""
    found = importlib.import_module(("tessera.torch." if tr.library == "tessera" else "torchrec.") + path)
    return [getattr(found, name) for name in names]


def program(function):
    """Notes a program."""
    PROGRAMS[function.__name__] = function
    return function


CPU = torch.device("cpu")


def bags(device="cpu", weighted=False):
    return tr.EmbeddingBagCollection(
        tables=[
            tr.EmbeddingBagConfig(num_embeddings=6, embedding_dim=4, name="a", feature_names=["x", "z"]),
            tr.EmbeddingBagConfig(num_embeddings=5, embedding_dim=4, name="b", feature_names=["y"]),
        ],
        is_weighted=weighted,
        device=torch.device(device),
    )


def kjt(ids=(3, 0, 1, 1, 2, 5, 4), lengths=(1, 2, 2, 0, 1, 1), keys=("x", "y", "z"), weights=None, dt=torch.int64, **k):
    return tr.KeyedJaggedTensor(
        list(keys), torch.tensor(ids, dtype=dt), weights, torch.tensor(lengths, dtype=torch.int32), **k
    )


def rows():
    return {"a": torch.arange(24.0).reshape(6, 4) / 10, "b": torch.arange(20.0).reshape(5, 4) / 7}


def fill(m, prefix=""):
    m.load_state_dict(
        {
            **{k: v for k, v in m.state_dict().items() if "embedding_bags" not in k},
            **{f"{prefix}embedding_bags.{t}.weight": r for t, r in rows().items()},
        }
    )
    return m


class M(nn.Module):
    def __init__(s, device="cpu"):
        super().__init__()
        s.e = bags(device)
        torch.manual_seed(3)
        s.over = nn.Linear(12, 1)
        s.norm = nn.BatchNorm1d(12)

    def forward(s, f):
        return s.over(pooled(s.e, f))


def model(device="cpu"):
    m = M(device)
    if device == "cpu":
        fill(m, "e.")
    return m


def dmp(opt="EXACT_ADAGRAD", lr=0.5, m=None, fused=True, **kw):
    m = m or M("meta")
    sh = tr.EmbeddingBagCollectionSharder(
        fused_params={"optimizer": getattr(tr.EmbOptimType, opt), "learning_rate": lr, **kw} if fused else None
    )
    asked = {table: tr.table_wise(rank=0, compute_kernel="fused" if fused else "dense") for table in "ab"}
    plan = tr.construct_module_sharding_plan(m.e, asked, sh, 1, 1, "cpu")
    d = tr.DistributedModelParallel(
        m, tr.ShardingEnv.from_process_group(dist.group.WORLD), CPU, tr.ShardingPlan({"e": plan}), [sh]
    )
    torch.manual_seed(3)
    over = nn.Linear(12, 1)
    with torch.no_grad():
        for n, p in d.named_parameters():
            if n.endswith("over.weight"):
                p.copy_(over.weight)
            if n.endswith("over.bias"):
                p.copy_(over.bias)
    sd = d.state_dict()
    for k, v in sd.items():
        if "embedding_bags" in k:
            for s in (v.local_shards() if hasattr(v, "local_shards") else [type("S", (), {"tensor": v})]):
                with torch.no_grad():
                    s.tensor.copy_(rows()[k.split(".")[-2]])
    return d


def whole(d):
    out = {}
    for k, v in d.state_dict().items():
        v = v.local_shards()[0].tensor if hasattr(v, "local_shards") else v
        out[k] = v.detach().double().sum().item()
    return out


def numbers_of(t):
    return t.detach().double().reshape(-1).tolist()


def pooled(e, batch):
    """The output of a collection of bags, as one tensor."""
    k = e(batch)
    return torch.cat([k[n] for n in "xyz"], 1)


def squares(y):
    return y.pow(2).sum()


def stepped(m, o, steps=3, loss=squares, after=lambda: None):
    """The values of a model after steps of an optimizer."""
    for _ in range(steps):
        o.zero_grad()
        loss(m(kjt())).backward()
        o.step()
        after()
    return whole(m)


def tried(call, error=Exception):
    """What a call comes to, or ERR."""
    try:
        return call()
    except error:
        return "ERR"


def in_backward_params(d):
    return [q for n, q in tr.in_backward_optimizer_filter(d.named_parameters())]
