"""Small programs of every day on two ranks: optimizers, schedules, states and tables."""

import copy
import io

import torch
import torch.distributed as dist
from torch import nn

from everyday_common import tr
from everyday_ranks_common import KEYS, SIZES, dense_of, dmp, features, program, sharded, tables, train, whole


def saved(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


@program
def optimizers():
    return {name: whole(train(dmp(name))) for name in ("EXACT_SGD", "EXACT_ADAGRAD", "EXACT_ROWWISE_ADAGRAD")}


@program
def schedules():
    kinds = torch.optim.lr_scheduler
    out = []
    for make in (
        lambda o: kinds.StepLR(o, 1, 0.5), lambda o: kinds.MultiStepLR(o, [1, 2], 0.1),
        lambda o: kinds.PolynomialLR(o, 4, 2.0), lambda o: kinds.MultiplicativeLR(o, lambda _: 0.7),
        lambda o: kinds.CosineAnnealingWarmRestarts(o, 2),
        lambda o: kinds.CyclicLR(o, 0.01, 0.2, 2, cycle_momentum=False),
        lambda o: kinds.ChainedScheduler([kinds.ConstantLR(o, 0.5, 2), kinds.ExponentialLR(o, 0.5)]),
        lambda o: kinds.LambdaLR(o, lambda step: min(1.0, (step + 1) / 3)),
    ):  # fmt: skip
        model = dmp("EXACT_SGD", 0.2)
        dense = torch.optim.SGD(dense_of(model), lr=0.1)
        train(model, [model.fused_optimizer, dense], 4, [make(model.fused_optimizer), make(dense)])
        out.append(whole(model))
    return out


@program
def schedule_state():
    model = dmp("EXACT_SGD", 0.2)
    schedule = torch.optim.lr_scheduler.LambdaLR(model.fused_optimizer, lambda step: 1 / (1 + step))
    train(model, [model.fused_optimizer], 2, [schedule])
    other = dmp("EXACT_SGD", 0.2)
    other.load_state_dict(model.state_dict())
    again = torch.optim.lr_scheduler.LambdaLR(other.fused_optimizer, lambda step: 1 / (1 + step))
    again.load_state_dict(torch.load(saved(schedule.state_dict())))
    return whole(train(other, [other.fused_optimizer], 2, [again], first=2))


@program
def freeze_dense_by_name():
    model = dmp("EXACT_SGD", 0.2)
    for name, p in model.named_parameters():
        if name.endswith("over.weight"):
            p.requires_grad = False
    return whole(train(model, [torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)]))


@program
def accumulate():
    model = dmp("EXACT_ADAGRAD")
    dense = torch.optim.SGD(dense_of(model), lr=0.1)
    for step in range(4):
        (model(features(step)).pow(2).mean() / 2).backward()
        if step % 2:
            dense.step()
            dense.zero_grad()
    return whole(model)


@program
def clip_dense():
    model = dmp("EXACT_SGD")
    dense = torch.optim.SGD(dense_of(model), lr=0.5)
    norms = []
    for step in range(2):
        dense.zero_grad()
        model(features(step)).pow(2).mean().backward()
        norms.append(nn.utils.clip_grad_norm_(dense_of(model), 0.1).item())
        dense.step()
    return [norms, whole(model)]


@program
def clip_fused():
    model = dmp("EXACT_SGD", 0.5, gradient_clipping=True, max_gradient=0.05)
    return whole(train(model))


@program
def different_losses():
    model = dmp("EXACT_SGD", 0.5)
    for step in range(2):
        (model(features(step)).sum() * (1 + 3 * dist.get_rank())).backward()
    return whole(model)


@program
def mean_pooling():
    return whole(train(dmp("EXACT_SGD", 0.5, cuts="ct", ebc=tables(mean=True))))


@program
def weighted():
    model = dmp("EXACT_SGD", 0.5, ebc=tables(weighted=True))
    return whole(train(model, weights=True))


@program
def weight_gradients():
    model = dmp("EXACT_SGD", 0.5, cuts="ct", ebc=tables(weighted=True))
    batch = features(0, weights=True)
    batch.weights().requires_grad_()
    model(batch).pow(2).mean().backward()
    return [batch.weights().grad.tolist(), whole(model)]


@program
def a_rank_without_ids():
    model = dmp("EXACT_ADAGRAD")
    for step in range(2):
        batch = features(step)
        if dist.get_rank():
            none = torch.empty(0, dtype=torch.int64)
            batch = tr.KeyedJaggedTensor(KEYS, none, lengths=torch.zeros(9, dtype=torch.int32))
        model(batch).pow(2).mean().backward()
    return whole(model)


@program
def evaluation():
    model = train(dmp("EXACT_SGD", 0.5))
    model.eval()
    with torch.no_grad():
        out = model(features(7))
    before = whole(model)
    model.train()
    return [out.reshape(-1).tolist(), out.requires_grad, before == whole(model)]


@program
def combined_state():
    def made():
        model = dmp("EXACT_ADAGRAD")
        named = {name: p for name, p in model.named_parameters() if "embedding" not in name}
        dense = tr.KeyedOptimizerWrapper(named, lambda params: torch.optim.Adam(params, lr=0.05))
        return model, tr.CombinedOptimizer([("fused", model.fused_optimizer), ("dense", dense)])

    model, optimizer = made()
    train(model, [optimizer], 2)
    other, again = made()
    train(other, [again], 1)
    other.load_state_dict(model.state_dict())
    again.load_state_dict(optimizer.state_dict())
    return [whole(train(one, [o], 2, first=2)) for one, o in ((model, optimizer), (other, again))]


