"""dashboard/pages/jobs: Pages about jobs and for operators, each as HTML and as JSON, and what can be done from
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

import penstock
from penstock import Cancel, Concurrency, Penstock, Snooze
from penstock.dashboard import job_acts
from penstock.operate.pages import job_search
from penstock.testing import drain, travel
from tests.conformance.dashboard.browser import Browser, browser
from tests.waiting import eventually

SECRET = "card 4111"


class Shop:
    """Tasks that succeed, fail and wait."""

    def __init__(self, app: Penstock) -> None:
        self.app = app

        @app.task(name="receipt")
        def receipt(order: int, note: str = "none") -> dict[str, object]:
            """Send a receipt."""
            penstock.current().progress(0.5, "half")
            return {"order": order, "note": note}

        @app.task(name="charge", retries=0, queue="money")
        def charge(order: int) -> None:
            raise ValueError(f"{SECRET} declined for {order}")

        @app.task(name="later")
        def later() -> object:
            return Snooze(60)

        @app.task(name="stopped")
        def stopped() -> object:
            return Cancel("no more")

        self.receipt, self.charge, self.later, self.stopped = receipt, charge, later, stopped


@pytest.fixture
def shop(app: Penstock) -> Shop:
    return Shop(app)


def listed(ann: Browser, address: str) -> list[str]:
    """The jobs of a list, over all its pages."""
    found: list[str] = []
    before = ""
    while True:
        page = ann.get(f"{address}{before}").json
        found += [row["id"] for row in page["jobs"]]
        if page["before"] is None:
            return found
        before = f"&before={page['before']}"


def test_every_filter_finds_its_jobs(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_search, "STRIDE", 2)
    monkeypatch.setattr(job_search, "TEXT_STRIDE", 2)
    keyed = shop.receipt.options(key="order:1", labels=["vip"]).enqueue(1, "100%_off")
    plain = [shop.receipt.enqueue(number) for number in range(2, 5)]
    bad = [shop.charge.enqueue(number) for number in (7, 8)]
    later = shop.later.enqueue()
    stopped = shop.stopped.enqueue()
    drain(shop.app)
    waiting = shop.receipt.options(queue="slow").enqueue(99)
    due = shop.receipt.options(delay=100).enqueue(5)
    ann = browser(shop.app)

    def found(query: str) -> set[str]:
        return set(listed(ann, f"/jobs.json?{query}"))

    every = {job.id for job in [keyed, *plain, *bad, later, stopped, waiting, due]}
    assert found("x=1") == every
    assert found("status=succeeded") == {keyed.id, *[job.id for job in plain]}
    assert found("status=failed") == {job.id for job in bad}
    assert found("status=cancelled") == {stopped.id}
    assert found("status=available") == {waiting.id}
    assert found("status=scheduled") == {later.id, due.id}
    assert found("queue=slow") == {waiting.id}
    assert found("task=later") == {later.id}
    assert found("key=order:1") == {keyed.id}
    assert found("label=vip") == {keyed.id}
    assert found("text=100%25_OFF") == {keyed.id}
    assert found("text=declined+for+8") == {bad[1].id}
    assert found("status=failed&text=for+7") == {bad[0].id}
    assert found("reason=retries_exhausted&task=charge") == {job.id for job in bad}
    assert found("since=2020-01-01T00:00") == every
    assert found("until=2020-01-01T00:00") == set()
    assert found("status=nonsense&since=nonsense") == every


def test_text_is_not_searched_for_those_who_may_not_see_it(shop: Shop) -> None:
    shop.charge.enqueue(1)
    drain(shop.app)
    bob = browser(shop.app, ["look"])
    assert len(bob.get("/jobs.json?text=nothing-has-this").json["jobs"]) == 1
    redacting = browser(shop.app, redact=lambda *_: "hidden")
    assert len(redacting.get("/jobs.json?text=nothing-has-this").json["jobs"]) == 1


def test_a_search_that_takes_long_says_how_far_it_came(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_search, "STRIDE", 2)
    rare = shop.later.enqueue()
    shop.receipt.enqueue_many([(number,) for number in range(9)])
    found = shop.app.database.read(job_search.search, job_search.JobSearch(task="later"), 10, None, 0.0)
    assert found.partial
    assert not found.jobs
    ann = browser(shop.app)
    assert listed(ann, "/jobs.json?task=later") == [rare.id]


def test_a_job_tells_its_story(shop: Shop) -> None:
    done = shop.receipt.enqueue(1, "<script>")
    drain(shop.app)
    # Ids of one millisecond begin alike, and the page of the second one is asked for by the beginning of its id.
    bad = shop.charge.enqueue(7)
    drain(shop.app)
    ann = browser(shop.app)
    page = ann.get(f"/jobs/{done.id}")
    assert page.status == 200
    assert "<script>alert" not in page.text
    assert "&lt;script&gt;" in page.text
    told = ann.get(f"/jobs/{done.id}.json").json
    assert told["job"]["status"] == "succeeded"
    assert json.loads(told["arguments"]["text"]) == {"order": 1, "note": "<script>"}
    assert json.loads(told["result"]["text"]) == {"order": 1, "note": "<script>"}
    assert [one["outcome"] for one in told["attempts"]] == ["succeeded"]
    assert told["progress"]["message"]["text"] == "half"
    failed = ann.get(f"/jobs/{bad.id[:23]}.json").json
    assert SECRET in failed["attempts"][0]["error"]["text"]
    assert "in charge" in failed["attempts"][0]["traceback"]["text"]
    assert failed["can"] == {"retry": True, "cancel": False, "discard": True, "run_again": True}
    assert ann.get("/jobs/00000000-0000-7000-8000-000000000000").status == 404
    waiting = shop.receipt.options(queue="slow").enqueue(2)
    causes = ann.get(f"/jobs/{waiting.id}.json").json["causes"]
    assert any("worker" in cause["text"] for cause in causes)


def test_a_step_shows_its_element_and_no_arguments_that_it_has_not(app: Penstock) -> None:
    """Its other values come from the run and from the steps before it."""

    @app.task(name="pages")
    def pages(book: str) -> list[str]:
        return [book]

    @app.task(name="scan")
    def scan(page: str) -> str:
        return page

    @app.pipeline(name="digitise")
    def digitise(book: str) -> object:
        return scan.map(pages(book)).collect()

    run = digitise.trigger("walden")
    drain(app)
    ann = browser(app)
    steps = {row["task"]: row["id"] for row in ann.get(f"/jobs.json?run={run.id}").json["jobs"]}
    assert ann.get(f"/jobs/{steps['pages']}.json").json["arguments"] is None
    first, element = ann.get(f"/jobs/{steps['pages']}").text, ann.get(f"/jobs/{steps['scan']}").text
    assert "Arguments</h2>" not in first
    assert "Element</h2>" not in first
    assert "Arguments</h2>" not in element
    assert "Element</h2>" in element
    assert "0 retries, 0 crashes" in first


def test_payloads_are_hidden_redacted_and_cut(shop: Shop) -> None:
    bad, large = shop.charge.enqueue(7), shop.receipt.enqueue(1, "x" * 100_000)
    drain(shop.app)
    bob = browser(shop.app, ["look"])
    for path in (f"/jobs/{bad.id}", f"/jobs/{bad.id}.json", "/failures", "/failures.json"):
        assert SECRET not in bob.get(path).text
    hidden = bob.get(f"/jobs/{bad.id}.json").json["arguments"]
    assert (hidden["text"], hidden["size"] > 0) == (None, True)

    def redact(task: str, kind: str, value: object) -> object:
        if kind in ("error", "traceback"):
            return str(value).replace(SECRET, "card ****")
        return dict.fromkeys(value, "***") if isinstance(value, dict) else value

    ann = browser(shop.app, redact=redact)
    for path in (f"/jobs/{bad.id}", f"/jobs/{bad.id}.json", "/failures", "/failures.json"):
        assert SECRET not in ann.get(path).text
    assert "card ****" in ann.get(f"/jobs/{bad.id}").text
    assert json.loads(ann.get(f"/jobs/{bad.id}.json").json["arguments"]["text"]) == {"order": "***"}
    cut = browser(shop.app).get(f"/jobs/{large.id}.json").json["arguments"]
    assert cut["cut"]
    assert len(cut["text"]) < 30_000 < cut["size"]


def test_a_job_is_run_again_with_other_arguments(shop: Shop) -> None:
    first = shop.receipt.enqueue(1)
    drain(shop.app)
    ann = browser(shop.app)
    form = ann.get(f"/jobs/{first.id}.json").json["fields"]
    assert [(one["name"], one["type"], one["value"]) for one in form] == [
        ("arg-order", "int", "1"),
        ("arg-note", "str", ""),
    ]
    same = ann.act("new-job", id=first.id).json["id"]
    other = ann.act("new-job", id=first.id, **{"arg-order": "5", "arg-note": "12"}).json["id"]
    new = ann.post("/act/new-job", {"task": "receipt", "arg-order": "6", "delay": "1h", "queue": "slow"})
    assert new.headers["location"].startswith("/ops/jobs/")
    drain(shop.app)
    assert shop.app.job(same).result(timeout=0) == {"order": 1, "note": "none"}
    assert shop.app.job(other).result(timeout=0) == {"order": 5, "note": "12"}
    assert shop.app.job(new.headers["location"].rpartition("/")[2]).status == "scheduled"
    for wrong in ({"arg-order": "x"}, {}, {"arg-order": '"text"'}):
        assert ann.act("new-job", task="receipt", **wrong).status == 400
    assert ann.act("new-job", task="nothing").status == 400
    assert browser(shop.app, ["look", "jobs"]).act("new-job", id=first.id).status == 403
    acts = shop.app.audit(by="ann")
    assert {act.act for act in acts} == {"enqueue"}
    assert ann.get("/jobs/new?task=receipt").text.count("<textarea") == 2


def rounds(ann: Browser, **form: Any) -> Iterator[dict[str, Any]]:
    """An act on everything that matches, round after round, as the script does it."""
    after = ""
    while True:
        told = ann.act("change-matching-jobs", after=after, **form).json
        yield told
        if not told["more"]:
            return
        after = told["after"]


def test_everything_that_matches_is_changed_in_rounds(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_acts, "BATCH", 3)
    bad = [shop.charge.enqueue(number) for number in range(7)]
    other = shop.stopped.enqueue()
    drain(shop.app)
    ann = browser(shop.app)
    assert ann.act("change-matching-jobs", action="retry").status == 400
    assert ann.act("change-matching-jobs", action="explode", task="charge").status == 400
    told = list(rounds(ann, action="retry", status="failed", task="charge"))
    assert [one["count"] for one in told][:2] == [3, 3]
    assert sum(one["count"] for one in told) == 7
    assert {job.status for job in bad} == {"available"}
    assert sum(one["count"] for one in rounds(ann, action="cancel", queue="money")) == 7
    assert {job.status for job in bad} == {"cancelled"}
    assert other.status == "cancelled"
    # Without a script: a page with a button to go on.
    first = ann.post(
        "/act/change-matching-jobs", {"action": "retry", "status": "cancelled", "task": "charge"}
    )
    progress = ann.get(first.headers["location"].removeprefix("/ops"))
    assert "Continue" in progress.text
    assert "3 of 3 jobs" in progress.text


def test_failures_are_grouped_by_what_they_are(app: Penstock) -> None:
    @app.task(name="bad", retries=0)
    def bad(number: int) -> float:
        return 1 / number if number == 0 else int(f"x{number}")

    @app.task(name="worse", retries=0)
    def worse() -> None:
        raise KeyError("k")

    bad.enqueue_many([(0,), (0,), (1,), (2,), (3,)])
    worse.enqueue()
    drain(app)
    ann = browser(app)
    assert "ZeroDivisionError" in ann.get("/failures").text
    groups = ann.get("/failures.json").json["groups"]
    assert [(one["task"], one["error_type"], one["count"]) for one in groups] == [
        ("bad", "ValueError", 3),
        ("bad", "ZeroDivisionError", 2),
        ("worse", "KeyError", 1),
    ]
    assert all(one["place"].endswith((" in bad", " in worse")) for one in groups)
    assert all(sum(one["hours"]) == one["count"] for one in groups)
    wanted = {name: value for name, value in groups[0]["filter"].items() if value}
    assert len(listed(ann, f"/jobs.json?fingerprint={groups[0]['fingerprint']}")) == 3
    assert sum(one["count"] for one in rounds(ann, action="discard", **wanted)) == 3
    assert [one["count"] for one in ann.get("/failures.json").json["groups"]] == [2, 1]


def test_a_failed_step_is_done_again_in_a_new_run(app: Penstock) -> None:
    broken = [True]

    @app.task(name="pay", retries=0)
    def pay(order: int) -> int:
        if broken[0]:
            raise ValueError("no")
        return order

    @app.pipeline(name="sale")
    def sale(order: int) -> object:
        return pay(order)

    run = sale.trigger(4)
    drain(app)
    broken[0] = False
    ann = browser(app)
    (group,) = ann.get("/failures.json").json["groups"]
    looker = browser(app, ["look", "jobs"])
    assert sum(one["count"] for one in rounds(looker, action="retry", **group["filter"])) == 0
    assert sum(one["count"] for one in rounds(ann, action="retry", **group["filter"])) == 1
    drain(app)
    assert ann.get("/failures.json").json["groups"] == []
    revived = [found for found in app.runs() if found.id != run.id]
    assert [found.status for found in revived] == ["succeeded"]


def test_queues_are_charted_paused_and_resumed(shop: Shop) -> None:
    shop.receipt.enqueue(1)
    shop.charge.enqueue(1)
    drain(shop.app)
    shop.receipt.enqueue(2)
    ann = browser(shop.app)
    for period in ("hour", "day", "week"):
        told = ann.get(f"/overview.json?period={period}").json
        assert (told["sums"]["succeeded"], told["sums"]["errors"], told["sums"]["failed"]) == (1, 1, 1)
        assert told["sums"]["per_second"] > 0, "in its first minute too"
    assert {queue["queue"]: queue["available"] for queue in told["queues"]} == {"default": 1, "money": 0}
    assert ann.act("pause-queue", queue="default", why="deploy").status == 200
    paused = ann.get("/overview.json").json["queues"][0]
    assert (paused["paused_by"], paused["pause_why"]) == ("ann", "deploy")
    assert ann.get("/").status == 200
    assert ann.act("resume-queue", queue="default").json["resumed"]
    assert browser(shop.app, ["look"]).act("pause-queue", queue="default").status == 403


def test_operators_see_processes_limits_the_trail_and_settings(app: Penstock) -> None:
    @app.task(name="slow", limits=Concurrency(1))
    def slow() -> None: ...

    job = slow.enqueue()
    ann = browser(app)
    ann.act("cancel-jobs", id=job.id, why="ticket <12>")
    (act,) = ann.get("/audit.json").json["acts"]
    assert (act["by"], act["act"], act["why"], act["page"]) == (
        "ann",
        "cancel",
        "ticket <12>",
        f"/jobs/{job.id}",
    )
    assert "ticket &lt;12&gt;" in ann.get("/audit").text
    assert ann.get("/audit.json?by=bob").json["acts"] == []
    assert len(ann.get(f"/audit.json?by=ann&subject={job.id}&act=cancel").json["acts"]) == 1
    settings = {row["name"]: row["value"] for row in ann.get("/settings.json").json["settings"]}
    assert settings["dashboard_password"] == "not set"
    assert ann.get("/processes.json").json == {"hosts": [], "count": 0}
    for path in ("/processes", "/limits", "/reconcilers", "/settings", "/doctor", "/audit", "/search?q=slo"):
        assert ann.get(path).status == 200, path
    findings = ann.act("examine").json["findings"]
    assert any(one["check"] == "database" for one in findings)


def test_one_box_finds_everything(app: Penstock) -> None:
    @app.task(name="send.receipt")
    def receipt(order: int) -> int:
        return order

    @app.pipeline(name="sale")
    def sale(order: int) -> object:
        return receipt(order)

    job = receipt.options(key="order:9", labels=["vip"]).enqueue(9)
    run = sale.options(key="sale:1").trigger(1)
    drain(app)
    ann = browser(app)

    def found(text: str) -> set[tuple[str, str]]:
        return {(one["kind"], one["name"]) for one in ann.get(f"/search.json?q={text}").json["found"]}

    assert ("job", job.id) in found(job.id)
    assert ("run", run.id) in found(run.id[:23])
    assert ("job", job.id) in found("order:9")
    assert ("job", job.id) in found("vip")
    assert ("run", run.id) in found("sale:1")
    assert ("task", "send.receipt") in found("RECEIPT")
    assert ("pipeline", "sale") in found("sal")
    assert found("") == set()
    assert found("%25'\"<>") == set()


MILLISECOND = 23
"""Characters of an id before the counter in it."""


def test_a_text_that_names_one_thing_leads_straight_to_it(app: Penstock) -> None:
    @app.task(name="send.receipt")
    def receipt(order: int) -> int:
        return order

    @app.pipeline(name="sale")
    def sale(order: int) -> object:
        return receipt(order)

    job = receipt.options(key="order:9", labels=["vip"]).enqueue(9)
    run = sale.options(key="twice").trigger(1)
    receipt.options(key="twice").enqueue(1)
    app.schedules.create(receipt, "@daily", name="nightly receipts", args=(1,))
    app.schedules.create(receipt, "@daily", name="sale", args=(1,))
    before = last = receipt.enqueue(1)
    while last.id[:MILLISECOND] == before.id[:MILLISECOND]:  # ids of one millisecond differ only at their end
        last = receipt.enqueue(1)
    ann = browser(app)

    def leads(text: str) -> str | None:
        answer = ann.get(f"/search?q={quote(text)}")
        return answer.headers["location"].removeprefix("/ops") if answer.status == 303 else None

    assert leads(job.id) == leads(job.id.upper().replace("-", "")) == f"/jobs/{job.id}"
    assert leads(run.id) == f"/runs/{run.id}"
    assert leads(last.id[:MILLISECOND]) == f"/jobs/{last.id}"
    assert leads("order:9") == f"/jobs/{job.id}"
    assert leads("nightly receipts") == "/schedule?name=nightly+receipts"
    assert leads("send.receipt") == "/jobs?task=send.receipt"
    assert leads(job.id[:6]) is None, "all ids of this minute begin so"
    for several in ("twice", "sale", "vip", "send", "", "nothing"):
        assert leads(several) is None, several
        assert ann.get(f"/search?q={several}").status == 200


def test_the_page_of_a_process_that_has_ended_says_so(app: Penstock) -> None:
    ann = browser(app)
    gone = ann.get("/processes/01a1ed20-28e9-7073-bc0c-1dbda36ed25f")
    assert gone.status == 200
    assert "This process has ended" in gone.text
    assert 'href="/ops/processes"' in gone.text
    assert ann.get("/processes/01a1ed20-28e9-7073-bc0c-1dbda36ed25f.json").json["process"] is None
    assert ann.get("/processes/01a1").status == 404


def test_a_page_follows_what_becomes_of_time(shop: Shop) -> None:
    late = shop.receipt.options(delay=50).enqueue(1)
    ann = browser(shop.app)
    assert [row["id"] for row in ann.get("/jobs.json?status=scheduled").json["jobs"]] == [late.id]
    travel(shop.app, 60)
    drain(shop.app)
    assert [row["id"] for row in ann.get("/jobs.json?status=succeeded").json["jobs"]] == [late.id]


def test_findings_are_made_in_the_background_and_when_asked_for(shop: Shop) -> None:
    shop.charge.enqueue(1)
    drain(shop.app)
    ann = browser(shop.app)
    troubles = eventually(lambda: ann.get("/doctor.json").json["troubles"])
    assert {"dead letters", "processes"} <= {one["check"] for one in troubles}
    assert all(one["advice"] for one in troubles)
    assert {one["page"] for one in troubles if one["check"] == "dead letters"} == {"/failures"}
    shop.app.database.in_transaction(lambda tx: tx.run("DELETE FROM {executions}"))
    assert ann.act("examine").status == 200
    assert ann.get("/doctor").status == 200
