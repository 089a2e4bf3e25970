"""On each rank: a model with a dense part, trained by DDP and DistributedModelParallel; it equals one process.
parallel.py BACKEND: of torch.distributed."""

import sys

import torch
import torch.distributed as dist

import tessera.torch as tt


class Model(torch.nn.Module):
    def __init__(self, device):
        super().__init__()
        tables = [tt.EmbeddingBagConfig(20, 4, "a"), tt.EmbeddingBagConfig(10, 4, "b")]
        self.sparse = tt.EmbeddingBagCollection(tables, device=device)
        torch.manual_seed(3)
        self.over = torch.nn.Linear(8, 1)

    def forward(self, features):
        return self.over(self.sparse(features).values())


def batch(samples, step):
    generator = torch.Generator().manual_seed(step)
    lengths = torch.randint(0, 4, (2, 8), generator=generator)
    ids = [[torch.randint(0, 10, (int(n),), generator=generator) for n in row] for row in lengths]
    values = torch.cat([ids[f][s] for f in range(2) for s in samples])
    return tt.KeyedJaggedTensor.from_lengths_sync(["a", "b"], values, lengths[:, samples].reshape(-1))


def train(model, samples):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        (model(batch(samples, step)) ** 2).mean().backward()
        optimizer.step()


dist.init_process_group(sys.argv[1])
rank, world = dist.get_rank(), dist.get_world_size()
params = {"optimizer": tt.EmbOptimType.EXACT_ADAGRAD, "learning_rate": 0.1}
sharders = [tt.EmbeddingBagCollectionSharder(params)]
model = Model("meta")
plan = tt.EmbeddingShardingPlanner(
    tt.Topology(world, "cpu"), constraints={"a": tt.ParameterConstraints(sharding_types=["row_wise"])}
).collective_plan(model, sharders)
model = tt.DistributedModelParallel(model, plan=plan, sharders=sharders)
assert isinstance(model.module.sparse, tt.ShardedEmbeddingBagCollection)
start = {key: value.clone() for key, value in model.full_state_dict().items()}
assert list(model.state_dict()) == list(start)
assert list(start) == ["sparse.embedding_bags.a.weight", "sparse.embedding_bags.b.weight", "over.weight", "over.bias"]
train(model, list(range(rank, 8, world)))
after = model.full_state_dict()
if rank == 0:
    alone = Model("cpu")
    tt.apply_optimizer_in_backward(torch.optim.Adagrad, alone, {"lr": 0.1, "eps": 1e-8})
    alone.load_state_dict(start)
    train(alone, list(range(8)))
    for key, value in alone.state_dict().items():
        torch.testing.assert_close(after[key], value, rtol=1e-4, atol=1e-6)
        assert not torch.equal(value, start[key]), key
    print("all equal", flush=True)
model.group.barrier()
dist.destroy_process_group()
