"""General instructions of x86-64, on numbers and on data, compared with an emulator."""

import contextlib
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bitsynth.host import features
from bitsynth.isa.load import load
from bitsynth.objects.declared import machine_table
from bitsynth.objects.memory import CallMemory, MemoryPlace, NotShown
from bitsynth.objects.values import Contents

pytestmark = pytest.mark.toolchains

INSTRUCTIONS = """
    mov %rbx, %rax; mov %ebx, %eax; mov %bx, %ax; mov %bl, %al; mov $-5, %rcx; mov $7, %cl
    movabs $0x123456789abcdef0, %rdx
    movzbl %bl, %eax; movzwl %bx, %eax; movzbw %bl, %ax; movzbl %sil, %r9d; movzbl %bh, %eax; movzbl %ch, %edx
    movsbl %bl, %eax; movsbq %bl, %rax; movswl %bx, %eax; movswq %bx, %rax; movslq %ebx, %rax; movsbw %bl, %ax
    lea 5(%rbx,%rcx,4), %rax; lea (%rbx,%rcx), %rdx; lea -7(,%rsi,8), %rdi
    add %rbx, %rax; add %ebx, %eax; add %bx, %ax; add %bl, %al; add $-3, %rax; add $77, %cl
    sub %rbx, %rax; sub %ebx, %eax; sub %bl, %al; sub $9, %edx; sub %rax, %rax
    inc %rax; inc %ecx; dec %rax; dec %dl; neg %rax; neg %ecx; not %rax; not %cl
    and %rbx, %rax; and %ebx, %eax; and $0xf0, %edx; and $-16, %rcx; and %bl, %al
    or %rbx, %rax; or %ebx, %eax; or $0x0f, %dl; xor %rbx, %rax; xor %ebx, %eax; xor $1, %ecx; xor %eax, %eax
    cmp %rbx, %rax; cmp %ebx, %eax; cmp $5, %ecx; test %rbx, %rax; test %ecx, %ecx; test $8, %dl
    imul %rbx, %rax; imul %ebx, %eax; imul $13, %rbx, %rax; imul $-7, %ecx, %edx
    shl $5, %rax; shl $31, %ecx; shl %rbx; shr $3, %rax; shr $1, %edx; shr $7, %cl; sar $9, %rax; sar $3, %ecx
    adc %rbx, %rax; adc $0, %ecx; sbb %rbx, %rax; sbb %ecx, %ecx
    sete %al; setb %bl; setg %cl; cmovne %rbx, %rax; cmovae %ebx, %eax; cmovl %rcx, %rdx
    xchg %rbx, %rbx; nop; shl %cl, %rax; sar %cl, %edx
    mul %rbx; mul %ecx; seto %al; cmovno %rbx, %rax; ror $5, %rax; ror $1, %ecx; ror %cl, %edx
    popcnt %rbx, %rax; popcnt %ecx, %edx
    mov %dl, %ah; mov $7, %bh; mov %ch, %dh; add %cl, %ch; and %bl, %dh; xor $0x80, %ah; shr $3, %bh; sete %ch
    imul $0x01010101, %ebx, %eax
"""
"""Instructions, one or more of each general mnemonic that computes."""
EDGES = [0, 1, 2**64 - 1, 2**63, 2**63 - 1, 2**32 - 1, 2**31, 0x80, 0xFF]
CODE, SPACE = 1 << 20, 16
"""The address of the code, and the bytes from an instruction to the next."""
FLAGS = {"carry": 0, "zero": 6, "sign": 7, "overflow": 11}
"""Bits of the register of flags."""
FILLS = {f"rep stos{size}": n for size, n in {"b": 1, "d": 4, "q": 8}.items()}
COPIES = {f"rep movs{size}": n for size, n in {"b": 1, "d": 4, "q": 8}.items()}
"""Instructions that are repeated, and the bytes that each run writes."""
MASKS = {"kandnq", "kshiftld", "kshiftlq", "kshiftrd", "kshiftrq"}
ELSEWHERE = {"push", "pop", "jmp", "call", "ret", "endbr64", "vzeroupper", "div", "leave", *MASKS, *FILLS, *COPIES}
"""Mnemonics that kernels run in other tests, or that have tests of their own."""


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """The instructions, and their bytes, `SPACE` from each other."""
    texts = [x.strip() for x in re.split("[;\n]", INSTRUCTIONS) if x.strip()]
    return texts, assembled(tmp_path_factory.mktemp("code"), texts)


