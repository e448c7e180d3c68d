"""The order of the studies: seeded permutations, one an epoch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rrgtrain.train.loader import batch_indices

sizes = st.tuples(st.integers(1, 40), st.integers(1, 60), st.integers(0, 2**31))


@given(sizes)
def test_every_epoch_is_a_permutation(drawn: tuple[int, int, int]) -> None:
    count, batch, seed = drawn
    steps = -(-3 * count // batch)
    stream = [i for step in range(steps) for i in batch_indices(count, batch, step, seed)]
    for epoch in range(3):
        assert sorted(stream[epoch * count : (epoch + 1) * count]) == list(range(count))


@given(sizes, st.integers(0, 50))
def test_a_step_is_a_slice_of_one_stream(drawn: tuple[int, int, int], step: int) -> None:
    count, batch, seed = drawn
    stream = batch_indices(count, (step + 1) * batch, 0, seed)
    assert batch_indices(count, batch, step, seed) == stream[step * batch :]


def test_seeds_and_epochs_differ() -> None:
    first = batch_indices(30, 30, 0, 0)
    assert first != sorted(first)
    assert first != batch_indices(30, 30, 0, 1)
    assert first != batch_indices(30, 30, 1, 0)
