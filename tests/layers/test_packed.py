"""Packed words with their bits and encoding: packed, read, cut, and refused where other codes are wanted."""

import copy
import pickle
import re
from typing import Any, cast

import numpy as np
import pytest
from support.layer_cases import words

import bitsynth
from bitsynth import Packed, SpecError, Thresholds, pack, unpack
from bitsynth.layers import Conv2d, Dense, unpack_words
from bitsynth.spec.matmul import Encoding, MatmulOperand

CODES = np.random.default_rng(0).integers(0, 3, (2, 3, 4, 70))
PACKED = pack(CODES, 2, "ternary")
W = np.ones((4, 70, 1, 1), int)
READER = Conv2d(W, 2, 1, isa="avx2", layout="packed", out_layout="NHWC", act_encoding="ternary")


def type_of(packed):
    return packed.bits, packed.encoding, packed.channels


def test_codes_there_and_back():
    assert PACKED.dtype == np.uint64
    assert (PACKED.shape, type_of(PACKED)) == ((2, 3, 4, 4), (2, "ternary", 70))
    np.testing.assert_array_equal(PACKED, words(CODES, 2))
    np.testing.assert_array_equal(unpack(PACKED), CODES)
    assert type(PACKED.words) is np.ndarray


def test_no_codes_are_packed_and_unpacked():
    empty = pack(CODES[:0], 2, "ternary")
    assert (empty.shape, unpack(empty).shape) == ((0, 3, 4, 4), (0, 3, 4, 70))


def test_parts_and_copies_keep_their_type():
    parts: Any = (PACKED[0], PACKED[:, 1:], PACKED[None], PACKED.copy(), pickle.loads(pickle.dumps(PACKED)))
    for part in parts:
        assert type_of(part) == type_of(PACKED)
    np.testing.assert_array_equal(unpack(parts[1]), CODES[:, 1:])
    assert type_of(copy.deepcopy(PACKED)) == type_of(PACKED)


def test_what_is_computed_of_words_is_plain():
    assert {type(x) for x in (PACKED & PACKED, PACKED == PACKED.words, ~PACKED)} == {np.ndarray}


def test_a_layer_gives_what_the_next_one_reads():
    levels = Thresholds(np.array([[0, 30]] * 4))
    first = Conv2d(W, 2, 1, isa="avx2", act_encoding="ternary", layout="packed", epilogue=levels)
    first_layer = first(PACKED)
    assert isinstance(first_layer, Packed)
    assert type_of(first_layer) == (2, None, 4)
    np.testing.assert_array_equal(unpack(first_layer), unpack_words(np.asarray(first_layer), 2, 4))
    call, out = first.bind(PACKED)
    assert (call(), type_of(out)) == (0, type_of(first_layer))
    np.testing.assert_array_equal(out, first_layer)
    np.testing.assert_array_equal(first(np.asarray(PACKED)), first_layer)
    assert type_of(first(PACKED[:0])) == type_of(first_layer)
    layer = Dense(
        W[..., 0, 0], 2, 1, isa="avx2", layout="packed", act_encoding="ternary", epilogue=levels, out_encoding="ternary"
    )
    assert type_of(layer(PACKED[0, 0])) == type_of(layer(PACKED[0, 0, :0])) == (2, "ternary", 4)


WORDS: Any = np.zeros((1, 1, 1, 4), np.uint64)
REFUSED = {
    "wider codes": (
        lambda: READER(Packed(WORDS, 4, "unsigned", 64)),
        "want words of 2-bit ternary, 70 channels, not of 4-bit",
    ),
    "more channels": (lambda: READER(Packed(WORDS, 2, None, 128)), "not of 2-bit codes, 128 channels"),
    "another encoding": (lambda: READER(Packed(WORDS, 2, "unsigned", 70)), "not of 2-bit unsigned, 70 channels"),
    "another encoding run": (lambda: READER.run(Packed(WORDS, 2, "signed", 70)), "not of 2-bit signed"),
    "another encoding bound": (lambda: READER.bind(Packed(WORDS, 2, "signed", 70)), "not of 2-bit signed"),
    "another encoding compiled": (lambda: READER.compiled.run(Packed(WORDS, 2, "signed", 70)), "not of 2-bit signed"),
    "cut words": (lambda: READER(PACKED[..., :2]), "want 4 words of uint64"),
    "no code": (lambda: READER(Packed(~WORDS, 2, "ternary", 70)), "codes of 2-bit ternary go to 2"),
    "for bytes": (
        lambda: Conv2d(W, 2, 1, isa="avx2", act_encoding="ternary")(PACKED),
        "want activations of layout NHWC, not Packed words: unpack them",
    ),
    "too few words": (lambda: Packed(WORDS, 2, None, 200), "want 8 words of uint64, not uint64 (1, 1, 1, 4)"),
    "bytes": (lambda: Packed(WORDS.astype(np.uint8), 2, None, 70), "want 4 words of uint64, not uint8"),
    "a list": (lambda: Packed(cast(Any, [1]), 1, None, 70), "want 2 words of uint64, not list"),
    "no channels": (lambda: Packed(WORDS, 2, None, 0), "channels must be"),
    "bits": (lambda: Packed(WORDS, 9, None, 64), "bits must be"),
    "encoding": (lambda: Packed(WORDS, 2, "float", 64), "unknown encoding 'float'"),
    "no encoding": (lambda: pack(CODES, 2, ""), "unknown encoding ''"),
    "encodings": (lambda: pack(CODES, 2, cast(Any, np.zeros(2))), "unknown encoding array"),
    "ternary of 4 bits": (lambda: Packed(WORDS, 4, "ternary", 64), "which takes 2 bits"),
    "codes too great": (lambda: pack(CODES + 1, 2, "ternary"), "is 3; codes of 2-bit ternary go from 0 to 2"),
    "codes below 0": (lambda: pack(CODES - 1, 2), "is -1; codes of 2-bit unsigned go from 0 to 3"),
    "floats": (lambda: pack(CODES * 1.0, 2), "want codes of integers"),
    "a number": (lambda: pack(1, 2), "want codes of integers"),
    "untyped": (lambda: unpack(WORDS), "want Packed words, not ndarray"),
    "out_encoding": (lambda: Conv2d(W, 2, 1, out_encoding="float"), "unknown encoding 'float'"),
    "out_encoding of others": (lambda: Conv2d(W, 2, 1, out_encoding=cast(Any, np.zeros(2))), "unknown encoding array"),
    "ternary of 4 codes": (
        lambda: Conv2d(W, 2, 1, epilogue=Thresholds([1, 2, 3]), out_encoding="ternary"),
        "codes of 2-bit ternary go to 2, and the epilogue's codes to 3",
    ),
    "described lists": (lambda: Conv2d(W, 2, 1).describe(cast(Any, [1, 2])), "codes are a numpy array, not list"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_packed_words_are_refused(what):
    make, message = REFUSED[what]
    with pytest.raises(SpecError, match=re.escape(message)):
        make()


def test_it_is_public():
    assert bitsynth.Packed is Packed
    PACKED.require(MatmulOperand(2, Encoding.TERNARY), 70)