def assembled(folder, texts):
    """The bytes of instructions, `SPACE` from each other."""
    if features.arch() != "x86_64" or not shutil.which("gcc") or not shutil.which("objcopy"):
        pytest.skip("needs gcc for x86_64")
    (folder / "f.s").write_text("\n".join(f".balign {SPACE}\n{text}" for text in texts) + f"\n.balign {SPACE}\n")
    subprocess.run(["gcc", "-c", "f.s"], cwd=folder, check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", "f.o", "f.bin"], cwd=folder, check=True)
    return (folder / "f.bin").read_bytes()


class BothMachines:
    """One instruction from the same state, run by the emulator, on numbers, and on data."""

    def __init__(self, code):
        unicorn, self.constants = pytest.importorskip("unicorn"), pytest.importorskip("unicorn.x86_const")
        pytest.importorskip("capstone")
        self.emulator = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
        self.emulator.mem_map(CODE, -(-len(code) // 4096) * 4096)
        self.emulator.mem_write(CODE, code)
        self.code, self.table = code, machine_table(load("avx2"))
        self.names = [name for name, parts in self.table.general.items() if len(parts) > 1]  # Without those of masks.

    def register(self, name):
        return getattr(self.constants, f"UC_X86_REG_{name.upper()}")

    def emulated(self, at, state, flags):
        """The registers, the flags and the next address after the instruction at an address."""
        for name, x in state.items():
            self.emulator.reg_write(self.register(name), x)
        self.emulator.reg_write(self.register("eflags"), sum(x << FLAGS[name] for name, x in flags.items()) | 2)
        self.emulator.emu_start(at, CODE + len(self.code), count=1)
        after = self.emulator.reg_read(self.register("eflags"))
        registers = {name: self.emulator.reg_read(self.register(name)) for name in self.names}
        return registers, {name: after >> k & 1 for name, k in FLAGS.items()}

    def processor(self):
        from bitsynth.objects.elf import ObjectFile
        from bitsynth.objects.processor import CodeProcessor

        values, place = Contents(), MemoryPlace("code", CODE, len(self.code), self.code)
        file = ObjectFile(Path("f.o"), CODE, (place,), (), {}, (), {}, (), (), {})
        return CodeProcessor(file, load("avx2"), values, CallMemory(values))

    def on_numbers(self, at, state, flags):
        """The same, as objects are run; flags without a value are None."""
        processor = self.processor()
        registers = processor.registers
        registers.reset()
        registers.general |= state
        for name, x in flags.items():
            setattr(registers.flags, name, x)
        processor.step(at)
        return {x: registers.general[x] for x in self.names}, {x: getattr(registers.flags, x) for x in FLAGS}

    def on_data(self, at, state, flags):
        """The registers after the instruction ran on unknown bytes, which then get the values of the state."""
        processor = self.processor()
        registers, values = processor.registers, processor.values
        registers.reset()
        registers.general["rsp"] = state["rsp"]
        registers.flags.carry = flags["carry"]
        processor.step(at)

        def known(x):
            if isinstance(x, int):
                return x
            data = values.evaluate([x], values.operations_of(x, x), lambda of: state[of[0][1]] >> 8 * of[1] & 0xFF)
            return int.from_bytes(bytes(data[0]), "little")

        return {name: known(registers.general[name]) for name in self.names}


def states(machines, seed, count):
    rng = random.Random(seed)
    for _ in range(count):
        state = {name: rng.choice([rng.choice(EDGES), rng.getrandbits(64)]) for name in machines.names}
        yield state, {name: rng.getrandbits(1) for name in FLAGS}


def test_general_instructions_do_what_the_emulator_does(code):
    texts, data = code
    machines, seen, of_data = BothMachines(data), set(), 0
    for k, text in enumerate(texts):
        at = CODE + SPACE * k
        seen.add(machines.processor()._disassemble(at, at).mnemonic)
        for state, flags in states(machines, k, 6):
            want, flags_after = machines.emulated(at, state, flags)
            have, known = machines.on_numbers(at, state, flags)
            assert have == want, text
            assert {x: n for x, n in known.items() if n is not None} == {
                x: flags_after[x] for x, n in known.items() if n is not None
            }, text
            with contextlib.suppress(NotShown):
                assert machines.on_data(at, state, flags) == want, text
                of_data += 1
    assert of_data > 400
    assert {*machines.table.moves, *machines.table.arithmetic} <= seen | ELSEWHERE | {"sal"}


def test_numbers_of_two_registers_are_divided(tmp_path):
    texts = ["div %rbx", "div %ebx"]
    machines, rng, bits = BothMachines(assembled(tmp_path, texts)), random.Random(1), (64, 32)
    for k, size in enumerate(bits):
        at = CODE + SPACE * k
        for state, flags in states(machines, k, 20):
            by = rng.randrange(1, 1 << size)
            chosen = state | {"rbx": by, "rdx": rng.randrange(by)}
            assert machines.on_numbers(at, chosen, flags)[0] == machines.emulated(at, chosen, flags)[0]
        for wrong in ({"rbx": 0}, {"rbx": 5, "rdx": 5}):
            with pytest.raises(NotShown, match="divides by 0"):
                machines.on_numbers(at, state | wrong, flags)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_memory_is_filled_and_copied(tmp_path, count):
    texts = [*FILLS, *COPIES]
    spelled = [text.replace("stosd", "stosl").replace("movsd", "movsl") for text in texts]
    machines = BothMachines(assembled(tmp_path, spelled))
    for k, (text, size) in enumerate({**FILLS, **COPIES}.items()):
        processor = machines.processor()
        registers, memory = processor.registers, processor.memory
        registers.reset()
        source = bytes(range(1, 65))
        memory.arrays = [MemoryPlace("from", 4096, len(source), source), MemoryPlace("to", 8192, 64, writable=True)]
        registers.general |= {"rdi": 8192, "rsi": 4096, "rcx": count, "rax": 0x8877665544332211}
        processor.step(CODE + SPACE * k)
        bytes_of_rax = (0x8877665544332211).to_bytes(8, "little")[:size] * count
        want = bytes_of_rax if text in FILLS else source[: size * count]
        assert memory.bytes_at(8192, 64) == [*want, *[None] * (64 - len(want))], text
        moved = {"rdi": 8192 + len(want), "rsi": 4096 + len(want) * (text in COPIES), "rcx": 0}
        assert {name: registers.general[name] for name in moved} == moved, text
        registers.general |= {"rdi": 8192, "rsi": 4096, "rcx": 65 // size + 1}
        with pytest.raises(NotShown, match="belong to no buffer"):
            processor.step(CODE + SPACE * k)


def test_code_of_a_kernel_jumps_to_no_computed_address(tmp_path):
    from bitsynth.objects.operands import LinkedPlaces

    machines = BothMachines(assembled(tmp_path, ["jmp *%rax", "jmp *%r9"]))
    for k, name in enumerate(("rax", "r9")):
        processor = machines.processor()
        processor.registers.reset()
        with pytest.raises(NotShown, match="a jump to a computed address"):
            processor.step(CODE + SPACE * k)
        processor = machines.processor()
        processor.registers.places = LinkedPlaces()
        processor.registers.reset()
        with pytest.raises(NotShown, match="depends on data"):
            processor.step(CODE + SPACE * k)
        processor.registers.general[name] = 77
        assert processor.step(CODE + SPACE * k) == 77


def test_a_function_leaves_its_frame(tmp_path):
    processor = BothMachines(assembled(tmp_path, ["leave"])).processor()
    registers, memory = processor.registers, processor.memory
    registers.reset()
    memory.add_stack(4096, 256)
    registers.general |= {"rsp": 4000}
    registers.push(77)
    registers.general |= {"rbp": 3992, "rsp": 3950}
    processor.step(CODE)
    assert (registers.general["rsp"], registers.general["rbp"]) == (4000, 77)


def test_masks_hold_what_was_moved_there(tmp_path):
    texts = ["kmovw %edi, %k1", "kmovw %k1, %eax", "kmovq %rdi, %k2", "kmovd %k2, %eax", "kmovw %k2, (%rsi)"]
    processor = BothMachines(assembled(tmp_path, [*texts, "vmovdqu32 %zmm1, %zmm2{%k1}"])).processor()
    registers, memory = processor.registers, processor.memory
    registers.reset()
    registers.general |= {"rdi": 0x1234567890ABCDEF, "rsi": 8192}
    memory.arrays = [MemoryPlace("to", 8192, 2, writable=True)]
    for k in range(len(texts)):
        processor.step(CODE + SPACE * k)
        if k == 1:
            assert registers.general["rax"] == registers.general["k1"] == 0xCDEF
    assert (registers.general["k2"], registers.general["rax"]) == (0x1234567890ABCDEF, 0x90ABCDEF)
    assert memory.bytes_at(8192, 2) == [0xEF, 0xCD]
    with pytest.raises(NotShown):
        processor.step(CODE + SPACE * len(texts))


def test_what_is_taken_from_the_stack_may_have_no_value(tmp_path):
    """A compiler moves the stack pointer so; the value is unknown, and no other is equal."""
    processor = BothMachines(assembled(tmp_path, ["pop %rax", "pop %rbx", "mov (%rax), %rcx"])).processor()
    registers, memory = processor.registers, processor.memory
    registers.reset()
    memory.add_stack(4096, 256)
    registers.general |= {"rsp": 4000}
    processor.step(CODE)
    registers.general |= {"rsp": 4000}
    processor.step(CODE + SPACE)
    assert registers.general["rax"] is not registers.general["rbx"]
    with pytest.raises(NotShown, match="an address depends on data"):
        processor.step(CODE + 2 * SPACE)
    registers.general |= {"rsp": 5000}
    with pytest.raises(NotShown, match="belong to no buffer"):
        processor.step(CODE)
