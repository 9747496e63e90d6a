"""A Galera cluster of MariaDB nodes: from the system, else from Debian packages unpacked into the cache folder.

The first node makes the data and ends in order; the others begin with a copy of it, and so are brought up to date by
what happened since then (IST) in a second or two, where a whole copy over rsync would take longer. A node that was
killed finds its place in its own files, as `galera_recovery` does it.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import pymysql

from tests.servers.debian import library_folders, unpacked
from tests.servers.errors import Unavailable
from tests.servers.mariadb import Mariadb
from tests.servers.server import as_child, free_port, make_folder

PACKAGES = ("galera-4", "mariadb-server", "mariadb-client-core", "rsync")
PROGRAMS = ("usr/lib/galera/libgalera_smm.so", "usr/bin/rsync", "usr/bin/my_print_defaults")
HINT = "Install galera-4, mariadb-server and rsync."
LIBRARIES = ("/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so")
NEEDED = ("wsrep_sst_rsync", "my_print_defaults", "rsync")
POSITION = re.compile(r"Recovered position: (\S+)")
STATE = """
SHOW STATUS WHERE Variable_name IN ('wsrep_local_state_comment', 'wsrep_ready', 'wsrep_cluster_size')
"""
JOINING = 90.0


@dataclass(frozen=True, slots=True)
class GaleraPrograms:
    library: Path
    environment: dict[str, str]


def galera_programs() -> GaleraPrograms:
    """The provider library, and an environment in which its scripts are found."""
    if not (shutil.which("ss") or shutil.which("lsof")):
        raise Unavailable("Galera's scripts need `ss` or `lsof`: install iproute2 or lsof")
    library = next((Path(each) for each in LIBRARIES if Path(each).exists()), None)
    if library is not None and all(map(shutil.which, NEEDED)):
        return GaleraPrograms(library, {})
    tree = unpacked("galera", PACKAGES, PROGRAMS, HINT)
    path = f"{tree / 'usr/bin'}:{os.environ.get('PATH', '')}"
    folders = ":".join(library_folders(tree))
    return GaleraPrograms(
        tree / "usr/lib/galera/libgalera_smm.so", {"PATH": path, "LD_LIBRARY_PATH": folders}
    )


class Node(Mariadb):
    """One node of a cluster, on ports that stay the same."""

    kind = "galera"

    def __init__(self, folder: Path, programs: GaleraPrograms) -> None:
        super().__init__(folder)
        if not self.programs.is_mariadb:
            raise Unavailable("Galera needs MariaDB, and the server on this system is MySQL")
        self.galera = programs
        self.group_port, self.transfer_port, self.copy_port = free_port(), free_port(), free_port()
        self.group: Sequence[int] = ()
        self.is_first = False
        self.position = ""

    def join(self) -> None:
        """Start; return when it takes part."""
        self._start_once()
        end = time.monotonic() + JOINING
        while not self.takes_part():
            if self._process is None or self._process.poll() is not None or time.monotonic() > end:
                raise Unavailable(f"a Galera node did not join: {self._last_words()}")
            time.sleep(0.05)

    def rejoin(self) -> None:
        """Start a node that was killed, again if its peers did not want it yet."""
        for _ in range(3):
            self.position = self._recovered()
            try:
                return self.join()
            except Unavailable:
                self.stop(immediate=True)
        return self.join()

    def takes_part(self) -> bool:
        state = self.state()
        return state.get("wsrep_ready") == "ON" and state.get("wsrep_local_state_comment") == "Synced"

    def state(self) -> dict[str, str]:
        try:
            with (
                pymysql.connect(host="127.0.0.1", port=self.port, user="root", read_timeout=5) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute(STATE)
                return dict(cursor.fetchall())
        except pymysql.MySQLError:
            return {}

    def kill(self) -> None:
        """As with its machine."""
        os.kill(self.process_id, SIGKILL)
        self.stop(immediate=True)

    def freeze(self) -> None:
        os.kill(self.process_id, SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.process_id, SIGCONT)

    def _recovered(self) -> str:
        self.position = ""
        command = [*self._command(), "--wsrep-recover"]
        done = subprocess.run(
            as_child(command, SIGKILL), env=self._environment(), capture_output=True, text=True
        )
        found = POSITION.search(done.stdout + done.stderr)
        if found is None:
            raise Unavailable(f"a Galera node does not know its position: {done.stderr[-1000:]}")
        return found[1]

    def _command(self) -> Sequence[str | Path]:
        peers = ",".join(f"127.0.0.1:{port}" for port in self.group)
        options = {
            "gmcast.listen_addr": f"tcp://127.0.0.1:{self.group_port}",
            "ist.recv_addr": f"127.0.0.1:{self.transfer_port}",
            "base_host": "127.0.0.1",
            "base_port": str(self.group_port),
            "gcache.size": "128M",
            # A silent node is left after three seconds instead of five, and may come back after as many.
            "evs.suspect_timeout": "PT3S",
            "evs.inactive_timeout": "PT6S",
        }
        return [
            *super()._command(),
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--wsrep-on=ON",
            f"--wsrep-provider={self.galera.library}",
            "--wsrep-provider-options=" + ";".join(f"{name}={value}" for name, value in options.items()),
            f"--wsrep-cluster-address=gcomm://{peers}",
            "--wsrep-cluster-name=penstock",
            "--wsrep-node-address=127.0.0.1",
            f"--wsrep-node-name={self.folder.name}",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address=127.0.0.1:{self.copy_port}",
            *(["--wsrep-new-cluster"] if self.is_first else []),
            *([f"--wsrep-start-position={self.position}"] if self.position else []),
        ]

    def _environment(self) -> dict[str, str]:
        usual = super()._environment()
        libraries = [self.galera.environment.get("LD_LIBRARY_PATH"), usual.get("LD_LIBRARY_PATH")]
        return usual | self.galera.environment | {"LD_LIBRARY_PATH": ":".join(filter(None, libraries))}


class Galera:
    """A running cluster; every node can be written to."""

    def __init__(self, folder: Path, size: int = 3) -> None:
        programs = galera_programs()
        self.nodes = [Node(folder / f"node-{index}", programs) for index in range(size)]
        for node in self.nodes:
            node.group = [each.group_port for each in self.nodes]

    def start(self) -> None:
        first, *others = self.nodes
        make_folder(first.folder)
        first._create_data()
        first.is_first = True
        first.join()
        first.stop()
        for node in others:
            shutil.copytree(first.folder, node.folder)
        first.join()
        first.is_first = False  # when it is started again, it joins the others
        for node in others:
            node.join()

    def stop(self) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.stop(immediate=True), self.nodes))

    def create_database(self, name: str) -> list[str]:
        """A database, and its URL on each node."""
        self.nodes[0].create_database(name)
        return [node.url(name) for node in self.nodes]
