"""A first look: a collection on one rank, trained by PyTorch's own optimizer."""

import torch
import torchrec
from common import set_rows, tell, tell_tables

ebc = torchrec.EmbeddingBagCollection(
    device=torch.device("cpu"),
    tables=[
        torchrec.EmbeddingBagConfig(
            name="product_table", embedding_dim=8, num_embeddings=64, feature_names=["product"],
            pooling=torchrec.PoolingType.SUM,
        ),
        torchrec.EmbeddingBagConfig(
            name="user_table", embedding_dim=8, num_embeddings=64, feature_names=["user"],
            pooling=torchrec.PoolingType.MEAN,
        ),
    ],
)  # fmt: skip
set_rows(ebc)
product = torchrec.JaggedTensor(values=torch.tensor([1, 2, 1, 5]), lengths=torch.tensor([3, 1]))
user = torchrec.JaggedTensor(values=torch.tensor([2, 3, 4, 1]), lengths=torch.tensor([2, 2]))
features = torchrec.KeyedJaggedTensor.from_jt_dict({"product": product, "user": user})
over = torch.nn.Linear(16, 1)
torch.nn.init.constant_(over.weight, 0.25)
torch.nn.init.zeros_(over.bias)
optimizer = torch.optim.Adagrad([*ebc.parameters(), *over.parameters()], lr=0.1)
for _ in range(3):
    pooled = ebc(features)
    (both,) = torchrec.KeyedTensor.regroup([pooled], [["user", "product"]])
    loss = (over(both) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tell(loss=loss, user=pooled["user"])
tell(keys=pooled.keys(), names=[name for name, _ in ebc.named_parameters()])
tell_tables(ebc)
