"""Small programs of every day: hooks, what modules have besides tables, threads, and batches that are written to."""

import copy
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from everyday_common import CPU, M, bags, dmp, fill, kjt, model, numbers_of, program, rows, tr, whole


def _written(write, **more):
    """The gradient of a table after a batch was written to between lookup and backward, or ERR."""
    e = fill(bags(weighted=bool(more)))
    batch = kjt(**more)
    loss = e(batch).values().pow(2).sum()
    with torch.no_grad():
        write(e, batch)
    try:
        loss.backward()
    except RuntimeError as error:
        return f"ERR {'inplace' in str(error)}"
    return numbers_of(e.embedding_bags["a"].weight.grad)


@program
def ids_written_before_backward():
    return _written(lambda e, batch: batch.values().zero_())


@program
def weights_written_before_backward():
    return _written(lambda e, batch: batch.weights().zero_(), weights=torch.arange(7.0))


@program
def rows_written_before_backward():
    learnt = torch.arange(7.0).requires_grad_()
    return _written(lambda e, batch: e.embedding_bags["a"].weight.zero_(), weights=learnt)


@program
def rows_written_without_weights():
    return _written(lambda e, batch: e.embedding_bags["a"].weight.zero_())


@program
def threads_infer():
    out = []
    for m in (model(), dmp("EXACT_SGD")):
        batches = [kjt(ids=tuple((i * k + k) % 5 for i in range(7))) for k in range(4)]
        with torch.no_grad():
            alone = [m(batch) for batch in batches]

        def wrong(i):
            with torch.no_grad():
                return sum(not torch.equal(m(batches[i]), alone[i]) for _ in range(50))

        with ThreadPoolExecutor(4) as threads:
            out += list(threads.map(wrong, range(4)))
    return out


@program
def threads_train():
    m = model()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: m(kjt()).sum().backward(), range(100)))
    return numbers_of(m.e.embedding_bags["a"].weight.grad)


@program
def hooks_of_state_dicts():
    m, seen = model(), []

    def renamed(module, state, prefix, *_):
        seen.append(prefix)
        for key in [key for key in state if ".old." in key]:
            state[key.replace(".old.", ".a.")] = state.pop(key)

    m.e.register_load_state_dict_pre_hook(renamed)
    m.e.register_load_state_dict_post_hook(lambda module, keys: seen.append(list(keys.missing_keys)))
    m.e._register_state_dict_hook(lambda module, state, prefix, _: seen.append([prefix, sorted(state)]))
    m.e.register_state_dict_pre_hook(lambda module, prefix, keep: seen.append([prefix, keep]))
    state = {key.replace(".a.", ".old."): value.clone() * 2 for key, value in m.state_dict().items()}
    return [str(m.load_state_dict(state)), seen, whole(m)]


@program
def more_than_tables():
    def made(value):
        m = model()
        m.e.register_buffer("seen", torch.full((3,), value))
        m.e.register_parameter("scale", nn.Parameter(torch.full((2,), value)))
        return m

    state, other = made(2.0).state_dict(), made(0.0)
    told = [sorted(state), str(other.load_state_dict(state)), numbers_of(other.e.seen), numbers_of(other.e.scale)]
    del state["e.scale"]
    return [told, other.load_state_dict(state, strict=False).missing_keys]


@program
def a_subclass():
    class Scaled(tr.EmbeddingBagCollection):
        def __init__(self, **more):
            super().__init__(**more)
            self.scale = nn.Parameter(torch.full((1,), 2.0))

        def forward(self, batch):
            out = super().forward(batch)
            return tr.KeyedTensor(out.keys(), out.length_per_key(), out.values() * self.scale)

    table = tr.EmbeddingBagConfig(num_embeddings=6, embedding_dim=4, name="a", feature_names=["x"])
    e = Scaled(tables=[table], device=CPU)
    e.load_state_dict({**e.state_dict(), "embedding_bags.a.weight": rows()["a"]})
    out = e(kjt()).values()
    out.sum().backward()
    again = copy.deepcopy(e)(kjt()).values()
    return [sorted(e.state_dict()), numbers_of(out), numbers_of(e.scale.grad), numbers_of(again)]


@program
def a_stride_that_is_wrong():
    batch = dict(keys=["x", "y", "z"], values=torch.tensor([1, 2, 3]), lengths=torch.tensor([1, 1, 1]))
    try:
        return numbers_of(model().e(tr.KeyedJaggedTensor(**batch, stride=2)).values())
    except Exception:
        return "ERR"


@program
def narrow_ids():
    return [numbers_of(model().e(kjt(dt=of)).values()) for of in (torch.int8, torch.int16, torch.uint8)]


@program
def start_values_in_a_range():
    bounds = dict(weight_init_max=0.5, weight_init_min=0.25)
    table = tr.EmbeddingBagConfig(num_embeddings=60, embedding_dim=4, name="a", feature_names=["x"], **bounds)
    weight = tr.EmbeddingBagCollection(tables=[table], device=CPU).embedding_bags["a"].weight
    return [bool(weight.min() >= 0.25), bool(weight.max() <= 0.5), bool(weight.std() > 0)]


@program
def dense_parameters_in_backward():
    out = []
    for params in (lambda m: m.over.parameters(), lambda m: m.parameters()):
        m = model()
        tr.apply_optimizer_in_backward(torch.optim.SGD, params(m), {"lr": 0.5})
        m(kjt()).sum().backward()
        out.append([whole(m), m.over.weight.grad is None])
    return out


@program
def hooks_of_combined_steps():
    d, seen = dmp("EXACT_SGD"), []
    dense = tr.KeyedOptimizerWrapper(dict(tr.in_backward_optimizer_filter(d.named_parameters())),
                                     lambda params: torch.optim.SGD(params, lr=0.2))  # fmt: skip
    combined = tr.CombinedOptimizer([d.fused_optimizer, dense])
    combined.register_step_pre_hook(lambda *_: seen.append("before"))
    combined.register_step_post_hook(lambda *_: seen.append("after"))
    d(kjt()).sum().backward()
    combined.step()
    return seen


@program
def texts_of_jagged_tensors():
    jagged = tr.JaggedTensor(torch.arange(3.0), torch.arange(3.0) / 2, lengths=torch.tensor([2, 1]))
    return [str(jagged), str(kjt(weights=torch.arange(7.0))), str(kjt())]


@program
def a_table_and_a_layer_of_one_weight():
    m = model()
    m.scores = nn.Linear(4, 6, bias=False)
    m.scores.weight = m.e.embedding_bags["a"].weight
    n = copy.deepcopy(m)
    for each in (m, n):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            each.scores(each.e(kjt())["x"]).pow(2).sum().backward()
            optimizer.step()
    return [whole(m), whole(n), n.scores.weight is n.e.embedding_bags["a"].weight, len(list(n.parameters()))]


@program
def averaged_normalisation():
    class Normalised(M):
        def forward(self, batch):
            out = self.e(batch)
            return self.over(self.norm(torch.cat([out[key] for key in "xyz"], 1)))

    m = fill(Normalised(), "e.")
    torch.optim.swa_utils.update_bn([kjt(), kjt(ids=(1,) * 7)], m, device=CPU)
    return numbers_of(m.norm.running_mean)
