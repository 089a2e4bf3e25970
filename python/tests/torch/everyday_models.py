"""Small programs of every day: TorchRec's models and data over either library's tables, wrapped optimizers, and what
jagged tensors can do."""

import copy
import io
import pickle

import torch
import torch.distributed as dist
from torch import nn
from torch.utils import _pytree

from everyday_common import (
    CPU, M, bags, dmp, fill, kjt, model, numbers_of, of, program, rows, stepped, tr, whole,
)  # fmt: skip


def jagged(k):
    return [k.keys(), numbers_of(k.values()), numbers_of(k.lengths()), k.stride(), k.stride_per_key(),
            k.length_per_key(), k.offset_per_key(), k.lengths_offset_per_key(), k.index_per_key()]  # fmt: skip


def trained_model(kind, **options):
    """A model of TorchRec over two tables, and what training it comes to."""
    tables = [tr.EmbeddingBagConfig(num_embeddings=n, embedding_dim=4, name=name, feature_names=[key])
              for name, n, key in (("a", 6, "x"), ("b", 5, "y"))]  # fmt: skip
    e = fill(tr.EmbeddingBagCollection(tables=tables, device=CPU))
    torch.manual_seed(5)
    m = kind(embedding_bag_collection=e, **options)
    optimizer, out = torch.optim.SGD(m.parameters(), lr=0.05), []
    for step in range(3):
        optimizer.zero_grad()
        y = m(torch.arange(6.0).reshape(2, 3) / 7 + step, kjt((3, 0, 1, 1, 2), (1, 2, 1, 1), ("x", "y")))
        y.pow(2).mean().backward()
        optimizer.step()
        out.append(numbers_of(y))
    return [out, whole(m)]


ARCHES = dict(dense_in_features=3, dense_arch_layer_sizes=[5, 4], over_arch_layer_sizes=[6, 1], dense_device=CPU)


@program
def dlrm_of_torchrec():
    from torchrec.models.dlrm import DLRM, DLRM_DCN, DLRM_Projection

    branches = {f"interaction_branch{i}_layer_sizes": [8, 8] for i in (1, 2)}
    return [
        trained_model(DLRM, **ARCHES),
        trained_model(DLRM_DCN, dcn_num_layers=2, dcn_low_rank_dim=3, **ARCHES),
        trained_model(DLRM_Projection, **branches, **ARCHES),
    ]


@program
def deepfm_of_torchrec():
    from torchrec.models.deepfm import SimpleDeepFMNN

    return trained_model(SimpleDeepFMNN, num_dense_features=3, hidden_layer_size=5, deep_fm_dimension=4)


@program
def data_of_torchrec():
    from torchrec.datasets.random import RandomRecDataset

    made = RandomRecDataset(keys=["x", "y", "z"], batch_size=3, hash_sizes=[6, 5, 6], ids_per_features=[2, 1, 3],
                            num_dense=2, manual_seed=7, num_generated_batches=2, num_batches=2)  # fmt: skip
    m = model()
    return [numbers_of(m(batch.sparse_features)) for batch in made]


@program
def regroup_of_torchrec():
    from torchrec.modules.regroup import KTRegroupAsDict

    found = KTRegroupAsDict([["z", "x"], ["y"]], ["p", "q"])([fill(bags())(kjt())])
    return {key: numbers_of(value) for key, value in found.items()}


def mean_square(y):
    return y.pow(2).mean()


def dense_of(d):
    named = dict(tr.in_backward_optimizer_filter(d.named_parameters()))
    return tr.KeyedOptimizerWrapper(named, lambda params: torch.optim.Adam(params, lr=0.2))


def _warmed(kind, stage, policy):
    d = dmp("EXACT_SGD", 0.5)
    stages = [stage(policy.LINEAR, max_iters=3, value=0.1)]
    optimizer = kind(tr.CombinedOptimizer([d.fused_optimizer, dense_of(d)]), stages, lr=0.3)
    return [stepped(d, optimizer, 5, mean_square), [group["lr"] for group in optimizer.param_groups]]


@program
def warmed():
    return _warmed(*of("optim.warmup", "WarmupOptimizer", "WarmupStage", "WarmupPolicy"))


@program
def warmed_by_torchrec():
    from torchrec.optim.warmup import WarmupOptimizer, WarmupPolicy, WarmupStage

    return _warmed(WarmupOptimizer, WarmupStage, WarmupPolicy)


