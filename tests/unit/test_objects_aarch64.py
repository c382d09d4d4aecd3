"""Machine code of AArch64: instructions compared with an emulator, and kernels that compilers built."""

import random
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from bitsynth.errors import Refuted, SpecError, ToolError
from bitsynth.isa import architecture
from bitsynth.isa.load import load
from bitsynth.kernel.names import KernelName
from bitsynth.matmul import MatmulKernel
from bitsynth.objects.declared import by_mnemonic, machine_table
from bitsynth.objects.memory import CallMemory, MemoryPlace, NotShown
from bitsynth.objects.values import Contents
from bitsynth.store.matmul import MATMUL

pytestmark = pytest.mark.toolchains

MULTIPLY, LOOKUP = "bs_mm_a2u_w8s_s32_neon_4x48x1", "bs_mm_a1u_w4b_s32_neon_3x48x4"
WORDS_OF_BITS = "bs_mm_a1u_w1b_s32_neon_12x8x64"
DOT = "bs_mm_a8u_w8s_s32_neon_dotprod_6x16x16"
GCC = "aarch64-linux-gnu-gcc"
WORDS = """
    d503245f
    91004041 8b050883 8b25c883 0b050083 910083e1 910103ff ab030041 b1000c3f ab02003f d1000441 cb830c41
    d10083ff eb030041 f10ffc3f eb02003f eb21001f 6b02003f cb0203e1 eb0203e1 9b037c41 9b031041 9b039041
    9b03fc41 9bc37c41 9ba37c41 9ba31041 927c1c41 8a030041 ea030041 f2401c3f 6a02003f 8ae31041 ea230041
    aa031c41 b2400441 aa230041 ca030041 d2400841 ca230041 aa2203e1 d37df041 9ac32041 d343fc41 1ac32441
    9343fc41 9ac32841 d3431c41 d37d1041 93431c41 937d7c41 53001c41 53003c41 93401c41 93403c41 93407c41
    9a839041 9a838441 da83a041 da83b441 9a820441 da821041 da825441 9a9f17e1 5a9f73e1 fa431824 fa42c02f
    ba42d020 d2807fe1 12800081 aa0203e1 2a0203e1 910003e1 aa1f03e1 f2a00061 10000041 90000001 14000004
    94000004 d61f0060 d65f03c0 54000080 54000088 5400008d b4000081 35000081 b6080081 37180081 d503201f f9800020
    f89fd020 f9400a81 b9401281 f8766a81 f8767a81 f876da81 f8410681 f8410e81 f85f8281 39400e81 385fd281
    79400e81 785fd281 39800e81 38dfd281 79c00e81 789fa281 b9800a81 b89f8281 a9410a81 a8c20be1 29400a81
    3dc00681 3cf66a81 fd400a81 bc767a81 7d400681 3c766a81 3cdf0281 ad410a81 6d4127e8 acc10a81 f9000a81
    b8366a81 f900029f f81f8281 39000e81 381fd281 79000e81 781fa281 a9010be1 a9be0be1 a9000a9f 3d800681
    fd000681 bd000281 3c9f0281 ad010a81 adbf0a81 6d0127e8 4c407281 4cdfa281 4cd66a81 0c402281 4d408281
    0ddf0e81 4dd68681 4c007281 4c9fae81 4d008281 0d965281 4d40ca81 4ddfc281 4dd6ce81 0d40c681 4ea21c41
    0ea21c41 4e181c41 4e071c41 4e183c41 0e1c3c41 0e0a3c41 0e053c41 6e146441 6e084441 5e180441 5e070441
    4e070441 4e080441 4e040c41 4e080c41 9e670041 9e660041 1e270041 1e260041 1e604041 9eaf0041 9eae0041
    4f02e741 4f002461 4f00a461 4f00c461 6f05e4c1 2f05e4c1 6f008461 6f00d461 4e238441 4ee38441 6e638441
    4ea39c41 4e639441 6e639441 6f730041 4fa38041 2f732041 6f732041 4e23bc41 4e31b841 4eb1b841 6e303841
    2e703841 4e231c41 4e631c41 4ea31c41 4ee31c41 6e231c41 6e631c41 6ea31c41 6ee31c41 4e205841 6e205841
    6ea0b841 6ea38c41 4e209841 4e633441 4e636441 4ea36c41 6e236441 6e636c41 6e031841 4f135441 6f0b5441
    6f3b0441 6f0d1441 4f1d0441 4ea34441 4e630c41 4e030041 0e212841 4e206841 0e230041 4e230041 4e602841
    0e231041 4e231041 0e638041 4e638041 0e63a041 4e63a041 0e63c041 4e23c041 0e233041 4e233041 0f08a441
    4f0ba441 6e206841 2e230041 6e230041 6e202841 2e231041 6e631041 2e238041 6e238041 2e63a041 6e63a041
    2e23c041 6e23c041 2e633041 6e633041 2f08a441 6f13a441 4e432841 4ec36841 4e031841 4e835841 4ec33841
    6e234441 6e634441 6ea34441 6ee34441 5ee28420 5ef1b820 6f0c4441 6f1b4441 6f394441 6f774441
    0e037841 6e839441 6f83e841 0e839441 4fa3e041 9ac30841 1ac30841
"""
"""Instructions, one or more of each mnemonic that is known."""
CODE, DATA, HALF, ROOM = 1 << 20, 1 << 24, 1 << 15, 512
"""Addresses of code and data; half the bytes of the data; bytes on each side of its middle that are random."""
EDGES = [0, 1, 2**64 - 1, 2**63, 2**63 - 1, 2**32 - 1, 2**31]


