"""A fresh database for every test, on any server, cheap enough to have one each.

The schema is made once per session, in a template; a test's database is a copy of it. A copy in which a test has left
nothing but rows is emptied and kept for the next test of the same pytest process, if everything that the test started
is over: a thread or a process that lives on could take the next test's jobs.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from tests.memory import in_memory
from tests.servers.restore import Made
from tests.servers.shared import ENVIRONMENT, SharedServers
from tests.waiting import eventually

KINDS = ("sqlite", "postgres", "mariadb")


@dataclass(frozen=True, slots=True)
class Databases:
    servers: SharedServers
    migrate: Callable[[str], None]
    """Makes the schema in the database at this URL, and leaves no connection open."""
    _kept: dict[str, str] = field(default_factory=dict)
    """By kind, the name of a database that is as new."""
    _made: dict[str, Made | None] = field(default_factory=dict)

    @contextmanager
    def empty(self, kind: str) -> Iterator[str]:
        """The URL of a database with nothing in it, dropped at the end."""
        with self._fresh(kind, template=None) as url:
            yield url

    @contextmanager
    def migrated(self, kind: str, *, shared: bool = False) -> Iterator[str]:
        """The URL of a database with the schema in it.

        `shared`: it may have served a test before, and may serve another afterwards.
        """
        if not shared or kind == "sqlite":
            with self._fresh(kind, self._template(kind)) as url:
                yield url
            return
        admin = self.servers.admin(kind)
        name = self._kept.pop(kind, None) or self._copy(kind)
        before = _alive()
        try:
            yield admin.url(name)
        finally:
            made = self._made[kind]
            if made and _over(before) and kind not in self._kept and admin.restored(name, made):
                self._kept[kind] = name
            else:
                admin.drop_database(name)

    def close(self) -> None:
        while self._kept:
            kind, name = self._kept.popitem()
            self.servers.admin(kind).drop_database(name)

    def drop_templates(self) -> None:
        """On servers that outlive the session."""
        for kind, variable in ENVIRONMENT.items():
            if variable in os.environ and (self.servers.session / f"{kind}-template.done").exists():
                self.servers.admin(kind).drop_database(self._template_name())

    @contextmanager
    def _fresh(self, kind: str, template: str | None) -> Iterator[str]:
        if kind == "sqlite":
            with TemporaryDirectory(
                prefix="penstock-", dir=in_memory(), ignore_cleanup_errors=True
            ) as folder:
                yield _sqlite_url(_copied(template, Path(folder) / "penstock.db"))
            return
        admin = self.servers.admin(kind)
        name = f"penstock_{uuid4().hex}"
        admin.create_database(name, template)
        try:
            yield admin.url(name)
        finally:
            admin.drop_database(name)

    def _copy(self, kind: str) -> str:
        admin, name = self.servers.admin(kind), f"penstock_{uuid4().hex}"
        admin.create_database(name, self._template(kind))
        if kind not in self._made:
            self._made[kind] = admin.made(name)
        return name

    def _template(self, kind: str) -> str:
        """The name of the template, made first if need be."""
        name = self._template_name() if kind != "sqlite" else str(self.servers.session / "template.db")
        with self.servers.once(f"{kind}-template") as first:
            if first:
                self._make_template(kind, name)
        return name

    def _make_template(self, kind: str, name: str) -> None:
        if kind == "sqlite":
            return self.migrate(_sqlite_url(Path(name)))
        admin = self.servers.admin(kind)
        admin.drop_database(name)
        admin.create_database(name)
        return self.migrate(admin.url(name))

    def _template_name(self) -> str:
        return self.servers.session.name.replace("-", "_").lower()


def _over(before: set[str]) -> bool:
    """Whether everything that was not there before is gone, or goes in a moment, as a thread does that was told to."""
    with suppress(AssertionError):
        eventually(lambda: _alive() <= before, timeout=0.1, pause=0.002)
        return True
    return False


def _alive() -> set[str]:
    """The threads and the child processes of this process."""
    threads = {f"thread {thread.ident}" for thread in threading.enumerate()}
    tasks = Path("/proc/self/task").glob("*/children")
    return threads | {child for task in tasks for child in task.read_text().split()}


def _sqlite_url(file: Path) -> str:
    return f"sqlite:///{file}"


def _copied(template: str | None, file: Path) -> Path:
    if template is not None:
        shutil.copyfile(template, file)
    return file
