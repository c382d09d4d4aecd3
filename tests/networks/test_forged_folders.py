"""`bitsynth verify` of forged libraries, without the model: each is refused."""

import numpy as np
import pytest
from certified import reading_of
from certified_networks import zoo
from forgeries import FORGERIES, Library

from bitsynth.network.lower import lower
from bitsynth.network.run import Network
from bitsynth.network.wiring import NetworkTarget


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A genuine library, which tests forge one after another."""
    folder, graph = tmp_path_factory.mktemp("forged"), zoo(np.random.default_rng(15))
    Network(lower(graph, NetworkTarget("avx2")), reading=reading_of(graph)).emit(folder, "net")
    return Library(folder)


def verify(folder):
    """Return the exit code of `bitsynth verify --strict`, and what it says, in this process."""
    import contextlib
    import io

    from bitsynth.cli import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        return main(["verify", "--no-z3", "--strict", str(folder)]), said.getvalue()


def test_the_genuine_library_holds(library):
    assert verify(library.folder)[0] == 0


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused(library, name):
    try:
        FORGERIES[name](library)
        library.seal() if "no digest" not in name else None
        code, said = verify(library.folder)
        assert code in (1, 2), said
        assert said.startswith("error: "), said
        assert said.count("\n") <= 3, said
    finally:
        library.restore()
    assert verify(library.folder)[0] == 0 if name == "no files" else True
