"""Moves of codes by glue."""

from typing import Any

import numpy as np
import pytest
from support.fusion_cases import Small, agree, matched

from bitsynth.network.fusion.glue import match_move


def codes(small, name="x", shape=(2, 8, 3, 5), low=-8, high=7):
    return small.codes(name, shape, low, high, 0.5)


def joined(small, *ranges):
    parts = [codes(small, f"x{k}", (2, 3 + k, 4, 5), *ends) for k, ends in enumerate(ranges)]
    return small.add("concatenate", *parts, axis=1)


def nearest(n, out, centers):
    return (2 * np.arange(out) + centers) * n // (2 * out)


MOVES: dict[str, Any] = {
    "padded": lambda s: s.add("pad", codes(s), pads=((0, 0), (0, 0), (1, 2), (0, 3)), mode="constant"),
    "padded line": lambda s: s.add("pad", codes(s, shape=(1, 3, 7)), pads=((0, 0), (0, 0), (2, 1)), mode="constant"),
    "twice": lambda s: s.add("resize", codes(s), places={2: nearest(3, 6, False), 3: nearest(5, 10, False)}),
    "one axis": lambda s: s.add("resize", codes(s), places={3: nearest(5, 12, True)}),
    "DCR": lambda s: s.add("depth_to_space", codes(s), block=2, mode="DCR"),
    "CRD": lambda s: s.add("depth_to_space", codes(s), block=2, mode="CRD"),
    "alike": lambda s: joined(s, (0, 3), (0, 3)),
    "of three ranges": lambda s: joined(s, (0, 3), (-7, 7), (0, 1)),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves_become_glue(rng, name):
    small = Small()
    graph = small.build((MOVES[name](small),))
    agree(graph, matched(graph, match_move), rng)


REFUSED: dict[str, Any] = {
    "by its edge": lambda s: s.add("pad", codes(s), pads=((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge"),
    "channels padded": lambda s: s.add("pad", codes(s), pads=((0, 0), (1, 0), (0, 0), (0, 0)), mode="constant"),
    "other pixels": lambda s: s.add("resize", codes(s), places={3: np.array([0, 0, 1, 4])}),
    "repeated channels": lambda s: s.add("resize", codes(s), places={1: nearest(8, 16, False)}),
    "lines behind each other": lambda s: s.add("concatenate", codes(s), codes(s, "y"), axis=2),
    "an edge twice": lambda s: s.add("concatenate", *[codes(s)] * 2, axis=1),
    "five": lambda s: joined(s, *[(0, 1)] * 5),
    "wide": lambda s: joined(s, (0, 300), (0, 3)),
    "no pixels of 0": lambda s: s.add(
        "pad", codes(s, low=3, high=9), pads=((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge"
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_moves_are_no_glue(name):
    small = Small()
    graph = small.build((REFUSED[name](small),))
    assert matched(graph, match_move) is None
