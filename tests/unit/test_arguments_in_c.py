"""C that compilers of users do not take."""

import re

import pytest

from bitsynth.matmul import get_kernel

ANYWHERE = re.compile(r"^typedef \w+ (\w+) __attribute__\(\(vector_size\(\w+\), aligned\(1\)", re.MULTILINE)
KERNELS = [
    ("neon", 2, 2, {"method": "popcount", "channels": 64}),
    ("neon", 4, 4, {"cpu": "a53"}),
    ("neon", 2, 1, {"method": "pairs", "channels": 64}),
    ("neon_dotprod", 2, 2, {"method": "dot", "channels": 64}),
    ("neon", 4, 4, {"method": "fip", "channels": 64}),
    ("avx2", 2, 2, {"method": "lookup"}),
]


@pytest.mark.parametrize(("isa", "act_bits", "w_bits", "options"), KERNELS, ids=str)
def test_no_vector_of_any_alignment_is_an_argument(isa, act_bits, w_bits, options):
    """GCC 14 for AArch64 ends with an internal error there (`aarch64_function_arg_alignment`)."""
    source = get_kernel(isa, act_bits, w_bits, "signed", "signed", **options).source
    names = ANYWHERE.findall(source)
    assert names
    taken = re.compile(rf"[(,] *(?:const )?({'|'.join(names)}) \w+ *[,)]")
    assert [line for line in source.splitlines() if taken.search(line)] == []
