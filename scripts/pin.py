"""Rewrite requirements-dev.txt: the newest version of everything pyproject.toml asks for.

The pins serve every supported Python and platform, so they are resolved by uv for all of them at once.
"""

import subprocess
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
        subprocess.run([python, "-m", "uv", *_compile_arguments()], check=True, cwd=ROOT)


def _compile_arguments() -> list[str]:
    what = ["pip", "compile", "pyproject.toml", "--extra", "dev", "--upgrade"]
    how = ["--universal", "--python-version", "3.11", "--no-header", "--no-annotate", "--no-emit-index-url"]
    return [*what, *how, "--quiet", "--output-file", "requirements-dev.txt"]


if __name__ == "__main__":
    main()
