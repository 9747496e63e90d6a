"""database/templates: Statement templates: one text for three databases."""

from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.database.templates import MOST_SHARED, ParamStyle, Rendered, Renderer

WORDS = {"jobs": '"work".penstock_jobs', "now": "strftime('%s')", "lock": "FOR UPDATE", "lock_skip": ""}


def renderer(style: ParamStyle) -> Renderer:
    return Renderer(style, WORDS, lambda parameter, kind: f"= ANY({parameter}::{kind}[])")


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        (
            "pyformat",
            'SELECT 5 %% 2 FROM "work".penstock_jobs WHERE id = %(id)s OR id = %(id)s AND x = %(x)s',
        ),
        ("named", 'SELECT 5 % 2 FROM "work".penstock_jobs WHERE id = :id OR id = :id AND x = :x'),
        ("numbered", 'SELECT 5 % 2 FROM "work".penstock_jobs WHERE id = $1 OR id = $1 AND x = $2'),
    ],
)
def test_parameters_take_the_drivers_form(style: ParamStyle, expected: str) -> None:
    rendered = renderer(style).render("SELECT 5 % 2 FROM {jobs} WHERE id = :id OR id = :id AND x = :x")
    assert rendered.sql == expected
    assert rendered.names == ("id", "x")
    assert rendered.lists == {}


def test_the_words_are_escaped_like_the_template() -> None:
    assert renderer("pyformat").render("SELECT {now}").sql == "SELECT strftime('%%s')"
    assert renderer("named").render("SELECT {now}").sql == "SELECT strftime('%s')"


def test_lists_are_known_by_their_type() -> None:
    rendered = renderer("pyformat").render(
        "DELETE FROM {jobs} WHERE id {among:ids:uuid} AND n {among:numbers:int}"
    )
    assert "id = ANY(%(ids)s::uuid[])" in rendered.sql
    assert rendered.lists == {"ids": "uuid", "numbers": "int"}


def test_casts_and_times_are_left_alone() -> None:
    rendered = renderer("named").render("SELECT a::text, '12:30' FROM {jobs} {lock} {lock_skip}")
    assert rendered.sql.startswith("SELECT a::text, '12:30'")
    assert rendered.names == ()


def test_a_word_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError):
        renderer("named").render("SELECT * FROM {jbos}")


def test_a_template_is_rendered_once() -> None:
    known = renderer("named")
    assert known.render("SELECT :a") is known.render("SELECT :a")
    assert known.make("SELECT :a") is not known.render("SELECT :a")


def test_databases_of_one_kind_render_a_template_once(tmp_path: Path) -> None:
    def rendered(name: str, shift: int = 0, **settings: Any) -> tuple[Rendered, str]:
        with Penstock(f"sqlite:///{tmp_path / name}", **settings) as app:
            app.database.shift_clock(shift)
            made = app.database.renderer("named").render("SELECT {now} FROM {jobs}")
        return made, made.sql

    first, sql = rendered("a.db")
    assert rendered("b.db")[0] is first
    assert rendered("a.db", shift=1_000_000)[1] != sql
    assert rendered("a.db", table_prefix="other_")[1] == sql.replace("penstock_", "other_")
    assert rendered("a.db")[0] is first
    for number in range(MOST_SHARED):
        rendered("a.db", table_prefix=f"tenant{number}_")
    assert rendered("a.db")[0] is not first, "of very many, those used last are kept"
