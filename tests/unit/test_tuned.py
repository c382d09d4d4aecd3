"""Tuned schedules: which a layer takes, whose win, what is stale, and what is said of files that are broken."""

import json
import os
from collections import Counter
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bitsynth import paths
from bitsynth.bench.resnet18 import LAYERS
from bitsynth.errors import BitsynthWarning, SpecError, ToolError
from bitsynth.host import facts, features, placement
from bitsynth.isa.load import load
from bitsynth.isa.step import from_json, to_json
from bitsynth.kernel.program import Kernel
from bitsynth.layers import Conv2d
from bitsynth.layers import tuned as find_module
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.planning import default_of
from bitsynth.layers.schedule import CONV_ALGORITHMS, LayerSchedule
from bitsynth.layers.tuned import TuningRecord, TuningTask, find_tuned, path_of, read, store
from bitsynth.store.matmul import MATMUL

SHIPPED = sorted(paths.shipped_schedules().glob("*/*.json"))
TASK = TuningTask("avx2", 2, 1, Geometry(64, 128, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)), (14, 14), 1)


@pytest.fixture(autouse=True)
def shipped(tmp_path, monkeypatch):
    """A user without schedules on a Zen, and a package that ships none."""
    for module in (facts, placement):
        monkeypatch.setattr(module, "here", lambda: facts.Facts(processor="Zen"))
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "user"))
    monkeypatch.setattr(paths, "shipped_schedules", lambda: tmp_path / "shipped")
    MATMUL.forget()
    return tmp_path / "shipped"


def taken(task):
    """The record of `task` that a layer takes, None if it takes the default schedule."""
    return next((known for known, why_not in find_tuned(task) if not why_not), None)


def result(task=TASK, processor="Zen", schedule=None, **changes):
    """A result of this processor's kind, unless told otherwise, with the kernels that are cached."""
    default = default_of(task)
    schedule = schedule or msgspec.structs.replace(default, **{"block_rows": 77, **changes})
    mine, other = (task.entry(s) for s in (schedule, default))
    digests = {"digest": mine.kernel.digest, "default_digest": other.kernel.digest}
    return TuningRecord(
        task,
        schedule,
        mine.name,
        default=default,
        nanoseconds=50.0,
        default_nanoseconds=100.0,
        compiler="a compiler",
        processor=processor,
        **digests,
    )


def layer(**options):
    weight = np.ones((128, 64, 3, 3), int)
    return Conv2d(weight, 2, 1, **{"padding": 1, "isa": "avx2", "image": (14, 14), **options})


def test_a_layer_takes_what_was_tuned_for_it():
    assert "pixels first (default, for zen5)" in layer().explain()
    store(result(), paths.user_schedules())
    assert layer().schedule == result().schedule
    assert "blocks of 77 pixels (tuned on Zen, 0.50 of the default's time)" in layer().explain()
    assert "pixels first (as given, for zen5)" in layer(schedule=default_of(TASK)).explain()


@pytest.mark.parametrize(
    ("processor", "cpu"),
    [
        ("AuthenticAMD family 25 model 17", "zen4"),
        ("AuthenticAMD family 26 model 2", "zen5"),
        ("Intel Skylake", "skylake"),
        ("Zen", ""),
    ],
)
def test_a_layer_is_for_the_processor_that_its_schedule_was_tuned_on(processor, cpu, monkeypatch):
    monkeypatch.setattr(facts, "here", lambda: facts.Facts(processor=processor))
    store(result(processor=processor), paths.user_schedules())
    assert layer().schedule == result().schedule
    assert layer().plan.cpu == cpu


