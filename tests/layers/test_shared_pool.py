"""Pools of threads that layers share: right results, threads that are counted, and what is refused."""

import copy
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from support.layer_cases import QUIET, Case, check, few_cases, machine, usable

from bitsynth import Pool
from bitsynth.errors import SpecError
from bitsynth.spec.options import MAX_THREADS

KERNELS = [machine("avx2", "lookup", 2, 1), machine("avx2", "popcount", 1, 1, "bipolar", "bipolar")]
SMALL = Case(KERNELS[0], 1, (6, 7), (8, 70), (3, 3))


@pytest.fixture(autouse=True, scope="module")
def compiled(skip_isa):
    for m in KERNELS:
        usable(m, skip_isa)


@pytest.fixture(scope="module")
def shared():
    with Pool(3) as pool:
        yield pool


@settings(max_examples=20, **QUIET)
@given(case=few_cases(KERNELS))
def test_any_layer_runs_on_a_shared_pool(shared, case):
    check(replace(case, threads=shared))


SETTING = """
import gc, os, sys
import numpy as np
from bitsynth import Conv2d, LayerSchedule, Pool, SpecError
from bitsynth.layers.layer import Layer
SCHEDULES = [LayerSchedule("avx2", method, 64, gather="direct") for method in ("lookup", "popcount")]
def made(threads):
    return [Conv2d(np.ones((70, 64, 3, 3), int), 2, 1, schedule=s, threads=threads) for s in SCHEDULES]
x = np.ones((1, 20, 20, 64), int)
alone = made(1)
want = alone[0](x)
def right(layers):
    return all((layer(x) == want).all() for layer in layers)
def started():
    return len(os.listdir("/proc/self/task")) - before
assert right(alone)
before = len(os.listdir("/proc/self/task"))
"""


def script(text):
    """Run `text` after SETTING in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-c", SETTING + text]
    done = subprocess.run(command, timeout=120, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


COUNTED = """
with Pool(4) as pool:
    layers = made(pool)
    assert started() == 0
    assert right(layers) and right(made(pool)) and started() == 3
assert started() == 0

with Pool(2) as one, Pool(3) as other:
    assert right(made(one)) and right(made(other)) and started() == 3
assert started() == 0

assert right(made(Pool(1))) and right(made(1)) and started() == 0

layers = made(Pool(3))  # which nobody else has
assert right(layers) and started() == 2
del layers
gc.collect()
assert started() == 0

assert right(made(3)) and right(made(3)) and started() == 2
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="only Linux lists a process's threads in /proc")
def test_a_pool_has_its_threads():
    """Of one pool, of two, of one thread, of a pool nobody has, of a number."""
    script(COUNTED)


FORK = """
pool = Pool(3)
layers = made(pool)
assert right(layers)
child = os.fork()
if child == 0:
    fine = right(layers)
    pool.close()
    os._exit(not fine)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert code == 0 and right(layers)
pool.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_threads_of_its_own():
    script(FORK)


FORK_WHILE_ONE_RUNS = """
import signal, threading
layer = made(1)[0]
running, forked = threading.Event(), threading.Event()
class Slow:
    def call(self, name, *arguments, **options):
        if name.endswith("_layer_run"):
            running.set()
            forked.wait()
        return runner.call(name, *arguments, **options)
runner, layer._compiled = layer.runner, Layer(layer.packed, Slow(), layer.pool)
thread = threading.Thread(target=layer, args=(x,))
thread.start()
running.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    forked.set()
    os._exit(not right([layer]))
forked.set()
thread.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and right([layer])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_layer_that_another_thread_runs_can_be_run_in_a_forked_process():
    script(FORK_WHILE_ONE_RUNS)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_pool_of_a_number_cannot_be_closed(threads):
    """Neither would other layers run, nor any made later."""
    layer, x, want = replace(SMALL, threads=threads).prepared()
    with pytest.raises(SpecError, match=f"all layers of {threads} threads share this pool"):
        layer.pool.close()
    assert (layer(x) == want).all()
    check(replace(SMALL, threads=threads))


def test_threads_of_python_take_turns(shared):
    rng = np.random.default_rng(0)
    layers = [replace(SMALL, machine=m, threads=shared).prepared() for m in KERNELS for _ in range(2)]
    wrong: list[int] = []

    def repeat(i):
        layer, x, want = layers[i % len(layers)]
        wrong.extend(i for _ in range(int(rng.integers(20, 30))) if (layer(x) != want).any())

    threads = [threading.Thread(target=repeat, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_closing_waits_for_the_layer_that_runs():
    """Whoever comes later is told."""
    pool = Pool(3)
    ends: list[Any] = []
    layer, x, want = replace(SMALL, image=(40, 40), threads=pool).prepared()

    def repeat():
        try:
            while (layer(x) == want).all():
                ran.set()
        except SpecError as error:
            ends.append(str(error))

    ran, threads = threading.Event(), [threading.Thread(target=repeat) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert ran.wait(60)
    pool.close()
    for thread in threads:
        thread.join()
    assert ends == ["<bitsynth Pool of 3 threads, closed> runs no layer; make another"] * 3


def closed(threads=2):
    pool = Pool(threads)
    pool.close()
    return pool


def ran_before(threads):
    with Pool(threads) as pool:
        layer, x, _ = replace(SMALL, threads=pool).prepared()
        layer(x)
    pool.close()
    return layer(x)


REFUSED = {
    "none": (lambda: Pool(0), "threads must be a whole number from 1 to"),
    "many": (lambda: Pool(MAX_THREADS + 1), "threads must be"),
    "true": (lambda: Pool(True), "threads must be"),
    "words": (lambda: Pool("2"), "threads must be"),  # type: ignore[arg-type]
    "a pool": (lambda: Pool(Pool(2)), "threads must be"),  # type: ignore[arg-type]
    "a closed pool entered": (lambda: closed().__enter__(), "closed> runs no layer"),
    "a layer of a closed pool": (lambda: replace(SMALL, threads=closed()).prepared(), "closed> runs no layer"),
    "a layer whose pool was closed": (lambda: ran_before(3), "closed> runs no layer"),
    "a layer whose pool of one was closed": (lambda: ran_before(1), "closed> runs no layer"),
    "a layer of the class": (
        lambda: replace(SMALL, threads=Pool).prepared(),  # type: ignore[arg-type]
        "or a layer's Pool, not <class",
    ),
    "a layer of None": (lambda: replace(SMALL, threads=None).prepared(), "or a layer's Pool, not None"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_pools_are_refused(what):
    make, message = REFUSED[what]
    with pytest.raises(SpecError, match=re.escape(message)):
        make()


def test_a_pool_is_not_copied():
    """Both would end the same threads."""
    with Pool(2) as pool, pytest.raises(TypeError, match="share it, or make another"):
        copy.copy(pool)
