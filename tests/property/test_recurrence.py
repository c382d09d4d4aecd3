"""Cycles of blocks that run again equal the cycles of all their instructions in a row."""

from hypothesis import given
from hypothesis import strategies as st

from bitsynth.isa import scoreboard
from bitsynth.isa.load import load
from bitsynth.schedule import disassembly

CPUS = {"a53": "neon", "a72": "neon", "a76": "neon_dotprod"}
LINES = (
    *("ldr q{0}, [x{1}]", "ldr d{0}, [x{1}], #8", "ld1r {{v{0}.16b}}, [x{1}]", "str q{0}, [x{1}]", "ldr x{0}, [x{1}]"),
    *("add v{0}.16b, v{1}.16b, v{2}.16b", "uadalp v{0}.8h, v{1}.16b", "mov v{0}.d[1], x{1}", "umov w{0}, v{1}.h[1]"),
    *("add x{0}, x{1}, x{2}", "cmp x{0}, x{1}", "b.ne 0", "mla v{0}.8h, v{1}.8h, v{2}.8h", "cnt v{0}.16b, v{1}.16b"),
)
REGISTERS = st.integers(0, 3)
LISTED = st.builds(str.format, st.sampled_from(LINES), REGISTERS, REGISTERS, REGISTERS)


@given(
    st.sampled_from(sorted(CPUS)),
    st.lists(st.lists(LISTED, max_size=6), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), max_size=6),
)
def test_blocks_take_as_long_as_their_instructions(cpu, texts, runs):
    isa = load(CPUS[cpu])
    rules, blocks = isa.rules(cpu), [list(disassembly.read_issued(isa, cpu, text)) for text in texts]
    program = [blocks[number % len(blocks)] for number, count in runs for _ in range(count)]
    core = scoreboard.processor(rules)
    for x in (x for block in program for x in block):
        core.issue(x)
    now, settled = scoreboard.run_blocks(rules, program)
    assert (now, now + settled.done) == (core.now, core.done)
    assert scoreboard.count_cycles_of_blocks(rules, program) == scoreboard.cycles(
        rules, [x for block in program for x in block]
    )


def test_a_block_that_recurs_is_run_a_few_times(monkeypatch):
    isa, issued = load("neon"), []
    real = scoreboard.OutOfOrder.issue

    def counted(core, x):
        issued.append(x)
        real(core, x)

    monkeypatch.setattr(scoreboard.OutOfOrder, "issue", counted)
    block = list(disassembly.read_issued(isa, "a72", ["ldr q0, [x0], #16", "add v1.16b, v1.16b, v0.16b", "b.ne 0"]))
    assert scoreboard.count_cycles_of_blocks(isa.rules("a72"), [block] * 5000) > 5000
    assert len(issued) < 5000
