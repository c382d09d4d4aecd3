"""Layouts: an enum inside, words outside."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bitsynth import Conv2d, MaxPool2d, Thresholds
from bitsynth.emit.runtime_abi import LAYOUT
from bitsynth.errors import SpecError
from bitsynth.layers.glue.base import LAYOUTS as OF_GLUE
from bitsynth.layers.spec import LAYOUTS as OF_LAYERS
from bitsynth.network.certificate.recipe import rebuild, recipe
from bitsynth.spec.layout import Layout


def test_c_has_the_layouts_of_layers_in_their_order():
    assert LAYOUT.words == OF_LAYERS
    assert set(OF_GLUE) < set(OF_LAYERS)


@pytest.mark.parametrize("layout", OF_LAYERS)
def test_a_layout_is_written_as_its_word(layout):
    word = layout.value
    assert (str(layout), repr(layout), json.dumps(layout)) == (word, repr(word), json.dumps(word))
    assert Layout.parse(word, OF_LAYERS) is layout


@pytest.mark.parametrize("given", ["plain", "nhwc", "", None, 3, np.ones(2)])
def test_another_word_is_refused_by_the_list_of_those_known(given):
    with pytest.raises(SpecError, match=r"unknown layout .*; known: NHWC, NCHW, packed"):
        Layout.parse(given, OF_LAYERS)


def test_words_and_layouts_make_the_same_layer():
    weight = np.ones((64, 64, 1, 1), int)
    epilogue = Thresholds(np.tile([1, 2, 3], (64, 1)))
    word, layout = (Conv2d(weight, 2, 1, isa="avx2", layout=x, epilogue=epilogue) for x in ("packed", Layout.PACKED))
    assert word.plan.spec == layout.plan.spec
    assert word.layout is layout.layout is word.out_layout is Layout.PACKED
    spec = word.plan.spec
    assert recipe(spec) == recipe(replace(spec, layout="packed"))
    assert rebuild(recipe(spec)) == spec


def test_glue_of_a_layout_has_the_command_of_its_word():
    word, layout = (MaxPool2d(64, 2, 2, layout=x, isa="avx2").files("pool") for x in ("packed", Layout.PACKED))
    assert word == layout