def register_name(k):
    return {29: "fp", 30: "lr"}.get(k, f"x{k}")


def known(values, x, state):
    """The number of unknown bytes if registers hold the bytes of the state."""
    data = values.evaluate([x], values.operations_of(x, x), lambda of: state[of[0]][of[1]])[0]
    return int.from_bytes(bytes(data), "little")


class BothMachines:
    """One instruction from the same state, run by the emulator and as objects are."""

    def __init__(self):
        unicorn, self.registers_of = pytest.importorskip("unicorn"), pytest.importorskip("unicorn.arm64_const")
        self.error = unicorn.UcError
        self.emulator = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        emulator = architecture.find_architecture("aarch64").emulator.unicorn
        self.emulator.ctl_set_cpu_model(self.constant(emulator.cpu[""]))
        for name, value in emulator.registers.items():
            self.emulator.reg_write(self.constant(name), value)
        self.emulator.mem_map(CODE, 1 << 12)
        self.emulator.mem_map(DATA, 2 * HALF)
        self.general = [self.constant(f"UC_ARM64_REG_X{k}") for k in range(31)]
        self.vectors = [self.constant(f"UC_ARM64_REG_V{k}") for k in range(32)]
        self.values, self.of_data = Contents(), 0
        self.memory = CallMemory(self.values, [MemoryPlace("data", DATA, 2 * HALF, writable=True)])

    def constant(self, name):
        return getattr(self.registers_of, name)

    def decoded(self, word):
        """The processor, the instruction as capstone has it, and what runs it; NotShown if it is refused."""
        from bitsynth.objects.elf import ObjectFile
        from bitsynth.objects.processor import CodeProcessor

        code = MemoryPlace("code", CODE, 4, word.to_bytes(4, "little"))
        file = ObjectFile(Path("f.o"), 0, (code,), (), {}, (), {}, (), (), {})
        processor = CodeProcessor(file, load("neon_dotprod"), self.values, self.memory)
        processor.registers.reset()
        return processor, processor._disassemble(CODE, CODE), processor._decode(CODE)

    def differences(self, word, rng):
        """What differs after the instruction; None if it is refused when it runs."""
        processor, ins, (action, following) = self.decoded(word)
        registers, emulator = processor.registers, self.emulator
        general, stack = self._state(ins, rng)
        vectors = [rng.choice([rng.getrandbits(128), rng.choice(EDGES) * (1 + (1 << 64))]) for _ in range(32)]
        flags, data = rng.getrandbits(4), rng.randbytes(2 * ROOM)
        self.memory.written.clear()
        self.memory.stack_from = 0
        first = DATA + HALF - ROOM
        self.memory.written.update((first + k, byte) for k, byte in enumerate(data))
        registers.general |= {register_name(k): x for k, x in enumerate(general)} | {"sp": stack}
        registers.vector |= {k: self.values.number(x, 16) for k, x in enumerate(vectors)}
        on_data = self._on_data(word, general, stack, flags, registers.vector)
        own = registers.flags
        own.clear()
        own.sign, own.zero, own.carry, own.overflow = (flags >> k & 1 for k in (3, 2, 1, 0))
        try:
            target = action()
        except NotShown:
            return None
        emulator.mem_write(CODE, word.to_bytes(4, "little"))
        emulator.mem_write(first, data)
        emulator.ctl_remove_cache(CODE, CODE + 4)
        for register, x in zip([*self.general, *self.vectors], [*general, *vectors], strict=True):
            emulator.reg_write(register, x)
        emulator.reg_write(self.constant("UC_ARM64_REG_SP"), stack)
        emulator.reg_write(self.constant("UC_ARM64_REG_NZCV"), flags << 28)
        try:
            emulator.emu_start(CODE, CODE + (1 << 11), count=1)
        except self.error as error:
            if "FETCH" not in str(error):
                return [f"the emulator refuses it: {error}"]
        have = {f"register {k}": registers.general[register_name(k)] for k in range(31)}
        want = {f"register {k}": emulator.reg_read(register) for k, register in enumerate(self.general)}
        have |= {f"vector {k}": registers._widen(registers.vector[k]).as_int for k in range(32)}
        want |= {f"vector {k}": emulator.reg_read(register) for k, register in enumerate(self.vectors)}
        have |= {f"register {k} from data": x for k, x in enumerate(on_data)}
        want |= {f"register {k} from data": want[f"register {k}"] for k, _ in enumerate(on_data)}
        have["stack"], want["stack"] = registers.general["sp"], emulator.reg_read(self.constant("UC_ARM64_REG_SP"))
        have["flags"] = own.sign << 3 | own.zero << 2 | own.carry << 1 | own.overflow
        want["flags"] = emulator.reg_read(self.constant("UC_ARM64_REG_NZCV")) >> 28
        have["next"] = following if target is None else target
        want["next"] = emulator.reg_read(self.constant("UC_ARM64_REG_PC"))
        memory = emulator.mem_read(first, 2 * ROOM)
        # What lies below the stack pointer is lost.
        have["memory"] = bytes(self.memory.written.get(first + k, byte) for k, byte in enumerate(memory))
        want["memory"] = bytes(memory)
        return [f"{ins.mnemonic} {ins.op_str}: {name}" for name, x in want.items() if have[name] != x]

    def _on_data(self, word, general, stack, flags, vectors):
        """The general registers after it ran on unknown bytes of them, which are `general`; none if it is refused."""
        processor, _, (action, _) = self.decoded(word)
        registers, values = processor.registers, self.values
        registers.general["sp"], registers.vector = stack, dict(vectors)
        registers.flags.carry = flags >> 1 & 1
        state = {("register", register_name(k)): x.to_bytes(8, "little") for k, x in enumerate(general)}

        try:
            action()
            after = [registers.content(registers.general[register_name(k)]) for k in range(31)]
            after = [known(values, x, state) for x in after]
        except NotShown:
            return []
        self.of_data += 1
        return after

    def _state(self, ins, rng):
        """Numbers for the general registers and the stack pointer, so that most addresses lie in the data."""
        general = [rng.choice([rng.choice(EDGES), rng.getrandbits(64), rng.getrandbits(32), rng.getrandbits(5)])
                   for _ in range(31)]  # fmt: skip
        numbers = {register_name(k): k for k in range(31)} | {f"w{k}": k for k in range(31)}
        stack, middle = DATA + HALF - 16 * rng.randrange(8), DATA + HALF
        for operand in (x for x in ins.operands if x.type == 3):
            base, index = ins.reg_name(operand.mem.base), ins.reg_name(operand.mem.index)
            if base in numbers:
                general[numbers[base]] = middle - operand.mem.disp + rng.randrange(64)
            elif base == "sp":
                stack = (middle - operand.mem.disp) & -16
            if index in numbers and index != base:
                general[numbers[index]] = rng.choice([1, -1]) * rng.randrange(16) & 2**64 - 1
        return general, stack


