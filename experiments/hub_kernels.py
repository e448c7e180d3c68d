"""Write rrgkern as the Hub's `kernels` loads it, and compare with the package.

    python -m experiments.hub_kernels DIR                   write it, with this checkout's extension
    python -m experiments.hub_kernels DIR --library _C.so   with that of a wheel: of manylinux_2_28
    python -m experiments.hub_kernels DIR --check           load this machine's variant, and compare
    TRITON_INTERPRET=1 python -m experiments.hub_kernels DIR --check    torch-cuda on a CPU

DIR holds a card (README.md), build.toml, the sources that it names (torch-ext/), and two variants:

    build/torch-cuda                    Triton's kernels; what csrc alone serves runs its reference
    build/tvm-ffi01-cpu-x86_64-linux    the C++ kernels, the name as tvm-ffi and machine have it

Imports are relative and ops are registered under the id of metadata.json, as the Hub wants, so that
the folder's kernels and an installed rrgkern live in one process. A build.toml has one framework,
here torch-noarch: the kernel-builder, which needs Nix, makes torch-cuda again from it. The other
variant is compiled by setup.py, whose flags and instruction sets are not the builder's.
"""

from __future__ import annotations

import argparse
import ast
import base64
import hashlib
import importlib
import json
import platform
import re
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import rrgkern
from rrgkern import csrc
from rrgkern.dispatch import interpreting

NAME, VERSION, LICENSE = "rrgkern", 0, "Apache-2.0"  # 0: the builder's word for what is not stable
HERE = Path(rrgkern.__file__).parent
# The package itself is imported under the id of its variant.
_ROOT = "{__name__.partition('.')[0]}"
_OWN_NAME = re.compile(rf'f?"{NAME}(?=::|\.[a-z_.]+")')
_IMPORT = re.compile(rf"from {NAME}(?:\.(?=\w))?")

BUILD = f"""\
[general]
name = "{NAME}"
version = {VERSION}
edition = 5
license = "{LICENSE}"
backends = ["cuda"]

[torch-noarch]
"""

# For releases of `kernels` that look for a folder of the kernel's name in the variant.
FOLDER = """\
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

if "{id}" not in sys.modules:
    _spec = spec_from_file_location("{id}", Path(__file__).parents[1] / "__init__.py")
    sys.modules["{id}"] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["{id}"])
__all__ = sys.modules["{id}"].__all__
globals().update({{name: getattr(sys.modules["{id}"], name) for name in __all__}})
"""

CARD = """\
---
library_name: kernels
license: apache-2.0
tags:
  - kernels
  - reinforcement-learning
  - radiology
---

# rrgkern {version}

Losses of policy gradients from log-probs, from logits and from hidden states, log-probs,
advantages, and EditGRPO's edits and matching, for reinforcement learning of radiology reports.
Research code; not a medical device.

```python
from kernels import get_local_kernel

rrgkern = get_local_kernel("{folder}")
out = rrgkern.policy_loss(logps, advantages, offsets, old=old, scale=scale)
```

| variant | holds |
|---|---|
| `torch-cuda` | Triton's kernels: advantages, log-probs, the losses, `decode_unchecked` |
| `{compiled}` | C++ kernels of all but `decode_unchecked`, for CPUs of {machine} |

`entity_match`, `edit_plan`, `mccs` and the token weights have CUDA kernels in `csrc` alone: in
`torch-cuda` they run their PyTorch reference, with a warning. Install rrgkern for these.
A loss from log-probs, from logits, advantages, matches and edits were compared with the package's
own on a CPU: equal bits. No GPU has loaded this folder. Python 3.11 or newer.

Functions: {functions}.
"""


