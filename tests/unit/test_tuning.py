"""Studies of schedules: they improve, go on, and outlive what measures; workers that crash, hang and babble."""

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from optuna.trial import TrialState

from bitsynth import paths
from bitsynth.errors import NoKernel, Refuted, SpecError, ToolError
from bitsynth.host import features
from bitsynth.isa.load import load
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.planning import default_of
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.tuned import TuningRecord, TuningTask, store
from bitsynth.progress import silent
from bitsynth.store.entry import ProvedEntry
from bitsynth.store.matmul import MATMUL
from bitsynth.tune import space as spaces
from bitsynth.tune import study as studies
from bitsynth.tune.local import start_measurer
from bitsynth.tune.loop import FINAL_ROUNDS, ROUNDS, explore, study_file, tune
from bitsynth.tune.measurer import Timing, TrialFailed
from bitsynth.tune.space import space
from bitsynth.tune.study import open_study

WINDOW = 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)
TASK = TuningTask("avx2", 2, 1, Geometry(64, 128, *WINDOW), (14, 14), 1)
SECONDS = 60.0


@pytest.fixture(autouse=True)
def user(tmp_path, monkeypatch):
    """A user without kernels or schedules."""
    monkeypatch.setenv("BITSYNTH_CACHE", str(tmp_path / "cache"))
    MATMUL.forget()


@pytest.fixture
def some():
    return space(TASK)


@pytest.fixture
def reopen(tmp_path, some):
    return lambda fingerprint="seal": open_study(tmp_path / "new" / "study", TASK, some, fingerprint)


class Pretended:
    """A measurer to which some choices are faster than others; `spoil` may fail a trial."""

    longest_s = SECONDS

    def __init__(self, spoil=lambda schedule: None):
        self.seen, self.spoil = [], spoil

    def measure(self, schedule, rounds):
        if rounds == ROUNDS:
            self.seen.append(schedule)
            self.spoil(schedule)
        nanoseconds = 1000 * (0.9 if schedule.columns_first else 1) * (0.8 if schedule.block_rows == 64 else 1)
        return Timing(nanoseconds * (1 if schedule.method == "lookup" else 3), 1000)


def run(study, measurer, trials):
    return tune(study, measurer, trials, silent)


class Fixed:
    """A trial that proposes these parameters."""

    def __init__(self, params):
        self.params = params

    def suggest_categorical(self, name, choices):
        assert self.params[name] in choices
        return self.params[name]

    def suggest_int(self, name, low, high):
        assert low <= self.params[name] <= high
        return self.params[name]


def test_every_schedule_can_be_proposed_and_named(some):
    changed = msgspec.structs.replace(some.priors[0], rows=1, columns_first=True, block_rows=64, band_rows=2, unroll=4)
    apart = LayerSchedule("avx2", "popcount", 64, "direct", columns_first=True, bit_axis="outer")
    often = LayerSchedule("avx2", "lookup", 64, "im2col", rows=1, flush_steps=36)
    for schedule in (*some.priors, changed, apart, often):
        assert some.suggest(Fixed(some.params(schedule))) == schedule


@pytest.mark.parametrize("wrong", [{"k_step": 128}, {"sketch": "paper"}, {"channels": 63}])
def test_a_schedule_of_no_such_kernel_is_not_proposed(some, wrong):
    """As files may have: lookups take as many positions as they do, and the paper's sketch has no channels."""
    assert some.proposes(some.priors[0])
    assert not some.proposes(msgspec.structs.replace(LayerSchedule("avx2", "lookup", 64, "im2col"), **wrong))


