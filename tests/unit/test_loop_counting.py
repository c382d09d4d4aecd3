"""Loops of in-order steps: they count, and ask for lines of caches ahead, where that takes no cycle."""

import pytest

import bitsynth
from bitsynth.isa import scoreboard
from bitsynth.isa.load import load
from bitsynth.isa.scoreboard import of_kind
from bitsynth.kernel.in_order import loop_control, pipelining
from bitsynth.kernel.in_order.list_scheduling import issue
from bitsynth.kernel.in_order.loop_control import has_address, pointer_of

NEON = load("neon")
RULES = NEON.rules("a53")
CONFIGS = [("lookup", 2, 1), ("popcount", 1, 1), ("pairs", 1, 1), ("pairs", 2, 2), ("multiply", 3, 3)]


def made(method, act_bits, w_bits):
    return bitsynth.get_kernel("neon", act_bits, w_bits, method=method, channels=64)


def loops(*config):
    """Orders of the steps of a kernel, and where their loops count."""
    kernel = made(*config).with_order("a53").entry.kernel
    for loop in kernel.passes:
        found = pipelining.pipeline_loop(kernel, loop)
        yield found, loop_control.place_counters(kernel, found)


def took(lines):
    return scoreboard.run_blocks(RULES, [lines] * 20)[0]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_a_loop_counts_without_a_cycle_more(config):
    for found, at in loops(*config):
        lines = [
            [*[of_kind(RULES, "integer")] * has_address(NEON, step), issue(NEON, "a53", step, found.becomes)]
            for step, _ in found.body
        ]
        places = {*at.pointers.values(), at.iterations, *at.left} - {len(lines) - 1}
        assert len(places) > 6
        filled = [x for k, line in enumerate(lines) for x in (*line, *[of_kind(RULES, "integer")] * (k in places))]
        assert took(filled) == took([x for line in lines for x in line])


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_pointers_go_on_behind_the_loads_of_a_step(config):
    for found, at in loops(*config):
        for k, (step, later) in enumerate(found.body):
            if not step.args and not later:
                assert k <= at.pointers[pointer_of(step)]


@pytest.mark.parametrize(
    ("config", "crosses"),
    [(("popcount", 1, 1), True), (("popcount", 2, 1), True), (("pairs", 2, 2), False), (("multiply", 4, 4), False)],
    ids=str,
)
def test_rows_go_on_to_a_segment_between_the_loads_of_two_steps(config, crosses):
    """Of long turns alone, and not of several steps at once, among which a segment may end."""
    for found, at in loops(*config):
        assert (at.segment is not None) == crosses
        for k, (step, later) in enumerate(found.body):
            if crosses and not step.args and pointer_of(step) != "column":
                assert later == (k > at.segment)
        if crosses:
            assert at.pointers["offset"] <= at.segment
            assert at.pointers["steps_here"] <= at.segment


def test_steps_ask_for_lines_some_turns_before_they_read_them():
    found = made("pairs", 2, 1)
    text = found.with_order("a53").source
    kernel = found.entry.kernel
    assert text.count(" PREFETCH((") == 1 + kernel.groups
    assert f" PREFETCH((uintptr_t)column + {4 * kernel.columns});" in text
    assert " ahead = offset + 64;" in text
    assert " PREFETCH((uintptr_t)row0 + ahead);" in text
    assert "PREFETCH" not in found.source


def test_what_a_line_holds_for_many_turns_is_not_asked_for():
    text = made("popcount", 1, 1).with_order("a53").source
    assert "PREFETCH((uintptr_t)column" in text
    assert "PREFETCH((uintptr_t)row" not in text


def test_distances():
    kernel, cpus = made("pairs", 2, 1).entry.kernel, NEON.table.cpu
    assert loop_control.prefetch_distance(cpus["a53"], kernel, 64) == 256
    assert loop_control.prefetch_distance(cpus["a53"], kernel, 16) == 64
    assert loop_control.prefetch_distance(cpus["a53"], kernel, 8) == 0
    assert loop_control.prefetch_distance(cpus["a72"], kernel, 64) == 0
