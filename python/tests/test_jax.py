"""JAX's arrays in and out of the NumPy API by DLPack, where they lie."""

import gc

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jax.config.update("jax_platforms", "cpu")

import jax.numpy as jnp  # noqa: E402

import tessera  # noqa: E402
from tessera._arrays import address_of, as_array  # noqa: E402

TABLES = [tessera.EmbeddingBagConfig(6, 16, "a"), tessera.EmbeddingBagConfig(4, 16, "b")]
IDS, LENGTHS = jnp.array([1, 2, 3, 0]), jnp.array([2, 0, 1, 1])  # int32; two samples


def bags():
    tables = tessera.EmbeddingBagCollection(TABLES, optimizer=tessera.Optimizer("exact_sgd", learning_rate=1.0))
    tables.set_weight("a", jnp.arange(96.0).reshape(6, 16))
    tables.set_weight("b", jnp.full((4, 16), 100.0))
    return tables


def test_arrays_of_jax_are_read_where_they_are():
    for array in (IDS, LENGTHS, jnp.ones((4, 8))):
        assert address_of(as_array(array, "x")) == array.unsafe_buffer_pointer()


def test_a_step_with_arrays_of_jax_on_both_sides():
    tables = bags()
    step = tables.forward(IDS, LENGTHS)
    rows = jnp.from_dlpack(step.output)
    assert rows.unsafe_buffer_pointer() == address_of(step.output), "no copy"
    np.testing.assert_array_equal(rows[0, :16], np.arange(96.0).reshape(6, 16)[1:3].sum(0))
    loss, grad = jax.value_and_grad(lambda x: (x[:, :16] ** 2).sum() / 2 + x[:, 16:].sum())(rows)
    assert loss > 0
    step.backward(grad)
    expected = np.arange(96.0).reshape(6, 16)
    expected[1:3] -= expected[1:3].sum(0)
    np.testing.assert_allclose(tables.weight("a"), expected)
    np.testing.assert_array_equal(tables.weight("b", 2, 2), [[100.0] * 16, [99.0] * 16])


def test_what_jax_has_outlives_its_step():
    tables = bags()
    rows = jnp.from_dlpack(tables.forward(IDS, LENGTHS).output)
    before = np.array(rows)
    for _ in range(5):
        tables.forward(jnp.zeros(4, int), LENGTHS)
    gc.collect()
    np.testing.assert_array_equal(rows, before)


def test_a_jax_array_is_not_written_to():
    group = tessera.ProcessGroup(rank=0, world_size=1)
    with pytest.raises(ValueError, match="in place"):
        group.all_reduce(jnp.ones(3))
