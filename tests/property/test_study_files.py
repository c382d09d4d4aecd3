"""A file that is not a study keeps its bytes, whatever they are; a study loses at most a line that was cut off."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bitsynth.errors import SpecError
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.tuned import TuningTask
from bitsynth.tune.measurer import Timing
from bitsynth.tune.space import space
from bitsynth.tune.study import open_study

TASK = TuningTask("avx2", 2, 1, Geometry(1, 1, 1, (1, 1), (1, 1), (0,) * 4, (1, 1)), (1, 1), 1)
SPACE = space(TASK)
START = b'{"op_code":'


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The bytes of a study with two trials."""
    path = tmp_path_factory.mktemp("study") / "study"
    opened = open_study(path, TASK, SPACE, "seal")
    opened.enqueue_priors()
    for _ in range(2):
        with opened.trial(2, 60) as running:
            running.finish(Timing(1, 2))
    return path.read_bytes()


def is_operation(line):
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and type(value.get("op_code")) is int and type(value.get("worker_id")) is str


def may_be_changed(content):
    """Whether every line is an operation but a last one that begins like one."""
    *lines, cut = content.split(b"\n")
    return all(map(is_operation, lines)) and (not cut or (lines and (cut.startswith(START) or START.startswith(cut))))


def mutated(study):
    spot = st.integers(0, len(study))
    edits = st.tuples(
        spot, st.integers(0, 40), st.binary(max_size=8) | st.sampled_from([b"\n", b"}\n{", b"[" * 10_000])
    )
    return st.lists(edits, min_size=1, max_size=3).map(lambda some: edited(study, some)) | spot.map(lambda n: study[:n])


def edited(content, edits):
    for at, length, new in edits:
        content = content[:at] + new + content[at + length :]
    return content


RECORDS = st.dictionaries(
    st.sampled_from(["op_code", "worker_id", "study_id", "study_name"]), st.integers(0, 11) | st.text()
)
LINES = st.lists(RECORDS.map(json.dumps) | st.text(), max_size=4).map(lambda x: "\n".join(x).encode(errors="ignore"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_of_any_content(study, tmp_path, data):
    content = data.draw(st.binary() | LINES | mutated(study))
    path = tmp_path / "file"
    path.write_bytes(content)
    try:
        open_study(path, TASK, SPACE, "seal")
    except SpecError:
        kept = content[: content.rfind(b"\n") + 1] if may_be_changed(content) else content
        assert path.read_bytes() in (content, kept)
    else:
        assert may_be_changed(content)
        assert path.read_bytes().startswith(content[: content.rfind(b"\n") + 1])
