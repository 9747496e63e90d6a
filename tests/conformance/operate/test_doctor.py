"""operate/doctor: the doctor finds what is wrong, and only that, and says what to do."""

from collections.abc import Callable

import pytest
from sqlalchemy import make_url

from penstock import Penstock
from penstock.database import diagnostics
from penstock.errors import PenstockError
from penstock.operate import doctor
from penstock.operate.doctor import CheckContext, Finding, Level, examine
from penstock.operate.processes import list_processes
from penstock.schema import version
from penstock.testing import drain, travel
from tests.commands import call
from tests.conformance.operate.helpers import enqueue, register, take
from tests.waiting import eventually


def findings(app: Penstock) -> dict[str, Finding]:
    """The worst of each check."""
    app.prepare()
    found = examine(CheckContext(app.database, app.metadata, frozenset(app.tasks)))
    return {finding.check: finding for finding in sorted(found, key=lambda f: list(Level).index(f.level))}


def bad(app: Penstock) -> dict[str, Finding]:
    return {name: finding for name, finding in findings(app).items() if finding.level is not Level.OK}


def test_a_healthy_installation_has_no_findings(app: Penstock) -> None:
    app.prepare()
    register(app)
    assert bad(app) == {}
    assert {"database", "schema", "clock", "processes", "claims", "waiting", "tasks"} <= findings(app).keys()


def test_each_finding_comes_with_advice(app: Penstock) -> None:
    enqueue(app, "fail", 1)
    drain(app)
    enqueue(app, "quick", 1)
    with travel(app, 100):
        found = bad(app)
    assert {"processes", "waiting", "dead letters"} <= found.keys()
    assert all(finding.advice for finding in found.values())


def test_silent_processes_and_orphaned_claims_are_found(app: Penstock) -> None:
    enqueue(app, "quick", 1)
    process = register(app)
    take(app, process)
    with travel(app, 100):
        assert "silent" in bad(app)["processes"].message
        assert ": 1 process (host/1)" in bad(app)["processes"].message
        app.database.in_transaction(lambda tx: tx.run("DELETE FROM {processes}"))
        assert "takes back 1 claim of" in bad(app)["claims"].message


def test_due_work_that_no_process_promotes_is_found(app: Penstock) -> None:
    enqueue(app, "quick", 1, delay=10)
    with travel(app, 100):
        assert bad(app)["scheduled"].level is Level.PROBLEM


def test_a_queue_that_no_worker_takes_from_is_found_at_once(app: Penstock) -> None:
    enqueue(app, "quick", 1, queue="mail")
    assert "queues" not in bad(app)  # there is no worker at all, and that is said
    register(app, details='{"queues": "mial:10,default"}')
    register(app, role="advancer")
    assert "no live worker takes from queue 'mail'" in bad(app)["queues"].message
    assert "--queues mail" in bad(app)["queues"].advice
    register(app, details='{"queues": "mail"}')
    assert "queues" not in bad(app)


def test_waiting_work_for_unknown_tasks_is_found(app: Penstock, make_app: Callable[..., Penstock]) -> None:
    other = make_app()

    @other.task(name="elsewhere")
    def elsewhere() -> None: ...

    elsewhere.enqueue()
    assert "'elsewhere'" in bad(app)["tasks"].message
    assert "tasks" not in bad(other)


def test_a_missing_index_or_table_is_found(app: Penstock) -> None:
    app.prepare()
    assert bad(app).keys() <= {"processes"}
    app.database.in_transaction(lambda tx: tx.run("DROP TABLE {markers}"))
    assert bad(app)["schema"].level is Level.PROBLEM
    assert "markers" in bad(app)["schema"].message


def test_a_clock_that_is_off_is_found(app: Penstock) -> None:
    app.prepare()
    with travel(app, -3600):
        assert "3600" in bad(app)["clock"].message


def test_an_unreachable_database_ends_the_examination(app_on: Callable[..., Penstock]) -> None:
    app = app_on("postgresql://nobody@127.0.0.1:1/nothing", connect_timeout=1)
    (only,) = examine(CheckContext(app.database, app.metadata, frozenset()))
    assert (only.check, only.level) == ("database", Level.PROBLEM)


def test_a_database_without_tables_ends_the_examination(
    app_on: Callable[..., Penstock], empty_database_url: str
) -> None:
    app = app_on(empty_database_url)
    found = examine(CheckContext(app.database, app.metadata, frozenset()))
    assert [finding.check for finding in found] == ["database", "schema"]
    assert found[-1].advice == "Run: penstock migrate"
    told = call("doctor", "--database", empty_database_url).output
    assert told.count("penstock migrate") == 1, told


