"""torch.distributed.checkpoint of a sharded model, in the middle of a training."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torchrec
from common import set_rows, tell, tell_tables, waited
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.sharding_plan import construct_module_sharding_plan, row_wise, table_wise
from torchrec.distributed.types import ShardingEnv, ShardingPlan


def made():
    world = dist.get_world_size()
    tables = [torchrec.EmbeddingBagConfig(num_embeddings=20, embedding_dim=8, name=name, feature_names=[f"f_{name}"])
              for name in ("a", "b")]  # fmt: skip
    ebc = torchrec.EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    sharder = EmbeddingBagCollectionSharder({"optimizer": EmbOptimType.EXACT_ADAGRAD, "learning_rate": 0.5})
    cuts = {"a": row_wise(compute_kernel="fused"), "b": table_wise(rank=world - 1, compute_kernel="fused")}
    plan = ShardingPlan({"": construct_module_sharding_plan(ebc, cuts, sharder, world, world, "cpu")})
    env = ShardingEnv.from_process_group(dist.group.WORLD)
    return DistributedModelParallel(ebc, env, torch.device("cpu"), plan, [sharder])


def train(model, seed):
    ids = torch.randint(0, 20, (8,), generator=torch.Generator().manual_seed(seed + dist.get_rank()))
    features = torchrec.KeyedJaggedTensor(["f_a", "f_b"], ids, lengths=torch.full((4,), 2))
    pooled = waited(model(features))
    loss = pooled["f_a"].square().sum() + pooled["f_b"].square().sum()
    loss.backward()
    tell(loss=loss)


dist.init_process_group("gloo")
model = set_rows(made())
train(model, 1)
folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(folder)
state = {"model": model.state_dict(), "optimizer": model.fused_optimizer.state_dict()}
dcp.save(state, checkpoint_id=folder[0])
train(model, 2)
tell_tables(model)
again = made()
state = {"model": again.state_dict(), "optimizer": again.fused_optimizer.state_dict()}
dcp.load(state, checkpoint_id=folder[0])
again.load_state_dict(state["model"])
again.fused_optimizer.load_state_dict(state["optimizer"])
train(again, 2)
tell_tables(again)
dist.destroy_process_group()
