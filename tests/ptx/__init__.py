"""Execute compiled GPU code without a GPU: a PTX interpreter on NumPy arrays, a lane an element.

    parse.py      PTX text -> kernels: registers, variables, instructions, source lines
    numbers.py    arithmetic that NumPy lacks: fused multiply-add, bf16, flushing, rounding, and
                  fp32 instructions that err by all that the manual allows
    fields.py     bit fields and bytes
    opcodes.py    an instruction -> a function on the registers of the lanes that execute it
    accesses.py   likewise for loads, stores, atomics, shuffles, votes and matrices
    memory.py     global, shared and local memory: bounds, alignment, races
    program.py    a kernel -> basic blocks of such functions
    run.py        lanes to basic blocks, divergence, barriers, the blocks of a grid
    csrc.py       csrc/*/cuda.cu: compiled to PTX, launched by its own host code
    on_ptx.py     the Triton kernels: compiled ahead of time, launched by their own launchers

Executed is PTX, and memory is as strict as the model of PTX allows: lanes of a warp are in lockstep
here, but only a barrier orders what two of them do to a byte. The assembler comes after PTX: its
contractions, its order and its spills are not seen here, nor is speed.
"""