def test_flushes_are_parts_of_what_the_kernel_and_the_layer_allow(some):
    """That is 18 steps of 32 codes, and 144 of 4; of the former a proof allows 21."""
    flushes = {
        found.method: some._flushes(found)
        for found in some.kernels.values()
        if found.channels == 64 and not found.operands
    }
    assert (flushes["popcount"], flushes["lookup"]) == ((9, 4), (72, 36))
    deep = space(msgspec.structs.replace(TASK, geometry=Geometry(512, 64, *WINDOW)))
    assert {deep._flushes(x) for x in deep.kernels.values() if x.method == "popcount"} == {(10, 5)}
    few = space(msgspec.structs.replace(TASK, geometry=Geometry(3, 64, *WINDOW)))
    flushes = {x.method: few._flushes(x) for x in few.kernels.values() if not x.operands}
    assert (flushes["popcount"], flushes["lookup"]) == ((4, 2), (4, 2)), "nine taps, each a step"
    assert flushes["multiply"] == (1,), "three rows of taps, each a step, as bytes lie beside each other"


def test_the_default_comes_first_and_every_kernel_is_tried(some):
    assert some.priors[0] == default_of(TASK)
    assert {s.method for s in some.priors} == {"popcount", "lookup", "multiply"}
    assert {s.gather for s in some.priors} == {"direct", "im2col"}
    assert len(set(some.priors)) == len(some.priors)


def test_what_was_tuned_before_is_tried_after_the_default(some):
    """Were it on another processor or with other kernels; not where this space has no such schedule."""
    changed = msgspec.structs.replace(some.priors[0], columns_first=True, block_rows=64)
    odd = msgspec.structs.replace(changed, block_rows=65)
    for kind, schedule in (("another", changed), ("a third", odd), ("a fourth", some.priors[3])):
        known = TuningRecord(
            TASK,
            schedule,
            "k",
            digest="0" * 32,
            default=changed,
            default_digest="0" * 32,
            nanoseconds=1.0,
            default_nanoseconds=2.0,
            compiler="cc",
            processor=kind,
        )
        store(known, paths.user_schedules())
    default, *others = some.priors
    others.remove(some.priors[3])
    assert space(TASK).priors == (default, some.priors[3], changed, *others)
    assert space(TASK).fingerprint == some.fingerprint


def test_the_default_is_not_faster_than_itself(reopen):
    """Whatever noise says: with one trial nothing else was tried."""

    class Noisy(Pretended):
        def measure(self, schedule, rounds):
            return Timing(900, 1000)

    found = run(reopen(), Noisy(), 1)
    assert (found.schedule, found.timing.ratio) == (default_of(TASK), 1)


def test_a_study_is_of_the_kernels_programs(some, monkeypatch):
    """It goes on where only the words of a certificate are others."""
    load_entry = MATMUL.load

    def told_otherwise(path):
        found = load_entry(path)
        return ProvedEntry(found.proved, found.options, ("other words",), found.bound, found.runners_up)

    monkeypatch.setattr(MATMUL, "load", told_otherwise)
    assert space(TASK).fingerprint == some.fingerprint


def test_narrower_words_are_tried_too(skip_isa):
    if features.missing(load("avx512").table):
        skip_isa("avx512", "this processor lacks it")
    wide, narrow = space(msgspec.structs.replace(TASK, isa="avx512")), space(TASK)
    assert narrow.kernels.items() < wide.kernels.items()
    assert {found.isa for found in narrow.kernels.values()} == {"avx2"}
    for schedule in narrow.priors:
        assert wide.suggest(Fixed(wide.params(schedule))) == schedule


def test_no_kernel():
    with pytest.raises(NoKernel, match="no kernel of 7-bit unsigned"):
        space(msgspec.structs.replace(TASK, act_bits=7, w_bits=8))


def test_a_study_improves(reopen):
    measurer = Pretended()
    result = run(reopen(), measurer, 40)
    assert measurer.seen[: len(reopen().space.priors)] == list(reopen().space.priors)
    assert len(set(measurer.seen)) == len(measurer.seen) == result.trials == 40
    assert result.timing.ratio == min(measurer.measure(s, FINAL_ROUNDS).ratio for s in measurer.seen) < 1
    assert measurer.measure(result.schedule, FINAL_ROUNDS) == result.timing


