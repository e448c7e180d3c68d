"""Read PTX: kernels with their registers, variables, parameters and instructions.

Source: "Parallel Thread Execution ISA", NVIDIA, version 9.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class PtxError(Exception):
    """Say what is wrong with a kernel, and where: kernel, line of the PTX, line of the source.

    `kind` is one of: opcode, parse, bounds, alignment, race, uninitialised, barrier, lanes,
    assertion.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@dataclass(frozen=True)
class Register:
    """A register by its place in the file of its kernel."""

    index: int
    type: str


@dataclass(frozen=True)
class Immediate:
    """A literal as it is written; the instruction's type says how to read it."""

    text: str


@dataclass(frozen=True)
class Symbol:
    """A variable, a parameter, a label or a special register."""

    name: str


@dataclass(frozen=True)
class Address:
    """[base + offset]; the base is a register, a symbol or absent."""

    base: Register | Symbol | None
    offset: int


@dataclass(frozen=True)
class Vector:
    """{a, b, ...}; None stands for a place that is thrown away."""

    items: tuple[Operand | None, ...]


Operand = Register | Immediate | Symbol | Address | Vector


@dataclass(frozen=True)
class Instruction:
    """One instruction; `guard` is its predicate and whether it is negated."""

    opcode: str
    operands: tuple[Operand | None, ...]
    guard: tuple[Register, bool] | None
    line: int
    text: str
    source: str

    @property
    def parts(self) -> list[str]:
        """The opcode and its modifiers."""
        return self.opcode.split(".")


@dataclass(frozen=True)
class Variable:
    """A variable of a state space; `data` holds its first bytes, the others are 0."""

    offset: int
    size: int
    align: int
    data: bytes = b""


@dataclass
class Kernel:
    """An entry function."""

    name: str
    parameters: dict[str, Variable] = field(default_factory=dict)
    registers: list[str] = field(default_factory=list)
    shared: dict[str, Variable] = field(default_factory=dict)
    local: dict[str, Variable] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    constants: dict[str, Variable] = field(default_factory=dict)
    program: Any = None  # what program.py makes of it

    def error(self, kind: str, at: Instruction, text: str) -> PtxError:
        """Make the error of an instruction, with its place."""
        source = f" ({at.source})" if at.source else ""
        return PtxError(
            kind, f"{text}\n  kernel {self.name}, line {at.line}{source}: {at.text.strip()}"
        )


