"""Proves kernels: from a program to a proved one, or to an input on which it is wrong.

A proof has two parts. The checker (`checker.py`) runs the kernel's programs on linear forms and composes what they do
into the product, for every input and any number of steps. It believes what the linear domain says of each instruction,
and records every such belief as a proof obligation (`obligations.py`). Z3 discharges the obligations (`discharge.py`):

    checker      pass 0: a step adds to each of 16 lanes a sum of bits in [0, 8]
    obligation   instruction: cnt.u8x16 on bits in 0xff: the result is the sum of the 8 bits
    discharge    for all x: cnt as declared in isa_specs/ equals that sum

`independent.py` is a second checker that shares no code with any of this. `recheck.py` runs it on a kernel that was
just solved, and for `bitsynth verify`, and writes it next to emitted C.
`proved.py` holds the result as a type that nothing else can make. A stored kernel is checked again when it is loaded;
its obligations are then the recorded ones.
"""
