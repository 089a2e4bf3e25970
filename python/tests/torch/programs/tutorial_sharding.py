"""The field's second tutorial: one model under the plans of several sharding types."""

import torch
import torch.distributed as dist
import torchrec
from common import set_rows, tell, tell_tables, waited
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import ModuleSharder, ShardingEnv, ShardingType

large = [torchrec.EmbeddingBagConfig(name=f"large_table_{i}", embedding_dim=16, num_embeddings=64,
                                     feature_names=[f"large_table_feature_{i}"],
                                     pooling=torchrec.PoolingType.SUM) for i in range(2)]  # fmt: skip
small = [torchrec.EmbeddingBagConfig(name=f"small_table_{i}", embedding_dim=16, num_embeddings=16,
                                     feature_names=[f"small_table_feature_{i}"],
                                     pooling=torchrec.PoolingType.SUM) for i in range(2)]  # fmt: skip


def constraints(kind):
    return {
        table.name: ParameterConstraints(
            sharding_types=[kind.value], compute_kernels=[EmbeddingComputeKernel.FUSED.value], min_partition=8
        )
        for table in [*large, *small]
    }


dist.init_process_group("gloo")
world = dist.get_world_size()
for kind in (ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE):
    ebc = torchrec.EmbeddingBagCollection(device=torch.device("meta"), tables=[*large, *small])
    fused = {"optimizer": EmbOptimType.EXACT_SGD, "learning_rate": 0.1}
    sharders: list[ModuleSharder[torch.nn.Module]] = [EmbeddingBagCollectionSharder(fused_params=fused)]
    planner = EmbeddingShardingPlanner(
        topology=Topology(world_size=world, compute_device="cpu"), constraints=constraints(kind)
    )
    plan = planner.collective_plan(ebc, sharders, dist.group.WORLD)
    env = ShardingEnv.from_process_group(dist.group.WORLD)
    model = DistributedModelParallel(ebc, env=env, plan=plan, sharders=sharders, device=torch.device("cpu"))
    tell(kind=kind.value, planned={name: how.sharding_type for name, how in sorted(plan.plan[""].items())})
    set_rows(model)
    keys = [key for table in [*large, *small] for key in table.feature_names]
    ids = torch.randint(0, 16, (16,), generator=torch.Generator().manual_seed(dist.get_rank()))
    features = torchrec.KeyedJaggedTensor(keys, ids, lengths=torch.full((8,), 2))
    for _ in range(2):
        pooled = waited(model(features))
        tell(pooled=torch.cat([pooled[key] for key in keys], 1).sum(1))
        pooled.values().square().sum().backward()
    tell_tables(model)
dist.destroy_process_group()
