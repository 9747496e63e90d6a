"""runtime/liveness/local_processes: Processes that live at the same place: whose row is removed at once, and whose
is left alone.
"""

import os
import subprocess
from typing import Any

import pytest

from penstock import Penstock
from penstock.database.dialect import Lane
from penstock.queue import claim, processes, reclaim
from penstock.runtime.liveness import host_identity
from penstock.runtime.liveness.host_identity import HostIdentity
from penstock.runtime.liveness.housekeeping import Housekeeping
from penstock.runtime.liveness.local_processes import LocalProcesses
from penstock.runtime.liveness.process_row import Identity
from penstock.runtime.service import Turn
from penstock.telemetry.events import ProcessReaped
from penstock.values.ids import new_id, new_token
from penstock.values.typed_json.json_text import dumps
from tests.conformance.rows import count


@pytest.fixture
def home() -> HostIdentity:
    found = host_identity.this_host()
    assert found is not None
    return found


@pytest.fixture
def keeper(app: Penstock, home: HostIdentity) -> Housekeeping:
    app.prepare()
    made = Housekeeping(app.database, lambda: me, app.wakeups, app.events, app.follow)
    me = settle_in(app, home, os.getpid(), home.since)
    made.reaper.local_processes = LocalProcesses(app.database, lambda: home)
    return made


@pytest.fixture
def ghost() -> int:
    """A pid of no process."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def settle_in(
    app: Penstock,
    home: HostIdentity,
    pid: int,
    since: int,
    supervisor: str | None = None,
    details: str | None = None,
    role: str = "all",
) -> str:
    """A process at the same place, unless the details say something else."""
    told = dumps(HostIdentity(home.host, home.place, since).details()) if details is None else details
    id = new_id()
    app.database.in_transaction(processes.register, id, home.host, pid, role, supervisor, told)
    host_identity.announce(app.database.known_as)
    return id


def there(app: Penstock) -> set[str]:
    return {str(id) for (id,) in app.database.read(lambda tx: tx.rows("SELECT id FROM {processes}"))}


def test_a_dead_neighbour_is_removed_and_a_living_one_left_alone(
    app: Penstock, keeper: Housekeeping, home: HostIdentity, ghost: int
) -> None:
    reaped: list[ProcessReaped] = []
    app.events.on(ProcessReaped, reaped.append)
    alive = settle_in(app, home, os.getpid(), home.since)
    dead = settle_in(app, home, ghost, 1)
    reused = settle_in(app, home, os.getpid(), home.since - 1)
    assert keeper.reaper.turn()
    assert {event.process for event in reaped} == {dead, reused}
    assert there(app) == {alive, keeper.reaper.me()}
    assert not keeper.reaper.turn()


def test_who_lives_elsewhere_is_not_judged(
    app: Penstock, keeper: Housekeeping, home: HostIdentity, ghost: int
) -> None:
    boot, *rest = home.place.split(" ")
    for place in (" ".join(["another-boot", *rest]), " ".join([boot, "pid:[1]", *rest[1:]]), home.place[:-1]):
        told = dumps(HostIdentity(home.host, place, 1).details())
        settle_in(app, home, ghost, 1, details=told)
    for details in ("{}", "[]", '{"dwelling": null}', '{"dwelling": {"place": 7}}'):
        settle_in(app, home, ghost, 1, details=details)
    settle_in(app, HostIdentity("another-host", home.place, 1), ghost, 1)
    assert not keeper.reaper.turn()
    assert count(app, "processes") == 9


def test_a_child_is_its_supervisors_affair_while_that_one_lives(
    app: Penstock, keeper: Housekeeping, home: HostIdentity, ghost: int
) -> None:
    living = settle_in(app, home, os.getpid(), home.since, role="supervisor")
    its_child = settle_in(app, home, ghost, 1, living)
    silent = settle_in(app, home, ghost, 1, role="supervisor", details="{}")
    whose = settle_in(app, home, ghost, 1, silent)
    dead = settle_in(app, home, ghost, 1, role="supervisor")
    orphan = settle_in(app, home, ghost, 1, dead)
    stopping = settle_in(app, home, os.getpid(), home.since, dead)
    unknown = settle_in(app, home, ghost, 1, new_id())
    before = there(app)
    assert keeper.reaper.turn()
    assert before - there(app) == {dead, orphan, unknown}
    assert {living, its_child, silent, whose, stopping} <= there(app)


def test_what_the_dead_held_under_many_receipts_is_taken_back_at_once(
    app: Penstock, keeper: Housekeeping, home: HostIdentity, ghost: int
) -> None:
    @app.task(name="note")
    def note() -> None: ...

    receipts = reclaim.CLAIMS_PER_TURN + 3
    note.enqueue_many([()] * receipts)
    dead = settle_in(app, home, ghost, 1)
    for _ in range(receipts):
        app.database.in_transaction(claim.claim, [Lane("default", 0, 0, 1)], ["note"], 1, new_token(), dead)
    assert count(app, "claims") == receipts
    while keeper.turn() is Turn.WORKED:
        pass
    assert (count(app, "claims"), count(app, "availabilities")) == (0, receipts)


def test_a_process_that_does_not_know_its_host_judges_no_other(
    app: Penstock, keeper: Housekeeping, home: HostIdentity, ghost: int
) -> None:
    keeper.reaper.local_processes = LocalProcesses(app.database, lambda: None)
    settle_in(app, home, ghost, 1)
    assert not keeper.reaper.turn()
    assert count(app, "processes") == 2


def test_neighbours_cost_no_statement_once_they_are_known(
    app: Penstock, keeper: Housekeeping, home: HostIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    read = app.database.read

    def reading(*question: Any) -> Any:
        asked.append(question)
        return read(*question)

    monkeypatch.setattr(app.database, "read", reading)
    for _ in range(3):
        settle_in(app, home, os.getpid(), home.since)
    keeper.reaper.turn()
    assert len(asked) == 2
    assert not keeper.reaper.has_local_news()
    keeper.reaper.turn()
    assert len(asked) == 3
    settle_in(app, home, os.getpid(), home.since)
    assert keeper.reaper.has_local_news(), "a process has knocked"
    keeper.reaper.turn()
    assert len(asked) == 5


def test_who_was_taken_for_dead_and_lives_does_not_say_any_more_where(
    app: Penstock, home: HostIdentity, ghost: int
) -> None:
    """Machines that were copied from one may take each other's processes for dead: once, not for ever."""
    app.prepare()
    identity = Identity(app.database, app.events, "all", find_identity=host_identity.this_host)
    neighbours = LocalProcesses(app.database, lambda: identity.host_identity)
    identity.register()
    assert identity.host_identity == home
    told = app.database.read(processes.on_host, home.host, new_id())
    assert [row.details for row in told] == [home.details()]
    app.database.in_transaction(reclaim.remove_process, identity.id)
    dead = settle_in(app, home, ghost, 1)
    assert neighbours.changed
    identity.register()
    assert identity.host_identity is None
    told = app.database.read(processes.on_host, home.host, dead)
    assert [(row.id, row.details) for row in told] == [(identity.id, {})]
    neighbours.refresh(identity.id)
    assert not neighbours.changed, "nor does it declare any process dead"
    assert not neighbours.dead()
