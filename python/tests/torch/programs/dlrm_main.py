"""Training with a warm-up of all learning rates, and an evaluation after each epoch."""

import torch
import torch.distributed as dist
import torchrec
from common import set_rows, tell, tell_tables, waited
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise, table_wise
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter

KEYS = ["f1", "f2", "f3"]


class Dlrm(torch.nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.sparse = tables
        torch.manual_seed(9)
        self.bottom, self.top = torch.nn.Linear(4, 8), torch.nn.Linear(8 + 6, 1)

    def forward(self, dense, features):
        low, pooled = torch.relu(self.bottom(dense)), self.sparse(features)
        vectors = torch.stack([low, *(pooled[key] for key in KEYS)], 1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))
        i, j = torch.triu_indices(4, 4, 1)
        return self.top(torch.cat([low, dots[:, i, j]], 1)).squeeze(1)


def batch(seed):
    generator = torch.Generator().manual_seed(100 * seed + dist.get_rank())
    lengths = torch.randint(0, 3, (len(KEYS) * 5,), generator=generator, dtype=torch.int32)
    ids = torch.randint(0, 30, (int(lengths.sum()),), generator=generator)
    labels = torch.randint(0, 2, (5,), generator=generator).float()
    return torch.rand(5, 4, generator=generator), torchrec.KeyedJaggedTensor(KEYS, ids, lengths=lengths), labels


dist.init_process_group("gloo")
world, cpu = dist.get_world_size(), torch.device("cpu")
ebc = torchrec.EmbeddingBagCollection(
    device=torch.device("meta"),
    tables=[torchrec.EmbeddingBagConfig(num_embeddings=30, embedding_dim=8, name=f"t_{key}", feature_names=[key])
            for key in KEYS],
)  # fmt: skip
sharder = EmbeddingBagCollectionSharder(
    fused_params={"optimizer": EmbOptimType.EXACT_ADAGRAD, "learning_rate": 0.2, "eps": 1e-6}
)
cuts = {"t_f1": row_wise(compute_kernel="fused"), "t_f2": table_wise(rank=world - 1, compute_kernel="fused"),
        "t_f3": table_wise(rank=0, compute_kernel="fused")}  # fmt: skip
plan = ShardingPlan({"sparse": construct_module_sharding_plan(ebc, cuts, sharder, world, world, "cpu")})
env = ShardingEnv.from_process_group(dist.group.WORLD)
model = DistributedModelParallel(Dlrm(ebc), env, cpu, plan, [sharder])
set_rows(model)
dense = KeyedOptimizerWrapper(
    dict(in_backward_optimizer_filter(model.named_parameters())), lambda params: torch.optim.SGD(params, lr=0.1)
)
optimizer = CombinedOptimizer([model.fused_optimizer, dense])
schedulers = [torch.optim.lr_scheduler.LambdaLR(each, lambda step: min(1.0, step / 4))
              for each in (model.fused_optimizer, dense)]  # fmt: skip
loss_of = torch.nn.BCEWithLogitsLoss()
for epoch in range(2):
    model.train()
    for step in range(3):
        inputs, features, labels = batch(3 * epoch + step)
        optimizer.zero_grad()
        loss = loss_of(waited(model(inputs, features)), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(dense.params.values(), 0.5)
        optimizer.step()
        for schedule in schedulers:
            schedule.step()
        tell(loss=loss, rates=[group["lr"] for group in optimizer.param_groups][-1])
    model.eval()
    inputs, features, labels = batch(77)
    tell(evaluated=loss_of(waited(model(inputs, features)), labels))
tell_tables(model)
dist.destroy_process_group()