def test_threads_take_what_was_tuned_for_one_in_bands_of_their_own():
    store(result(), paths.user_schedules())
    assert layer(threads=2).schedule == result(band_rows=7).schedule
    assert "(tuned on Zen, 0.50 of the default's time with one thread)" in layer(threads=2).explain()
    both = msgspec.structs.replace(TASK, threads=2)
    store(result(both, block_rows=5, band_rows=0), paths.user_schedules())
    assert layer(threads=2).schedule == result(block_rows=5).schedule


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    threads=st.integers(1, 9),
    rows=st.integers(1, 60),
    gather=st.sampled_from(CONV_ALGORITHMS),
    bands=st.integers(0, 70),
)
def test_bands_keep_threads_busy(threads, rows, gather, bands):
    """Each has a band at least, and the last to end no more than an eighth more to do than the others on average."""
    before = LayerSchedule("avx2", "lookup", 64, gather, band_rows=bands)
    result = before.among(threads, rows)
    if result == before:
        return
    assert gather != "indirect"
    assert 1 <= result.band_rows <= (bands or rows)
    share = -(-rows // threads)
    assert result.band_rows <= share
    assert rows / (threads * share) >= (7 / 8 if gather == "im2col" else 1)


@pytest.mark.parametrize("other", [{"image": (14, 15)}, {"stride": 2}, {"padding": 0}])
def test_another_layer_takes_the_default(other):
    store(result(), paths.user_schedules())
    assert layer(**other).schedule.block_rows == 0


def test_encodings_make_no_difference():
    store(result(), paths.user_schedules())
    assert layer(act_encoding="signed").schedule == result().schedule


WIDE = msgspec.structs.replace(TASK, isa="avx512")
NARROW = LayerSchedule("avx2", "popcount", 64, "direct", unroll=2, bit_axis="outer")


def test_a_kernel_of_narrower_words(skip_isa):
    """It is stored with the wider set's, and taken for it alone, or for the best set of this processor."""
    if features.missing(load("avx512").table):
        skip_isa("avx512", "this processor lacks it")
    store(result(WIDE, schedule=NARROW), paths.user_schedules())
    assert layer(isa="avx512").schedule == layer(isa="auto").schedule == NARROW
    assert layer(isa="avx2").schedule == default_of(TASK)
    explanation = layer(isa="avx512").explain()
    assert "avx2 popcount, unrolled 2 times, outer bit axis, direct, pixels first (tuned on Zen, 0.50 of" in explanation
    assert "kernel    bs_mm_a2u_w1b_s32_avx2_4x8x32_u2_outer: " in explanation


def test_a_kernel_of_wider_words_cannot_be_run():
    wide = LayerSchedule("avx512", "lookup", 64, "direct")
    path = store(msgspec.structs.replace(result(), schedule=wide), paths.user_schedules())
    with pytest.warns(BitsynthWarning, match=rf"{path}: bs_mm_.* cannot be run as avx512 lookup, direct"):
        assert layer().schedule == default_of(TASK)


def test_the_users_win(shipped):
    store(result(block_rows=1), shipped)
    assert taken(TASK).schedule.block_rows == 1
    store(result(block_rows=2), paths.user_schedules())
    assert taken(TASK).schedule.block_rows == 2


def test_a_file_has_each_problem_once_in_an_order():
    others = [msgspec.structs.replace(TASK, threads=n) for n in (3, 2)]
    for task in (*others, TASK, TASK):
        path = store(result(task), paths.user_schedules())
    assert path == paths.user_schedules() / "avx2" / "a2w1.json"
    threads = [known["problem"]["threads"] for known in json.loads(path.read_text())["tuned"]]
    assert threads == [1, 2, 3]


def on(processor, block_rows):
    """A result of a board."""
    return msgspec.structs.replace(result(processor=processor, block_rows=block_rows), board="a board")


@pytest.fixture
def runs_here(monkeypatch):
    """Whether this processor, an A53, runs the instruction set."""
    monkeypatch.setattr(facts, "here", lambda: facts.Facts(processor="A53"))
    return lambda runs: monkeypatch.setattr(find_module, "runs_natively", lambda table: runs)


def test_a_layer_that_runs_here_takes_what_was_tuned_on_its_kind_of_processor(shipped, runs_here):
    runs_here(True)
    store(on("A72", 1), paths.user_schedules())
    assert taken(TASK) is None
    assert "(default; what was tuned on A72 is for that alone, for zen5)" in layer().explain()
    store(result(processor="A53", block_rows=2), shipped)
    assert taken(TASK) == result(processor="A53", block_rows=2)
    store(on("A53", 3), paths.user_schedules())
    assert taken(TASK) == on("A53", 3)
    assert "(tuned on A53, 0.50 of the default's time)" in layer().explain()


def test_a_layer_that_does_not_run_here_takes_the_newest_of_any_board(runs_here):
    runs_here(False)
    for known in (on("A53", 1), on("A72", 2)):
        store(known, paths.user_schedules())
        assert taken(TASK) == known
    path = store(on("A53", 3), paths.user_schedules())
    assert taken(TASK) == on("A53", 3)
    assert list(read(path)) == [on("A53", 3), on("A72", 2)]


@pytest.mark.parametrize("whose", ["digest", "default_digest"])
def test_a_result_of_another_kernel_is_stale(whose):
    """Whether it is the schedule's own or the one that it was compared with."""
    store(msgspec.structs.replace(result(), **{whose: "0" * 32}), paths.user_schedules())
    assert taken(TASK) is None
    assert layer().schedule == default_of(TASK)
    assert "(default; what was tuned on Zen is older than its kernels, for zen5)" in layer().explain()


def test_a_digest_is_of_the_program_alone():
    """Not of the certificate or the cost, which are said in words that may change."""
    entry = TASK.entry(default_of(TASK))
    text = msgspec.structs.replace(entry.certificate, minimality=("other words",))
    assert msgspec.structs.replace(entry, certificate=text).kernel.digest == entry.kernel.digest
    assert msgspec.structs.replace(entry.kernel, unroll=2).digest != entry.kernel.digest
    assert from_json(to_json(entry.kernel), Kernel).digest == entry.kernel.digest


@pytest.mark.parametrize(
    "changes",
    [
        {"default_nanoseconds": 0},
        {"nanoseconds": -3.0},
        {"nanoseconds": 1e308},
        {"kernel": "a\nb"},
        {"problem": {"geometry": {**msgspec.to_builtins(TASK.geometry), "groups": 0}}},
        {"schedule": {"method": "popcount", "sketch": "paper"}},
    ],
)
def test_results_that_make_no_sense(changes):
    """Are warned of by the file's name, with what to do, and passed over."""
    path = store(result(), paths.user_schedules())
    file = json.loads(path.read_text())
    (known,) = file["tuned"]
    for name, value in changes.items():
        known[name] = {**known[name], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(file))
    with pytest.warns(BitsynthWarning, match=r"a2w1\.json.*; `bitsynth tune` makes it anew$"):
        assert layer().schedule == default_of(TASK)


def test_a_kernel_that_is_not_cached_any_more(shipped):
    store(result(block_rows=3), shipped)
    other = msgspec.structs.replace(result(), schedule=LayerSchedule("avx2", "lookup", 12, "direct"))
    store(other, paths.user_schedules())
    assert taken(TASK).schedule.block_rows == 3
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
        (lambda text: text.replace('"format": 2', '"format": 9'), "format 9 is not 2"),
        (lambda text: text.replace('"rows": 0', '"rows": 99'), "avx2_3x64x4 cannot be run as avx2 lookup, 99 rows"),
        (lambda text: text.replace('"unroll": 0', '"unroll": 99'), "cannot be run as avx2 lookup, unrolled 99 times"),
        (lambda text: text.replace('"inner"', '"outer"'), "cannot be run as avx2 lookup, outer bit axis"),
        (lambda text: text.replace('"inner"', '"first"'), "unknown bit axis 'first' of a schedule"),
        (lambda text: "\ufffd", "JSON is malformed"),
    ],
)
@pytest.mark.parametrize("whose", ["the user's", "shipped"])
def test_a_broken_file_is_named_and_passed_over(shipped, whose, changed, message):
    broken, other = (paths.user_schedules(), shipped) if whose == "the user's" else (shipped, paths.user_schedules())
    store(result(block_rows=3), other)
    path = store(result(), broken)
    path.write_text(changed(path.read_text()))
    with pytest.warns(BitsynthWarning, match=message) as caught:
        taken = [known for known, why_not in find_tuned(TASK) if not why_not]
    assert taken == [result(block_rows=3)]
    (text,) = (str(w.message) for w in caught)
    assert str(path) in text
    assert text.endswith("; `bitsynth tune` makes it anew")


