"""Small programs of every day: what programs do to tables and features."""

import copy
import io

import torch
from torch import nn

from everyday_common import (
    CPU, M, bags, dmp, fill, kjt, model, numbers_of, pooled, program, rows, squares, stepped, tr, tried, whole,
)  # fmt: skip


@program
def no_grad_fused():
    d = dmp("EXACT_SGD", 0.5)
    with torch.no_grad():
        y = d(kjt())
    with torch.inference_mode():
        z = d(kjt())
    return [y.requires_grad, z.requires_grad, numbers_of(y), numbers_of(z), whole(d)]


@program
def eval_backward_fused():
    d = dmp("EXACT_SGD", 0.5)
    d.eval()
    d(kjt()).sum().backward()
    return whole(d)


@program
def hooks():
    m = model()
    seen = []
    m.e.register_forward_hook(lambda mod, i, o: seen.append(("f", type(o).__name__, list(o.values().shape))))
    m.e.register_forward_pre_hook(lambda mod, i: seen.append(("p", type(i[0]).__name__)))
    m.over.register_full_backward_hook(lambda mod, gi, go: seen.append(("b", numbers_of(go[0]))))
    m.e.embedding_bags["a"].weight.register_hook(lambda g: seen.append(("w", numbers_of(g))))
    m(kjt()).sum().backward()
    return seen


@program
def hook_changes_output():
    m = model()
    m.e.register_forward_hook(lambda mod, i, o: tr.KeyedTensor(o.keys(), o.length_per_key(), o.values() * 2))
    return numbers_of(m(kjt()))


@program
def grad_hook_post_accumulate():
    m = model()
    seen = []
    m.e.embedding_bags["b"].weight.register_post_accumulate_grad_hook(lambda q: seen.append(numbers_of(q.grad)))
    m(kjt()).sum().backward()
    return seen


@program
def apply_init():
    m = model()

    def init(x):
        if isinstance(x, nn.Linear):
            nn.init.constant_(x.weight, 0.5)
        if isinstance(x, (nn.EmbeddingBag, nn.Embedding)):
            nn.init.constant_(x.weight, 0.25)

    m.apply(init)
    for q in m.e.parameters():
        nn.init.constant_(q, 0.125)
    return numbers_of(m(kjt()))


@program
def to_():
    m = model()
    m2 = m.to("cpu")
    m.to(torch.device("cpu"))
    m.cpu()
    m.float()
    return [m2 is m, numbers_of(m(kjt())), str(m.e.embedding_bags["a"].weight.dtype)]


@program
def half_model():
    m = model().half()
    k = m.e(kjt())
    return [str(k.values().dtype)]


@program
def zero_grad():
    m = model()
    m(kjt()).sum().backward()
    a = m.e.embedding_bags["a"].weight.grad is not None
    m.zero_grad()
    return [a, m.e.embedding_bags["a"].weight.grad is None]


@program
def requires_grad_partial():
    m = model()
    m.e.embedding_bags["a"].weight.requires_grad_(False)
    o = torch.optim.SGD(m.parameters(), lr=0.5)
    m(kjt()).sum().backward()
    o.step()
    return [whole(m), m.e.embedding_bags["a"].weight.grad is None]


@program
def autograd_grad():
    m = model()
    w = m.e.embedding_bags["a"].weight
    (g,) = torch.autograd.grad(m(kjt()).pow(2).sum(), [w])
    return [numbers_of(g), w.grad is None]


@program
def twice_backward():
    m = model()
    y = m(kjt()).pow(2).sum()
    y.backward(retain_graph=True)
    y.backward()
    return numbers_of(m.e.embedding_bags["a"].weight.grad)


@program
def twice_backward_fused():
    d = dmp("EXACT_SGD", 0.5)
    y = squares(d(kjt()))
    y.backward(retain_graph=True)
    try:
        y.backward()
        return whole(d)
    except Exception as x:
        return f"ERR {x}"


@program
def two_lookups_one_loss():
    d = dmp("EXACT_ADAGRAD", 0.5)
    (d(kjt()).pow(2).sum() + d(kjt(ids=(1, 1, 1, 1, 1, 1, 1))).pow(2).sum()).backward()
    return whole(d)


def checkpointed_backward(m):
    from torch.utils.checkpoint import checkpoint

    f = kjt()
    y = checkpoint(lambda v: m(f) * v, torch.ones(1, requires_grad=True), use_reentrant=False)
    squares(y).backward()


