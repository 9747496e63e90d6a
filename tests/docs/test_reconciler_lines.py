"""A reconciler with update, timestamp and retry is fifteen lines of the user's or fewer: README shows all of them."""

from tests.docs.test_snippets import ROOT, snippets


def test_the_whole_reconciler_is_fifteen_lines_or_fewer() -> None:
    (shown,) = [text for _, text in snippets(ROOT / "README.md") if "@app.reconciler" in text]
    lines = [line for line in shown.splitlines() if line.strip() and not line.startswith("# file:")]
    assert len(lines) <= 15
    for part in ("import", "Penstock()", "where=", "backoff=Retry", "return {", "NOW"):
        assert part in shown
