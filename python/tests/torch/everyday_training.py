"""Small programs of every day: how models are trained."""

import copy

import torch
from torch import nn

from everyday_common import (
    CPU, bags, dmp, fill, in_backward_params, kjt, model, numbers_of, pooled, program, squares, stepped, tr, tried,
    whole,
)  # fmt: skip


@program
def clip():
    m = model()
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(2):
        o.zero_grad()
        m(kjt()).pow(2).sum().backward()
        n = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        o.step()
    return [n.item(), whole(m)]


@program
def clip_value_and_foreach():
    m = model()
    o = torch.optim.Adam(m.parameters(), lr=0.1, foreach=True)
    for _ in range(2):
        o.zero_grad(set_to_none=False)
        m(kjt()).pow(2).sum().backward()
        nn.utils.clip_grad_value_(m.parameters(), 0.01)
        o.step()
    return whole(m)


def accumulated(m, o):
    for i in range(4):
        (squares(m(kjt())) / 2).backward()
        if i % 2:
            o.step()
            o.zero_grad()
    return whole(m)


@program
def accumulate():
    m = model()
    return accumulated(m, torch.optim.SGD(m.parameters(), lr=0.1))


@program
def accumulate_fused():
    d = dmp()
    return accumulated(d, torch.optim.SGD(in_backward_params(d), lr=0.1))


@program
def groups():
    m = model()
    o = torch.optim.SGD(
        [{"params": m.e.parameters(), "lr": 0.3}, {"params": m.over.parameters()}], lr=0.1, momentum=0.5
    )
    return [stepped(m, o), len(o.param_groups[0]["params"])]


@program
def names():
    m = model()
    return [
        [n for n, _ in m.named_parameters()],
        [n for n, _ in m.named_buffers()],
        sorted(n for n, _ in m.named_modules()),
        sorted(m.state_dict()),
        sum(q.numel() for q in m.parameters()),
        [type(x).__name__ for x in m.e.children()],
    ]


@program
def dmp_names():
    d = dmp()
    return [
        sorted(n for n, _ in d.named_parameters()),
        sorted(n for n, _ in d.named_buffers()),
        sorted(d.state_dict()),
        sorted(d.fused_optimizer.state_dict()["state"]),
        sorted(x for s in d.fused_optimizer.state_dict()["state"].values() for x in s),
    ]


@program
def half_input_weights():
    out = []
    for dt in (torch.float16, torch.float64, torch.bfloat16):
        e = fill(bags(weighted=True))
        w = torch.tensor([0.5, 2, 1, 1, 3, 0.25, 1], dtype=dt)
        try:
            out.append(numbers_of(pooled(e, kjt(weights=w))))
        except Exception as x:
            out.append("ERR " + type(x).__name__)
    return out


@program
def int32_ids():
    return numbers_of(pooled(fill(bags()), kjt(dt=torch.int32)))


@program
def int_weights():
    return numbers_of(pooled(fill(bags(weighted=True)), kjt(weights=torch.tensor([1, 2, 1, 1, 3, 2, 1]))))


def loaded(m, state):
    """The keys that are missing in a state, and those that the model does not have."""
    r = m.load_state_dict(state, strict=False)
    return [sorted(r.missing_keys), sorted(r.unexpected_keys)]


def refused(m, state, message, **how):
    """True if a model refuses a state with such a message."""
    try:
        m.load_state_dict(state, **how)
        return "silent"
    except RuntimeError as x:
        return message in str(x)


@program
def strict():
    m = model()
    fewer, more, larger = m.state_dict(), m.state_dict(), m.state_dict()
    del fewer["e.embedding_bags.a.weight"]
    more["e.embedding_bags.q.weight"] = torch.zeros(2, 2)
    larger["e.embedding_bags.a.weight"] = torch.zeros(7, 4)
    out = [loaded(m, fewer), refused(m, fewer, "Missing key"), refused(m, more, "Unexpected key"), loaded(m, more)]
    return [*out, refused(m, larger, "size mismatch"), refused(m, larger, "", strict=False)]


@program
def strict_dmp():
    m = dmp()
    fewer, more = m.state_dict(), m.state_dict()
    fewer.pop("e.embedding_bags.a.weight")
    more["q"] = torch.zeros(2)
    said = tried(lambda: m.load_state_dict(fewer))
    return [tried(lambda: loaded(m, fewer)), "told" if said == "ERR" else "silent", tried(lambda: loaded(m, more))]


@program
def optim_state():
    m = model()
    o = torch.optim.Adam(m.parameters(), lr=0.1)
    m(kjt()).sum().backward()
    o.step()
    n = model()
    n.load_state_dict(m.state_dict())
    q = torch.optim.Adam(n.parameters(), lr=0.3)
    q.load_state_dict(o.state_dict())
    for a, b in ((m, o), (n, q)):
        b.zero_grad()
        a(kjt()).sum().backward()
        b.step()
    return [whole(m), whole(n), q.param_groups[0]["lr"]]


@program
def optim_state_fused():
    d = dmp()
    d(kjt()).sum().backward()
    s = copy.deepcopy(d.fused_optimizer.state_dict())

    n = dmp()
    n.load_state_dict(d.state_dict())
    n.fused_optimizer.load_state_dict(s)
    for x in (d, n):
        x(kjt()).sum().backward()
    return [whole(d), whole(n)]


@program
def schedulers():
    out = []
    for make in (
        lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.5),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 3),
        lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.1, 1.0, 3),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=6, cycle_momentum=False),
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o, [torch.optim.lr_scheduler.ConstantLR(o, 0.1, 2), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)], [2]
        ),
    ):
        d = dmp("EXACT_SGD", 0.5)
        o = d.fused_optimizer
        out.append([stepped(d, o, 4, after=make(o).step), [g["lr"] for g in o.param_groups][:1]])
    return out


