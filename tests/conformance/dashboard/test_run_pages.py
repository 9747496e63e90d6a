"""dashboard/pages/runs: Pages of runs and pipelines: what they show, in part where there is much, and every act that
they offer.
"""

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

import penstock
from penstock import Penstock
from penstock.operate.pages import run_search, run_steps
from penstock.pipelines.pipeline import Pipeline
from penstock.testing import drain
from tests.conformance.dashboard.browser import Answer, browser

HOSTILE = '<script>alert("x")</script>\u202e'


def shop(app: Penstock) -> tuple[Pipeline, Pipeline]:
    @app.task(name="load", retries=0)
    def load(user: int) -> int:
        if user == 2:
            raise ValueError(HOSTILE)
        return user * 10

    @app.task(name="total")
    def total(*values: Any) -> str:
        return f"sum {HOSTILE}"

    @app.pipeline(name="mail")
    def mail(kind: str) -> Any:
        return total(kind)

    @app.pipeline(name="enrich", on_failure="continue")
    def enrich(users: list[int]) -> Any:
        """Loads users."""
        all_of_them = load.map(users).collect()
        sure = penstock.wait_for("approve", timeout=3600, default="no")
        return total(all_of_them, sure, mail("weekly"))

    return enrich, mail


def svg_of(page: Answer) -> ElementTree.Element:
    start = page.text.index("<svg", page.text.index('class="graph-wrap"'))
    return ElementTree.fromstring(page.text[start : page.text.index("</svg>", start) + 6])


def test_a_run_from_its_first_step_to_its_signal(app: Penstock) -> None:
    enrich, _ = shop(app)
    run = enrich.options(key="november", labels=["weekly"]).trigger([1, 3])
    drain(app)
    ann = browser(app)
    listed = ann.get("/runs.json?pipeline=enrich&label=weekly").json
    assert [row["key"] for row in listed["runs"]] == ["november"]
    assert listed["counts"] == {"running": 1}
    data = ann.get(f"/runs/{run.id}.json").json
    nodes = {node["key"]: node for node in data["graph"]["nodes"]}
    assert nodes["load"]["counts"] == {"succeeded": 2}
    assert nodes["approve"]["counts"] == {"waiting": 1}
    (scope,) = data["graph"]["scopes"].values()
    assert (scope["ended"], scope["elements"]) == (2, 2)
    assert data["run"]["labels"] == ["weekly"]
    assert data["run"]["args"]["text"] == '{"users":[1,3]}'
    (child,) = data["lineage"]["children"]
    assert nodes["mail"]["child"] == child["id"]
    (wait,) = data["waits"]
    assert (wait["signal"], wait["default"]["text"]) == ("approve", '"no"')
    assert wait["until_at"] > wait["since_at"]
    rows = {row["name"]: row for row in data["timeline"]["rows"]}
    assert [span["kind"] for span in rows["load[0]"]["spans"]][-1] == "succeeded"
    page = ann.get(f"/runs/{run.id}?step=load&open={child['id']}")
    assert page.status == 200
    assert "<script>alert" not in page.text
    links = [link.get("aria-label") for link in svg_of(page).findall(".//{*}a")]
    assert any(str(link).startswith("load: 2 succeeded") for link in links)
    assert 'id="opened"' in page.text
    assert ann.act("signal-run", id=run.id, signal="approve", value='{"by": "ann"}').json["given"] is True
    assert ann.act("signal-run", id=run.id, signal="approve", choice="reject").status == 409
    drain(app)
    data = ann.get(f"/runs/{run.id}.json?step=total").json
    assert data["run"]["status"] == "succeeded"
    assert data["signals"][0]["value"]["text"] == '{"by":"ann"}'
    assert data["chosen"]["one"]["output"]["text"].startswith('"sum <script>')
    assert {one["from"] for one in data["chosen"]["one"]["inputs"]} >= {"approve", "mail"}
    assert data["audit"][0]["by"] == "ann"
    assert ann.get(f"/runs/{run.id}.json").headers["etag"] == ann.get(f"/runs/{run.id}.json").headers["etag"]