@program
def fused_state_saved():
    model, other = train(dmp("EXACT_ADAGRAD")), dmp("EXACT_ADAGRAD")
    state = copy.deepcopy(model.fused_optimizer.state_dict())
    other.load_state_dict(model.state_dict())
    other.fused_optimizer.load_state_dict(state)
    return [whole(train(one, steps=2, first=3)) for one in (model, other)]


@program
def state_dict_saved():
    model, other = train(dmp("EXACT_SGD")), dmp("EXACT_SGD")
    other.load_state_dict(torch.load(saved(model.state_dict()), weights_only=False))
    return [whole(model), whole(other)]


@program
def averaged_dense():
    model = dmp("EXACT_SGD", 0.2)
    dense = torch.optim.SGD(dense_of(model), lr=0.1)
    mean = [p.detach().clone() for p in dense_of(model)]
    for step in range(3):
        train(model, [dense], 1, first=step)
        for kept, p in zip(mean, dense_of(model)):
            kept.mul_(0.9).add_(p.detach(), alpha=0.1)
    return [m.reshape(-1).tolist() for m in mean]


@program
def one_optimizer_a_table():
    from torch.distributed.optim import _apply_optimizer_in_backward

    ebc = tables()
    _apply_optimizer_in_backward(torch.optim.SGD, ebc.embedding_bags["r"].parameters(), {"lr": 0.5})
    _apply_optimizer_in_backward(torch.optim.Adagrad, ebc.embedding_bags["c"].parameters(), {"lr": 0.1})
    tr.apply_optimizer_in_backward(tr.RowWiseAdagrad, ebc.embedding_bags["t"].parameters(), {"lr": 0.2})
    return whole(train(dmp("EXACT_SGD", 0.3, cuts="ct", ebc=ebc)))


@program
def dense_tables():
    out = []
    for make in (
        lambda ps: torch.optim.SGD(ps, lr=0.2), lambda ps: torch.optim.SGD(ps, lr=0.2, momentum=0.9),
        lambda ps: torch.optim.Adam(ps, lr=0.05), lambda ps: torch.optim.AdamW(ps, lr=0.05, weight_decay=0.1),
        lambda ps: torch.optim.Adagrad(ps, lr=0.2), lambda ps: torch.optim.RMSprop(ps, lr=0.01),
    ):  # fmt: skip
        model = dmp(kernel="dense")
        train(model, [make(list(model.parameters()))])
        out.append(whole(model))
    return out


@program
def dense_tables_grouped():
    model = dmp(kernel="dense")
    sparse = [p for name, p in model.named_parameters() if "embedding" in name]
    optimizer = torch.optim.SGD([{"params": sparse, "lr": 0.5}, {"params": dense_of(model)}], lr=0.1)
    return whole(train(model, [optimizer]))


@program
def names():
    model = dmp()
    found = [None] * dist.get_world_size()
    mine = [sorted(name for name, _ in model.named_parameters()), sorted(model.state_dict()),
            sorted(name for name, _ in model.named_buffers()),
            sorted(model.fused_optimizer.state_dict()["state"])]  # fmt: skip
    dist.all_gather_object(found, mine)
    return found


@program
def sequences():
    made = [tr.EmbeddingConfig(num_embeddings=n, embedding_dim=8, name=name, feature_names=[f"f{name}"])
            for name, n in SIZES.items()]  # fmt: skip
    out = []
    for kind, once in (("row", False), ("table", False), ("column", False), ("row", True), ("table", True)):
        ec = tr.EmbeddingCollection(tables=made, device=torch.device("meta"))
        sharder = tr.EmbeddingCollectionSharder(
            fused_params={"optimizer": tr.EmbOptimType.EXACT_SGD, "learning_rate": 0.5},
            use_index_dedup=once and tr.library == "tessera",  # TorchRec has it on GPUs only
        )
        model = sharded(ec, dict.fromkeys(SIZES, kind), [sharder])
        for step in range(2):
            rows = model(features(step))
            rows = rows.wait() if hasattr(rows, "wait") else rows
            loss = sum((rows[key].values() * (1 + i)).pow(2).mean() for i, key in enumerate(KEYS))
            loss.backward()
        parts = [[rows[key].values().tolist(), rows[key].lengths().tolist()] for key in KEYS]
        out.append([whole(model), parts])
    return out


@program
def start_values_of_copies():
    torch.manual_seed(dist.get_rank())
    made = tr.EmbeddingBagConfig(num_embeddings=9, embedding_dim=8, name="r", feature_names=["fr"],
                                 init_fn=nn.init.normal_)  # fmt: skip
    ebc = tr.EmbeddingBagCollection(tables=[made], device=torch.device("meta"))
    model = sharded(ebc, {"r": "copies"}, [tr.EmbeddingBagCollectionSharder()], fill=False)
    (rows,) = model.state_dict().values()
    every = [torch.empty(9, 8) for _ in range(2)]
    dist.all_gather(every, rows.detach())
    return [torch.equal(*every), bool(every[0].std() > 0)]