def test_the_default_stays_where_nothing_is_faster(reopen):
    class Slow:
        longest_s = SECONDS

        def measure(self, schedule, rounds):
            return Timing(900 if rounds == ROUNDS else 1100, 1000)

    result = run(reopen(), Slow(), 10)
    assert result.schedule == default_of(TASK)
    assert result.timing == Timing(1000, 1000)


def test_progress_tells_the_best_and_what_is_tried(reopen):
    messages = []
    tune(reopen(), Pretended(), 12, lambda *what: messages.append(what))
    assert messages[0] == (f"1 of 12, now {default_of(TASK)}", 0, 12)
    assert messages[1][0].startswith("2 of 12, best 0.0010 ms, 1.00 of default, now avx2 ")
    assert messages[12][0].startswith("the best once more, best 0.00")
    assert [(done, total) for _, done, total in messages] == [(n, 12) for n in range(13)]


@pytest.mark.slow
def test_a_small_space_is_exhausted(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "_DRAWS", 8)
    monkeypatch.setattr(spaces, "UNROLLS", (0,))
    tiny = TuningTask("avx2", 2, 1, Geometry(1, 1, 1, (1, 1), (1, 1), (0,) * 4, (1, 1)), (1, 1), 1)
    measurer = Pretended()
    result = run(open_study(tmp_path / "study", tiny, space(tiny), ""), measurer, 1000)
    assert len(measurer.seen) == result.trials < 3 * (3 + 2 * 4 + 2 * 6) + 1