@pytest.fixture(scope="module")
def machines():
    pytest.importorskip("capstone")
    return BothMachines()


def test_each_instruction_does_what_the_emulator_does(machines):
    rng, seen = random.Random(1), set()
    for text in WORDS.split():
        word = int(text, 16)
        seen.add(machines.decoded(word)[1].mnemonic)
        for _ in range(3):
            assert machines.differences(word, rng) in ([], None), text
    table, isa = machine_table(load("neon")), load("neon_dotprod")
    general = {*table.moves, *table.arithmetic, *table.choices, *table.expressions}
    vector = {name for name, forms in by_mnemonic(isa).items() if any(machines_vector(x) for x in forms)}
    others = {"ins", "not", "sxtl", "sxtl2", "uxtl", "uxtl2"}  # Other spellings.
    assert general | vector <= seen | others | {"scvtf"}
    assert machines.of_data > 150


def machines_vector(form):
    from bitsynth.objects.fixed_length_decoder import _is_vector

    return _is_vector(form)


def changed_words(seed, count):
    """Instructions with a few bits changed."""
    rng, words = random.Random(seed), [int(text, 16) for text in WORDS.split()]
    for _ in range(count):
        word = rng.choice(words)
        for _ in range(rng.choice([1, 1, 2, 3, 5])):
            word ^= 1 << rng.randrange(32)
        yield word, rng


