"""`bitsynth verify` of forged libraries, without the model: each is refused, or changes nothing that is claimed."""

import contextlib
import hashlib
import io
import re

import numpy as np
import pytest
from support.certificate_mutants import mutants
from support.certificate_networks import tail, zoo
from support.certificates import reading_of
from support.forged_libraries import FORGERIES, Library

from bitsynth.cli import main
from bitsynth.errors import BitsynthError
from bitsynth.network.certificate import read
from bitsynth.network.def_use import NetworkTarget
from bitsynth.network.lower import lower
from bitsynth.network.run import Network


def emitted(graph, folder):
    """A genuine library of a graph."""
    Network(lower(graph, NetworkTarget("avx2")), reading=reading_of(graph)).emit(folder, "net")
    return Library(folder)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A genuine library, which tests forge one after another."""
    return emitted(zoo(np.random.default_rng(15)), tmp_path_factory.mktemp("forged"))


def verify(folder):
    """Return the exit code of `bitsynth verify --strict`, and its output."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        return main(["verify", "--no-z3", "--strict", str(folder)]), output.getvalue()


def test_the_genuine_library_holds(library):
    assert verify(library.folder)[0] == 0


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused(library, name):
    try:
        FORGERIES[name](library)
        if "no digest" not in name:
            library.seal()
        code, output = verify(library.folder)
    finally:
        library.restore()
    assert code in (1, 2), output
    assert output.startswith("error: ")
    assert output.count("\n") <= 3


SHOWN = "shown, and nothing rests on it"
SAME = "other operations, which are the same on the whole range: the checker says so, rightly"
UNUSED = "not used: there is no second tensor, or no integer there"
HARMLESS = {
    r"about|threads .*|steps/\d+/nodes/\d+/[01]|edges/[^/]+/type|steps/\d+/sums/places": SHOWN,
    r"(graph|reading)( .*|/.*)?": "`bitsynth verify --model` reads the file again",
    r"edges/(y|tail\.\w+)/(low|high) .*": "a wider range than results have",
    r"buffers/[^/]+/role": "roles are told apart where a buffer is the caller's",
    r"buffers/[^/]+/holds/\d .1|buffers/x.*": UNUSED,
    r"steps/\d+/claims/0/(of_zero|factor).*|steps/\d+/sums( -|/)scale.*": UNUSED,
    r"steps/\d+/claims/0/rising .*": "2 is as true as 1",
    r"steps/\d+/sums -(low|high)": "computed from the weights, whether it is said or not",
    r"steps/\d+/(constants/|chain/\d+/of -last).*": SAME,
    r"(steps/\d+/c|buffers/[^/]+/codes)( |/).*": "the same C is rendered from it, byte for byte",
}


def refusal(library):
    """Return why a library is refused; "" if all holds, and of each step something is claimed."""
    try:
        found = read.check_certificate(library.path)
        if left := [step.unclaimed for step in found.steps if not step.claims]:
            return f"nothing is claimed: {left[0]}"
        for record in found.kernels:
            record.load()
        read.render_library(found, library.path)
        read.further_files(library.folder, found.files)
    except BitsynthError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize(("make", "every"), [(zoo, 20), (tail, 12)])
def test_every_field_counts_or_is_listed(make, every, tmp_path):
    """One thing changed at a time, anywhere in a certificate, its digest made anew."""
    library = emitted(make(np.random.default_rng(15)), tmp_path)
    accepted, count = [], 0
    for word, mutant in list(mutants(library.given))[::every]:
        library.given, count = mutant, count + 1
        library.seal()
        if not refusal(library):
            accepted.append(word)
    assert [word for word in accepted if not any(re.fullmatch(p, word) for p in HARMLESS)] == []
    assert count > 100
    assert len(accepted) < count / 5


@pytest.mark.slow
def test_every_file_counts(library):
    """A character of each changed, or the file left out, digests made anew; the self-test's text is no claim's."""
    try:
        for name in sorted(library.given["files"]):
            text = (library.folder / name).read_text()
            at = len(text) // 2
            library.write(name, text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1 :])
            library.given["files"][name] = hashlib.sha256((library.folder / name).read_bytes()).hexdigest()
            library.seal()
            assert bool(refusal(library)) == (name != "net_selftest.c"), name
            library.restore()
            del library.given["files"][name]
            library.seal()
            assert refusal(library), name
            library.restore()
    finally:
        library.restore()
