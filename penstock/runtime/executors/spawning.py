"""A handler's process is a fresh one. First of all it imports the program that has started it, which must bear that."""

from __future__ import annotations

import sys

from penstock.errors import DefinitionError


def refuse_program_without_file() -> None:
    """What was read from stdin cannot be read again."""
    file = getattr(sys.modules["__main__"], "__file__", None) or ""
    if file.startswith("<"):
        raise DefinitionError(
            f'a task with executor="process" runs in a fresh process, which imports this program first, and {file} '
            "cannot be imported. Put the program into a file."
        )


def refuse_while_imported() -> None:
    """A program that starts its worker wherever it is imported starts another in every process of a handler."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and getattr(processes.current_process(), "_inheriting", False):
        raise DefinitionError(
            'this program is only being imported, by a process for tasks with executor="process", and starts a worker '
            'all the same. What it does when it is run belongs under if __name__ == "__main__":'
        )
