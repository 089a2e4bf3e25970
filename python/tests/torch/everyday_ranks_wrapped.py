"""Small programs of every day on two ranks: wrapped optimizers, pipelines, TorchRec's models, and several kinds of
collections in one model."""

import copy

import torch
import torch.distributed as dist
from torch import nn

from everyday_common import CPU, of, tr
from everyday_ranks_common import (
    KEYS, SIZES, Model, dense_of, dmp, features, layer, program, sharded, start, tables, train, whole,
)  # fmt: skip


def dense(model, make=lambda params: torch.optim.SGD(params, lr=0.2)):
    return tr.KeyedOptimizerWrapper(dict(tr.in_backward_optimizer_filter(model.named_parameters())), make)


def params(optimizer="EXACT_SGD", lr=0.2):
    return {"optimizer": getattr(tr.EmbOptimType, optimizer), "learning_rate": lr}


@program
def warmed():
    warmup, stage, policy = of("optim.warmup", "WarmupOptimizer", "WarmupStage", "WarmupPolicy")
    out = []
    for stages in (
        [stage(policy.LINEAR, 2, 0.1), stage(policy.CONSTANT, 3, 0.5), stage(policy.POLY, 6, 2.0, decay_iters=8)],
        [stage(policy.STEP, 4, 0.5, decay_iters=1)], [stage(policy.CONSTANT, 1, 0.1), stage(policy.INVSQRT, 5)],
        [stage(policy.COSINE_ANNEALING_WARM_RESTARTS, 5, 0.1, sgdr_period=3)],
        [stage(policy.INTERPOLATE, 4, 0.1, start_interpolating_iters=0, end_value=0.7)],
    ):  # fmt: skip
        model = dmp("EXACT_SGD", 0.2)
        optimizer = warmup(tr.CombinedOptimizer([model.fused_optimizer, dense(model)]), stages, lr=0.02)
        out.append([whole(train(model, [optimizer], 5)), optimizer.param_groups[0]["lr"]])
    return out


@program
def warmed_and_resumed():
    warmup, stage, policy = of("optim.warmup", "WarmupOptimizer", "WarmupStage", "WarmupPolicy")

    def made():
        model = dmp("EXACT_SGD", 0.2)
        adam = dense(model, lambda params: torch.optim.Adam(params, lr=0.2))
        return model, warmup(adam, [stage(policy.LINEAR, 4, 0.1)], lr=0.3)

    (model, optimizer), (other, again) = made(), made()
    train(model, [optimizer], 2)
    train(other, [again], 1)
    state = copy.deepcopy(optimizer.state_dict())
    other.load_state_dict(model.state_dict())
    again.load_state_dict(state)
    told = [sorted(state["state"]), state["state"]["__warmup"]["warmup"].tolist()]
    return [told, [whole(train(one, [o], 3, first=2)) for one, o in ((model, optimizer), (other, again))]]


@program
def clipped():
    clipping, kind = of("optim.clipping", "GradientClippingOptimizer", "GradientClipping")
    out = []
    for how, norm in ((kind.NORM, 2.0), (kind.NORM, "inf"), (kind.VALUE, 2.0), (kind.NONE, 2.0)):
        model = dmp("EXACT_SGD", 0.02)
        optimizer = clipping(dense(model), clipping=how, max_gradient=0.05, norm_type=norm)
        out.append(whole(train(model, [tr.CombinedOptimizer([model.fused_optimizer, optimizer])])))
    return out


@program
def pipelined():
    class Scored(Model):
        def forward(self, batch):
            out = super().forward(batch)
            return out.pow(2).mean(), out.detach()

    model = dmp("EXACT_SGD", 0.02, model=Scored)
    (pipeline,) = of("distributed.train_pipeline", "TrainPipelineSparseDist")
    optimizer = tr.CombinedOptimizer([model.fused_optimizer, dense(model)])
    steps, batches, out = pipeline(model, optimizer, CPU), iter([features(i) for i in range(4)]), []
    try:
        while True:
            out.append(steps.progress(batches).reshape(-1).tolist())
    except StopIteration:
        return [out, whole(model)]


@program
def scheduled_apart():
    model = dmp("EXACT_SGD", 0.2)
    layers = dense(model)
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(model.fused_optimizer, 3),
                 torch.optim.lr_scheduler.StepLR(layers, 1, 0.5)]  # fmt: skip
    optimizer = tr.CombinedOptimizer([model.fused_optimizer, layers])
    return whole(train(model, [optimizer], schedules=schedules))


@program
def samples_of_each_key():
    out = []
    for cuts in ("", "r", "c", "t"):
        model, sizes = dmp("EXACT_SGD", 0.02, cuts=cuts), (2, 3, 1)
        optimizer = torch.optim.SGD(dense_of(model), lr=0.1)
        for step in range(2):
            generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
            lengths = [torch.randint(0, 3, (n,), generator=generator, dtype=torch.int32) for n in sizes]
            ids = [torch.randint(0, SIZES[key[1]], (int(n.sum()),), generator=generator)
                   for key, n in zip(KEYS, lengths)]  # fmt: skip
            places = torch.stack([torch.randint(0, n, (4,), generator=generator) for n in sizes])
            batch = tr.KeyedJaggedTensor(
                KEYS, torch.cat(ids), lengths=torch.cat(lengths), inverse_indices=(KEYS, places),
                stride_per_key_per_rank=[[n] for n in sizes],
            )  # fmt: skip
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
        out.append(whole(model))
    return out


