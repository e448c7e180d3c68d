"""Compiles csrc/ into rrgkern/_C.so: C++ always, CUDA where nvcc and a GPU are found, or asked for.

A room's simd.cc is compiled once for each instruction set, which is chosen at run time.

RRGKERN_BUILD=auto|cuda|cpu|none    cuda: also without a GPU, and fail without nvcc; cpu: leave CUDA
                               out; none: compile nothing, without a compiler
RRGKERN_CUDA_ARCHS="80;90"     compile CUDA for these, also without a GPU; default 80, 90 and 100 as
                               far as nvcc knows them; the last as PTX too
CXX, CUDA_HOME, RRGKERN_CXXFLAGS, RRGKERN_LDFLAGS    compilers, and flags to add (sanitizers)
_PYTHON_HOST_PLATFORM, RRGKERN_TVM_FFI    to compile for another machine: its platform, for example
                               linux-aarch64, and the folder of its libtvm_ffi.so
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

# Instruction sets of simd.cc, the compiler's flags for each. NEON is in the base of aarch64.
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]
ISAS: dict[str, list[str]] = {"portable": []}
if sysconfig.get_platform().endswith(("x86_64", "amd64")):
    ISAS |= {"avx2": AVX2, "avx512": AVX512}
# The kernels of simd.cc meet a tolerance, not the reference's bits: they may contract.
SIMD = ["-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]


def _has_gpu() -> bool:
    """Tell whether the driver shows a GPU: torch cannot be asked, the build is isolated from it.

    A device file is what a process needs to reach one; WSL has none, but its nvidia-smi lists it.
    """
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return True
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return False
    try:
        listed = subprocess.run(
            [smi, "-L"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU" in listed.stdout


def _say(line: str) -> None:
    """Print a line, and on the terminal too: pip shows nothing of what a build prints."""
    print(line, flush=True)
    if not sys.stdout.isatty():
        with suppress(OSError), open("/dev/tty", "w", encoding="utf-8") as terminal:
            terminal.write(f"\n{line}\n")


def _compilers() -> tuple[str, str | None]:
    names = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "clang++"]
    cxx = next(filter(None, map(shutil.which, names)), None)
    if not cxx:
        sys.exit(f"rrgkern: no C++17 compiler (looked for {' and '.join(names)}): install one, for "
                 "example `apt install g++`, or set CXX")  # fmt: skip
    mode = os.environ.get("RRGKERN_BUILD", "auto")
    if mode not in ("auto", "cuda", "cpu"):
        sys.exit(f"rrgkern: RRGKERN_BUILD is {mode!r}, wanted auto, cuda, cpu or none")
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = shutil.which("nvcc", path=f"{home}/bin") or shutil.which("nvcc")
    if mode == "cuda" and not nvcc:
        sys.exit("rrgkern: RRGKERN_BUILD=cuda, but no nvcc in CUDA_HOME or on PATH: install the "
                 "CUDA toolkit, or set RRGKERN_BUILD=cpu")  # fmt: skip
    if mode == "auto" and not nvcc:
        _say("rrgkern: no nvcc found, compiling for CPU only")
    elif mode == "auto" and not os.environ.get("RRGKERN_CUDA_ARCHS") and not _has_gpu():
        _say(
            "rrgkern: no GPU found, compiling for CPU only "
            "(for a GPU elsewhere: RRGKERN_BUILD=cuda)"
        )
        return cxx, None
    return cxx, None if mode == "cpu" else nvcc


def _architectures(nvcc: str) -> list[str]:
    if chosen := os.environ.get("RRGKERN_CUDA_ARCHS"):
        return chosen.replace(",", ";").strip(";").split(";")
    known = subprocess.check_output([nvcc, "--list-gpu-arch"], text=True).split()
    return [arch for arch in ("80", "90", "100") if f"compute_{arch}" in known]


class _Build(build_ext):
    def get_ext_filename(self, name: str) -> str:
        return name.replace(".", "/") + ".so"  # one binary for every Python: no ABI in the name

    def build_extension(self, ext: Extension) -> None:
        from tvm_ffi import libinfo

        cxx, nvcc = _compilers()
        archs = _architectures(nvcc) if nvcc else []
        sources = [Path(s) for s in ext.sources if nvcc or not s.endswith(".cu")]
        rooms = ";".join(f"{s.parent.name}:{s.stem}" for s in sources)
        flags = ["-O2", "-std=c++17", "-Icsrc", "-isystem", libinfo.find_include_path(),
                 f'-DRRGKERN_ROOMS="{rooms}"', f'-DRRGKERN_ARCHS="{";".join(archs)}"']  # fmt: skip
        # No contraction to fused multiply-adds: CPU, CUDA and the reference agree bit for bit.
        host = ["-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-Wall"]
        added = os.environ.get("RRGKERN_CXXFLAGS", "").split()
        host += added
        gencode = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in archs]
        gencode += [f"-gencode=arch=compute_{a},code=compute_{a}" for a in archs[-1:]]
        device = ["-ccbin", cxx, "--fmad=false", *gencode, "-Xcompiler", ",".join(host)]

        def build(source: Path, isa: str = "") -> str:
            output = Path(self.build_temp, source.parent.name, f"{source.stem}{isa}.o")
            output.parent.mkdir(parents=True, exist_ok=True)
            command = [nvcc, *flags, *device] if source.suffix == ".cu" else [cxx, *flags, *host]
            if isa:
                command += [*SIMD, *ISAS[isa], f"-DRRGKERN_ISA={isa}", *added]
            subprocess.run([*command, "-c", str(source), "-o", str(output)], check=True)
            return str(output)

        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        link = [nvcc, "-ccbin", cxx, "-cudart", "static", "-nodlink"] if nvcc else [cxx]
        ffi = os.environ.get("RRGKERN_TVM_FFI") or str(Path(libinfo.find_libtvm_ffi()).parent)
        link += ["-L", ffi, "-shared", "-o", str(target)]
        try:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                simd = [s.with_name("simd.cc") for s in sources if s.stem == "cpu"]
                # What takes longest begins first.
                jobs = [(source, isa) for source in simd if source.exists() for isa in ISAS]
                jobs += [(source, "") for source in sources]
                objects = list(pool.map(build, *zip(*jobs, strict=True)))
            extra = os.environ.get("RRGKERN_LDFLAGS", "").split()
            subprocess.run([*link, *objects, "-ltvm_ffi", "-lpthread", *extra], check=True)
        except subprocess.CalledProcessError as error:
            sys.exit(f"rrgkern: {error.cmd[0]} failed on csrc/, its message stands above"
                     + (" (RRGKERN_BUILD=cpu leaves CUDA out)" if nvcc else ""))  # fmt: skip


class _Python(build_py):
    def run(self) -> None:
        if NOTHING:
            _say(
                "rrgkern: RRGKERN_BUILD=none, nothing is compiled: Triton serves on a GPU, "
                "plain PyTorch elsewhere (python -m rrgkern lists them)"
            )
        super().run()


class _Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        # _C.so is of the platform and of no Python; without it the wheel is of any platform
        return "py3", "none", super().get_tag()[2]


NOTHING = os.environ.get("RRGKERN_BUILD") == "none"
sources = sorted(str(p) for name in ("cpu.cc", "cuda.cu") for p in Path("csrc").glob(f"*/{name}"))
setup(
    ext_modules=[] if NOTHING else [Extension("rrgkern._C", sources)],
    cmdclass={"build_ext": _Build, "build_py": _Python, "bdist_wheel": _Wheel},
)
