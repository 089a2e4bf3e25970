"""On each rank: a GradScaler over sharded tables, some with an optimizer of their own and some without, where rank 1's
gradient is infinite in one step. scaling.py WHAT: prints "all right" on rank 0."""

import sys

import torch
import torch.distributed as dist

import tessera.torch as tt


def tables(what):
    kinds = tt.EmbeddingBagCollection, tt.EmbeddingBagConfig
    kinds = (tt.EmbeddingCollection, tt.EmbeddingConfig) if what == "scaled_sequences" else kinds
    return kinds[0](tables=[kinds[1](8, 4, t, feature_names=[f"f{t}"]) for t in "ab"], device="meta")


class Model(torch.nn.Module):
    def __init__(self, what):
        super().__init__()
        self.e, self.over = tables(what), torch.nn.Linear(8, 1)

    def forward(self, batch, factor):
        rows = self.e(batch)
        parts = [rows[key].values() if isinstance(rows, dict) else rows[key] for key in ("fa", "fb")]
        both = torch.cat(parts, 1)
        if both.requires_grad:
            both.register_hook(lambda grad: grad * factor)
        return self.over(both).sum()


dist.init_process_group("gloo")
what, rank = sys.argv[1], dist.get_rank()
for fused in ({"optimizer": tt.EmbOptimType.ADAM, "learning_rate": 0.5}, None):
    kind = tt.EmbeddingCollectionSharder if what == "scaled_sequences" else tt.EmbeddingBagCollectionSharder
    sharder = kind(fused_params=fused)
    model = Model(what)
    kernel = "fused" if fused else "dense"
    plan = tt.construct_module_sharding_plan(
        model.e, {t: tt.row_wise(compute_kernel=kernel) for t in "ab"}, sharder, 2, 2, "cpu"
    )
    model = tt.DistributedModelParallel(model, plan=tt.ShardingPlan({"e": plan}), sharders=[sharder])
    dense = [p for n, p in model.named_parameters() if not fused or n.startswith("over")]
    steps, scaler = torch.optim.SGD(dense, lr=0.5), torch.amp.GradScaler("cpu", init_scale=4.0)
    batch = tt.KeyedJaggedTensor(["fa", "fb"], torch.arange(4) + 4 * rank, lengths=torch.ones(4, dtype=torch.int32))
    for step, factor in enumerate((1.0, float("inf") if rank == 1 else 1.0, 1.0)):
        before = {key: value.clone() for key, value in model.full_state_dict().items()}
        steps.zero_grad()
        scaler.scale(model(batch, factor)).backward()
        scaler.step(steps)
        scaler.update()
        after = model.full_state_dict()
        stays = [torch.equal(before[key], after[key]) for key in after]
        assert stays == [step == 1] * len(stays), (fused, step, dict(zip(after, stays)))
        assert scaler.get_scale() == (4.0 if step == 0 else 2.0), "the same on both ranks"
dist.barrier()
if rank == 0:
    print("all right", flush=True)
dist.destroy_process_group()
