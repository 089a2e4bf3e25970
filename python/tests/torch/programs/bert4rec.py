"""Sequences of items: a collection without pooling, padded, through an encoder."""

import torch
import torch.distributed as dist
import torchrec
from common import set_rows, tell, tell_tables
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise
from torchrec.distributed.types import ShardingEnv, ShardingPlan

LONGEST, DIM, ITEMS = 5, 8, 30


class History(torch.nn.Module):
    def __init__(self, ec):
        super().__init__()
        self.ec = ec
        torch.manual_seed(4)
        self.positions = torch.nn.Parameter(torch.randn(LONGEST, DIM))
        self.encoder = torch.nn.TransformerEncoderLayer(DIM, 2, 16, dropout=0.0, batch_first=True)
        self.out = torch.nn.Linear(DIM, ITEMS)

    def forward(self, features):
        jagged = self.ec(features)["item"]
        padded = jagged.to_padded_dense(desired_length=LONGEST)
        inside = torch.arange(LONGEST)[None, :] < jagged.lengths()[:, None]
        return self.out(self.encoder(padded + self.positions, src_key_padding_mask=~inside)), inside


dist.init_process_group("gloo")
world = dist.get_world_size()
ec = torchrec.EmbeddingCollection(
    device=torch.device("meta"),
    tables=[torchrec.EmbeddingConfig(name="item_table", embedding_dim=DIM, num_embeddings=ITEMS,
                                     feature_names=["item"])],
)  # fmt: skip
fused = {"optimizer": EmbOptimType.EXACT_ADAGRAD, "learning_rate": 0.1, "eps": 1e-6}
sharder = EmbeddingCollectionSharder(fused_params=fused)
cut = {"item_table": row_wise(compute_kernel="fused")}
plan = ShardingPlan({"ec": construct_module_sharding_plan(ec, cut, sharder, world, world, "cpu")})
env = ShardingEnv.from_process_group(dist.group.WORLD)
model = DistributedModelParallel(History(ec), env, torch.device("cpu"), plan, [sharder])
set_rows(model)
dense = torch.optim.Adam([p for name, p in model.named_parameters() if not name.startswith("ec.")], lr=0.02)
generator = torch.Generator().manual_seed(8 + dist.get_rank())
for _ in range(4):
    lengths = torch.randint(1, LONGEST + 1, (4,), generator=generator)
    ids = torch.randint(0, ITEMS, (int(lengths.sum()),), generator=generator)
    logits, inside = model(torchrec.KeyedJaggedTensor(["item"], ids, lengths=lengths))
    loss = torch.nn.functional.cross_entropy(logits[inside], ids)
    dense.zero_grad()
    loss.backward()
    dense.step()
    tell(loss=loss)
tell_tables(model)
dist.destroy_process_group()
