"""Tables with a fused optimizer, the planner's plan, one optimizer for all, and the pipeline."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torchrec
from common import set_rows, tell, tell_tables
from torchrec.distributed import TrainPipelineSparseDist
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad
from torchrec.streamable import Pipelineable

KEYS = [f"cat_{i}" for i in range(4)]


@dataclass
class Batch(Pipelineable):
    dense: torch.Tensor
    sparse: torchrec.KeyedJaggedTensor
    labels: torch.Tensor

    def to(self, device, non_blocking=False):
        return Batch(self.dense.to(device), self.sparse.to(device), self.labels.to(device))

    def record_stream(self, stream):
        pass

    def pin_memory(self):
        return self


class Model(torch.nn.Module):
    def __init__(self, ebc):
        super().__init__()
        self.ebc = ebc
        torch.manual_seed(5)
        self.over = torch.nn.Sequential(torch.nn.Linear(8 * len(KEYS) + 3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))

    def forward(self, batch):
        pooled = self.ebc(batch.sparse)
        logits = self.over(torch.cat([batch.dense, *(pooled[key] for key in KEYS)], 1)).squeeze(1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.labels)
        return loss.reshape(1), (loss.detach(), logits.detach())


def batches(n):
    generator = torch.Generator().manual_seed(11 + dist.get_rank())
    for _ in range(n):
        lengths = torch.randint(0, 4, (len(KEYS) * 6,), generator=generator)
        ids = torch.randint(0, 50, (int(lengths.sum()),), generator=generator)
        labels = torch.randint(0, 2, (6,), generator=generator).float()
        sparse = torchrec.KeyedJaggedTensor.from_lengths_sync(KEYS, ids, lengths)
        yield Batch(torch.rand(6, 3, generator=generator), sparse, labels)


dist.init_process_group("gloo")
ebc = torchrec.EmbeddingBagCollection(
    device=torch.device("meta"),
    tables=[torchrec.EmbeddingBagConfig(name=f"t_{key}", embedding_dim=8, num_embeddings=50, feature_names=[key])
            for key in KEYS],
)  # fmt: skip
model = Model(ebc)
apply_optimizer_in_backward(RowWiseAdagrad, model.ebc.parameters(), {"lr": 0.2})
kinds = ["column_wise", "table_wise"]
planner = EmbeddingShardingPlanner(
    topology=Topology(world_size=dist.get_world_size(), compute_device="cpu"),
    constraints={f"t_{key}": ParameterConstraints(sharding_types=[kinds[i % 2]], compute_kernels=["fused"],
                                                  min_partition=4) for i, key in enumerate(KEYS)},
)  # fmt: skip
plan = planner.collective_plan(model, [EmbeddingBagCollectionSharder()], dist.group.WORLD)
model = DistributedModelParallel(
    model, device=torch.device("cpu"), plan=plan, sharders=[EmbeddingBagCollectionSharder()]
)
set_rows(model)
dense = KeyedOptimizerWrapper(
    dict(in_backward_optimizer_filter(model.named_parameters())), lambda params: torch.optim.Adagrad(params, lr=0.1)
)
optimizer = CombinedOptimizer([model.fused_optimizer, dense])
pipeline, source = TrainPipelineSparseDist(model, optimizer, torch.device("cpu")), iter(batches(5))
while True:
    try:
        loss, logits = pipeline.progress(source)
    except StopIteration:
        break
    tell(loss=loss, logits=logits)
tell_tables(model)
dist.destroy_process_group()
