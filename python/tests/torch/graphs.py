"""On each rank: models with tables in graphs of PyTorch. graphs.py BACKEND: prints "all right" on rank 0."""

import io
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn

import tessera.torch as tt

warnings.filterwarnings("ignore")
BATCHES = (((3, 0, 1, 1, 2), (1, 2, 2, 0)), ((3, 0, 1, 1, 2, 1), (1, 2, 2, 1)), ((0, 1), (0, 1, 1, 0)))
FUSED = {"optimizer": tt.EmbOptimType.EXACT_ADAGRAD, "learning_rate": 0.5}


class Model(nn.Module):
    """Bags, looked up twice, and sequences."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.e = tt.EmbeddingBagCollection(device="meta", tables=[
            tt.EmbeddingBagConfig(6, 4, "a", feature_names=["x"]),
            tt.EmbeddingBagConfig(4, 2, "b", feature_names=["y"], pooling=tt.PoolingType.MEAN)])  # fmt: skip
        self.q = tt.EmbeddingCollection(device="meta", tables=[
            tt.EmbeddingConfig(6, 4, "c", feature_names=["x"]),
            tt.EmbeddingConfig(6, 4, "d", feature_names=["x", "y"])])  # fmt: skip
        self.over = nn.Linear(6, 4)

    def forward(self, dense, features):
        rows = self.q(features)
        last = rows["x@c"].values().sum(0) + rows["y"].values().square().sum(0) + self.e(features)["x"].sum()
        return torch.relu(self.over(self.e(features).values())) * dense + last


class OfTensors(nn.Module):
    """The same for torch.jit, which takes tensors."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, dense, ids, lengths):
        return self.inner(dense, tt.KeyedJaggedTensor(["y", "x"], ids, lengths=lengths))


def features(number):
    ids, lengths = BATCHES[number]
    return tt.KeyedJaggedTensor(["y", "x"], torch.tensor(ids), lengths=torch.tensor(lengths))


def made(fused, seed=1):
    sharders = [tt.EmbeddingBagCollectionSharder(fused), tt.EmbeddingCollectionSharder(fused)]
    cuts = {"e": {"a": tt.row_wise(), "b": tt.table_wise(dist.get_world_size() - 1)},
            "q": {"c": tt.row_wise(), "d": tt.table_wise(0)}}  # fmt: skip
    return tt.DistributedModelParallel(Model(), plan=tt.ShardingPlan(cuts), sharders=sharders, seed=seed)


def compiled(fused):
    """Whole graphs train as eager models do."""
    eager, model = made(fused), made(fused)
    graph = torch.compile(model.module, backend="aot_eager", fullgraph=True)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (eager, model)]
    for number in range(len(BATCHES)):
        results = eager.module(torch.ones(2, 4), features(number)), graph(torch.ones(2, 4), features(number))
        torch.testing.assert_close(*results)
        for optimizer, result in zip(optimizers, results):
            optimizer.zero_grad()
            result.pow(2).sum().backward()
            optimizer.step()
        before, after = eager.full_state_dict(), model.full_state_dict()
        assert all(torch.allclose(before[key], after[key], rtol=1e-5) for key in before)
    with torch.no_grad():
        torch.testing.assert_close(graph(torch.ones(2, 4), features(0)), eager.module(torch.ones(2, 4), features(0)))


def exported():
    """Exported and traced graphs find the tables in the process that runs them."""
    model = made(FUSED).module.eval()
    inputs = torch.ones(2, 4), features(0)
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, inputs, strict=False), file)
    file.seek(0)
    program = torch.export.load(file)
    called = {str(node.target) for node in program.graph.nodes if "tessera" in str(node.target)}
    pooled = {"tessera.pooled.default"} if dist.get_world_size() > 1 else set()
    assert called == {"tessera.sequences.default"} | pooled, called
    torch.testing.assert_close(program.module()(*inputs), model(*inputs))
    traced = torch.jit.trace(OfTensors(model), (torch.ones(2, 4), *map(torch.tensor, BATCHES[0])), check_trace=False)
    for number, batch in enumerate(BATCHES):
        expected = model(torch.ones(2, 4), features(number))
        torch.testing.assert_close(traced(torch.ones(2, 4), *map(torch.tensor, batch)), expected)



if __name__ == "__main__":
    dist.init_process_group(sys.argv[1])
    compiled(FUSED)
    torch._dynamo.reset()
    compiled(None)
    exported()
    dist.barrier()
    if dist.get_rank() == 0:
        print("all right", flush=True)
    dist.destroy_process_group()