def test_a_failed_run_is_revived_retried_and_repeated(app: Penstock) -> None:
    enrich, _ = shop(app)
    run = enrich.trigger([1, 2])
    run.signal("approve", True)
    drain(app)
    ann = browser(app)
    data = ann.get(f"/runs/{run.id}.json?step=load&state=failed").json
    assert data["run"]["reasons"][0]["reason"] == "retries_exhausted"
    assert [step["name"] for step in data["chosen"]["steps"]] == ["load[1]"]
    assert data["can"]["retry"] == ["load"]
    page = ann.get(f"/runs/{run.id}?step=load&path=00000001")
    assert "&lt;script&gt;" in page.text
    assert "<script>alert" not in page.text
    answer = ann.post("/act/revive-run", {"id": run.id, "back": f"/runs/{run.id}"})
    assert answer.status == 303
    revived = answer.headers["location"].rpartition("/")[2]
    assert app.run(revived).revived_from == run
    again = ann.act("rerun-run", id=run.id).json["run"]
    app.run(revived).signal("approve", True)
    drain(app)
    retried = ann.act("retry-step", id=revived, step="load").json["run"]
    assert app.run(retried).revived_from == app.run(revived)
    repeated = ann.act("repeat-run", id=run.id, args='{"users": [7]}').json["run"]
    assert app.run(repeated).args == {"users": [7]}
    then = ann.act("follow-run", id=again, pipeline="mail", args='["x"]').json["run"]
    lineage = ann.get(f"/runs/{run.id}.json").json["lineage"]
    assert {one["id"] for one in lineage["went_on_as"]} == {revived, again, repeated}
    assert [one["id"] for one in ann.get(f"/runs/{again}.json").json["lineage"]["followed_by"]] == [then]
    assert ann.get(f"/runs/{then}.json").json["run"]["status"] == "pending"
    assert ann.act("follow-run", id=again, pipeline="nothing").status == 400
    assert ann.act("repeat-run", id=run.id, args="[").status == 400


def test_a_run_is_forked_at_the_step_that_is_looked_at(app: Penstock) -> None:
    enrich, _ = shop(app)
    run = enrich.trigger([1, 3])
    ann = browser(app)
    assert "/act/fork-run" not in ann.get(f"/runs/{run.id}?step=load").text, "it has not ended"
    refused = ann.act("fork-run", id=run.id, step="load")
    assert (refused.status, "only a run that has ended" in refused.text) == (400, True)
    run.signal("approve", True)
    drain(app)
    assert run.status == "succeeded"
    data = ann.get(f"/runs/{run.id}.json?step=mail").json
    assert data["can"]["fork"] is True
    assert data["chosen"]["redone"] == ["mail", "total"]
    page = ann.get(f"/runs/{run.id}?step=mail").text
    assert "/act/fork-run" in page
    assert "A new run does again: mail, total." in page
    looker = browser(app, rights=["look", "jobs", "schedules", "enqueue"])
    assert "/act/fork-run" not in looker.get(f"/runs/{run.id}?step=mail").text
    answer = ann.post("/act/fork-run", {"id": run.id, "step": "mail", "back": f"/runs/{run.id}"})
    assert answer.status == 303
    forked = app.run(answer.headers["location"].rpartition("/")[2])
    drain(app)
    assert (forked.status, forked.forked_from) == ("succeeded", run)
    again = ann.act("fork-run", id=run.id, step="total", why="to compare").json["run"]
    assert next((act.act, act.by, act.why) for act in app.audit(run)) == ("fork", "ann", "to compare")
    assert "its steps are" in ann.act("fork-run", id=run.id, step="nothing").text
    assert ann.act("fork-run", id=run.id).status == 400
    data = ann.get(f"/runs/{again}.json").json
    assert (data["lineage"]["forked_from"]["id"], data["lineage"]["revived_from"]) == (run.id, None)
    assert (data["run"]["forked_at_step"], data["run"]["only_step"]) == ("total", None)
    assert "Forked from" in ann.get(f"/runs/{again}").text
    lineage = ann.get(f"/runs/{run.id}.json").json["lineage"]
    assert {one["id"] for one in lineage["forked_as"]} == {forked.id, again}
    assert lineage["went_on_as"] == []