@program
def checkpointed():
    m = model()
    checkpointed_backward(m)
    return numbers_of(m.e.embedding_bags["a"].weight.grad)


@program
def checkpointed_fused():
    m = dmp("EXACT_ADAGRAD")
    checkpointed_backward(m)
    return whole(m)


@program
def functional():
    from torch.func import functional_call

    m = model()
    new = {k: v.detach() * 2 for k, v in m.named_parameters()}
    return numbers_of(functional_call(m, new, (kjt(),)))


@program
def vmapgrad():
    from torch.func import functional_call, grad

    m = model()
    ps = {k: v.detach() for k, v in m.named_parameters()}
    g = grad(lambda q: functional_call(m, q, (kjt(),)).pow(2).sum())(ps)
    return {k: numbers_of(v) for k, v in g.items()}


@program
def parametrize():
    m = model()
    from torch.nn.utils import parametrize as pz

    class Twice(nn.Module):
        def forward(s, x):
            return x * 2

    pz.register_parametrization(m.e.embedding_bags["a"], "weight", Twice())
    return numbers_of(m(kjt()))


@program
def prune():
    m = model()
    from torch.nn.utils import prune as pr

    pr.custom_from_mask(m.e.embedding_bags["a"], "weight", (torch.arange(24).reshape(6, 4) % 2).float())
    return numbers_of(m(kjt()))


@program
def data_write():
    m = model()
    m.e.embedding_bags["a"].weight.data.mul_(2)
    m.e.embedding_bags["b"].weight.data[0] = 9
    return numbers_of(m(kjt()))


@program
def data_assign():
    m = model()
    m.e.embedding_bags["a"].weight.data = torch.ones(6, 4)
    return numbers_of(m(kjt()))


@program
def param_assign():
    m = model()
    m.e.embedding_bags["a"].weight = nn.Parameter(torch.ones(6, 4))
    return numbers_of(m(kjt()))


@program
def tie_tables():
    m = model()
    e2 = bags()
    e2.embedding_bags["a"].weight = m.e.embedding_bags["a"].weight
    return numbers_of(torch.cat([e2(kjt())[k] for k in "xz"], 1))


@program
def swap_params():
    m = model()
    sd = {k: torch.ones_like(v) for k, v in m.state_dict().items()}
    m.load_state_dict(sd, assign=True)
    return numbers_of(m(kjt()))


@program
def pickle_save():
    m = model()
    b = io.BytesIO()
    torch.save(m.state_dict(), b)
    b.seek(0)
    n = model()
    with torch.no_grad():
        for q in n.parameters():
            q.zero_()
    n.load_state_dict(torch.load(b))
    return numbers_of(n(kjt()))


@program
def weight_decay():
    m = model()
    o = torch.optim.AdamW(m.parameters(), lr=0.1, weight_decay=0.1)
    m(kjt()).sum().backward()
    o.step()
    return whole(m)


@program
def sparse_adam():
    m = model()

    def trained():
        o = torch.optim.SparseAdam(m.e.parameters(), lr=0.1)
        m(kjt()).sum().backward()
        o.step()
        return whole(m)

    return tried(trained, RuntimeError)


@program
def lbfgs():
    m = model()
    o = torch.optim.LBFGS(m.parameters(), lr=0.01, max_iter=3)

    def c():
        o.zero_grad()
        out_loss = m(kjt()).pow(2).sum()
        out_loss.backward()
        return out_loss

    o.step(c)
    return whole(m)


@program
def ema():
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    m = model()
    a = AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    stepped(m, torch.optim.SGD(m.parameters(), lr=0.1), after=lambda: a.update_parameters(m))
    return numbers_of(a(kjt()))


@program
def out_of_range():
    return tried(lambda: numbers_of(model()(kjt(ids=(99, 0, 1, 1, 2, 5, 4)))))


@program
def negative():
    return tried(lambda: numbers_of(model()(kjt(ids=(-1, 0, 1, 1, 2, 5, 4)))))


@program
def missing_feature():
    batch = tr.KeyedJaggedTensor(["x", "y"], torch.tensor([1, 2]), lengths=torch.tensor([1, 1]))
    return tried(lambda: numbers_of(model()(batch)))


@program
def extra_feature():
    m = model()
    return numbers_of(
        m(tr.KeyedJaggedTensor(["q", "z", "x", "y"], torch.tensor([99, 1, 2, 3]), lengths=torch.tensor([1, 1, 1, 1])))
    )