@pytest.mark.parametrize("damage", [Path.mkdir, os.mkfifo, lambda path: path.write_text("{")])
def test_what_is_replaced_is_kept_beside(damage):
    path = path_of(paths.user_schedules(), TASK)
    path.parent.mkdir(parents=True)
    for n in range(2):
        damage(path)
        with pytest.warns(BitsynthWarning, match=rf"it is kept as {path}\.damaged{n or ''}$"):
            store(result(), paths.user_schedules())
        assert taken(TASK) == result()
        path.unlink()
    assert {p.name for p in path.parent.iterdir()} == {"a2w1.json.damaged", "a2w1.json.damaged1"}


def test_what_a_newer_version_wrote_stays():
    path = path_of(paths.user_schedules(), TASK)
    path.parent.mkdir(parents=True)
    path.write_text('{"format": 999, "more": 1}')
    with pytest.raises(SpecError, match="format 999 is not"):
        store(result(), paths.user_schedules())
    assert path.read_text() == '{"format": 999, "more": 1}'
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ToolError, match=r"cannot write .*a2w1\.json"):
        store(result(), tmp_path / "file")


def test_schedules_are_shipped():
    files = product(("avx2", "avx512"), ("a1w1.json", "a2w1.json", "a2w2.json"))
    assert {path.parts[-2:] for path in SHIPPED} == set(files)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_shipped_schedules(path):
    """All layers of each kind of processor, none older than its kernels: else `bitsynth tune -o tuned`, or drop it."""
    known = read(path)
    assert Counter(one.processor for one in known) == dict.fromkeys({one.processor for one in known}, len(LAYERS))
    assert len({(one.task, one.processor) for one in known}) == len(known)
    for one in known:
        assert path.parts[-2:] == (one.task.isa, f"a{one.task.act_bits}w{one.task.w_bits}.json")
        assert 0 < one.nanoseconds <= one.default_nanoseconds
        kernels = [find_module.timed_kernel(one, schedule).kernel for schedule in (one.schedule, one.default)]
        assert [kernel.digest for kernel in kernels] == [one.digest, one.default_digest], one.task
        assert find_module.has_form(kernels[0], one.schedule)