def test_a_run_is_paused_resumed_and_cancelled(app: Penstock) -> None:
    enrich, _ = shop(app)
    run = enrich.trigger([1])
    ann = browser(app)
    assert ann.act("pause-run", id=run.id).status == 200
    assert ann.act("pause-run", id=run.id).status == 409
    data = ann.get(f"/runs/{run.id}.json").json
    assert data["run"]["status"] == "paused"
    assert data["can"]["resume"]
    assert not data["can"]["pause"]
    assert ann.act("resume-run", id=run.id).status == 200
    assert ann.act("cancel-run", id=run.id, grace="0s", why="ticket 12").status == 200
    assert ann.act("cancel-run", id=run.id, grace="soon").status == 400
    drain(app)
    assert app.run(run.id).status == "cancelled"
    assert app.audit(run)[0].why == "ticket 12"


ACTS = [
    "pause-run",
    "resume-run",
    "cancel-run",
    "signal-run",
    "revive-run",
    "retry-step",
    "fork-run",
    "rerun-run",
    "migrate-run",
]
STARTS = ["repeat-run", "follow-run", "start-run"]


def test_acts_on_runs_need_their_right(app: Penstock) -> None:
    enrich, _ = shop(app)
    run = enrich.trigger([1])
    looker = browser(app, rights=["look", "jobs", "schedules", "enqueue"])
    for name in ACTS:
        assert looker.act(name, id=run.id, step="load", signal="approve").status == 403
    starter = browser(app, rights=["look", "runs"])
    for name in STARTS:
        assert starter.act(name, id=run.id, pipeline="mail").status == 403
    page = looker.get(f"/runs/{run.id}")
    assert "/act/pause-run" not in page.text
    assert app.run(run.id).status == "running"
    assert looker.get(f"/runs/{run.id}.json").json["run"]["args"]["text"] is None, "payloads are hidden"
    stranger = browser(app).post("/act/pause-run", {"id": run.id}, sec_fetch_site="cross-site")
    assert stranger.status == 403


def test_many_elements_are_shown_in_part(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_steps, "MOST_COUNTED", 40)
    monkeypatch.setattr(run_steps, "MOST_PER_NODE", 30)
    monkeypatch.setattr(run_steps, "WINDOW", 60)
    enrich, _ = shop(app)
    run = enrich.trigger([5] * 130)
    drain(app)
    ann = browser(app)
    data = ann.get(f"/runs/{run.id}.json?step=load").json
    nodes = {node["key"]: node for node in data["graph"]["nodes"]}
    assert (nodes["load"]["counts"], nodes["load"]["more"]) == ({"succeeded": 30}, True)
    assert nodes["approve"]["more"] is False
    (scope,) = data["graph"]["scopes"].values()
    assert (scope["ended"], scope["elements"]) == (130, 130), "the engine has counted them"
    assert data["timeline"]["capped"]
    assert len(data["timeline"]["rows"]) <= 60
    seen: list[str] = []
    after = ""
    while after is not None:
        page = ann.get(f"/runs/{run.id}.json?step=load&after={after}").json["chosen"]
        seen += [step["name"] for step in page["steps"]]
        after = page["after"]
    assert seen == [f"load[{at}]" for at in range(130)]
    window = ann.get(f"/runs/{run.id}.json?step=load&state=failed").json["chosen"]
    assert window["steps"] == []
    assert window["after"] is not None, "the next page looks on behind the window"


