"""A trained model, quantized, that answers requests."""

import torch
import torchrec
from common import set_rows, tell
from torchrec.inference.modules import quantize_embeddings


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ebc = torchrec.EmbeddingBagCollection(
            device=torch.device("cpu"),
            tables=[torchrec.EmbeddingBagConfig(num_embeddings=40, embedding_dim=8, name=f"t{i}",
                                                feature_names=[f"f{i}"]) for i in range(3)],
        )  # fmt: skip
        torch.manual_seed(6)
        self.over = torch.nn.Linear(24, 1)

    def forward(self, features):
        pooled = self.ebc(features)
        return torch.sigmoid(self.over(torch.cat([pooled[f"f{i}"] for i in range(3)], 1)))


model = set_rows(Model()).eval()
features = torchrec.KeyedJaggedTensor.from_lengths_sync(
    ["f0", "f1", "f2"], torch.arange(15), torch.tensor([2, 3, 1, 4, 0, 5], dtype=torch.int32)
)
exact = model(features)
quantized = quantize_embeddings(model, dtype=torch.qint8, inplace=False)
answered = quantized(features)
tell(exact=exact, near=bool((answered - exact).abs().max() < 0.01), shape=list(answered.shape))