@program
def plateau():
    d = dmp("EXACT_SGD", 0.01)
    o = d.fused_optimizer
    s, losses = torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0, factor=0.1), iter([1.0, 2.0, 3.0, 4.0])
    return [stepped(d, o, 4, after=lambda: s.step(next(losses))), o.param_groups[0]["lr"]]


@program
def lr_by_hand():
    d = dmp("EXACT_SGD", 0.5)
    o = d.fused_optimizer
    for i in range(3):
        for g in o.param_groups:
            g["lr"] = 0.1 * (i + 1)
        o.zero_grad()
        d(kjt()).pow(2).sum().backward()
        o.step()
    return whole(d)


@program
def lr_without_zero_grad():
    d = dmp("EXACT_SGD", 0.5)
    o = d.fused_optimizer
    for i in range(3):
        d(kjt()).pow(2).sum().backward()
        o.step()
        for g in o.param_groups:
            g["lr"] *= 0.5
    return whole(d)


@program
def scaler():
    m = model()
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    s = torch.amp.GradScaler("cpu", init_scale=64.0)
    for _ in range(3):
        o.zero_grad()
        s.scale(m(kjt()).pow(2).sum()).backward()
        s.unscale_(o)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        s.step(o)
        s.update()
    return whole(m)


def autocasted(m):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = m(kjt())
        out_loss = squares(y.float())
    out_loss.backward()
    return str(y.dtype)


@program
def autocast():
    m = model()
    o = torch.optim.SGD(m.parameters(), lr=0.01)
    told = autocasted(m)
    o.step()
    return [told, whole(m)]


@program
def autocast_fused():
    d = dmp("EXACT_SGD", 0.01)
    return [autocasted(d), whole(d)]


@program
def kjt_ops():
    a = kjt()
    b = tr.KeyedJaggedTensor(["q"], torch.tensor([7, 8, 9]), lengths=torch.tensor([2, 1]))
    c = tr.KeyedJaggedTensor.concat([a, b])
    s = c.split([2, 2])
    q = c.permute([3, 0])
    d = c.to_dict()
    return [
        c.keys(),
        numbers_of(c.values()),
        numbers_of(c.lengths()),
        [[x.keys(), numbers_of(x.values()), numbers_of(x.lengths())] for x in s],
        q.keys(),
        numbers_of(q.values()),
        numbers_of(q.lengths()),
        numbers_of(q.offsets()),
        {k: [numbers_of(v.values()), numbers_of(v.lengths()), numbers_of(v.offsets())] for k, v in d.items()},
        numbers_of(c["q"].values()),
        c.stride(),
        c.length_per_key(),
        c.offset_per_key(),
        str(a),
        repr(c["q"]),
        numbers_of(a["y"].to_padded_dense(3)),
        numbers_of(a["y"].to_padded_dense(1)),
    ]


@program
def kjt_permute_twice():
    c = kjt()
    q = c.permute([0, 0, 2])
    return [q.keys(), numbers_of(q.values()), numbers_of(q.lengths())]


@program
def kjt_weighted_ops():
    a = kjt(weights=torch.arange(7.0))
    q = a.permute([2, 0])
    s = a.split([1, 2])
    return [
        numbers_of(q.weights()),
        [numbers_of(x.weights()) for x in s],
        numbers_of(a["y"].weights()),
        str(a),
        numbers_of(a["x"].to_padded_dense_weights(2) if hasattr(a["x"], "to_padded_dense_weights") else torch.zeros(1)),
        [numbers_of(x) for x in a["y"].to_dense_weights()],
    ]


@program
def shared():
    e = tr.EmbeddingBagCollection(
        tables=[
            tr.EmbeddingBagConfig(num_embeddings=6, embedding_dim=4, name="a", feature_names=["x", "y"]),
            tr.EmbeddingBagConfig(num_embeddings=5, embedding_dim=4, name="b", feature_names=["x"]),
        ],
        device=CPU,
    )
    fill(e)
    k = e(kjt((3, 0, 1), (1, 0, 1, 1), ("x", "y")))
    return [k.keys(), numbers_of(k.values()), k.length_per_key()]


def of_empty_batches(m):
    out = []
    for f in (kjt((), (0,) * 6), kjt((), ())):
        try:
            y = m(f)
            y.sum().backward()
            out.append([list(y.shape), numbers_of(y)])
        except Exception as x:
            out.append(f"ERR {type(x).__name__} {x}")
    return out


@program
def empty_batch():
    return of_empty_batches(model())


@program
def empty_batch_fused():
    return of_empty_batches(dmp())


@program
def variable():
    d = dmp("EXACT_SGD", 0.5)
    f = tr.KeyedJaggedTensor(
        ["x", "y", "z"],
        torch.tensor([3, 0, 1, 2]),
        lengths=torch.tensor([1, 2, 1]),
        stride_per_key_per_rank=[[1], [1], [1]],
        inverse_indices=(["x", "y", "z"], torch.zeros(3, 2, dtype=torch.int64)),
    )
    k = d.module.e(f)
    k = k.wait() if hasattr(k, "wait") else k
    t = torch.cat([k[n] for n in "xyz"], 1)
    t.pow(2).sum().backward()
    return [numbers_of(t), whole(d)]


@program
def modes():
    m = model()
    m.eval()
    a = [x.training for x in m.modules()][:2]
    y = m(kjt())
    g = y.requires_grad
    m.train()
    return [a, m.e.training, g, numbers_of(y)]
