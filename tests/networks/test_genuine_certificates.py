"""Certificates of networks drawn at random hold: the checker refuses nothing that the compiler writes."""

import json
import os
from pathlib import Path

import pytest
from support.random_graphs import RandomGraph

import bitsynth
from bitsynth.errors import SpecError
from bitsynth.network.certificate import checker, digest

ASKED = int(os.environ.get("BITSYNTH_GRAPHS", "0"))
FIRST = int(os.environ.get("BITSYNTH_FIRST_SEED", "0"))
KINDS = {
    10003: "memory by two names, whose ranges differ by channel by one of them alone",
    10004: "a view, which leaves codes and says what they stand for",
    10005: "scales by channel of what a grouped convolution reads",
    10017: "scales along channels, sums along columns",
    10022: "ranges along an axis that a reshape joins with the batch",
    10271: "a transpose of ranges that differ along the axis it moves to channels",
    10604: "ranges of single elements, by one name of memory alone",
    21485: "real numbers of integers whose scales differ by column, behind a batch norm by channel",
    22500: "a table of every second integer",
    10064: "sums of integers with a bias in a reference of floats",
}
"""Seeds of networks whose certificates were once refused, and the feature that each has."""


def failure(seed):
    """Return what the checker says against the certificate of a random network; "" if it holds."""
    try:
        net = bitsynth.compile(RandomGraph(seed).model, isa="avx2")
    except SpecError as why:
        if "which int32 does not hold" not in str(why):
            raise
        return ""
    found = json.loads(json.dumps(net.certificate))
    try:
        checker.check({**found, "digest": digest(found)}, Path())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.filterwarnings("ignore::bitsynth.errors.BitsynthWarning")  # of biases drawn at an end of int32
@pytest.mark.parametrize("seed", KINDS)
def test_a_certificate_holds(seed):
    assert failure(seed) == "", KINDS[seed]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bitsynth.errors.BitsynthWarning")
@pytest.mark.timeout(600 + 5 * ASKED)
def test_many_certificates_hold():
    seeds = range(FIRST, FIRST + (ASKED or 60))
    assert {seed: why for seed in seeds if (why := failure(seed))} == {}
