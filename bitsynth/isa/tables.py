"""The tables of `isa_specs/<isa>/*.toml`, field by field."""

from __future__ import annotations

import msgspec

ANY_PORT = "vector"
"""The port class of instructions that any vector port takes."""


class CostTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Costs: `lat` cycles of latency, at most `per_cycle` instructions a cycle, on `port`.

    A load may also take `slots` of the vector ports, as a load that repeats its data over a register does.
    """

    lat: float
    per_cycle: float
    port: str = ANY_PORT
    slots: int = 0


class InstrTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[instr.NAME]` table.

    `mnemonic` is the machine instruction of its C, as disassemblers spell it: one for all forms, or a list with one for
    each form. " | " separates alternatives of compilers. `floats` are the operands that are float32 numbers; with
    `any_nan`, a NaN in the result may have any sign and payload. `clang` is the C text for Clang, if it needs another.
    """

    doc: str
    lane: str
    c: str
    mnemonic: str | list[str]
    out: str
    source: str
    cost: dict[str, CostTable]
    forms: dict[str, list[str | int]]
    in_: dict[str, str] = msgspec.field(name="in")
    imm: dict[str, tuple[int | str, int | str]] = {}
    try_imm: list[int] = []
    tied: list[str] = []
    high: str | None = None
    store: bool = False
    feature: str = ""
    instructions: int = 1
    floats: list[str] = []
    any_nan: bool = False
    clang: str = ""


class FeatureTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Instructions that only some processors of the set have.

    The compiler defines `macro` if it may use them, and does so with `cc_flags`; `host` are their names in Linux's
    /proc/cpuinfo.
    """

    doc: str
    macro: str
    cc_flags: list[str]
    host: list[str]


class KindTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of instruction: cycles of latency, slots that it takes by port; `alone`: nothing issues with it."""

    lat: int
    takes: dict[str, int]
    alone: bool = False


class IssueTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The issue rules of a processor: `width` instructions a cycle, in order, or from a `window` in flight.

    `ports` are the pipes of each class of ports, `kinds` the instructions that are not vector arithmetic, `others`
    vector arithmetic that no instruction table declares, by mnemonic.
    """

    width: int
    ports: dict[str, list[str]]
    kinds: dict[str, KindTable]
    source: str
    in_order: bool = False
    window: int = 1 << 30
    others: dict[str, KindTable] = {}

    @property
    def ports_per_cycle(self) -> int:
        """The most vector instructions that issue in a cycle."""
        return len(self.ports[ANY_PORT])


class CpuTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A processor: at most `vector_per_cycle` vector instructions issue in a cycle.

    At most `issued_per_cycle` instructions of all kinds issue; 0 if estimates of layers leave that out.
    If no operand is wider than half a register, `half_width_speedup` times as many issue, except stores. `overlap`
    is the share of other port classes' cycles that overlap with the busiest class's. With `loads_block`,
    nothing is issued with a load of a whole register. `features` are the feature sets it has; all if none are
    given. `near_bytes` stay in its first cache from one tile of a layer to the next, `outer_bytes` in its second,
    from which it reads `far_bytes_per_cycle`; a tile takes `call_cycles` in addition to its accumulation. The
    defaults of these four were measured on Zen 5. `outer_bytes_per_cycle` arrive from behind its second cache; 0 if
    these bytes take no longer than bytes of the second cache, as measured on Zen 4. Kernels in its order prefetch cache
    lines `prefetch_turns` iterations before they read them. Packing and pointers take `slower` times as long as on Zen
    5, by `vector_per_cycle` if not given. `issue` are its issue rules, for processors that are predicted.
    """

    doc: str
    vector_per_cycle: float
    issued_per_cycle: float = 0.0
    half_width_speedup: float = 1.0
    overlap: float = 1.0
    loads_block: bool = False
    features: list[str] | None = None
    near_bytes: int = 40_000
    outer_bytes: int = 1 << 20
    far_bytes_per_cycle: float = 40.0
    outer_bytes_per_cycle: float = 0.0
    call_cycles: float = 30.0
    prefetch_turns: int = 0
    slower: float | None = None
    issue: IssueTable | None = None

    def has(self, feature: str) -> bool:
        """Return whether the processor has the feature set; "" is the base of the instruction set."""
        return not feature or self.features is None or feature in self.features


class PaperTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The instructions of CGO 2020's sketches, by table name.

    `operations` are its kernels' operations for 128 multiply-accumulates, by widths such as a2w1.
    """

    compute: list[str]
    reduce: tuple[str, ...]
    shift: str
    add: str
    operations: dict[str, int] = {}


class HalvesTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Loads of registers in halves: `hold` keeps the place of the load of a high half in the text."""

    hold: str


class PrefetchTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The C that has the line of a cache fetched that an address is in, which need not be anybody's.

    Clang makes an instruction more of `ask`, and gcc puts what `clang` takes elsewhere.
    """

    ask: str
    clang: str


class MatrixCycles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cycles from one instruction on matrices to the next of its kind, and cycles of a configuration."""

    load: float
    multiply: float
    store: float
    configure: float


class MatrixTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Matrix registers: `registers` of them, each with at most `rows` rows of `row_bytes` bytes.

    The instruction `multiply` on matrices acc, a and b means: for each row m of acc, and each group k of bytes in row m
    of a, as many as a lane of acc has, row m of acc becomes `repeats` of itself, of group k repeated over a register,
    and of row k of b. `repeats` is an instruction form of the set, with operands acc, a and b.

    The C texts have holes: {t}, {acc}, {a} and {b} are numbers of matrix registers, {p} is a pointer to the first row,
    {stride} the distance of rows in bytes, {x} an array of 64 bytes with the configuration. A program that has matrices
    is compiled with `cc_flags`, and `host` are the features that it needs. `permission` is C that defines `static int
    matrices_allowed(void)`: whether the system lets this process have matrices, for which it asks. `cycles` are from
    `source`, by processor.
    """

    doc: str
    registers: int
    rows: int
    row_bytes: int
    repeats: str
    cc_flags: list[str]
    host: list[str]
    permission: str
    configure: str
    release: str
    zero: str
    load: str
    multiply: str
    store: str
    cycles: dict[str, MatrixCycles]
    source: str


class IsaTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[isa]` table of `isa.toml`.

    `cast` views a register as another type. `pin` is a statement that keeps compilers from mixing the rows of a tile,
    which makes them spill; accumulators of a step whose first run is peeled go without it if `pin_peeled` is false, as
    compilers copy those; `pin_tile` stands in its place in kernels whose steps add to lanes of the tile's width, which
    live as long as the loop over K, and `pin_pairs` in kernels of pairs of rows. `hold` is one that keeps a value's
    place in the text, `address` one that keeps an address in a register. `probes` are C expressions that ask for each
    feature of the host, after the architecture's `probe`. `cpus` names the processors of the set it `extends` that it
    keeps; all if it names none. `matrices` are its matrix registers, if it has some.
    `auto` says whether the name "auto" may stand for it: not for a set whose times nobody has measured.
    """

    name: str
    doc: str
    arch: str
    vector_bits: int
    registers: int
    header: str
    feature: str
    cc_flags: list[str]
    cast: str
    ctype: dict[str, str]
    cpu: dict[str, CpuTable]
    sources: dict[str, str]
    host_features: list[str] = []
    probes: dict[str, str] = {}
    features: dict[str, FeatureTable] = {}
    extends: str = ""
    cpus: list[str] = []
    pin: str = ""
    hold: str = ""
    address: str = ""
    prefetch: PrefetchTable | None = None
    halves: HalvesTable | None = None
    pin_peeled: bool = True
    pin_tile: str = ""
    pin_pairs: str = ""
    paper: PaperTable | None = None
    matrices: MatrixTable | None = None
    auto: bool = True

    @property
    def wanted_features(self) -> list[str]:
        """The features that a processor of the set has, including the features of matrix registers."""
        return [*self.host_features, *(self.matrices.host if self.matrices else [])]

    @property
    def in_order(self) -> list[str]:
        """The processors in whose order steps can be written: in-order ones with issue rules."""
        return [name for name, cpu in self.cpu.items() if cpu.issue and cpu.issue.in_order]


class IsaFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file `isa.toml`."""

    isa: IsaTable


class InstrFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Any other file of the folder: tables of instructions."""

    instr: dict[str, InstrTable]