def portable(source: str, depth: int) -> str:
    """Rewrite a module, `depth` packages down: relative imports, and ops named by the root."""
    tree, lines = ast.parse(source), source.splitlines(keepends=True)
    words: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            words.update(range(node.lineno - 1, (node.end_lineno or node.lineno)))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == NAME:
            i = node.lineno - 1
            lines[i] = _IMPORT.sub("from " + "." * (depth + 1), lines[i], count=1)
        elif isinstance(node, ast.Import) and any(a.name.split(".")[0] == NAME for a in node.names):
            raise ValueError(f"line {node.lineno} imports {NAME} whole, wanted from {NAME} import")
    code = (s if i in words else _OWN_NAME.sub(f'f"{_ROOT}', s) for i, s in enumerate(lines))
    return "".join(code)


def sources() -> dict[str, str]:
    """Collect the modules of the package but its command, rewritten, by their paths."""
    paths = [p.relative_to(HERE) for p in sorted(HERE.rglob("*.py")) if p.name != "__main__.py"]
    return {
        str(path): portable((HERE / path).read_text(encoding="utf-8"), len(path.parts) - 1)
        for path in paths
    }


def write(folder: Path, library: Path | None = None) -> None:
    """Write the repository; `library` is the compiled extension, None for the package's own.

    Raises:
        SystemExit: no extension, or the folder is there.
    """
    library = csrc.LIBRARY if library is None else library
    if not library.is_file():
        raise SystemExit(f"{library} is missing: {csrc.HOW_TO_BUILD}")
    if folder.exists():
        raise SystemExit(f"{folder} is there already; name another folder")
    code = sources()
    compiled = _compiled()
    _lay(folder / "torch-ext" / NAME, code)
    _variant(folder / "build/torch-cuda", code, "cuda", None)
    _variant(folder / "build" / compiled, code, "cpu", library)
    (folder / "build.toml").write_text(BUILD, encoding="utf-8")
    card = CARD.format(
        version=rrgkern.__version__,
        folder=folder.name,
        compiled=compiled,
        machine=platform.machine(),
        functions=", ".join(f"`{name}`" for name in rrgkern.__all__),
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def _compiled() -> str:
    major, minor = metadata.version("apache-tvm-ffi").split(".")[:2]
    return f"tvm-ffi{major}{minor}-cpu-{platform.machine()}-{platform.system().lower()}"


def _lay(place: Path, code: dict[str, str]) -> None:
    for path, text in code.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text, encoding="utf-8")


def _variant(place: Path, code: dict[str, str], backend: str, library: Path | None) -> None:
    parts = [f"{path}\n{text}".encode() for path, text in code.items()]
    if library is not None:
        parts.append(library.read_bytes())
    own = f"_{NAME}_{backend}_{hashlib.sha256(b''.join(parts)).hexdigest()[:7]}"
    _lay(place, {**code, f"{NAME}/__init__.py": FOLDER.format(id=own)})
    if library is not None:
        shutil.copyfile(library, place / "_C.so")
    files = {
        path.relative_to(place).as_posix(): base64.b64encode(
            hashlib.sha256(path.read_bytes()).digest()
        ).decode()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }
    described = {
        "name": NAME,
        "id": own,
        "version": VERSION,
        "license": LICENSE,
        "python-depends": [] if library is None else ["tvm-ffi"],
        "backend": {"type": backend},
        "digest": {"algorithm": "sha256", "files": files},
    }
    text = json.dumps(described, indent=2) + "\n"
    (place / "metadata.json").write_text(text, encoding="utf-8")


def check(folder: Path, load: Callable[[Path], ModuleType]) -> str:
    """Load a variant by `load`, and compare its results with the package's, bit by bit.

    In Triton's interpreter it is torch-cuda, whose kernels then run on CPUs; else the one that
    `load` chooses of the folder for this machine. Returns a line of what was compared.

    Raises:
        ValueError: another variant is loaded, or a result has other bits.
    """
    place = folder / "build/torch-cuda" if interpreting() else folder
    device = "cuda" if torch.cuda.is_available() else "cpu"
    expected = f"_{NAME}_{'cuda' if interpreting() else device}_"
    module = load(place)
    if not module.__name__.startswith(expected):
        raise ValueError(f"{place} loads {module.__name__}, wanted {expected}...")
    own, theirs = _results(rrgkern, device), _results(module, device)
    for name, tensor in own.items():
        if not torch.equal(tensor, theirs[name]):
            raise ValueError(f"{place}: {name} differs from {NAME}'s")
    served_by = importlib.import_module(f"{module.__name__}.dispatch").served_by
    ops = ("policy_loss_fwd", "entity_match", "edit_plan")
    served = "; ".join(f"{op}: {served_by(f'{module.__name__}::{op}', device)}" for op in ops)
    return f"{module.__name__}: {len(own)} results equal, bit by bit; {served}"