@program
def clipped_by_torchrec():
    from torchrec.optim.clipping import GradientClipping, GradientClippingOptimizer

    out = []
    for kind in (GradientClipping.NORM, GradientClipping.VALUE):
        d = dmp("EXACT_SGD", 0.5)
        dense = GradientClippingOptimizer(dense_of(d), clipping=kind, max_gradient=0.1)
        out.append(stepped(d, tr.CombinedOptimizer([d.fused_optimizer, dense]), 4, mean_square))
    return out


@program
def names_of_combined():
    d = dmp("EXACT_ADAGRAD", 0.5)
    combined = tr.CombinedOptimizer([("tables", d.fused_optimizer), ("dense", dense_of(d))])
    combined.init_state()
    stepped(d, combined, 2, mean_square)
    state = copy.deepcopy(combined.state_dict())
    once = stepped(d, combined, 1, mean_square)
    combined.load_state_dict(state)
    named = {key: sorted(value) for key, value in state["state"].items()}
    return [sorted(combined.params), named, once, stepped(d, combined, 1, mean_square)]


@program
def two_rates():
    m = M("meta")
    for table, lr in (("a", 0.5), ("b", 0.05)):
        tr.apply_optimizer_in_backward(torch.optim.SGD, m.e.embedding_bags[table].parameters(), {"lr": lr})
    d = dmp("EXACT_SGD", 0.5, m=m, fused=True)
    for _ in range(2):
        d(kjt()).pow(2).sum().backward()
    return [whole(d), sorted(group["lr"] for group in d.fused_optimizer.param_groups)]


@program
def jagged_tensors_together():
    a = kjt(weights=torch.arange(7.0))
    b = tr.KeyedJaggedTensor(["q"], torch.tensor([7, 8, 9]), torch.tensor([0.1, 0.2, 0.3]),
                             lengths=torch.tensor([2, 1]))  # fmt: skip
    both = tr.KeyedJaggedTensor.concat([b, a])
    order = torch.tensor([3, 0], dtype=torch.int32)
    parts = [*both.split([1, 3]), both.permute([3, 0], order), both.permute([1, 1])]
    named = both.to_dict(compute_offsets=True)
    return [[[jagged(one), numbers_of(one.weights())] for one in (both, *parts)],
            {key: [numbers_of(one.weights()), numbers_of(one.offsets())] for key, one in named.items()}]  # fmt: skip


@program
def samples_of_each_key():
    places = torch.tensor([[0, 1, 0], [0, 1, 2], [0, 0, 0]])
    batch = tr.KeyedJaggedTensor(["x", "y", "z"], torch.arange(7) % 5, lengths=torch.tensor([1, 2, 2, 0, 1, 1]),
                                 stride_per_key_per_rank=[[2], [3], [1]],
                                 inverse_indices=(["x", "y", "z"], places))  # fmt: skip
    parts = [batch, batch.permute([2, 0]), *batch.split([1, 2])]
    told = [[k.keys(), numbers_of(k.values()), numbers_of(k.lengths()), k.stride_per_key()] for k in parts]
    return [told, batch.stride(), batch.variable_stride_per_key(), numbers_of(fill(bags())(batch).values())]


@program
def jagged_tensors_of_several_sizes():
    one = tr.JaggedTensor(torch.tensor([1, 2, 3]), lengths=torch.tensor([1, 2]))
    other = tr.JaggedTensor(torch.tensor([4]), lengths=torch.tensor([0, 1, 0]))
    made = [tr.KeyedJaggedTensor.from_jt_dict({"x": one, "y": other}), tr.KeyedJaggedTensor.from_jt_dict({"x": one}),
            tr.KeyedJaggedTensor.from_jt_dict({"x": one, "z": one}, force_variable_stride=True)]  # fmt: skip
    return [[jagged(each), each.variable_stride_per_key()] for each in made]


@program
def synchronised():
    batch = tr.KeyedJaggedTensor(["x", "y"], torch.tensor([1, 2, 3]), offsets=torch.tensor([0, 1, 1, 2, 3]))
    out = [batch.lengths_or_none() is None, batch.offsets_or_none().tolist(), batch.length_per_key_or_none()]
    batch.sync()
    out += [batch.length_per_key_or_none(), batch.offset_per_key_or_none(), batch.lengths().tolist()]
    batch.unsync()
    return [*out, batch.length_per_key_or_none()]


