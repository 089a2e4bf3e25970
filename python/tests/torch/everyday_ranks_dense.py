"""Small programs of every day on two ranks: what models do to their dense part."""

import torch
import torch.distributed as dist
from torch import nn

from everyday_common import tr
from everyday_ranks_common import KEYS, Model, dense_of, dmp, equal_on_ranks, features, program, train, whole


@program
def freeze_and_unfreeze():
    model = dmp("EXACT_SGD", 0.2)
    dense = torch.optim.SGD(dense_of(model), lr=0.1)
    weight = model.module.over.weight
    for trained in (True, False, True):
        weight.requires_grad_(trained)
        train(model, [dense], 2)
    return [equal_on_ranks(model), whole(model)]


@program
def frozen_from_the_start():
    class Frozen(Model):
        def __init__(self, ebc):
            super().__init__(ebc)
            self.over.requires_grad_(False)

    model = dmp("EXACT_SGD", 0.2, model=Frozen)
    train(model)
    model.module.over.requires_grad_(True)
    train(model, [torch.optim.SGD(dense_of(model), lr=0.1)])
    return [equal_on_ranks(model), whole(model)]


@program
def another_head():
    model = dmp("EXACT_SGD", 0.2)
    train(model, [torch.optim.SGD(dense_of(model), lr=0.1)])
    model.module.over = nn.Linear(24, 1)
    with torch.no_grad():
        for p in model.module.over.parameters():
            p.fill_(0.1)
    train(model, [torch.optim.SGD(dense_of(model), lr=0.1)])
    return [equal_on_ranks(model), whole(model)]


@program
def unused_layer():
    class Unused(Model):
        def __init__(self, ebc):
            super().__init__(ebc)
            self.unused = nn.Linear(2, 1, bias=False)
            nn.init.ones_(self.unused.weight)

    model = dmp("EXACT_SGD", 0.2, model=Unused)
    return whole(train(model, [torch.optim.SGD(dense_of(model), lr=0.1)]))


@program
def normalised():
    class Normalised(Model):
        def __init__(self, ebc):
            super().__init__(ebc)
            self.norm = nn.BatchNorm1d(24)

        def forward(self, batch):
            rows = self.e(batch)
            return self.over(self.norm(torch.cat([rows[key] for key in KEYS], 1)))

    model = dmp("EXACT_SGD", 0.2, model=Normalised)
    train(model, [torch.optim.SGD(dense_of(model), lr=0.1)])
    every = [torch.empty(24) for _ in range(2)]
    dist.all_gather(every, model.module.norm.running_mean)
    return [whole(model), [mean.tolist() for mean in every]]


@program
def scaled():
    model = dmp(kernel="dense")
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.2), torch.amp.GradScaler("cpu", init_scale=64.0)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(model(features(step)).pow(2).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    return whole(model)


@program
def two_forwards():
    model = dmp("EXACT_SGD", 0.2)
    dense = torch.optim.SGD(dense_of(model), lr=0.1)
    for step in range(2):
        dense.zero_grad()
        (model(features(step)).pow(2).mean() + model(features(step + 5)).sum()).backward()
        dense.step()
    return whole(model)


@program
def checkpointed():
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Model):
        def forward(self, batch):
            rows = self.e(batch)
            return checkpoint(self.over, torch.cat([rows[key] for key in KEYS], 1), use_reentrant=False)

    model = dmp("EXACT_SGD", 0.2, model=Checkpointed)
    return whole(train(model, [torch.optim.SGD(dense_of(model), lr=0.1)]))


@program
def variable_batches():
    model = dmp("EXACT_SGD", 0.2, cuts="ct")
    for step in range(2):
        batch = tr.KeyedJaggedTensor(
            KEYS,
            torch.tensor([3, 0, 1, 2]) + step,
            lengths=torch.tensor([1, 2, 1]),
            stride_per_key_per_rank=[[1]] * 3,
            inverse_indices=(KEYS, torch.zeros(3, 2, dtype=torch.int64)),
        )
        model(batch).pow(2).mean().backward()
    return whole(model)


@program
def ema_of_all():
    model = dmp(kernel="dense")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    mean = {name: p.detach().clone() for name, p in model.named_parameters()}
    for step in range(3):
        train(model, [optimizer], 1, first=step)
        for name, p in model.named_parameters():
            mean[name].lerp_(p.detach(), 0.1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(mean[name])
    return whole(model)


@program
def vectors():
    found = []
    for by_vector in (True, False):
        model = dmp(kernel="dense")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        train(model, [optimizer], 1)
        if by_vector:
            vector = nn.utils.parameters_to_vector(model.parameters())
            nn.utils.vector_to_parameters(vector * 0.5, model.parameters())
        else:
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(0.5)
        found.append(whole(train(model, [optimizer], 2)))
    return [found[0] == found[1], found[1]]
