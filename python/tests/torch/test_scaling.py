"""GradScaler: tables unscale their gradients, and skip the steps that the scaler skips, on all ranks."""

import copy

import pytest

torch = pytest.importorskip("torch")

import tessera.torch as tt  # noqa: E402
from test_rows import SGD, bags  # noqa: E402
from test_torch import batch, run_ranks  # noqa: E402


def test_a_grad_scaler_does_not_scale_updates():
    torch.manual_seed(1)
    one, two = bags(SGD), None
    two = copy.deepcopy(one)
    dense = [torch.ones(6, requires_grad=True) for _ in range(2)]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    (one(batch()).values() * dense[0]).sum().backward()
    optimizer = torch.optim.SGD([dense[1]], lr=0.0)
    scaler.scale((two(batch()).values() * dense[1]).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(one.embedding_bags["a"].weight, two.embedding_bags["a"].weight)
    torch.testing.assert_close(dense[0].grad, dense[1].grad)
    with_gradients = bags()
    scaler.scale(with_gradients(batch()).values().sum()).backward()
    assert with_gradients.embedding_bags["a"].weight.grad[1].tolist() == [1024.0] * 4, "for the optimizer's unscale_()"
    before = one.core.weight("a")
    one(batch()).values().sum().backward()
    assert abs(before - one.core.weight("a")).max() == pytest.approx(0.5)


def test_a_backward_that_failed_leaves_no_scale():
    ebc = bags(SGD)
    out = ebc(batch()).values()
    out.register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        torch.amp.GradScaler("cpu", init_scale=1024.0).scale(out.sum()).backward()
    before = ebc.core.weight("a")
    ebc(batch()).values().sum().backward()
    assert abs(before - ebc.core.weight("a")).max() == pytest.approx(0.5)


@pytest.mark.parametrize("optimizer", [SGD, None])
@pytest.mark.parametrize("wrong", [float("inf"), float("nan")])
def test_an_infinite_gradient_is_skipped_with_the_whole_step(optimizer, wrong):
    ebc, dense = bags(optimizer), torch.nn.Parameter(torch.ones(()))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    ours = [dense] if optimizer else [dense, *ebc.parameters()]
    steps = torch.optim.SGD(ours, lr=0.5)
    for factor, skipped in ((wrong, True), (1.0, False)):
        steps.zero_grad()
        before, scale = ebc.core.weight("a"), scaler.get_scale()
        rows = ebc(batch()).values()
        rows.register_hook(lambda grad, factor=factor: grad * factor)  # the dense part's own gradient is finite
        scaler.scale(rows.sum() + dense).backward()
        was = dense.item()
        scaler.step(steps)
        scaler.update()
        assert (ebc.core.weight("a") == before).all() == skipped == (dense.item() == was)
        assert scaler.get_scale() == scale * (0.5 if skipped else 1), "also a scale of 1 is looked after"
    assert ebc.core.steps == (1 if optimizer else 0)


def test_a_scaler_of_fused_tables_only():
    model = tt.DistributedModelParallel(bags(SGD))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for factor, scale in ((1.0, 2.0), (float("inf"), 1.0)):
        scaler.scale(model(batch()).values().sum() * factor).backward()
        scaler.step(model.fused_optimizer)
        scaler.update()
        assert scaler.get_scale() == scale


def test_gradients_of_weights_are_infinite_in_a_skipped_step():
    ebc = tt.EmbeddingBagCollection([tt.EmbeddingBagConfig(6, 4, "a", feature_names=["x"])], True, optimizer=SGD)
    weights = torch.ones(2, requires_grad=True)
    features = tt.KeyedJaggedTensor(["x"], torch.tensor([1, 2]), weights, lengths=torch.tensor([1, 1]))
    torch.amp.GradScaler("cpu", init_scale=2.0).scale(ebc(features).values().sum() * float("inf")).backward()
    assert not torch.isfinite(weights.grad).any() and ebc.core.steps == 0


@pytest.mark.parametrize("what", ["scaled", "scaled_sequences"])
def test_one_ranks_infinite_gradient_skips_the_step_on_both(what, tmp_path):
    assert "all right" in run_ranks("scaling.py", what, timeout=300)