def test_runs_are_paged_without_looking_at_all(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_search, "WINDOW", 70)
    _, mail = shop(app)
    made = [run.id for run in mail.trigger_many([(f"{at}",) for at in range(160)])]
    halted = made[3]
    app.run(halted).cancel(0)
    ann = browser(app)
    seen: list[str] = []
    before = ""
    while before is not None:
        page = ann.get(f"/runs.json?before={before}").json
        seen += [row["id"] for row in page["runs"]]
        before = page["before"]
    assert seen == sorted(made, reverse=True)
    found, before = [], ""
    while before is not None:
        page = ann.get(f"/runs.json?status=cancelled&before={before}").json
        found += [row["id"] for row in page["runs"]]
        before = page["before"]
    assert found == [halted]
    assert ann.get("/runs?key=none").status == 200
    assert ann.get("/runs.json?status=nonsense&before=nonsense").status == 200


def test_pipelines_and_their_versions(app: Penstock, make_app: Callable[..., Penstock]) -> None:
    _, mail = shop(app)
    run = mail.trigger("a")
    drain(app)
    ann = browser(app)
    listed = {one["name"]: one for one in ann.get("/pipelines.json").json["pipelines"]}
    assert listed["enrich"]["description"] == "Loads users."
    assert (listed["mail"]["versions"], listed["mail"]["steps"], listed["mail"]["under_way"]) == (1, 1, 0)
    data = ann.get("/pipeline.json?name=mail").json
    assert data["is_current"]
    assert [one["id"] for one in data["outcomes"]] == [run.id]
    assert [one["node"] for one in data["times"]] == ["total"]
    page = ann.get("/pipeline?name=enrich")
    assert page.status == 200
    assert "for each element" in str([text.text for text in svg_of(page).findall(".//{*}text")])
    started = ann.act("start-run", pipeline="mail", args='{"kind": "b"}', key="b").json["run"]
    assert app.run(started).args == {"kind": "b"}

    newer = make_app()

    @newer.task(name="other")
    def other(kind: str) -> str:
        return kind

    @newer.pipeline(name="mail")
    def changed(kind: str) -> Any:
        return other(kind)

    ann = browser(newer)
    data = ann.get(f"/pipeline.json?name=mail&version={run.definition}").json
    assert data["difference"]["added"] == ["other"]
    assert ann.get(f"/runs/{run.id}.json").json["difference"]["removed"] == ["total"]
    assert ann.get(f"/runs/{run.id}").status == 200
    for path in ("/pipelines", "/pipeline?name=mail", f"/pipeline?name=mail&version={run.definition}"):
        assert ann.get(path).status == 200
    assert ann.get("/pipeline?name=nothing").status == 404
    assert ann.get("/pipeline").status == 404


@pytest.mark.parametrize(
    "query",
    [
        "step=%00",
        "step=load&path=zz",
        "step=load&after=%22%3E",
        "open=1",
        "step=nothing",
        "step=load&state=%27",
    ],
)
def test_strange_addresses_of_a_run_are_answered(app: Penstock, query: str) -> None:
    enrich, _ = shop(app)
    run = enrich.trigger([1])
    ann = browser(app)
    assert ann.get(f"/runs/{run.id}?{query}").status in (200, 400)
    assert ann.get(f"/runs/{run.id}.json?{query}").status in (200, 400)


def test_no_runs_and_no_such_run(app: Penstock) -> None:
    ann = browser(app)
    assert "No runs yet" in ann.get("/runs").text
    assert "No pipelines yet" in ann.get("/pipelines").text
    assert ann.get("/runs/01890000-0000-7000-8000-000000000000").status == 404


def test_a_run_in_line_says_why_it_waits_and_where(app: Penstock) -> None:
    @app.task(name="same")
    def same(number: int) -> int:
        return number

    limited = app.flow("limited", max_running=1).start(same).wait_for("go")
    runs = [limited.trigger(n) for n in range(3)]
    drain(app)
    ann = browser(app)
    told = "waits in line, 1 before it: max_running of limited is 1; 1 run is under way"
    assert told in ann.get(f"/runs/{runs[2].id}").text
    data = ann.get(f"/runs/{runs[2].id}.json").json
    missing = "no worker is running that would start it: penstock worker MODULE:APP"
    assert (data["run"]["pending"], data["can"]["pause"]) == ([told, missing], False)
    assert ann.get(f"/runs/{runs[0].id}.json").json["run"]["pending"] == []