def test_tables_that_are_too_new_are_not_to_be_migrated(app: Penstock) -> None:
    app.prepare()
    newer = f"INSERT INTO {app.database.qualified('schema_versions')} VALUES ({version.LATEST + 1}, 0)"
    app.database.in_transaction(lambda tx: tx.run(newer))
    found = examine(CheckContext(app.database, app.metadata, frozenset()))
    assert [finding.check for finding in found] == ["database", "schema"]
    assert "Upgrade the penstock package" in found[-1].message
    assert "migrate" not in found[-1].advice


def test_an_old_snapshot_is_found_on_postgresql(
    app_on: Callable[..., Penstock], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _hold_a_snapshot(app_on(postgres_url), monkeypatch)


def test_an_old_snapshot_is_found_on_mariadb(
    app_on: Callable[..., Penstock], mariadb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _hold_a_snapshot(app_on(mariadb_url), monkeypatch)


def _hold_a_snapshot(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "oldest snapshot" not in bad(app)
    monkeypatch.setattr(diagnostics, "OLD_SNAPSHOT", -1.0)
    with app.database.engine.connect() as connection:
        connection = connection.execution_options(isolation_level="REPEATABLE READ")
        connection.exec_driver_sql(f"SELECT COUNT(*) FROM {app.database.qualified('jobs')}")
        # MariaDB answers from what it gathered before, unless no client has asked for a tenth of a second.
        found = eventually(lambda: bad(app).get("oldest snapshot"), pause=0.3)
    assert found is not None
    assert "snapshot is open" in found.advice


def test_a_check_that_cannot_be_made_is_a_finding(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: CheckContext) -> list[Finding]:
        raise PenstockError("the row is gone")

    monkeypatch.setattr(doctor, "CHECKS", [broken])
    assert bad(app)["broken"].message == "the row is gone"


def test_processes_are_listed_with_what_they_hold(app: Penstock) -> None:
    app.tasks["quick"].enqueue_many([(n,) for n in range(5)])
    supervisor = register(app, "supervisor")
    lonely = register(app)
    worker = register(app, supervisor=supervisor, details='{"queues": "all"}')
    take(app, worker, limit=3)
    rows = app.database.read(list_processes)
    assert [(row.id, row.holding) for row in rows] == [(supervisor, 0), (worker, 3), (lonely, 0)]
    assert rows[1].details == {"queues": "all"}
    assert 0 <= rows[1].silence < 30


def test_a_disk_that_is_nearly_full_is_found(
    app_on: Callable[..., Penstock], sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_on(sqlite_url)
    assert findings(app)["disk"].level is Level.OK
    monkeypatch.setattr(diagnostics, "LITTLE_ROOM", 2**63)
    assert "Make room" in bad(app)["disk"].advice


def test_a_worker_that_would_hear_nothing_is_found(
    app_on: Callable[..., Penstock], postgres_url: str
) -> None:
    """It polls and works, only later than it could: nothing else tells that listen_url is wrong."""
    assert findings(app_on(postgres_url))["wake-ups"].level is Level.OK
    assert "wake-ups" not in findings(app_on(postgres_url, listen=False))
    for wrong in ("postgres", "nothing"):
        listen_url = str(make_url(postgres_url).set(database=wrong).render_as_string(hide_password=False))
        found = bad(app_on(postgres_url, listen_url=listen_url))["wake-ups"]
        assert f"/{wrong}" in found.message
        assert "listen_url" in found.advice


def test_a_url_that_the_driver_refuses_is_the_database_s_finding(
    app_on: Callable[..., Penstock], mariadb_url: str
) -> None:
    app = app_on(f"{mariadb_url.partition('?')[0]}?nothing=1")
    (found,) = examine(CheckContext(app.database, app.metadata, frozenset()))
    assert (found.check, found.level) == ("database", Level.PROBLEM)
    assert "'nothing'" in found.message


def test_an_app_without_tasks_is_found(app: Penstock, make_app: Callable[..., Penstock]) -> None:
    app.task(name="send")(lambda: None).enqueue()
    core = make_app()
    found = examine(CheckContext(core.database, core.metadata, frozenset(), of_app=True))
    told = [finding.message for finding in found if finding.check == "tasks"]
    assert told == [
        "the app declares no tasks: its workers can run nothing",
        "1 ready job for 'send', which the app lacks",
    ]
    unnamed = examine(CheckContext(core.database, core.metadata, frozenset()))
    assert not [finding for finding in unnamed if finding.check == "tasks"], "only a database was named"
