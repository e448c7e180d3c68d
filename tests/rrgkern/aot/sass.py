"""Read a kernel's assembly: registers, spills, access widths, matrices, loads under way."""

from __future__ import annotations

import bisect
import itertools
import re
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.M)
ADDRESSED = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/.*$", re.M)
USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")
MATRIX = re.compile(r"^(?:H|I|D|Q)G?MMA|^UTC\w*MMA")


@dataclass(frozen=True)
class Multiprocessor:
    """Limits of one streaming multiprocessor (CUDA C programming guide, compute capabilities)."""

    warps: int = 64
    blocks: int = 32
    registers: int = 65536
    shared_bytes: int = 228 * 1024
    shared_reserved_bytes_per_block: int = 1024


MULTIPROCESSORS = {
    75: Multiprocessor(32, 16, shared_bytes=64 * 1024, shared_reserved_bytes_per_block=0),
    80: Multiprocessor(shared_bytes=164 * 1024),
    86: Multiprocessor(48, 16, shared_bytes=100 * 1024),
    89: Multiprocessor(48, 24, shared_bytes=100 * 1024),
    90: Multiprocessor(),
    100: Multiprocessor(),
    103: Multiprocessor(),
    120: Multiprocessor(48, 24, shared_bytes=100 * 1024),
}


@dataclass(frozen=True)
class Assembly:
    """Counts from the machine code of one kernel."""

    registers: int
    stack_bytes: int
    spill_instructions: int
    instructions: int
    matrix_instructions: int
    load_bits: dict[int, int]
    store_bits: dict[int, int]
    loads_under_way: int | None = None  # see `loads_under_way`


def disassemble(cubins: Iterable[bytes], cc: int) -> dict[bytes, Assembly]:
    """Read cubins, one kernel each, with the tools that Triton ships."""
    distinct = list(dict.fromkeys(cubins))
    codes = _disassembled([_code_section(cubin) for cubin in distinct], cc)
    return {cubin: _read(cubin, code) for cubin, code in zip(distinct, codes, strict=True)}


def _code_section(cubin: bytes) -> bytes:
    """The bytes of an ELF's one section `.text.KERNEL`."""
    (table,) = struct.unpack_from("<Q", cubin, 40)
    count, names = struct.unpack_from("<HH", cubin, 60)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + 64 * k) for k in range(count)]
    strings = sections[names][4]
    codes = [
        cubin[begin : begin + size]
        for name, _, _, _, begin, size in sections
        if cubin.startswith(b".text.", strings + name)
    ]
    assert len(codes) == 1, f"a cubin of {len(codes)} kernels"
    return codes[0]


def _disassembled(codes: list[bytes], cc: int) -> list[str]:
    """The instructions of each code. One call for all: nvdisasm takes 0.7 s to begin."""
    from triton import knobs

    with tempfile.NamedTemporaryFile() as file:
        file.write(b"".join(codes))
        file.flush()
        target = f"SM{cc}a" if cc >= 90 else f"SM{cc}"
        command = [knobs.nvidia.nvdisasm.path, "--binary", target, file.name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [(int(found[1], 16), found[0]) for found in ADDRESSED.finditer(text)]
    ends = list(itertools.accumulate(map(len, codes)))
    parts: list[list[str]] = [[] for _ in codes]
    for address, line in lines:
        parts[bisect.bisect_right(ends, address)].append(line)
    return ["\n".join(part) for part in parts]


def _read(cubin: bytes, code: str) -> Assembly:
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = USAGE.search(usage)
    if found is None:
        raise RuntimeError(f"cuobjdump printed no register count: {usage!r}")
    names = INSTRUCTION.findall(code)
    return Assembly(
        registers=int(found[1]),
        stack_bytes=int(found[2]),
        spill_instructions=sum(name.split(".")[0] in ("STL", "LDL") for name in names),
        instructions=len(names),
        matrix_instructions=sum(MATRIX.match(name) is not None for name in names),
        load_bits=_widths(names, ("LDG", "LDGSTS")),
        store_bits=_widths(names, ("STG",)),
        loads_under_way=loads_under_way(code),
    )


LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?);", re.M)
BRANCH = re.compile(r"\bBRA\b.*?\b(0x[0-9a-f]+)")
WIDE_LOAD = re.compile(r"\bLDG\S*\.128\S*\s+R(\d+)")


def loads_under_way(code: str) -> int | None:
    """Count 128-bit loads that a thread waits for at once, in the loop where they are fewest.

    A load is under way from its place to the first instruction, round the loop, that touches what
    it loads; there the thread waits, for it and for those that are under way still. None without
    a loop that loads 128 bits.
    """
    lines = [(int(address, 16), text) for address, text in LINE.findall(code)]
    places = {address: place for place, (address, _) in enumerate(lines)}
    jumps = [(place, BRANCH.search(text)) for place, (_, text) in enumerate(lines)]
    loops = [(places[int(found[1], 16)], place) for place, found in jumps
             if found and places.get(int(found[1], 16), place) < place]  # fmt: skip
    inner = [
        (first, last)
        for first, last in loops
        if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in loops)
    ]
    counts = [_most_under_way([text for _, text in lines[a : b + 1]]) for a, b in inner]
    return min((count for count in counts if count), default=None)


def _most_under_way(loop: list[str]) -> int:
    """The 128-bit loads under way where most are, 0 if there are none."""
    size, spans = len(loop), []
    touched = [{int(number) for number in re.findall(r"\bR(\d+)\b", text)} for text in loop]
    for place, text in enumerate(loop):
        if found := WIDE_LOAD.search(text):
            data = set(range(int(found[1]), int(found[1]) + 4))
            until = next(k for k in range(1, size + 1)
                         if k == size or touched[(place + k) % size] & data)  # fmt: skip
            spans.append((place, until))
    waits = [(place + until) % size for place, until in spans]
    return max((sum(0 < (wait - place - 1) % size + 1 <= until for place, until in spans)
                for wait in waits), default=0)  # fmt: skip


def _widths(names: list[str], opcodes: tuple[str, ...]) -> dict[int, int]:
    """Bits of an access -> number of such instructions. A width that is not printed is 32."""
    widths: Counter[int] = Counter()
    for name in names:
        opcode, *modifiers = name.split(".")
        if opcode in opcodes:
            printed = [m.lstrip("US") for m in modifiers]
            widths[next((int(m) for m in printed if m in ("8", "16", "64", "128", "256")), 32)] += 1
    return dict(sorted(widths.items()))


def occupancy(assembly: Assembly, shared_bytes: int, num_warps: int, cc: int) -> float:
    """Share of a multiprocessor's warps that fit: registers, shared memory, block limits."""
    limits = MULTIPROCESSORS[cc]
    # Registers are allocated to a warp in units of 256.
    per_warp = -(-assembly.registers * 32 // 256) * 256
    blocks = min(
        limits.blocks,
        limits.warps // num_warps,
        limits.registers // per_warp // num_warps,
        limits.shared_bytes // max(1, shared_bytes + limits.shared_reserved_bytes_per_block),
    )
    return blocks * num_warps / limits.warps
