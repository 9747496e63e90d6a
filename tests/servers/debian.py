"""Server programs on a Debian or Ubuntu without installing them, root or not: fetches packages and unpacks them.

Each tree is made once and kept in the cache folder of the checkout.
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.servers.errors import Unavailable

CACHE = Path(__file__).resolve().parents[2] / ".cache"
ALWAYS_THERE = {"libc6", "libgcc-s1", "libstdc++6"}
LIBRARY_FOLDERS = [
    "usr/lib/*-linux-*",
    "lib/*-linux-*",
    "usr/lib/*-linux-*/pulseaudio",
    "usr/lib/*-linux-*/nss",
]
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
HINT = "Install MariaDB, or set TEST_MARIADB_URL to a server whose user can create databases."


def unpacked_mariadb() -> Path:
    """A folder with `usr/sbin/mariadbd` and the libraries it needs."""
    return _made_once("mariadb", lambda apt: [apt.server_package()], ["usr/sbin/mariadbd"], HINT)


def unpacked(name: str, packages: Sequence[str], programs: Sequence[str], hint: str, suite: str = "") -> Path:
    """A folder with these packages, and with the libraries that these of their programs need.

    `suite`: from this one of Debian's, instead of the system's own. Then all libraries come from there, the C library
    too, and a program has to be started by `loader`.
    """
    return _made_once(name, lambda _: packages, programs, hint, suite)


def loader(tree: Path) -> list[str]:
    """What starts a program of a tree with the C library of that tree."""
    (program,) = tree.glob("usr/lib64/ld-linux-*.so.*")
    return [str(program), "--library-path", ":".join(library_folders(tree))]


def library_folders(tree: Path) -> list[str]:
    """Where the libraries of an unpacked tree are, for LD_LIBRARY_PATH."""
    return [str(folder) for pattern in LIBRARY_FOLDERS for folder in tree.glob(pattern)]


def _made_once(
    name: str,
    packages: Callable[["Apt"], Sequence[str]],
    programs: Sequence[str],
    hint: str,
    suite: str = "",
) -> Path:
    tree = CACHE / name
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not tree.exists():
            _fetch_and_unpack(tree, packages, programs, hint, suite)
    return tree


def _fetch_and_unpack(
    tree: Path, wanted: Callable[["Apt"], Sequence[str]], programs: Sequence[str], hint: str, suite: str
) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable(f"no {tree.name} on this system, and no apt-get to fetch it with. {hint}")
    with TemporaryDirectory(dir=CACHE) as folder:
        apt = Apt(Path(folder), hint, suite)
        packages = apt.download(wanted(apt))
        unpacked = Path(folder) / "tree"
        _unpack(packages, unpacked)
        fetched: set[str] = set()
        while any(_lacks_libraries(unpacked, program, suite) for program in programs):
            libraries = {name for package in packages for name in _libraries_of(package, suite)} - fetched
            if not libraries:
                raise Unavailable(f"the packages of {tree.name} lack a library. {hint}")
            packages = apt.download(sorted(libraries))
            fetched |= libraries
            _unpack(packages, unpacked)
        unpacked.rename(tree)


class Apt:
    """apt-get with the system's package lists; or with its own: of another suite, or if the system has none."""

    def __init__(self, folder: Path, hint: str, suite: str = "") -> None:
        self.folder = folder
        self.hint = hint
        self.options: list[str] = []
        if suite:
            self._use_suite(suite)
        elif not self._search():
            self._use_own_lists("apt")

    def server_package(self) -> str:
        """Older distributions put the version into the name."""
        names = self._search()
        if not names:
            raise Unavailable(f"the package lists know no mariadb-server-core. {self.hint}")
        return names[0]

    def download(self, packages: Sequence[str]) -> list[Path]:
        known = set(self.folder.glob("*.deb"))
        self._run("apt-get", "download", *packages)
        return sorted(set(self.folder.glob("*.deb")) - known)

    def _search(self) -> list[str]:
        found = self._run("apt-cache", "search", "--names-only", "^mariadb-server-core(-[0-9.]+)?$")
        return sorted(line.split(" ")[0] for line in found.splitlines())

    def _use_suite(self, suite: str) -> None:
        sources = self.folder / "sources.list"
        sources.write_text(f"deb [signed-by={KEYS}] {self._mirror()} {suite} main\n")
        self.options = ["-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=/dev/null"]
        self._use_own_lists(f"apt-{suite}")

    def _mirror(self) -> str:
        """Where the system has its own packages of Debian from."""
        told = self._run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
        found = [line for line in told.splitlines() if line.rstrip("/").endswith("/debian")]
        if not found:
            raise Unavailable(f"apt-get knows no mirror of Debian. {self.hint}")
        return found[0]

    def _use_own_lists(self, name: str) -> None:
        lists = CACHE / name
        (lists / "lists/partial").mkdir(parents=True, exist_ok=True)
        (lists / "archives/partial").mkdir(parents=True, exist_ok=True)
        self.options += ["-o", f"Dir::State::lists={lists / 'lists'}", "-o", f"Dir::Cache={lists}"]
        self._run("apt-get", "update")

    def _run(self, program: str, *arguments: str) -> str:
        # apt's own sandbox user may not enter our folders.
        sandbox = ["-o", f"APT::Sandbox::User={'root' if os.geteuid() == 0 else ''}"]
        done = subprocess.run(
            [program, *self.options, *sandbox, *arguments], cwd=self.folder, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise Unavailable(f"{program} {arguments[0]} failed: {done.stderr[-1000:]} {self.hint}")
        return done.stdout


def _unpack(packages: Sequence[Path], tree: Path) -> None:
    for package in packages:
        subprocess.run(["dpkg-deb", "-x", package, tree], check=True)


def _lacks_libraries(tree: Path, program: str, suite: str) -> bool:
    if suite:
        if not list(tree.glob("usr/lib64/ld-linux-*")):
            return True
        told = subprocess.run([*loader(tree), "--list", tree / program], capture_output=True, text=True)
        return told.returncode != 0 or "not found" in told.stdout
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(library_folders(tree))}
    told = subprocess.run(["ldd", tree / program], capture_output=True, text=True, env=environment)
    return "not found" in told.stdout


def _libraries_of(package: Path, suite: str) -> list[str]:
    command = ["dpkg-deb", "-f", str(package), "Depends"]
    needs = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    first_choices = [re.split(r"[ (|:]", need.strip())[0] for need in needs.split(",")]
    there = set() if suite else ALWAYS_THERE
    return [name for name in first_choices if name.startswith(("lib", "zlib")) and name not in there]
