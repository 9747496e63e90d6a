"""integrations/asgi, integrations/flask: FastAPI, Starlette and Litestar under uvicorn, Flask with its command: the
examples, stopped and reloaded.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from http.client import HTTPConnection
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from penstock import Penstock
from penstock.integrations.asgi import is_reloaded, lifespan
from tests.integrations.servers import ADDRESS, EXAMPLES, ROOT, asked, fresh_process, served, told
from tests.waiting import eventually
from tests.workers import Workers

WEB = EXAMPLES / "web"
UVICORN = ("-m", "uvicorn", "--port", "0")
GREET = "work.greet"
ASYNCPG = "?ssl=disable&prepared_statement_cache_size=0&command_timeout=30"
"""Parameters that only asyncpg knows."""


@pytest.mark.process
@pytest.mark.one_database
@pytest.mark.parametrize("framework", ["fastapi", "starlette", "litestar"])
def test_an_example_runs_its_jobs_and_shows_its_dashboard(
    framework: str, database_url: str, workers_on: Callable[[str], Workers]
) -> None:
    check_example(framework, workers_on(_spelled(database_url)))


@pytest.mark.process
@pytest.mark.parametrize("framework", ["fastapi", "litestar"])
def test_an_example_on_the_url_that_the_application_has_for_asyncpg(
    framework: str, postgres_url: str, workers_on: Callable[[str], Workers]
) -> None:
    check_example(framework, workers_on(f"{_spelled(postgres_url)}{ASYNCPG}"))


@pytest.mark.parametrize("more", ["", "?prepared_statement_cache_size=0"])
def test_one_url_serves_the_applications_engine_and_the_app(
    app_on: Callable[..., Penstock], postgres_url: str, more: str
) -> None:
    """The application's session is asyncpg's; the app connects by its own driver, and sees what the session commits."""
    pytest.importorskip("asyncpg", reason="asyncpg is not installed")
    url = _spelled(postgres_url) + more
    app = app_on(url)

    @app.task(name="greet")
    async def greet(name: str) -> str:
        return f"hello {name}"

    async def main() -> list[str]:
        engine = create_async_engine(url)
        async with AsyncSession(engine) as session:
            kept = await greet.options(connection=session).enqueue_async("ann")
            await session.commit()
            await greet.options(connection=session).enqueue_async("bob")
            await session.rollback()
        await engine.dispose()
        async with app.worker():
            said = await kept.result_async(timeout=60)
        return [said, *[job.id for job in await app.jobs_async() if job != kept]]

    assert asyncio.run(main()) == ["hello ann"]


def check_example(framework: str, workers: Workers) -> None:
    for needed in ("uvicorn", framework, "jinja2"):
        pytest.importorskip(needed)
    server, address = served(workers, *UVICORN, f"with_{framework}:api", home=WEB)
    job = told(f"{address}/greetings/ann", "POST")["job"]
    assert told(f"{address}/greetings/{job}")["said"].startswith("hello ann")
    assert asked(f"{address}/jobs/")[0] == 403
    status, page = asked(f"{address}/jobs/jobs", headers={"x-token": "sesame"})
    assert status == 200
    assert GREET in page
    assert '"/jobs/jobs' in page, "links lead to where it is mounted"
    assert server.stop() in (0, -SIGTERM)


def _spelled(url: str) -> str:
    """As an application with async drivers has it."""
    for plain, spelled in (
        ("postgresql:", "postgresql+asyncpg:"),
        ("mysql:", "mysql+aiomysql:"),
        ("sqlite:", "sqlite+aiosqlite:"),
    ):
        url = url.replace(plain, spelled, 1)
    return url


@pytest.mark.process
@pytest.mark.one_database
def test_ctrl_c_says_what_is_waited_for_and_a_second_one_gives_it_back(
    database_url: str, workers_on: Callable[[str], Workers], app_on: Callable[..., Penstock]
) -> None:
    for needed in ("uvicorn", "fastapi", "jinja2"):
        pytest.importorskip(needed)
    server, address = served(workers_on(database_url), *UVICORN, "with_fastapi:api", home=WEB)
    job = app_on(database_url).job(told(f"{address}/greetings/ann?pause=600", "POST")["job"])
    eventually(lambda: job.status == "running")
    server.send(SIGINT)
    eventually(lambda: f"1 running job may finish within 25 s: {GREET}" in server.log)
    assert job.status == "running"
    assert server.running
    server.send(SIGINT)
    server.wait(60)
    assert "stopping at once" in server.log
    assert job.status == "available"
    assert [attempt.outcome for attempt in job.attempts()] in ([], ["released"])


@pytest.mark.process
@pytest.mark.one_database
def test_a_server_that_is_forced_to_leave_gives_jobs_back(
    database_url: str, workers_on: Callable[[str], Workers], app_on: Callable[..., Penstock]
) -> None:
    """With a request open, uvicorn waits for that first; at the second Ctrl-C it ends no lifespan."""
    for needed in ("uvicorn", "fastapi", "jinja2"):
        pytest.importorskip(needed)
    patient = {"PENSTOCK_SHUTDOWN_TIMEOUT": "600"}
    server, address = served(workers_on(database_url), *UVICORN, "with_fastapi:api", home=WEB, env=patient)
    job = app_on(database_url).job(told(f"{address}/greetings/ann?pause=600", "POST")["job"])
    eventually(lambda: job.status == "running")
    host, port = address.removeprefix("http://").split(":")
    with closing(HTTPConnection(host, int(port), timeout=60)) as held:
        held.request("GET", f"/greetings/{job.id}")  # answered when the job has ended
        server.send(SIGINT)
        eventually(lambda: "Waiting for connections to close" in server.log, timeout=60)
        server.send(SIGINT)
        server.wait(90)  # and not the time that running jobs have
    assert job.status == "available"


@pytest.mark.process
@pytest.mark.one_database
def test_a_reloader_does_not_wait_for_running_jobs(
    database_url: str, workers_on: Callable[[str], Workers], app_on: Callable[..., Penstock], tmp_path: Path
) -> None:
    for needed in ("uvicorn", "fastapi", "jinja2"):
        pytest.importorskip(needed)
    for file in WEB.glob("*.py"):
        (tmp_path / file.name).write_text(file.read_text())
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "DATABASE_URL": database_url}
    options = (*UVICORN, "--reload", "--reload-dir", str(tmp_path), "with_fastapi:api")
    with fresh_process(tmp_path, *options, env=env) as (_, log):
        eventually(lambda: "startup complete" in log(), timeout=60)
        (address,) = set(ADDRESS.findall(log()))
        job = app_on(database_url).job(told(f"{address}/greetings/ann?pause=600", "POST")["job"])
        eventually(lambda: job.status == "running", timeout=60)

        def given_back() -> bool:
            (
                tmp_path / "with_fastapi.py"
            ).touch()  # again and again: a reloader may look before it knows the file
            return f"1 running job given back: {GREET}" in log()

        eventually(given_back, timeout=60, pause=0.5)


@pytest.mark.process
@pytest.mark.one_database
def test_a_worker_with_autoreload_runs_the_newest_source(
    database_url: str, app_on: Callable[..., Penstock], tmp_path: Path
) -> None:
    source = tmp_path / "shop.py"
    source.write_text(SHOP.format(answer=1))
    app = app_on(database_url)

    @app.task(name="answer")
    def answer() -> int:
        return 0

    @app.task(name="linger")
    def linger() -> None: ...

    env = {"PYTHONPATH": str(ROOT), "PENSTOCK_DATABASE_URL": database_url}
    options = ("-m", "penstock", "worker", "shop:app", "--autoreload", "--processes", "0")
    with fresh_process(tmp_path, *options, env=env) as (process, log):
        assert answer.enqueue().result(timeout=60) == 1
        job = linger.enqueue()
        eventually(lambda: job.status == "running", timeout=60)
        source.write_text("this is no Python\n")
        eventually(lambda: "has changed; starting again" in log(), timeout=60)
        eventually(lambda: "started again when a file changes" in log(), timeout=60)
        assert job.status == "available", "it was given back, and not waited for"
        assert job.cancel()
        source.write_text(SHOP.format(answer=2))
        assert answer.enqueue().result(timeout=60) == 2
        process.send_signal(SIGTERM)
        assert process.wait(60) == 0


SHOP = """
import asyncio
from penstock import Penstock
app = Penstock()

