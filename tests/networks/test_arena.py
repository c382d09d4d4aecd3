"""The plan of memory: buffers that live at one time never overlap, and no plan takes less than the bound."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.network_programs import by_hand

from bitsynth.network.arena import ALIGN, Lifetime, by_size, lifetimes, lower_bound, plan_arena

LIVES = st.builds(
    lambda first, more, size: Lifetime(first, first + more, size * ALIGN),
    st.integers(0, 12),
    st.integers(0, 6),
    st.integers(0, 20),
)


def overlaps(plan, a, b):
    first, second = plan.offsets[a], plan.offsets[b]
    return first < second + plan.lifetimes[b].bytes and second < first + plan.lifetimes[a].bytes


@settings(max_examples=60, deadline=None)
@given(st.lists(LIVES, max_size=14))
def test_no_two_live_buffers_overlap(lives):
    named = {f"b{k}": life for k, life in enumerate(lives)}
    plan = by_size(named)
    for a, b in combinations(named, 2):
        if named[a].meets(named[b]) and named[a].bytes and named[b].bytes:
            assert not overlaps(plan, a, b)
    assert all(at % ALIGN == 0 and at + named[n].bytes <= plan.bytes for n, at in plan.offsets.items())
    steps = range(20)
    needed = [sum(x.bytes for x in lives if x.first <= step <= x.last) for step in steps]
    assert plan.bound == max(needed) == lower_bound(lives) <= plan.bytes


def test_what_is_free_again_is_used_again():
    plan = by_size({"a": Lifetime(0, 1, 128), "b": Lifetime(1, 2, 64), "c": Lifetime(2, 3, 128)})
    assert plan.offsets == {"a": 0, "b": 128, "c": 0}
    assert plan.bytes == plan.bound == 192


def test_another_order_is_found_where_the_largest_first_takes_more():
    spans = [(3, 6, 7), (2, 4, 8), (4, 4, 11), (2, 2, 11), (0, 3, 7)]
    lives = {f"b{k}": Lifetime(a, b, size * ALIGN) for k, (a, b, size) in enumerate(spans)}
    plan = by_size(lives)
    assert plan.bytes == plan.bound


def test_aliases_live_as_long_as_any_of_them():
    program, _ = by_hand("avx2")
    lives = lifetimes(program)
    assert "y" not in lives
    assert "x" not in lives
    assert "out" not in lives
    assert (lives["f"].first, lives["f"].last) == (4, 5)


def test_apart_nothing_is_used_twice():
    program, _ = by_hand("avx2")
    plan, apart = plan_arena(program), plan_arena(program, apart=True)
    assert plan.bytes < apart.bytes == apart.bound == sum(life.bytes for life in lifetimes(program).values())
    assert len(set(apart.offsets.values())) == len(apart.offsets)