@program
def bags_and_sequences():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.bags = tables()
            row = tr.EmbeddingConfig(num_embeddings=9, embedding_dim=8, name="s", feature_names=["fr"])
            self.sequences = tr.EmbeddingCollection(tables=[row], device=torch.device("meta"))
            self.over = layer(32)

        def forward(self, batch):
            bags, rows = self.bags(batch), self.sequences(batch)["fr"].to_padded_dense(3).sum(1)
            return self.over(torch.cat([*[bags[key] for key in KEYS], rows], 1))

    sharders = [tr.EmbeddingBagCollectionSharder(fused_params=params()),
                tr.EmbeddingCollectionSharder(fused_params=params("EXACT_ADAGRAD", 0.1))]  # fmt: skip
    out = []
    for kinds in ("row row row row", "table column row table", "column table column column"):
        model = sharded(Both(), dict(zip("rcts", kinds.split())), sharders)
        out.append(whole(train(model, [torch.optim.SGD(dense_of(model), lr=0.1)])))
    return out


@program
def regrouped():
    class Regrouped(Model):
        def forward(self, batch):
            one, other = tr.KeyedTensor.regroup([self.e(batch)], [["ft", "fr"], ["fc"]])
            return self.over(torch.cat([one, other], 1))

    model = dmp("EXACT_SGD", 0.2, model=Regrouped)
    return whole(train(model, [torch.optim.SGD(dense_of(model), lr=0.1)]))


@program
def a_table_of_two_features_that_two_tables_share():
    class Wide(nn.Module):
        def __init__(self, tables):
            super().__init__()
            self.e, self.over = tables, layer(32)

        def forward(self, batch):
            rows = self.e(batch)
            return self.over(torch.cat([rows[key] for key in sorted(rows.keys())], 1))

    made = [tr.EmbeddingBagConfig(num_embeddings=9, embedding_dim=8, name="p", feature_names=["fr", "fc"]),
            tr.EmbeddingBagConfig(num_embeddings=9, embedding_dim=8, name="q", feature_names=["ft", "fr"],
                                  pooling=tr.PoolingType.MEAN)]  # fmt: skip
    ebc = tr.EmbeddingBagCollection(tables=made, device=torch.device("meta"))
    sharders = [tr.EmbeddingBagCollectionSharder(fused_params=params())]
    model = sharded(Wide(ebc), {"p": "row", "q": "table"}, sharders)
    return whole(train(model, [torch.optim.SGD(dense_of(model), lr=0.1)]))


def _of_torchrec(make):
    torch.manual_seed(3)
    model = make(tables())
    sharders = [tr.EmbeddingBagCollectionSharder(fused_params=params(lr=0.02))]
    model = sharded(model, {"r": "row", "c": "column", "t": "table"}, sharders)
    optimizer = torch.optim.SGD(dense_of(model), lr=0.05)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.arange(12.0).reshape(3, 4) / 10 + step, features(step)).pow(2).mean().backward()
        optimizer.step()
    return whole(model)


@program
def dlrm_of_torchrec():
    from torchrec.models.dlrm import DLRM

    return _of_torchrec(lambda ebc: DLRM(ebc, 4, [6, 8], [5, 1], torch.device("cpu")))


@program
def deepfm_of_torchrec():
    from torchrec.models.deepfm import SimpleDeepFMNN

    return _of_torchrec(lambda ebc: SimpleDeepFMNN(4, ebc, 5, 3))


@program
def copies():
    sharders = [tr.EmbeddingBagCollectionSharder()]
    model = sharded(Model(tables()), dict.fromkeys("rct", "copies"), sharders)
    optimizer = dense(model, lambda params: torch.optim.Adam(params, lr=0.1))
    train(model, [optimizer])
    return [whole(model), sorted(optimizer.state_dict()["state"])]


@program
def reduced_later():
    ebc = tables(device=CPU)
    ebc.load_state_dict({f"embedding_bags.{name}.weight": start(name) for name in SIZES})
    model = nn.parallel.DistributedDataParallel(Model(ebc))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for step in range(2):
        optimizer.zero_grad()
        with model.no_sync():
            model(features(step)).pow(2).mean().backward()
        model(features(step + 7)).pow(2).mean().backward()
        optimizer.step()
    return whole(model.module)


@program
def no_ids_at_all():
    model = dmp("EXACT_ADAGRAD")
    empty = tr.KeyedJaggedTensor(KEYS, torch.empty(0, dtype=torch.int64), lengths=torch.zeros(9, dtype=torch.int32))
    out = model(empty)
    out.sum().backward()
    return [out.reshape(-1).tolist(), whole(model)]


@program
def rows_that_were_there():
    """First whether all is right."""
    ebc = tables(device=CPU)
    ebc.load_state_dict({f"embedding_bags.{name}.weight": start(name) for name in SIZES})
    sharders = [tr.EmbeddingBagCollectionSharder(fused_params=params())]
    found = whole(sharded(Model(ebc), dict.fromkeys(SIZES, "table"), sharders, fill=False))
    kept = [torch.allclose(torch.tensor(found[f"e.embedding_bags.{name}.weight"]).float(), start(name).reshape(-1))
            for name in SIZES]  # fmt: skip
    return [all(kept)]
