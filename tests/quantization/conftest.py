"""Searches of tests keep what they measure in a folder of their own."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def searches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("searches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BITSYNTH_CACHE", str(folder))
        yield folder / "quantize"