SIZES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2}
SIZES |= {"b32": 4, "u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}
SIZES |= {"f16x2": 4, "bf16x2": 4, "f32x2": 8, "pred": 1}

TOKEN = re.compile(r'"[^"]*"|[%$\w.:]+|[-+]?\d\w*|[^\s\w]')
NUMBER = re.compile(r"^-?(0[fFdD][0-9a-fA-F]+|0[xX][0-9a-fA-F]+U?|\d+U?)$")
DECLARATION = re.compile(
    r"\.(?P<space>shared|local|global|const|param)\s*(?:\.align\s+(?P<align>\d+)\s*)?"
    r"(?:\.attribute\(\S+\)\s*)?\.(?P<type>[bsuf]\d+)\s*(?:\.ptr\s*(?:\.\w+\s*)?"
    r"(?:\.align\s+\d+\s*)?)?(?P<name>[%$\w]+)\s*(?:\[(?P<count>\d*)\])?"
    r"(?:\s*=\s*(?P<data>.*))?$",
    re.S,
)


def parse(text: str) -> dict[str, Kernel]:
    """Read a module: its entry functions by name."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    lines = [line.split("//", 1)[0] for line in text.split("\n")]
    end = next((n for n, x in enumerate(lines) if x.lstrip().startswith(".section")), len(lines))
    files = dict(re.findall(r'\.file\s+(\d+)\s+"([^"]*)"', text))
    outer = "\n".join(lines[:end])
    constants: dict[str, Variable] = {}
    kernels: dict[str, Kernel] = {}
    shared: dict[str, Variable] = {}
    for match in re.finditer(r"^[ \t]*(\.(?:extern|visible|weak|global|const|shared)[^;]*?;)|"
                             r"^[ \t]*((?:\.\w+\s+)*\.entry\b)", outer, re.M):  # fmt: skip
        if match[1] is None:
            kernel = _kernel(outer, match.start(2), files)
            kernel.constants = constants
            kernel.shared = _placed(shared, kernel.shared)
            kernels[kernel.name] = kernel
        elif ".entry" in match[1]:
            start = outer.index(".entry", match.start(1))
            kernel = _kernel(outer, start, files)
            kernel.constants = constants
            kernel.shared = _placed(shared, kernel.shared)
            kernels[kernel.name] = kernel
        elif ".func" not in match[1]:
            text_of = re.sub(r"^\.(extern|visible|weak)\s+", "", match[1].rstrip(";").strip())
            space, name, variable = _declared(text_of)
            (shared if space == "shared" else constants)[name] = variable
    return kernels


def _placed(outer: dict[str, Variable], own: dict[str, Variable]) -> dict[str, Variable]:
    """Lay out shared variables one after the other; those without a size come last."""
    placed: dict[str, Variable] = {}
    end = 0
    for name, variable in sorted({**own, **outer}.items(), key=lambda item: item[1].size == 0):
        end = -(-end // variable.align) * variable.align
        placed[name] = Variable(end, variable.size, variable.align)
        end += variable.size + 16  # a gap, in which wrong bounds show
    return placed


def _declared(text: str) -> tuple[str, str, Variable]:
    match = DECLARATION.match(text)
    if match is None:
        raise PtxError("parse", f"a declaration that is not understood: {text[:200]}")
    element = SIZES[match["type"]]
    count = 1 if match["count"] is None else int(match["count"] or 0)
    data = b""
    if match["data"]:
        numbers = [int(n, 0) for n in re.findall(r"-?\w+", match["data"])]
        data = np.array(numbers, dtype=np.int64).astype(f"<i{element}").tobytes()
    variable = Variable(0, element * count, int(match["align"] or element), data)
    return match["space"], match["name"], variable


def _kernel(text: str, start: int, files: dict[str, str]) -> Kernel:
    opened, closed = text.index("(", start), text.index(")", start)
    brace = text.index("{", closed)
    kernel = Kernel(text[start:opened].split()[-1])
    offset = 0
    for declaration in filter(None, map(str.strip, text[opened + 1 : closed].split(","))):
        _, name, variable = _declared(declaration)
        offset = -(-offset // variable.align) * variable.align
        kernel.parameters[name] = Variable(offset, variable.size, variable.align)
        offset += variable.size
    _Body(kernel, files).read(text, brace)
    return kernel


class _Body:
    """Reads the statements of one kernel; `scopes` are the names of registers, inner ones last."""

    def __init__(self, kernel: Kernel, files: dict[str, str]) -> None:
        self.kernel, self.files = kernel, files
        self.scopes: list[dict[str, Register]] = []
        self.source = ""

    def read(self, text: str, at: int) -> None:
        line = text.count("\n", 0, at) + 1
        statement, begun, depth = "", line, 0
        for character in text[at:]:
            line += character == "\n"
            if not statement.strip():
                begun = line
                if character == "{":
                    self.scopes.append({})
                    continue
                if character == "}":
                    self.scopes.pop()
                    if not self.scopes:
                        return
                    continue
            if character == "\n" and statement.lstrip().startswith(".loc"):
                _, number, row, *_ = statement.split()
                name = self.files.get(number, "").rsplit("/", 1)[-1]
                self.source = f"{name}:{row}" if name else ""
                statement = ""
            elif character == ":" and re.fullmatch(r"\s*[$%\w]+", statement):
                self.kernel.labels[statement.strip()] = len(self.kernel.instructions)
                statement = ""
            elif character == ";" and depth == 0:
                self._statement(" ".join(statement.split()), begun)
                statement = ""
            else:
                depth += (character == "{") - (character == "}")
                statement += character
        raise PtxError("parse", f"kernel {self.kernel.name} has no end")

    def _statement(self, text: str, line: int) -> None:
        if text.startswith(".reg"):
            self._registers(text)
        elif text.startswith((".shared", ".local", ".param")):
            space, name, variable = _declared(text)
            table = self.kernel.shared if space == "shared" else self.kernel.local
            if space != "shared":
                end = max((v.offset + v.size for v in table.values()), default=0)
                end = -(-end // variable.align) * variable.align
                variable = Variable(end, variable.size, variable.align)
                if space == "param":
                    name = f"param {name}"
            table[name] = variable
        elif text and not text.startswith(".pragma"):
            self.kernel.instructions.append(self._instruction(text, line))

    def _registers(self, text: str) -> None:
        _, kind, names = text.split(None, 2)
        for name in map(str.strip, names.split(",")):
            many = re.fullmatch(r"(.*)<(\d+)>", name)
            each = [f"{many[1]}{n}" for n in range(int(many[2]))] if many else [name]
            for one in each:
                self.scopes[-1][one] = Register(len(self.kernel.registers), kind[1:])
                self.kernel.registers.append(kind[1:])

    def _instruction(self, text: str, line: int) -> Instruction:
        rest, guard = text, None
        if text.startswith("@"):
            name, rest = text[1:].split(None, 1)
            register = self._name(name.lstrip("!"))
            assert isinstance(register, Register)
            guard = (register, name.startswith("!"))
        opcode, _, arguments = rest.partition(" ")
        tokens = TOKEN.findall(arguments.replace("|", ","))
        operands = []
        while tokens:
            operands.append(self._operand(tokens))
            if tokens and tokens.pop(0) != ",":
                raise PtxError("parse", f"line {line} is not understood: {text}")
        return Instruction(opcode, tuple(operands), guard, line, text, self.source)

    def _operand(self, tokens: list[str]) -> Operand | None:
        token = tokens.pop(0)
        if token == "[":
            return self._address(tokens)
        if token in "{(":
            closing = "}" if token == "{" else ")"
            items = []
            while tokens[0] != closing:
                items.append(self._operand(tokens))
                if tokens[0] == ",":
                    tokens.pop(0)
            tokens.pop(0)
            return Vector(tuple(items))
        if token in "-!":
            token += tokens.pop(0)
        if token == "_":
            return None
        return Immediate(token) if NUMBER.match(token) else self._name(token)

    def _address(self, tokens: list[str]) -> Address:
        base: Register | Symbol | None = None
        offset, sign = 0, 1
        while (token := tokens.pop(0)) != "]":
            if token in "+-":
                sign = -1 if token == "-" else 1
            elif re.fullmatch(r"[-+]?\d\w*", token):
                offset += sign * int(token, 0)
            else:
                base = self._name(token)
        return Address(base, offset)

    def _name(self, name: str) -> Register | Symbol:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return Symbol(name)


def number(text: str, kind: str) -> np.generic:
    """Read a literal as a value of the PTX type `kind`: unsigned bits of its size."""
    unsigned = np.dtype(f"u{SIZES[kind]}")
    negative, body = text.startswith("-"), text.lstrip("-")
    if body[:2] in ("0f", "0F", "0d", "0D"):
        bits, single = int(body[2:], 16), body[1] in "fF"
        value = np.array(bits, "u4" if single else "u8").view("f4" if single else "f8")
        value = -value if negative else value
        wide = np.float32 if kind.endswith("32") else np.float64
        return value.astype(wide).view(unsigned)[()]
    value = int(body.rstrip("U"), 0) * (-1 if negative else 1)
    if kind in ("f32", "f64"):
        return np.array(value, f"f{SIZES[kind]}").view(unsigned)[()]
    return np.array(value % (1 << (8 * SIZES[kind])), dtype=np.uint64).astype(unsigned)[()]