def test_an_interrupted_study_goes_on(reopen):
    def interrupt(schedule):
        if len(measurer.seen) == 5:
            raise KeyboardInterrupt

    measurer = Pretended(interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(reopen(), measurer, 12)
    assert reopen().finished == 4
    assert reopen().failures == []
    again = Pretended()
    result = run(reopen(), again, 12)
    assert len(again.seen) == 8
    assert measurer.seen[4] in again.seen
    assert not set(measurer.seen[:4]) & set(again.seen)
    assert result.trials == 12
    assert run(reopen(), more := Pretended(), 12).trials == 12
    assert more.seen == []


def test_a_study_outlives_failures(reopen):
    def fail(schedule):
        if schedule.columns_first:
            raise TrialFailed("too slow")

    result = run(reopen(), Pretended(fail), 30)
    assert not result.schedule.columns_first
    assert result.trials == 30
    assert 0 < len(result.failures) < 30
    assert set(result.failures) == {"too slow"}


def test_a_default_that_fails_ends_it(reopen):
    def fail(schedule):
        raise TrialFailed("no compiler")

    with pytest.raises(ToolError, match=r"the default schedule, .* cannot be measured: no compiler"):
        run(reopen(), Pretended(fail), 9)


def test_other_results_end_it(reopen):
    def refute(schedule):
        if schedule != default_of(TASK):
            raise Refuted("other bits")

    with pytest.raises(Refuted, match="other bits"):
        run(reopen(), Pretended(refute), 9)
    assert reopen().finished == 1


def test_only_a_trial_left_alone_for_too_long_is_lost(reopen, monkeypatch):
    monkeypatch.setattr(studies, "GRACE_S", 0)
    study = reopen()
    study.enqueue_priors()
    lost, busy = study._ask(time.time() - 1), study._ask(time.time() + 600)
    measurer = Pretended()
    run(reopen(), measurer, 10)
    assert lost.schedule in measurer.seen
    assert busy.schedule not in measurer.seen
    lost.finish(Timing(1, 1000))
    busy.finish(Timing(2, 1000))
    assert study.rank()[0] == (busy.schedule, Timing(2, 1000))


TWO = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_tuning import TASK, Pretended, open_study, run, space
study = open_study(Path(sys.argv[1]), TASK, space(TASK), "seal")
measurer = Pretended(lambda schedule: time.sleep(0.02))
run(study, measurer, 24)
print(len(measurer.seen))
"""


@pytest.mark.slow
def test_two_processes_share_a_study(reopen, tmp_path):
    reopen()
    command = [sys.executable, "-c", TWO, str(tmp_path / "new" / "study"), os.path.dirname(__file__)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    counts = [int(p.communicate()[0]) for p in both]
    tried = [schedule for schedule, _ in reopen().rank()]
    assert 24 <= sum(counts) == len(tried) == len(set(tried)) <= 25
    assert min(counts) > 0


def test_threads_share_a_study_to_the_trial(reopen):
    """No more trials than are wanted, and none too few where a thread gives up."""
    study, measurers = reopen(), [Pretended(lambda schedule: time.sleep(0.01)) for _ in range(4)]

    def give_up(schedule):
        raise ToolError("gone")

    study.enqueue_priors()
    with ThreadPoolExecutor() as threads:
        lost = threads.submit(explore, study, Pretended(give_up), 23, silent)
        done = [threads.submit(explore, study, m, 23, silent) for m in measurers]
    assert str(lost.exception()) == "gone"
    assert [f.exception() for f in done] == [None] * 4
    tried = [schedule for m in measurers for schedule in m.seen]
    assert len(tried) == len(set(tried)) == study.finished == 23
    assert study.failures == []


def test_what_a_thread_gives_up_others_measure_in_the_same_run(reopen):
    """The default first of all."""
    study, gone = reopen(), threading.Event()

    def give_up(schedule):
        raise ToolError("gone")

    def measure():
        assert gone.wait(SECONDS)
        explore(study, measurer, len(study.space.priors), silent)

    study.enqueue_priors()
    measurer = Pretended()
    with ThreadPoolExecutor() as threads:
        done = threads.submit(measure)
        lost = threads.submit(explore, study, Pretended(give_up), 23, silent)
        assert str(lost.exception()) == "gone"
        gone.set()
        assert done.exception() is None
    assert set(measurer.seen) == set(study.space.priors)


def test_a_trial_is_given_what_its_measurer_may_take(reopen, monkeypatch):
    """Others see how long that is, and leave it alone."""
    monkeypatch.setattr(studies, "GRACE_S", 0)
    study = reopen()

    def look_on(schedule):
        time.sleep(0.2)
        other = reopen()
        other._fail_stale()
        (running,) = other._study.get_trials(states=(TrialState.RUNNING,))
        assert SECONDS - 5 < running.user_attrs["until"] - time.time() < SECONDS

    assert run(study, Pretended(look_on), 1).trials == 1


def test_a_study_file_is_of_a_kind_of_processor(tmp_path):
    names = [study_file(TASK, kind) for kind in ("", "Cortex-A53", "Intel(R) Xeon(R)")]
    assert names[0] == tmp_path / "cache" / "tuned" / "studies" / "avx2-a2w1.journal"
    assert [p.name for p in names[1:]] == ["avx2-a2w1-cortex-a53.journal", "avx2-a2w1-intel-r-xeon-r.journal"]


def test_a_line_that_was_cut_off_is_dropped(reopen, tmp_path):
    run(reopen(), Pretended(), 3)
    file = tmp_path / "new" / "study"
    file.write_bytes(file.read_bytes() + b'{"op_code":5,"wor')
    assert reopen().finished == 3
    assert run(reopen(), Pretended(), 4).trials == 4
    assert all(json.loads(line) for line in file.read_text().splitlines())


@pytest.mark.parametrize("text", ["no study\n", "[]\n", "{}\n", '{"op_code": 99}\n', '{"op_code":0,"worker_id":1}\n'])
def test_another_file(reopen, tmp_path, text):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "study").write_text(text)
    with pytest.raises(SpecError, match=r"new/study is not a study .*; name another file with --study"):
        reopen()


def test_a_file_that_was_edited(reopen, tmp_path):
    run(reopen(), Pretended(), 3)
    file = tmp_path / "new" / "study"
    file.write_text(file.read_text().replace('"gather":"direct"', '"gather":"nowhere"'))
    with pytest.raises(SpecError, match=r"is not a study .*unknown gather 'nowhere'"):
        reopen()


def test_another_version(reopen):
    reopen()
    with pytest.raises(
        SpecError, match=r"made with another compiler, other kernels, .* or another version; name another"
    ):
        reopen("other")


def test_a_file_of_several_layers(reopen, tmp_path):
    run(reopen(), Pretended(), 3)
    other = msgspec.structs.replace(TASK, threads=2)
    assert open_study(tmp_path / "new" / "study", other, space(other), "seal").finished == 0
    assert reopen().finished == 3


def test_a_folder_that_cannot_be_written(tmp_path, some):
    (tmp_path / "file").touch()
    with pytest.raises(ToolError, match=r"cannot write .*; name another file with --study"):
        open_study(tmp_path / "file" / "study", TASK, some, "")


WORKER = """
import json, os, signal, sys, time
start = json.loads(sys.stdin.readline())
assert start["task"]["act_bits"] == 2 and start["default"]["gather"] == "direct"
for line in sys.stdin:
    asked = json.loads(line)["schedule"]
    kind = asked["block_rows"]
    open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
    if kind == 1: os.kill(os.getpid(), signal.SIGSEGV)
    if kind == 2: time.sleep(600)
    if kind == 3: print("what?", flush=True); continue
    if kind == 4: sys.exit("last words")
    if kind == 5: os._exit(0)
    said = {6: {"failed": "does not compile"}, 7: {"refuted": "other bits"}}
    print(json.dumps(said.get(kind, {"nanoseconds": 2, "default_nanoseconds": 4})), flush=True)
"""


def schedule(kind):
    return LayerSchedule("avx2", "lookup", 64, "direct", block_rows=kind)


@pytest.fixture
def worker(tmp_path):
    def start(timeout_s=SECONDS):
        return start_measurer(TASK, default_of(TASK), timeout_s, (sys.executable, "-c", WORKER, str(tmp_path / "pids")))

    return start


def pids(tmp_path):
    return [int(x) for x in (tmp_path / "pids").read_text().split()]


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (1, "its worker ended with signal SIGSEGV: (it printed nothing|qemu: )"),
        (3, "its worker gave no answer: JSON is malformed"),
        (4, "its worker ended with exit code 1: last words"),
        (5, "its worker ended with exit code 0: it printed nothing"),
    ],
)
def test_a_worker_that_breaks_is_replaced(worker, tmp_path, kind, why):
    with worker() as process:
        assert process.measure(schedule(0), 1) == Timing(2, 4)
        with pytest.raises(TrialFailed, match=why):
            process.measure(schedule(kind), 1)
        assert process.measure(schedule(0), 1).ratio == 0.5
    first, same, other = pids(tmp_path)
    assert first == same != other
    assert not is_there(first)
    assert not is_there(other)


def test_a_worker_that_hangs_is_killed(worker, tmp_path):
    with worker() as process:
        process.measure(schedule(0), 1)
        process.timeout_s = 0.2
        with pytest.raises(TrialFailed, match=r"took longer than 0\.2 s"):
            process.measure(schedule(2), 1)
        assert not is_there(pids(tmp_path)[0])


def test_a_worker_that_refuses_lives_on(worker, tmp_path):
    with worker() as process:
        with pytest.raises(TrialFailed, match="does not compile"):
            process.measure(schedule(6), 1)
        with pytest.raises(Refuted, match="other bits"):
            process.measure(schedule(7), 1)
    assert len(set(pids(tmp_path))) == 1


def test_a_worker_that_cannot_start(tmp_path):
    with (
        start_measurer(
            TASK, default_of(TASK), SECONDS, (sys.executable, "-c", "raise SystemExit('no room')")
        ) as process,
        pytest.raises(TrialFailed, match="exit code 1: no room"),
    ):
        process.measure(schedule(0), 1)