@program
def jagged_from_dense():
    made = [
        tr.JaggedTensor.from_dense([torch.tensor([1.0, 2.0]), torch.tensor([3.0])],
                                   [torch.tensor([0.1, 0.2]), torch.tensor([0.3])]),
        tr.JaggedTensor.from_dense_lengths(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 2])),
        tr.JaggedTensor.empty(),
    ]  # fmt: skip
    out = [[numbers_of(j.values()), numbers_of(j.lengths()), [numbers_of(row) for row in j.to_dense()]] for j in made]
    return [*out, numbers_of(made[0].weights()), numbers_of(made[1].to_padded_dense(3, padding_value=9.0))]


@program
def keyed_tensors():
    a = tr.KeyedTensor(["a", "b", "c"], [1, 2, 1], torch.arange(8.0).reshape(2, 4))
    b = tr.KeyedTensor.from_tensor_list(["d", "e"], [torch.ones(2, 2), torch.zeros(2, 1)])
    grouped = tr.KeyedTensor.regroup([a, b], [["a", "e"], ["d", "c"], ["b"]])
    named = tr.KeyedTensor.regroup_as_dict([a, b], [["a", "e"], ["d"]], ["g", "h"])
    return [a.keys(), a.length_per_key(), a.offset_per_key(), a.key_dim(), numbers_of(a["b"]), numbers_of(b.values()),
            {key: numbers_of(value) for key, value in a.to_dict().items()}, [numbers_of(one) for one in grouped],
            {key: numbers_of(value) for key, value in named.items()}]  # fmt: skip


@program
def regrouped_backward():
    e = fill(bags())
    one, other = tr.KeyedTensor.regroup([e(kjt())], [["z", "x"], ["y"]])
    (one.pow(2).sum() + other.sum()).backward()
    return {name: numbers_of(p.grad) for name, p in e.named_parameters()}


@program
def flattened_and_pickled():
    batch, out = kjt(weights=torch.arange(7.0)), []
    file = io.BytesIO()
    torch.save(batch, file)
    file.seek(0)
    for again in (
        _pytree.tree_unflatten(*_pytree.tree_flatten(batch)), pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch),
        torch.load(file, weights_only=False), batch.to(CPU, non_blocking=True),
    ):  # fmt: skip
        out.append([jagged(again), numbers_of(again.weights())])
    keyed = fill(bags())(kjt())
    again = _pytree.tree_unflatten(*_pytree.tree_flatten(keyed))
    return [out, again.keys(), numbers_of(again.values())]


@program
def indices_of_sequences():
    tables = [tr.EmbeddingConfig(num_embeddings=6, embedding_dim=4, name="a", feature_names=["x", "z"]),
              tr.EmbeddingConfig(num_embeddings=5, embedding_dim=4, name="b", feature_names=["y"])]  # fmt: skip
    e = tr.EmbeddingCollection(tables=tables, need_indices=True, device=CPU)
    e.load_state_dict({f"embeddings.{table}.weight": values for table, values in rows().items()})
    out = e(kjt())
    sum(one.values().pow(2).sum() for one in out.values()).backward()
    return [{key: [numbers_of(one.values()), numbers_of(one.lengths()), numbers_of(one.weights()),
                   numbers_of(one.to_padded_dense(2))] for key, one in out.items()},
            {name: numbers_of(p.grad) for name, p in e.named_parameters()}]  # fmt: skip


@program
def optimizers_of_pytorch():
    out = []
    for name in "Adamax RMSprop Rprop ASGD Adadelta RAdam NAdam AdamW Adafactor".split():
        m = model()
        out.append([name, stepped(m, getattr(torch.optim, name)(m.parameters(), lr=0.05), loss=mean_square)])
    return out


@program
def one_vector():
    m = model()
    vector = nn.utils.parameters_to_vector(m.parameters())
    with torch.no_grad():
        nn.utils.vector_to_parameters(vector * 2, m.parameters())
    return [vector.numel(), numbers_of(m(kjt()))]


@program
def a_plan_of_a_model():
    d = dmp("EXACT_SGD")
    kinds = {table: one.sharding_type for table, one in d.plan.get_plan_for_module("e").items()}
    return [sorted(d.plan.plan), kinds, str(d.device), len(d.sharders), dist.get_world_size()]