def compared(machines, seed, count):
    """How many changed instructions are understood; each does what the emulator does."""
    understood = 0
    for word, rng in changed_words(seed, count):
        try:
            different = machines.differences(word, rng)
        except NotShown:
            continue
        assert not different, f"{word:#010x}"
        understood += different is not None
    return understood


def test_changed_instructions_are_refused_or_do_what_the_emulator_does(machines):
    assert compared(machines, 1, 600) > 250


@pytest.mark.slow
def test_many_changed_instructions_are_refused_or_do_what_the_emulator_does(machines):
    assert compared(machines, 2, 6000) > 3000


@pytest.mark.parametrize(
    ("word", "why"),
    [
        (0xF8408421, "no instruction"),  # ldr x1, [x1], #8
        (0xA9BF0821, "no instruction"),  # stp x1, x2, [x1, #-16]!
        (0xA9400441, "no instruction"),  # ldp x1, x1, [x2]
        (0xD5033FDF, "no declaration"),  # isb
        (0x1EE60045, "no declaration"),  # fmov w5, h2
        (0x4E2038A1, "no instruction|no declaration"),
        (0x4F0DE041, "no instruction|no declaration"),
    ],
)
def test_what_has_no_one_meaning_is_refused(machines, word, why):
    with pytest.raises(NotShown, match=why):
        machines.decoded(word)


def test_fields_that_a_linker_fills_are_read_as_addresses():
    capstone = pytest.importorskip("capstone")
    table, rng = machine_table(load("neon")), random.Random(1)
    decoder = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    decoder.detail = True

    def read(word, at):
        return next(decoder.disasm(word.to_bytes(4, "little"), at)).operands[-1].imm

    def filled(name, word, to, at):
        return table.fields[name].fill(word, to, at, table.page)

    for _ in range(200):
        at, to = 4 * rng.getrandbits(24), rng.getrandbits(26)
        page = read(filled("R_AARCH64_ADR_PREL_PG_HI21", 0x90000001, to, at), at)
        assert page == to & -4096
        assert page + read(filled("R_AARCH64_ADD_ABS_LO12_NC", 0x91000021, to, at), at) == to
        assert read(filled("R_AARCH64_CALL26", 0x94000000, to & -4, at), at) & 2**64 - 1 == to & -4
    assert filled("R_AARCH64_CALL26", 0x94000000, 2, 0) is None
    assert filled("R_AARCH64_CALL26", 0x94000000, 1 << 27, 0) is None
    assert filled("R_AARCH64_LDST128_ABS_LO12_NC", 0x3DC00000, 8, 0) is None


def kernel_of(name):
    return MatmulKernel(MATMUL.load_named(name), KernelName.parse(name).spec)


def prove(path, name, *, all_sizes=False):
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    from bitsynth.objects.prove import prove_object

    return prove_object(path, kernel_of(name), all_sizes=all_sizes)


def library(name, family):
    try:
        return kernel_of(name).library(family)
    except ToolError:
        pytest.skip(f"{family} is not installed")


@pytest.mark.parametrize(("name", "family"), [(MULTIPLY, "gcc"), (DOT, "clang")])
def test_a_compiled_kernel_is_proved(name, family):
    proof = prove(library(name, family), name)
    assert len(proof.sizes) > 20
    assert proof.registers > 500
    assert proof.instructions > 100


@pytest.mark.slow
def test_a_compiled_kernel_is_proved_for_all_sizes():
    proof = prove(library(MULTIPLY, "clang"), MULTIPLY, all_sizes=True)
    assert proof.loops is not None, proof.not_all


def packers(name, family):
    pytest.importorskip("capstone")
    pytest.importorskip("elftools")
    from bitsynth.objects.packers import prove_packers

    return prove_packers(library(name, family), kernel_of(name))


