"""The state of a job has one home: nothing but `queue/states.py` changes `job_states` or `executions`."""

import re
from pathlib import Path

from tests.architecture.source import modules

HOME = "penstock/queue/states.py"
PAGE = Path(__file__).parents[2] / "docs/internals/states.md"
PARTS_OF_LARGER_STATEMENTS = {
    "penstock/database/postgres/statements.py": "hold and succeed, each in the one statement of PostgreSQL",
    "penstock/database/cursor_dialect.py": "hold, as a part of the claim of SQLite and MySQL",
    "penstock/queue/retention.py": "removes jobs with all their rows",
}
"""Other modules that write the two tables, and why. Each of their moves is named in the home's first lines."""

TABLES = r"(job_states|executions)"
WRITES = re.compile(
    rf"(UPDATE|INTO|DELETE\s+FROM)\s+\{{+{TABLES}\}}+|\.insert\(\s*\"{TABLES}\"|TableWrite\(\s*\"{TABLES}\""
)


def test_only_the_home_of_states_writes_them() -> None:
    writers = {
        str(module) for module in modules() if "/schema/" not in str(module) and WRITES.search(module.text)
    }
    assert writers == {HOME, *PARTS_OF_LARGER_STATEMENTS}


def test_every_move_is_drawn() -> None:
    """The drawing at the top of the module, and drawing and table of the page, name each function that moves a job."""
    home = next(module for module in modules() if str(module) == HOME)
    moves = set(re.findall(r"^def ([a-z]\w*)\(", home.text, re.MULTILINE)) - NO_MOVES
    assert moves, "there are none"
    _, drawing, table = PAGE.read_text().split("```")
    explained = " ".join(row.split("|")[1] for row in table.splitlines() if row.startswith("|"))
    for place in (home.docstring or "", drawing, explained):
        assert not moves - set(re.findall(r"\w+", place))


NO_MOVES = {
    "tables_of_new", "lock_running", "lock_in", "mark_followed", "request_cancel", "put_in_place", "record",
    "record_attempts",
    "record_unstarted", "hold_again", "clamp_counts", "add_failed",
}  # fmt: skip
"""Functions that write rows beside the state, or mend a row that was damaged."""
