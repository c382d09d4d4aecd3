"""Tuned schedules: which a layer takes, whose win, and what is said of files that are broken."""

import json
import shutil

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bitsynth import cache, paths
from bitsynth.bench.resnet18 import LAYERS
from bitsynth.build import host
from bitsynth.device import facts
from bitsynth.errors import SpecError, ToolError
from bitsynth.isa.load import load
from bitsynth.layers import Conv2d, tuned
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.tuned import Problem, Tuned, find, store, user_folder
from bitsynth.schedule.layer import GATHERS, LayerSchedule

SHIPPED = sorted(paths.shipped_schedules().glob("*/*.json"))
PROBLEM = Problem("avx2", 2, 1, Geometry(64, 128, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)), (14, 14), 1)


@pytest.fixture(autouse=True)
def shipped(tmp_path, monkeypatch):
    """A user without schedules, and a package that ships none."""
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "user"))
    monkeypatch.setattr(paths, "shipped_schedules", lambda: tmp_path / "shipped")
    cache.load_entry.cache_clear()
    return tmp_path / "shipped"


def result(problem=PROBLEM, **changes):
    schedule = msgspec.structs.replace(problem.default(), **{"block_rows": 77, **changes})
    return Tuned(problem, schedule, tuned.entry_of(problem, schedule).name, 50.0, 100.0, "a compiler")


def layer(**options):
    weight = np.ones((128, 64, 3, 3), int)
    return Conv2d(weight, 2, 1, **{"padding": 1, "isa": "avx2", "image": (14, 14), **options})


def test_a_layer_takes_what_was_tuned_for_it():
    assert "pixels first (default)" in layer().explain()
    store(result(), user_folder())
    assert layer().schedule == result().schedule
    assert "blocks of 77 pixels (tuned, 0.50 of the default's time)" in layer().explain()
    assert "pixels first (as given)" in layer(schedule=PROBLEM.default()).explain()


