"""The printed page of the days on which clocks are changed is what the code does."""

from scripts.clock_changes import PAGE, page


def test_the_page_is_what_schedules_do() -> None:
    assert PAGE.read_text() == page(), "run: python -m scripts.clock_changes"
