"""assistant, cli/commands/mcp: `penstock mcp` as an assistant meets it: the SDK's own client over stdin and stdout
of a real process.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="mcp is not installed")

from mcp import Client, StdioServerParameters

from penstock import Penstock, wait_for
from penstock.testing import drain
from tests.commands import call
from tests.workers import CHECKOUT

pytestmark = pytest.mark.process

READING = {"status", "failures", "jobs", "runs", "show", "explain", "schedules", "doctor"}
ACTING = {"retry", "cancel", "revive", "fork", "pause", "resume", "signal"}
SHOP = """
import os
from tests.process.commands.test_mcp import make
print("importing the shop")
app = make(os.environ["SHOP_DATABASE"])
"""


def make(url: str) -> Penstock:
    app = Penstock(url)

    @app.task(name="pay", retries=0)
    def pay(order: int) -> int:
        if order < 0:
            raise ValueError(f"no order {order}")
        return order

    @app.pipeline(name="approve")
    def approve(order: int) -> Any:
        return [pay(order), wait_for("sign", timeout=3600)]

    return app


class Assistant:
    """Calls tools, each of which must answer or refuse."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, tool: str, **arguments: Any) -> Any:
        result: Any = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        return result.structured_content

    async def refused(self, tool: str, **arguments: Any) -> str:
        result: Any = await self.client.call_tool(tool, arguments)
        assert result.is_error, result
        return str(result.content[0].text)


def talk(
    folder: Path,
    url: str,
    options: list[str],
    main: Callable[[Assistant], Awaitable[None]],
    target: str = "mcp_shop:app",
) -> None:
    (folder / "mcp_shop.py").write_text(SHOP)
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "penstock", "mcp", *([target] if target else []), *options],
        cwd=folder,
        env={**os.environ, "SHOP_DATABASE": url, "PYTHONPATH": str(CHECKOUT)},
    )

    async def conversation() -> None:
        async with asyncio.timeout(100), Client(server) as client:
            await main(Assistant(client))

    asyncio.run(conversation())


@pytest.fixture
def shop(app_on: Callable[..., Penstock], database_url: str) -> Penstock:
    app = make(database_url)
    app.prepare()
    return app


@pytest.mark.one_database
def test_it_reads_and_does_not_act(shop: Penstock, database_url: str, tmp_path: Path) -> None:
    good, bad = shop.tasks["pay"].enqueue(1), shop.tasks["pay"].enqueue(-1)
    run = shop.pipelines["approve"].trigger(2)
    drain(shop)
    waiting = shop.tasks["pay"].enqueue(3)

    async def main(ask: Assistant) -> None:
        tools = (await ask.client.list_tools()).tools
        assert {tool.name for tool in tools} == READING
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        assert all(tool.description for tool in tools)
        (queue,) = (await ask("status"))["overview"]["queues"]
        assert (queue["available"], queue["failed"]) == (1, 1)
        told = await ask("failures")
        assert [(each["id"], each["error"]) for each in told["failures"]] == [
            (bad.id, "ValueError: no order -1")
        ]
        assert told["by_task_and_reason"] == [{"task": "pay", "reason": "retries_exhausted", "count": 1}]
        assert [job["id"] for job in (await ask("jobs", status="failed"))["jobs"]] == [bad.id]
        first = await ask("jobs", limit=1)
        assert first["before"] == waiting.id
        assert (await ask("jobs", before=first["before"], limit=1))["jobs"][0]["id"] != waiting.id
        (row,) = (await ask("runs", pipeline="approve"))["runs"]
        assert (row["id"], row["status"]) == (run.id, "running")
        seen = await ask("show", id=run.id)
        assert seen["waits"][0]["signal"] == "sign"
        assert {step["step"]: step["status"] for step in seen["steps"]}["pay"] == "succeeded"
        shown = await ask("show", id=bad.id)
        assert "Traceback" in shown["attempts"][0]["traceback"]
        assert (await ask("show", id=good.id))["result"] == "1"
        assert "worker" in (await ask("explain", id=waiting.id))["text"]
        assert (await ask("schedules"))["schedules"] == []
        examined = await ask("doctor")
        assert not examined["healthy"]
        assert [each["level"] for each in examined["findings"]][:2] == ["warning", "warning"]
        (letters,) = [each for each in examined["findings"] if each["check"] == "dead letters"]
        assert letters["advice"] == "Look at them: penstock dead-letters"
        assert examined["findings"][-1]["level"] == "ok"
        assert "no status 'fialed'. Did you mean 'failed'?" in await ask.refused("jobs", status="fialed")
        assert "no run and no job" in await ask.refused("show", id="00000000")
        await ask.refused("retry", ids=[bad.id], why="to try")

    talk(tmp_path, database_url, [], main)
    assert bad.status == "failed"
    shop.close()


@pytest.mark.one_database
def test_with_a_database_alone_the_doctor_misses_no_tasks(
    shop: Penstock, database_url: str, tmp_path: Path
) -> None:
    shop.tasks["pay"].enqueue(1)
    shop.close()

    async def main(ask: Assistant) -> None:
        assert "tasks" not in {each["check"] for each in (await ask("doctor"))["findings"]}

    talk(tmp_path, database_url, ["--database", database_url], main, target="")


@pytest.mark.one_database
def test_it_acts_only_if_that_is_allowed(shop: Penstock, database_url: str, tmp_path: Path) -> None:
    bad, gone = shop.tasks["pay"].enqueue(-1), shop.pipelines["approve"].trigger(4)
    halted, run = shop.pipelines["approve"].trigger(-5), shop.pipelines["approve"].trigger(2)
    drain(shop)

    async def main(ask: Assistant) -> None:
        assert {tool.name for tool in (await ask.client.list_tools()).tools} == READING | ACTING
        assert (await ask("retry", ids=[bad.id], why="the order is there now"))["retried"] == [bad.id]
        assert (await ask("pause", id=run.id, why="wait"))["paused"]
        assert (await ask("resume", id=run.id, why="go on"))["resumed"]
        assert (await ask("signal", id=run.id, name="sign", value={"by": "ann"}, why="signed"))["given"]
        assert (await ask("cancel", id=gone.id, why="not needed"))["cancelled"]
        assert (await ask("revive", id=halted.id, why="again"))["run"] != halted.id
        assert (await ask("fork", id=halted.id, step="pay", why="look again"))["run"] != halted.id
        await ask.refused("cancel", id=gone.id)

    talk(tmp_path, database_url, ["--allow-acts"], main)
    drain(shop)
    assert run.result(0) == [2, {"by": "ann"}]
    assert gone.status == "cancelled"
    told = [(act.act, act.by, act.why) for act in shop.audit(by="mcp")]
    assert ("retry", "mcp", "the order is there now") in told
    assert {act for act, _, _ in told} >= {"retry", "pause", "resume", "signal", "cancel", "revive", "fork"}
    shop.close()


@pytest.mark.one_database
def test_without_the_sdk_it_says_what_to_install(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    result = call("mcp", "--database", sqlite_url)
    assert result.exit_code == 2
    assert "pip install 'penstock[mcp]'" in result.output
