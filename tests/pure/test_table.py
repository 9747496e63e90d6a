"""cli/table: Tables on terminals of any width: nothing is left out, ids, times and statuses stay in one piece."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from penstock.cli.table import lay_out, with_short_ids
from penstock.values.ids import new_ids, short_id, shortened

COLUMNS = ["id", "task", "queue", "status", "reason", "attempts #", "created (UTC)", "error"]
WORDS = st.text(st.sampled_from("abcdefgh._- "), max_size=60)
ROWS = st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS), min_size=1, max_size=4)


def rows_of(drawn: list[tuple[str, ...]]) -> list[list[str]]:
    ids = new_ids(len(drawn))
    return [
        [id, task, queue, "succeeded", reason, "12,345", "2026-11-18 03:45:24", error]
        for id, (task, queue, reason, error) in zip(ids, drawn, strict=True)
    ]


@given(drawn=ROWS, width=st.integers(60, 200))
def test_nothing_is_left_out_and_nothing_is_too_wide(drawn: list[tuple[str, ...]], width: int) -> None:
    rows = with_short_ids(rows_of(drawn))
    lines = lay_out(COLUMNS, [[Text(cell) for cell in row] for row in rows], width)
    text = "\n".join(line.plain for line in lines)
    assert max(line.cell_len for line in lines) <= width, text
    for row in rows:
        for whole in (row[0], "succeeded", "12,345", "2026-11-18 03:45:24"):
            assert whole in text
    letters = sorted("".join(cell for row in rows for cell in row).replace(" ", ""))
    shown = "\n".join(line.plain for line in lines[1:])
    for name in COLUMNS:
        shown = shown.replace(f"    {name.removesuffix(' #')}: ", "")
    assert sorted("".join(shown.split())) == letters


def test_a_table_that_fits_has_a_line_for_each_row() -> None:
    lines = lay_out(["id", "count #"], [[Text("a"), Text("5")], [Text("b"), Text("1,000")]], 80)
    assert [line.plain for line in lines] == ["id  count", "a       5", "b   1,000"]


@pytest.mark.parametrize(
    ("name", "words"), [("task", "shop.billing.send_receipts_of_the_month"), ("queue", "mail-marketing-eu")]
)
def test_long_names_are_broken_where_their_words_end(name: str, words: str) -> None:
    rest = [Text("x" * 40)]
    lines = lay_out([name, "status"], [[Text(words), *rest]], 55)
    parts = [line.plain.split("  ")[0].strip() for line in lines[1:]]
    assert "".join(parts) == words
    assert len(parts) > 1
    assert all(part[-1] in "._-" for part in parts[:-1]), parts


def test_short_ids_of_one_table_differ() -> None:
    id = "019a953f-2c41-7abc-8def-0123456789ab"
    assert short_id(id) == "019a953f-2c41..89ab"
    other = id.replace("0123456789ab", "0123450089ab")
    assert set(shortened([id, other]).values()) == {"019a953f-2c41..6789ab", "019a953f-2c41..0089ab"}
    assert with_short_ids([[f"run {id}", "no id"]]) == [["run 019a953f-2c41..89ab", "no id"]]
    assert len(set(shortened(new_ids(3000)).values())) == 3000