def _results(module: Any, device: str) -> dict[str, torch.Tensor]:
    """Call the policy losses, advantages, the matching and the edits on drawn numbers."""
    torch.set_default_device(device)
    try:
        return _called(module)
    finally:
        torch.set_default_device(None)


def _called(module: Any) -> dict[str, torch.Tensor]:
    drawn = torch.Generator(torch.get_default_device()).manual_seed(0)
    offsets = torch.tensor([0, 5, 8, 12, 18, 20, 24])
    logits = torch.randn(24, 97, generator=drawn, requires_grad=True)
    targets = torch.randint(97, (24,), generator=drawn)
    rewards = torch.tensor([1.0, 0.2, 0.0, 0.5, 0.9, 0.8])
    advantages = module.group_advantages(rewards, torch.tensor([0, 3, 6]))
    old = logits.detach().log_softmax(-1).gather(1, targets[:, None])[:, 0]
    old = old + 0.3 * torch.randn(24, generator=drawn)
    terms = {
        "scale": module.loss_scale("dr_grpo", offsets, max_length=16),
        "spec": module.PolicyLoss(surrogate="clip", beta=0.01),
        "old": old,
        "ref": old - 0.1,
    }
    results = {"group_advantages": advantages}
    logps = module.token_logps(logits, targets).logps
    packed = module.policy_loss(logps, advantages, offsets, **terms)
    (results["policy_loss, gradient"],) = torch.autograd.grad(packed.loss, logits)
    fused = module.policy_loss_from_logits(logits, targets, advantages, offsets, **terms)
    (results["policy_loss_from_logits, gradient"],) = torch.autograd.grad(fused.loss, logits)
    results |= {"policy_loss": packed.loss, "policy_loss_from_logits": fused.loss}
    sides = []
    for _ in range(2):
        embedding = torch.nn.functional.normalize(torch.randn(6, 8, generator=drawn), dim=1)
        presence = torch.randint(2, (6,), generator=drawn, dtype=torch.int8)
        sides.append((presence, embedding))
    of = torch.tensor([0, 4, 6])
    match = module.entity_match(*(module.ReportEntities(of, p, e) for p, e in sides))
    results |= {f"entity_match, {name}": tensor for name, tensor in match._asdict().items()}
    reports = [
        module.SentenceEntities(
            torch.tensor([0, 2, 3]),
            torch.arange(3) + 10 * side,
            of,
            torch.tensor([0, 0, 1, 1, 0, 0]),
            p,
            torch.arange(6) + 10 * side,
            e,
        )
        for side, (p, e) in enumerate(sides)
    ]
    script = module.edit_plan(*reports, seeds=torch.tensor([1, 2]))
    tensors = {n: t for n, t in script._asdict().items() if isinstance(t, torch.Tensor)}
    return results | {f"edit_plan, {name}": tensor for name, tensor in tensors.items()}


def main(arguments: list[str] | None = None) -> None:
    """Write the folder, or check what is in it by the installed `kernels`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--library", type=Path, help="compiled extension in the place of rrgkern's")
    parser.add_argument("--check", action="store_true", help="load DIR and compare its results")
    options = parser.parse_args(arguments)
    if not options.check:
        write(options.folder, options.library)
        print(f"{options.folder / 'README.md'}\nnext: --check, with `pip install kernels`")
        return
    try:
        kernels = importlib.import_module("kernels")
    except ImportError as error:
        line = f"--check loads by the package kernels: pip install kernels ({error})"
        raise SystemExit(line) from error
    print(check(options.folder, kernels.get_local_kernel))


if __name__ == "__main__":
    main()