def test_threads_take_what_was_tuned_for_one_in_bands_of_their_own():
    store(result(), user_folder())
    assert layer(threads=2).schedule == result(band_rows=7).schedule
    assert "(tuned, 0.50 of the default's time with one thread)" in layer(threads=2).explain()
    both = msgspec.structs.replace(PROBLEM, threads=2)
    store(result(both, block_rows=5, band_rows=0), user_folder())
    assert layer(threads=2).schedule == result(block_rows=5).schedule


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(threads=st.integers(1, 9), rows=st.integers(1, 60), gather=st.sampled_from(GATHERS), bands=st.integers(0, 70))
def test_bands_keep_threads_busy(threads, rows, gather, bands):
    """Each has a band at least, and the last to end no more than an eighth more to do than the others on average."""
    before = LayerSchedule("avx2", "lookup", 64, gather, band_rows=bands)
    made = before.among(threads, rows)
    if made == before:
        return
    assert gather != "indirect"
    assert 1 <= made.band_rows <= (bands or rows)
    share = -(-rows // threads)
    assert made.band_rows <= share
    assert rows / (threads * share) >= (7 / 8 if gather == "im2col" else 1)


@pytest.mark.parametrize("other", [{"image": (14, 15)}, {"stride": 2}, {"padding": 0}])
def test_another_layer_takes_the_default(other):
    store(result(), user_folder())
    assert layer(**other).schedule.block_rows == 0


def test_encodings_make_no_difference():
    store(result(), user_folder())
    assert layer(act_encoding="signed").schedule == result().schedule


WIDE = msgspec.structs.replace(PROBLEM, isa="avx512")
NARROW = LayerSchedule("avx2", "popcount", 64, "direct", unroll=2, bit_axis="outer")


def test_a_kernel_of_narrower_words(skip_isa):
    """It is stored with the wider set's, and taken for it alone, or for the best set of this processor."""
    if host.missing(load("avx512").table):
        skip_isa("avx512", "this processor lacks it")
    store(Tuned(WIDE, NARROW, tuned.entry_of(WIDE, NARROW).name, 50.0, 100.0, "a compiler"), user_folder())
    assert layer(isa="avx512").schedule == layer(isa="auto").schedule == NARROW
    assert layer(isa="avx2").schedule == PROBLEM.default()
    said = layer(isa="avx512").explain()
    assert "avx2 popcount, unrolled 2 times, outer bit axis, direct, pixels first (tuned, 0.50 of" in said
    assert "kernel    bs_mm_a2u_w1b_s32_avx2_4x8x32_u2_outer: " in said


def test_a_kernel_of_wider_words_cannot_be_run():
    wide = LayerSchedule("avx512", "lookup", 64, "direct")
    path = store(Tuned(PROBLEM, wide, "bs_mm_a2u_w1b_s32_avx512_8x64x6", 50.0, 100.0, "a compiler"), user_folder())
    with pytest.raises(SpecError, match=rf"{path}: bs_mm_.* cannot be run as avx512 lookup, direct"):
        layer()


def test_the_users_win(shipped):
    store(result(block_rows=1), shipped)
    assert find(PROBLEM).schedule.block_rows == 1
    store(result(block_rows=2), user_folder())
    assert find(PROBLEM).schedule.block_rows == 2


def test_a_file_has_each_problem_once_in_an_order():
    others = [msgspec.structs.replace(PROBLEM, threads=n) for n in (3, 2)]
    for problem in (*others, PROBLEM, PROBLEM):
        path = store(result(problem), user_folder())
    assert path == user_folder() / "avx2" / "a2w1.json"
    threads = [known["problem"]["threads"] for known in json.loads(path.read_text())["tuned"]]
    assert threads == [1, 2, 3]


def on(processor, block_rows):
    """A result of a board."""
    return msgspec.structs.replace(result(block_rows=block_rows), processor=processor, board="a board")


@pytest.fixture
def runs_here(monkeypatch):
    """Whether this processor, an A53, runs the instruction set."""
    monkeypatch.setattr(facts, "here", lambda: facts.Facts(processor="A53"))
    return lambda runs: monkeypatch.setattr(tuned, "runs_natively", lambda table: runs)


def test_a_layer_that_runs_here_takes_what_was_tuned_on_its_kind_of_processor(shipped, runs_here):
    runs_here(True)
    store(on("A72", 1), user_folder())
    assert find(PROBLEM) is None
    assert "(default)" in layer().explain()
    store(result(block_rows=2), shipped)
    assert find(PROBLEM) == result(block_rows=2)
    store(on("A53", 3), user_folder())
    assert find(PROBLEM) == on("A53", 3)
    assert "(tuned on A53, 0.50 of the default's time)" in layer().explain()


def test_a_layer_that_does_not_run_here_takes_the_newest_of_any_board(runs_here):
    runs_here(False)
    for known in (on("A53", 1), on("A72", 2)):
        store(known, user_folder())
        assert find(PROBLEM) == known
    path = store(on("A53", 3), user_folder())
    assert find(PROBLEM) == on("A53", 3)
    assert list(tuned._read(path)) == [on("A53", 3), on("A72", 2)]


def test_results_of_this_machine_say_nothing_of_boards():
    (known,) = json.loads(store(result(), user_folder()).read_text())["tuned"]
    assert not {"processor", "board"} & set(known)


@pytest.mark.parametrize(
    "changes",
    [
        {"default_nanoseconds": 0},
        {"nanoseconds": -3.0},
        {"nanoseconds": 1e308},
        {"kernel": "a\nb"},
        {"problem": {"geometry": {**msgspec.to_builtins(PROBLEM.geometry), "groups": 0}}},
        {"schedule": {"method": "popcount", "sketch": "paper"}},
    ],
)
def test_results_that_make_no_sense(changes):
    """Are refused by the file's name, with what to do."""
    path = store(result(), user_folder())
    file = json.loads(path.read_text())
    (known,) = file["tuned"]
    for name, value in changes.items():
        known[name] = {**known[name], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(file))
    with pytest.raises(SpecError, match=r"a2w1\.json.*delete it"):
        layer()


def test_a_kernel_that_is_not_cached_any_more(shipped):
    store(result(block_rows=3), shipped)
    other = msgspec.structs.replace(result(), kernel="bs_mm_a2u_w1b_s32_avx2_9x64x4")
    store(other, user_folder())
    assert find(PROBLEM).schedule.block_rows == 3
    assert layer(isa="avx2", act_encoding="unsigned").schedule.block_rows == 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda text: text[:-9], r"has no tuned schedules of this version \(Input data was truncated"),
        (lambda text: text.replace('"gather"', '"gathers"'), "unknown field `gathers`"),
        (lambda text: text.replace('"direct"', '"nowhere"'), "unknown gather 'nowhere' of a schedule"),
        (
            lambda text: text.replace('"block_rows": 77', '"block_rows": -1'),
            "block_rows of a schedule must be a whole number",
        ),
        (lambda text: text.replace('"block_rows": 77', '"block_rows": "77"'), "Expected `int`, got `str`"),
        (lambda text: text.replace('"format": 1', '"format": 9'), "has format 9, this version reads 1"),
        (lambda text: text.replace('"rows": 0', '"rows": 99'), "avx2_3x64x4 cannot be run as avx2 lookup, 99 rows"),
        (lambda text: text.replace('"unroll": 0', '"unroll": 99'), "cannot be run as avx2 lookup, unrolled 99 times"),
        (lambda text: text.replace('"inner"', '"outer"'), "cannot be run as avx2 lookup, outer bit axis"),
        (lambda text: text.replace('"inner"', '"first"'), "unknown bit axis 'first' of a schedule"),
        (lambda text: "\ufffd", "JSON is malformed"),
    ],
)
def test_a_broken_file_is_named(changed, message):
    path = store(result(), user_folder())
    path.write_text(changed(path.read_text()))
    with pytest.raises(SpecError, match=message) as error:
        layer()
    assert str(path) in str(error.value)
    assert str(error.value).endswith("; delete it, or run `bitsynth tune` again")


def test_a_folder_instead_of_a_file():
    (user_folder() / "avx2" / "a2w1.json").mkdir(parents=True)
    with pytest.raises(ToolError, match=r"cannot read .*a2w1\.json: Is a directory"):
        layer()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ToolError, match=r"cannot write .*a2w1\.json"):
        store(result(), tmp_path / "file")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_shipped_schedules_fit_the_shipped_kernels(shipped, path):
    """Where kernels were made anew with other tiles, layers are to be tuned anew."""
    shutil.copytree(path.parent, shipped / path.parent.name)
    known = list(tuned._read(path))
    assert len({one.problem for one in known}) == len(known) == len(LAYERS)
    for one in known:
        assert path.parts[-2:] == (one.problem.isa, f"a{one.problem.act_bits}w{one.problem.w_bits}.json")
        assert find(one.problem) == one
        assert 0 < one.nanoseconds <= one.default_nanoseconds