@app.task(name="answer")
def answer() -> int:
    return {answer}

@app.task(name="linger")
async def linger() -> None:
    await asyncio.sleep(600)
"""


@pytest.mark.process
@pytest.mark.one_database
def test_flask_and_its_command(database_url: str, workers_on: Callable[[str], Workers]) -> None:
    for needed in ("flask", "jinja2"):
        pytest.importorskip(needed)
    workers = workers_on(database_url)
    flask = ("-m", "flask", "--app", "with_flask")
    server, address = served(workers, *flask, "run", "--port", "0", home=WEB)
    path = os.pathsep.join([str(WEB), str(EXAMPLES.parent)])
    env = {"PYTHONPATH": path, "DATABASE_URL": database_url}
    worker = workers.python(*flask, "penstock", "worker", "--processes", "0", env=env)
    job = told(f"{address}/greetings/ann", "POST")["job"]
    assert told(f"{address}/greetings/{job}") == {"said": "hello ann of tea"}
    assert asked(f"{address}/jobs/")[0] == 403
    status, page = asked(f"{address}/jobs/jobs", headers={"x-token": "sesame"})
    assert status == 200
    assert "greet_from_shop" in page
    assert worker.stop() == 0
    status_command = workers.python(*flask, "penstock", "status", env=env)
    assert status_command.wait() == 0, status_command.log
    server.kill()


def test_the_lifespan_joins_one_that_is_there(app: Penstock) -> None:
    seen: list[str] = []

    @app.task
    async def note() -> None:
        seen.append("job")

    @asynccontextmanager
    async def existing(server_app: Any) -> AsyncIterator[dict[str, str]]:
        seen.append(f"begin {server_app}")
        yield {"some": "state"}
        seen.append(f"end, with {len(app.worker_loops)} workers")

    async def live() -> None:
        async with lifespan(app, existing, queues="default", concurrency=3)("api") as state:
            assert state == {"some": "state"}
            assert len(app.worker_loops) == 1
            await (await note.enqueue_async()).result_async(timeout=30)

    asyncio.run(live())
    assert seen == ["begin api", "job", "end, with 0 workers"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["uvicorn", "--reload", "shop:api"], True),
        (["uvicorn", "shop:api"], False),
        (["/bin/fastapi", "dev", "shop.py"], True),
        (["/bin/fastapi", "run", "shop.py"], False),
        (["uvicorn", "reload:api"], False),
        ([], False),
    ],
)
def test_a_reloader_is_known_by_its_command_line(arguments: list[str], expected: bool) -> None:
    assert is_reloaded(arguments) is expected
