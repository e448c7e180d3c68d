"""Print registers, spills, access widths and occupancy of every kernel, per architecture.

python -m tests.rrgkern.aot [--json] [--widest] [--amd] [module ...]
"""

from __future__ import annotations

import json
import os
import sys

from tests.rrgkern.aot import harness

HEADER = (
    "| kernel | case | sm | warps | registers | spills | shared B | instructions | loads | stores "
    "| matrix | occupancy |"
)


def row(compiled: harness.Compiled) -> str:
    """One line of the table."""
    assembly = compiled.assembly
    loads, stores = (
        " ".join(f"{count}×{bits}" for bits, count in sorted(widths.items(), reverse=True))
        for widths in (assembly.load_bits, assembly.store_bits)
    )
    cells = (
        *(compiled.kernel, compiled.case, compiled.cc, compiled.num_warps, assembly.registers),
        *(assembly.spill_instructions, compiled.shared_bytes, assembly.instructions),
        *(loads, stores, assembly.matrix_instructions, f"{compiled.occupancy:.0%}"),
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def main(arguments: list[str]) -> None:
    """Compile and print."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        sys.exit("TRITON_INTERPRET=1 leaves nothing to compile: unset it")
    as_json = "--json" in arguments
    modules = [a for a in arguments if not a.startswith("--")] or harness.listed_modules()
    if "--amd" in arguments:
        for figures in (figures for module in modules for figures in harness.compile_amd(module)):
            print(json.dumps(figures), flush=True)
        return
    if not as_json:
        print(HEADER, "|" + "---|" * (HEADER.count("|") - 1), sep="\n")
    compile_listed = harness.compile_widest if "--widest" in arguments else harness.compile_cases
    for module in modules:
        for compiled in compile_listed(module):
            print(harness.to_json(compiled) if as_json else row(compiled), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
