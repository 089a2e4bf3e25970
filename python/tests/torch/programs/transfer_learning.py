"""Pretrained rows are copied into the shards of a sharded model, some of which are trained on."""

import torch
import torch.distributed as dist
import torchrec
from common import rows, tell, tell_tables, waited
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.types import ShardingEnv
from fbgemm_gpu.split_embedding_configs import EmbOptimType

dist.init_process_group("gloo")
pretrained = rows("pretrained", (32, 8))
ebc = torchrec.EmbeddingBagCollection(
    device=torch.device("meta"),
    tables=[torchrec.EmbeddingBagConfig(num_embeddings=32, embedding_dim=8, name=name, feature_names=[f"f_{name}"])
            for name in ("user", "item")],
)  # fmt: skip
sharder = EmbeddingBagCollectionSharder(
    fused_params={"optimizer": EmbOptimType.EXACT_ROWWISE_ADAGRAD, "learning_rate": 0.1, "eps": 0.01}
)
planner = EmbeddingShardingPlanner(
    topology=Topology(world_size=dist.get_world_size(), compute_device="cpu"),
    constraints={name: ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"])
                 for name in ("user", "item")},
)  # fmt: skip
plan = planner.collective_plan(ebc, [sharder], dist.group.WORLD)
env = ShardingEnv.from_process_group(dist.group.WORLD)
model = torchrec.distributed.DistributedModelParallel(
    module=ebc, env=env, device=torch.device("cpu"), plan=plan, sharders=[sharder]
)
for _, table in model.state_dict().items():
    for shard in table.local_shards():
        (row, col), (n, dim) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
        shard.tensor.copy_(pretrained[row : row + n, col : col + dim])
features = torchrec.KeyedJaggedTensor.from_lengths_sync(
    ["f_user", "f_item"], torch.tensor([0, 31, 5, 6, 7]), torch.tensor([1, 1, 2, 1])
)
for _ in range(3):
    pooled = waited(model(features))
    tell(user=pooled["f_user"], item=pooled["f_item"])
    (pooled["f_user"] * pooled["f_item"]).sum().backward()
tell_tables(model)
dist.destroy_process_group()
