"""The choice between fusion groups: by predicted cycles of whole covers, with bounds before searches."""

import pytest
from support.fusion_cases import Small

from bitsynth.network import lower as lowering
from bitsynth.network.compiling import network_of
from bitsynth.network.declines import Alternative
from bitsynth.network.def_use import DefUse, NetworkTarget
from bitsynth.network.fusion import PATTERNS, choice
from bitsynth.network.fusion.choice import Chooser, LowerBound, Pattern
from bitsynth.network.fusion.cost import AFFINE, CURVE, GroupCost, Operations, Processor, cost_of
from bitsynth.network.fusion.group import FusionGroup
from bitsynth.network.fusion.lookup import match_lookup
from bitsynth.network.plain import plain_groups
from bitsynth.network.program import plain_format
from bitsynth.progress import silent

TARGET = NetworkTarget("avx2", 1, "zen4")
MUCH = 1e6
"""Cycles that are no tie."""


class Fake(FusionGroup):
    """The first nodes of a graph."""

    def __init__(self, def_use, count, cycles):
        self.def_use, self.nodes, self.cycles = def_use, def_use.graph.nodes[:count], cycles
        self.inputs, self.outputs = self.nodes[0].inputs[:1], self.nodes[-1].outputs

    def reads(self, edge):
        return (plain_format(self.def_use.graph.edges[edge], "exact"),)

    def writes(self, edge):
        return self.reads(edge)

    def step(self, buffers):
        raise NotImplementedError


@pytest.fixture
def graph_of_two(monkeypatch):
    """Two nodes; a fake group costs what it says, others `MUCH`."""

    def cost(group, def_use):
        cycles = group.cycles if isinstance(group, Fake) else MUCH
        return GroupCost(0.0, cycles, 0.0)

    monkeypatch.setattr(choice, "cost_of", cost)
    small = Small()
    x = small.codes("x", (1, 4, 3, 3), 0, 3, 0.5)
    return DefUse(small.build((small.add("neg", small.add("tanh", x)),)), TARGET)


def pattern(name, count, cycles, bound=0.0):
    """A pattern that matches at the first node alone."""

    def match(def_use, node):
        return Fake(def_use, count, cycles) if node is def_use.graph.nodes[0] else None

    return Pattern(name, match, lambda *_: LowerBound(bound))


def chosen(def_use, *patterns):
    """The nodes of the chosen group, and the patterns that lost."""
    node = def_use.graph.nodes[0]
    group = Chooser(def_use, patterns).choose(node, set())
    assert group is not None
    return len(group.nodes), def_use.declines.lost[node.name]


def test_nodes_that_a_narrow_group_leaves_over_are_counted(graph_of_two):
    """The narrow group alone is cheaper, and dearer together with plain C of the other node."""
    wide, narrow = pattern("wide", 2, 1.2 * MUCH), pattern("narrow", 1, 0.8 * MUCH)
    assert chosen(graph_of_two, wide, narrow) == (2, (Alternative("narrow", 1.5, False),))


def test_the_cheaper_whole_is_chosen(graph_of_two):
    wide, narrow = pattern("wide", 2, 3 * MUCH), pattern("narrow", 1, 0.5 * MUCH)
    assert chosen(graph_of_two, wide, narrow) == (1, (Alternative("wide", 2.0, False),))


@pytest.mark.parametrize("first", ["wide", "narrow"])
def test_ties_go_to_the_widest(graph_of_two, first):
    """Whichever is tried first."""
    wide, narrow = pattern("wide", 2, 1.55 * MUCH), pattern("narrow", 1, 0.5 * MUCH)
    count, lost = chosen(graph_of_two, *((wide, narrow) if first == "wide" else (narrow, wide)))
    assert count == 2
    assert [one.pattern for one in lost] == ["narrow"]


def test_a_pattern_whose_bound_is_above_a_whole_is_not_searched(graph_of_two):
    def search(def_use, node):
        raise AssertionError

    dear = Pattern("dear", search, lambda *_: LowerBound(1.3 * MUCH))
    count, lost = chosen(graph_of_two, pattern("wide", 2, MUCH), dear)
    assert (count, lost) == (2, (Alternative("dear", 1.3, True),))
    assert str(lost[0]) == "dear costs at least 1.3 times that"
    with pytest.raises(AssertionError):
        chosen(graph_of_two, pattern("wide", 2, 9 * MUCH), dear)


def test_a_group_with_taken_nodes_is_none(graph_of_two):
    nodes = graph_of_two.graph.nodes
    chooser = Chooser(graph_of_two, (pattern("wide", 2, 1.0), pattern("narrow", 1, MUCH)))
    group = chooser.choose(nodes[0], {nodes[1].name})
    assert group
    assert group.nodes == nodes[:1]


def test_names_of_patterns_differ():
    assert len({one.name for one in PATTERNS}) == len(PATTERNS)


def test_work_takes_its_share_of_vectors():
    """A float64 takes twice the lanes of 32 bits, wider vectors half the time; 32-bit Arm has no vectors of float64."""
    avx2, avx512 = Processor("avx2", "zen4"), Processor("avx512", "zen5")
    assert avx2.cycles(Operations(doubles=1)) == 2 * avx2.cycles(Operations(words=1))
    assert avx2.cycles(Operations(words=1)) == 2 * avx512.cycles(Operations(words=1))
    narrow = Processor("armv7_neon")
    assert narrow.cycles(Operations(doubles=1)) == 4 * narrow.cycles(Operations(words=1))
    assert avx2.cycles(AFFINE) < avx2.cycles(CURVE)
    assert AFFINE + Operations() == AFFINE
    assert AFFINE.times(2) == AFFINE + AFFINE


def test_edges_beyond_the_nearest_cache_take_longer():
    processor = Processor("avx512", "zen4")
    assert processor.transfer(1 << 14) == (1 << 14) / 64
    assert processor.transfer(1 << 18) > 2 * (1 << 18) / 64


def test_a_table_costs_less_than_plain_c_of_its_nodes():
    small = Small()
    x = small.codes("x", (1, 64, 16, 16), 0, 3, 0.5)
    def_use = DefUse(small.build((small.quantized(small.add("tanh", x), 0.01),)), TARGET)
    table = match_lookup(def_use, def_use.graph.nodes[0])
    assert table
    (plain,) = plain_groups(def_use, def_use.graph.nodes)
    assert cost_of(table, def_use).cycles * 20 < cost_of(plain, def_use).cycles


def test_reports_have_what_lost(monkeypatch):
    """In `--json`, for the step that begins with the node."""
    small = Small()
    x = small.codes("x", (1, 4, 3, 3), 0, 3, 0.5)
    graph = small.build((small.quantized(small.add("tanh", x), 0.01),))
    more = Pattern("another", match_lookup, lambda *_: LowerBound(MUCH))
    monkeypatch.setattr(lowering, "PATTERNS", (*PATTERNS, more))
    found = network_of(graph, TARGET, 1, silent, {}).report()
    (lost,) = [step["alternatives"] for step in found.as_json()["steps"] if step["alternatives"]]
    assert [(one["pattern"], one["at_least"]) for one in lost] == [("another", True)]
    assert lost[0]["times"] > 1
