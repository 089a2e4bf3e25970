"""The field's first tutorial: from nn.EmbeddingBag to a sharded model on one rank, and its inference."""

import torch
import torch.distributed as dist
import torchrec
from common import set_rows, tell, waited
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.quant.embedding_modules import EmbeddingBagCollection as QuantEmbeddingBagCollection

# Lookups are of tables; bags are pooled.
bag = torch.nn.EmbeddingBag(10, 4, mode="sum", _weight=torch.arange(40.0).reshape(10, 4))
tell(bag=bag(torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 2, 4])))
ebc = torchrec.EmbeddingBagCollection(
    device=torch.device("cpu"),
    tables=[torchrec.EmbeddingBagConfig(name="product_table", embedding_dim=16, num_embeddings=100,
                                        feature_names=["product"], pooling=torchrec.PoolingType.SUM),
            torchrec.EmbeddingBagConfig(name="user_table", embedding_dim=16, num_embeddings=100,
                                        feature_names=["user"], pooling=torchrec.PoolingType.SUM)],
)  # fmt: skip
set_rows(ebc)
tell(bags=[isinstance(module, torch.nn.EmbeddingBag) for module in ebc.embedding_bags.values()])
# Jagged tensors hold features of different length.
ids = torch.tensor([1, 2, 3, 4, 5, 6])
jagged = torchrec.JaggedTensor(values=ids, lengths=torch.tensor([2, 3, 1]))
tell(offsets=jagged.offsets(), dense=[row.tolist() for row in jagged.to_dense()])
tell(padded=jagged.to_padded_dense(), first=jagged.to_dense()[0])
features = torchrec.KeyedJaggedTensor(keys=["product", "user"], values=torch.tensor([1, 2, 3, 4, 5, 6, 7, 8]),
                                      lengths=torch.tensor([2, 1, 1, 1, 2, 1]))  # fmt: skip
tell(product=features["product"].values(), user=features["user"].lengths(), text=str(features))
result = ebc(features)
tell(keys=result.keys(), values=result.values(), one=result["user"])
# A sharded model: tables are updated during backward.
dist.init_process_group("gloo")
apply_optimizer_in_backward(torch.optim.SGD, ebc.parameters(), {"lr": 0.02})
planner = EmbeddingShardingPlanner(topology=Topology(world_size=1, compute_device="cpu"))
plan = planner.collective_plan(ebc, get_default_sharders(), dist.group.WORLD)
tell(tables=sorted(plan.plan[""]))
model = torchrec.distributed.DistributedModelParallel(ebc, device=torch.device("cpu"), plan=plan)
set_rows(model)
for _ in range(2):
    loss = waited(model(features)).values().square().sum()
    loss.backward()
    tell(loss=loss)
tell(after=waited(model(features)).values())
dist.destroy_process_group()
# Inference: rows of 8 bits.
ebc = set_rows(torchrec.EmbeddingBagCollection(device=torch.device("cpu"), tables=ebc.embedding_bag_configs()))
observer = torch.ao.quantization.PlaceholderObserver
ebc.qconfig = torch.ao.quantization.QConfig(
    activation=observer.with_args(dtype=torch.float), weight=observer.with_args(dtype=torch.qint8)
)
quantized = QuantEmbeddingBagCollection.from_float(ebc)
difference = (quantized(features).values() - ebc(features).values()).abs().max()
tell(quantized_keys=quantized(features).keys(), near=bool(difference < 0.02))
