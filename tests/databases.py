"""A fresh database for every test, on any server, cheap enough to have one each.

The schema is made once per session, in a template; a test's database is a copy of it.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from tests.memory import in_memory
from tests.servers.shared import ENVIRONMENT, SharedServers

KINDS = ("sqlite", "postgres", "mariadb")


@dataclass(frozen=True, slots=True)
class Databases:
    servers: SharedServers
    migrate: Callable[[str], None]
    """Makes the schema in the database at this URL, and leaves no connection open."""

    @contextmanager
    def empty(self, kind: str, folder: Path) -> Iterator[str]:
        """The URL of a database with nothing in it, dropped at the end."""
        with self._fresh(kind, folder, template=None) as url:
            yield url

    @contextmanager
    def migrated(self, kind: str, folder: Path) -> Iterator[str]:
        """The URL of a database with the schema in it, dropped at the end."""
        with self._fresh(kind, folder, self._template(kind)) as url:
            yield url

    def drop_templates(self) -> None:
        """On servers that outlive the session."""
        for kind, variable in ENVIRONMENT.items():
            if variable in os.environ and (self.servers.session / f"{kind}-template.done").exists():
                self.servers.admin(kind).drop_database(self._template_name())

    @contextmanager
    def _fresh(self, kind: str, folder: Path, template: str | None) -> Iterator[str]:
        if kind == "sqlite":
            with _quick(folder) as place:
                yield _sqlite_url(_copied(template, place / "penstock.db"))
            return
        admin = self.servers.admin(kind)
        name = f"penstock_{uuid4().hex}"
        admin.create_database(name, template)
        try:
            yield admin.url(name)
        finally:
            admin.drop_database(name)

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


@contextmanager
def _quick(folder: Path) -> Iterator[Path]:
    """A folder in memory, where there is one."""
    memory = in_memory()
    if memory is None:
        yield folder
        return
    with TemporaryDirectory(prefix="penstock-", dir=memory, ignore_cleanup_errors=True) as made:
        yield Path(made)


def _sqlite_url(file: Path) -> str:
    return f"sqlite:///{file}"


def _copied(template: str | None, file: Path) -> Path:
    if template is not None:
        shutil.copyfile(template, file)
    return file