@pytest.mark.parametrize(
    ("name", "family"), [(WORDS_OF_BITS, "gcc"), pytest.param(MULTIPLY, "clang", marks=pytest.mark.slow)]
)
def test_packers_are_proved(name, family):
    """They call functions of the C library through the table of a linked library, and read tables at codes."""
    verdicts = packers(name, family)
    assert len(verdicts) == 6
    assert all(x.is_proved and x.calls > 5 for x in verdicts), verdicts


def test_a_packer_that_reads_another_number_of_a_table_is_refused(tmp_path):
    for package in ("capstone", "elftools"):
        pytest.importorskip(package)
    from bitsynth.objects.packers import prove_packers

    if not shutil.which(GCC):
        pytest.skip("gcc is not installed")
    for file, text in kernel_of(MULTIPLY).files.items():
        (tmp_path / file).write_text(text.replace("(table[codes[k * stride]] >>", "(table[codes[k * stride] ^ 1] >>"))
    flags = ["-std=c11", "-O2", "-march=armv8-a", "-fPIC", "-w", "-c"]
    subprocess.run([GCC, *flags, f"{MULTIPLY}.c", "-o", "kernel.o"], cwd=tmp_path, check=True)
    with pytest.raises(Refuted, match=r"pack_act: with .*: it is"):
        prove_packers(tmp_path / "kernel.o", kernel_of(MULTIPLY))


@cache
def kernel_text(folder):
    """The assembler text that gcc makes of the kernel."""
    if not shutil.which(GCC):
        pytest.skip("gcc is not installed")
    for file, text in kernel_of(LOOKUP).files.items():
        (folder / file).write_text(text)
    flags = ["-std=c11", "-O2", "-march=armv8-a", "-fPIC", "-S"]
    subprocess.run([GCC, *flags, f"{LOOKUP}.c", "-o", "kernel.s"], cwd=folder, check=True)
    return (folder / "kernel.s").read_text()


def kernel_object(folder, edit):
    """The object of the kernel's assembler text, edited."""
    (folder / "f.s").write_text(edit(kernel_text(folder)))
    subprocess.run([GCC, "-c", "f.s", "-o", "f.o"], cwd=folder, check=True)
    return folder / "f.o"


def at_entry(instructions):
    """An edit that puts instructions at the entry of the kernel's function."""
    return lambda text: text.replace(f"\n{LOOKUP}:\n", f"\n{LOOKUP}:\n{instructions}\n")


def test_an_object_that_is_not_linked_is_proved(tmp_path):
    assert prove(kernel_object(tmp_path, lambda text: text), LOOKUP).registers > 500


WRONG = {
    "a caller's register": ("mov x19, #1", "register x19 is not what it was"),
    "a caller's vector register": ("movi v8.16b, #1", "register vector 8 is not what it was"),
    "stack below the pointer": ("str x0, [sp, #-16]", "bytes below what a signal leaves"),
    "a stack pointer that is not aligned": ("sub sp, sp, #8\nstr x0, [sp]\nadd sp, sp, #8", "not a multiple of 16"),
    "a store outside of the buffers": ("str x0, [x7, #-8]", "belong to no buffer are written"),
    "a write of the weights": ("cbz x0, 1f\nstrb wzr, [x5]\n1:", "1 bytes of g . 0 are written"),
    "a branch on data": ("cbz x0, 1f\nldr w9, [x5]\ncbz w9, 1f\n1:", "register that holds data is computed with"),
    "a computed jump": ("adr x9, 1f\nbr x9\n1:", "br x9: a jump to a computed address"),
    "an instruction of another set": ("udot v0.4s, v0.16b, v0.16b", "no declaration of this instruction"),
}


@pytest.mark.parametrize("what", WRONG)
def test_code_that_does_more_is_refused(what, tmp_path):
    code, why = WRONG[what]
    arch = ".arch armv8.2-a+dotprod\n"
    with pytest.raises((Refuted, SpecError), match=why):
        prove(kernel_object(tmp_path, lambda text: arch + re.sub(r"\t\.arch .*", "", at_entry(code)(text))), LOOKUP)


@pytest.mark.slow
def test_changed_objects_that_compute_something_else_are_refused(tmp_path, monkeypatch):
    pytest.importorskip("unicorn")
    library(DOT, "gcc")
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import wrong_objects

    counts = wrong_objects.judged(DOT, "gcc", 12, 2026, tmp_path)
    assert not [what for what in counts if "WRONG" in what[1]]
    assert sum(number for (_, verdict), number in counts.items() if verdict.endswith("else, refused")) > 4
