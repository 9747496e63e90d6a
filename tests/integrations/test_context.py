"""integrations/structlog_context, integrations/carried_values: structlog's context, and values that are carried from
the enqueue to the handler.
"""

import os
import subprocess
import sys
from contextvars import ContextVar
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import ConfigurationError
from penstock.integrations.carried_values import carry
from penstock.middleware import HandlerCall
from penstock.testing import drain, travel
from tests.conformance.reconcile.cloud import Cloud, Volume

TENANT: ContextVar[Any] = ContextVar("tenant", default=None)


def test_every_line_of_a_handler_says_which_job_it_is(app: Penstock) -> None:
    structlog = pytest.importorskip("structlog", reason="structlog is not installed")
    context = pytest.importorskip("penstock.integrations.structlog_context")
    context.bind_context(app)
    cloud = Cloud(app)
    seen: list[dict[str, Any]] = []

    @app.task(name="work", queue="q")
    async def work() -> None:
        seen.append(structlog.contextvars.get_contextvars())

    @app.pipeline(name="pipe")
    def pipe() -> Any:
        return work()

    @app.reconciler(Volume, where=Volume.status == "submitted", name="visit")
    def visit(item: Any) -> None:
        seen.append(structlog.contextvars.get_contextvars())

    job = work.enqueue()
    drain(app)
    run = pipe.trigger()
    cloud.add(Volume, {"id": 1})
    drain(app)
    assert seen[0] == {"job": job.id, "task": "work", "queue": "q", "attempt": 1}
    assert seen[1]["run"] == run.id
    assert seen[2] == {"reconciler": "visit", "row": "1", "attempt": 1}
    assert structlog.contextvars.get_contextvars() == {}


def test_a_tenant_goes_with_jobs_runs_and_schedules(app: Penstock) -> None:
    def check(call: HandlerCall) -> None:
        if TENANT.get() is None:
            raise PermissionError("no tenant")

    carry(app, tenant=TENANT, check=check)
    seen: list[tuple[str, Any]] = []

    @app.task(name="work", retries=0)
    def work(what: str) -> None:
        seen.append((what, TENANT.get()))

    @app.pipeline(name="pipe")
    def pipe(what: str) -> Any:
        return work(what)

    stray = work.enqueue("stray")
    TENANT.set("acme")
    work.enqueue("job")
    pipe.trigger("run")
    app.schedules.create(work, every=60, name="s", args=("tick",))
    app.schedules.create(pipe, every=60, name="p", args=("tick of a run",))
    TENANT.set(7)
    with pytest.raises(ConfigurationError, match="only texts"):
        work.enqueue("refused")
    TENANT.set(None)
    drain(app)
    with travel(app, 61):
        drain(app)
    assert stray.status == "failed"
    assert sorted(seen) == [(what, "acme") for what in ("job", "run", "tick", "tick of a run")]
    assert TENANT.get() is None
    with pytest.raises(ConfigurationError, match="ContextVar"):
        carry(app, tenant="acme")  # type: ignore[arg-type]


EXTRAS = {
    "asyncpg",
    "axe_playwright_python",
    "django",
    "django_tasks",
    "fastapi",
    "flask",
    "gunicorn",
    "jinja2",
    "litestar",
    "mcp",
    "opentelemetry",
    "playwright",
    "prometheus_client",
    "sentry_sdk",
    "starlette",
    "structlog",
    "uvicorn",
    "werkzeug",
}
"""Libraries that are there only with an extra, or for the tests."""


def test_importing_penstock_imports_no_extra() -> None:
    program = "import sys, penstock, penstock.app, penstock.cli.main, penstock.testing; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    assert {name.partition(".")[0] for name in done.stdout.split()} & EXTRAS == set()


@pytest.mark.parametrize("module", ["opentelemetry", "sentry", "structlog_context", "flask", "prometheus"])
def test_without_its_library_an_integration_says_what_to_install(module: str) -> None:
    program = f"""
import sys
for name in ("opentelemetry", "sentry_sdk", "structlog", "structlog.contextvars", "flask", "prometheus_client"):
    sys.modules[name] = None
try:
    import penstock.integrations.{module}
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("ConfigurationError"), done.stderr
    assert "pip install" in done.stdout