@program
def wrong_lengths():
    return tried(lambda: numbers_of(model()(kjt(lengths=(1, 1, 1, 1, 1, 1)))))


@program
def weighted_without_weights():
    return tried(lambda: numbers_of(pooled(fill(bags(weighted=True)), kjt())))


@program
def weight_grads():
    e = fill(bags(weighted=True))
    w = torch.arange(7.0).requires_grad_()
    squares(pooled(e, kjt(weights=w))).backward()
    return [numbers_of(w.grad), numbers_of(e.embedding_bags["a"].weight.grad)]


@program
def regroup():
    e = fill(bags())
    k = e(kjt())
    return [
        [numbers_of(t) for t in tr.KeyedTensor.regroup([k], [["z", "x"], ["y"]])],
        {n: numbers_of(t) for n, t in tr.KeyedTensor.regroup_as_dict([k], [["z", "x"], ["y"]], ["g", "h"]).items()},
        k.to_dict().keys().__len__(),
        numbers_of(k["z"]),
    ]


@program
def multi_opt():
    m = M("meta")
    tr.apply_optimizer_in_backward(torch.optim.SGD, m.e.embedding_bags["a"].parameters(), {"lr": 0.5})
    tr.apply_optimizer_in_backward(torch.optim.Adagrad, m.e.embedding_bags["b"].parameters(), {"lr": 0.1})
    d = dmp(m=m, opt="EXACT_SGD")
    for _ in range(2):
        d(kjt()).pow(2).sum().backward()
    return whole(d)


@program
def combined():
    d = dmp("EXACT_ADAGRAD", 0.5)
    k = tr.KeyedOptimizerWrapper(
        dict(tr.in_backward_optimizer_filter(d.named_parameters())), lambda q: torch.optim.Adagrad(q, lr=0.1)
    )
    o = tr.CombinedOptimizer([d.fused_optimizer, k])
    told = stepped(d, o)
    s = o.state_dict()
    return [told, sorted(s["state"]), sorted(s)]


@program
def clip_fused():
    d = dmp("EXACT_SGD", 0.5, gradient_clipping=True, max_gradient=0.05)
    d(kjt()).pow(2).sum().backward()
    return whole(d)


@program
def weight_decay_fused():
    out = []
    for o in ("EXACT_SGD", "EXACT_ADAGRAD", "EXACT_ROWWISE_ADAGRAD"):
        d = dmp(o, 0.5, weight_decay=0.1)
        for _ in range(2):
            d(kjt()).pow(2).sum().backward()
        out.append(whole(d))
    return out


@program
def adagrad_eps():
    d = dmp("EXACT_ADAGRAD", 0.5, eps=1.0)
    d(kjt()).pow(2).sum().backward()
    return whole(d)


@program
def default_optimizer():
    m = M("meta")
    d = dmp(m=m, opt="EXACT_SGD")
    return [type(d.fused_optimizer).__name__ != "", d.fused_optimizer.param_groups[0]["lr"]]


@program
def sequences():
    e = tr.EmbeddingCollection(
        tables=[
            tr.EmbeddingConfig(num_embeddings=6, embedding_dim=4, name="a", feature_names=["x"]),
            tr.EmbeddingConfig(num_embeddings=5, embedding_dim=4, name="b", feature_names=["y"]),
        ],
        device=CPU,
    )
    e.load_state_dict({f"embeddings.{t}.weight": r for t, r in rows().items()})
    o = e(kjt((3, 0, 1), (1, 0, 1, 1), ("x", "y")))
    o["x"].values().pow(2).sum().backward()
    return [
        {k: [numbers_of(v.values()), numbers_of(v.lengths()), numbers_of(v.offsets())] for k, v in o.items()},
        numbers_of(e.embeddings["a"].weight.grad),
        e.embeddings["b"].weight.grad is None,
    ]


@program
def fx():
    m = model()
    try:
        g = torch.fx.symbolic_trace(m)
        return numbers_of(g(kjt()))
    except Exception as x:
        return f"ERR {type(x).__name__} {str(x)[:150]}"


@program
def deep():
    m = model()
    n = copy.deepcopy(m)
    o = torch.optim.SGD(n.parameters(), lr=0.5)
    n(kjt()).sum().backward()
    o.step()
    return [whole(m), whole(n)]
