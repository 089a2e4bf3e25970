"""Two towers over one model, trained by their dot product; then the candidates nearest to a query."""

import torch
import torch.distributed as dist
import torchrec
from common import set_rows, tell, tell_tables, waited
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology


class TwoTower(torch.nn.Module):
    def __init__(self, ebc):
        super().__init__()
        self.ebc = ebc
        torch.manual_seed(2)
        self.query, self.candidate = (torch.nn.Linear(8, 4) for _ in range(2))

    def forward(self, features):
        pooled = self.ebc(features)
        return self.query(pooled["user"]), self.candidate(pooled["movie"])


dist.init_process_group("gloo")
ebc = torchrec.EmbeddingBagCollection(
    device=torch.device("meta"),
    tables=[torchrec.EmbeddingBagConfig(name=f"t_{key}", embedding_dim=8, num_embeddings=40, feature_names=[key])
            for key in ("user", "movie")],
)  # fmt: skip
fused = {"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": 0.3, "eps": 1e-8}
sharders = [EmbeddingBagCollectionSharder(fused_params=fused)]
planner = EmbeddingShardingPlanner(
    topology=Topology(world_size=dist.get_world_size(), compute_device="cpu"),
    constraints={f"t_{key}": ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"])
                 for key in ("user", "movie")},
)  # fmt: skip
module = TwoTower(ebc)
plan = planner.collective_plan(module, sharders, dist.group.WORLD)
model = DistributedModelParallel(module, device=torch.device("cpu"), plan=plan, sharders=sharders)
set_rows(model)
dense = torch.optim.Adam([p for name, p in model.named_parameters() if "ebc" not in name], lr=0.05)
generator = torch.Generator().manual_seed(3 + dist.get_rank())
for _ in range(4):
    ids = torch.randint(0, 40, (12,), generator=generator)
    features = torchrec.KeyedJaggedTensor(["user", "movie"], ids, lengths=torch.ones(12, dtype=torch.int32))
    query, candidate = model(features)
    labels = torch.randint(0, 2, (6,), generator=generator).float()
    loss = torch.nn.functional.binary_cross_entropy_with_logits((query * candidate).sum(1), labels)
    dense.zero_grad()
    loss.backward()
    dense.step()
    tell(loss=loss)
model.eval()
everything = torchrec.KeyedJaggedTensor(
    ["user", "movie"], torch.cat([torch.arange(40), torch.arange(40)]), lengths=torch.ones(80, dtype=torch.int32)
)
query, candidate = (waited(part).detach() for part in model(everything))
scores, found = (query[:3] @ candidate.t()).topk(5)
tell(scores=scores, found=found)
tell_tables(model)
dist.destroy_process_group()
