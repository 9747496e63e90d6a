"""Switches a caller's connection to UTF-8 while our statements run on it.

In another one some texts cannot be sent, some arrive as bytes, and some as question marks. On PostgreSQL the change
belongs to the transaction, so that whatever undoes our writes undoes it too. Where it cannot be changed the
connection is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.database.error_advice import ignore_errors
from penstock.errors import ConfigurationError

UNICODE = frozenset({"UTF8", "UNICODE", "UTF_8", "UTF8MB4"})


class Charset:
    """The encoding of a driver's connection, which `found` finds when there is one."""

    def __init__(self, found: Callable[[], Any], backend: str, execute: Callable[[str], object]) -> None:
        self.found = found
        self.backend = backend
        self.execute = execute
        self._back: Callable[[], object] = lambda: None
        self._at_once: Callable[[], object] = lambda: None

    def change(self) -> None:
        """Switch to UTF-8, inside the transaction in which our statements will run."""
        driver = self.found()
        before = _charset_of(driver)
        if before is None or before.upper().replace("-", "_") in UNICODE:
            return
        if self.backend == "postgresql" and _follows(driver):
            self.execute("SET LOCAL client_encoding TO 'UTF8'")
            self._back = lambda: self.execute(f"SET LOCAL client_encoding TO '{before}'")
        elif _is_pymysql(driver):
            collation = getattr(driver, "collation", None)
            self._at_once = lambda: driver.set_character_set(before, collation)
            driver.set_character_set("utf8mb4")
        else:
            wanted = "UTF8" if self.backend == "postgresql" else "utf8mb4"
            raise ConfigurationError(
                f"connection= speaks {before}, in which not every text can be sent. Let it speak {wanted}."
            )

    def restore(self) -> None:
        """Switch back after our statements succeeded."""
        self._back()
        self._at_once()

    def undo(self) -> None:
        """Switch back after a statement failed; a change that belongs to the transaction is rolled back with it."""
        ignore_errors(self._at_once)


def _charset_of(driver: Any) -> str | None:
    """The encoding as the driver knows it, without asking the server; None if the driver does not know it, or has
    only one."""
    root = type(driver).__module__.partition(".")[0]
    if hasattr(driver, "info") and hasattr(driver.info, "parameter_status"):  # psycopg, psycopg2
        found = driver.info.parameter_status("client_encoding")
    elif hasattr(driver, "get_settings"):  # asyncpg
        found = driver.get_settings().client_encoding
    elif hasattr(driver, "character_set_name"):  # mysqlclient
        found = driver.character_set_name()
    else:
        found = getattr(driver, "charset", None) if root != "sqlite3" else None
    return found if isinstance(found, str) else None


def _follows(driver: Any) -> bool:
    """True if the driver notices a change of `client_encoding`."""
    return any(cls.__module__.partition(".")[0] in ("psycopg", "asyncpg") for cls in type(driver).__mro__)


def _is_pymysql(driver: Any) -> bool:
    return any(cls.__module__.partition(".")[0] == "pymysql" for cls in type(driver).__mro__)
