"""Where a process lives, and what the operating system says about others."""

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.runtime import dwelling
from penstock.runtime.dwelling import Dwelling, Life, here, is_dead
from tests.waiting import eventually

TAIL = b"S 1 5 5 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 7 0 5775344 3133440 382 18446744073709551615"


@pytest.fixture
def hearth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(dwelling, "HEARTH", tmp_path)
    return tmp_path / f"penstock-{os.geteuid()}"


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "100"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "name", [b"python", b"a name", b")", b"a) S 1 (b", b"(((", b"1 2 3 4 5 6", b"\xff\n", b""]
)
def test_whatever_a_program_is_called_its_life_is_read(name: bytes) -> None:
    assert Life.read(b"77 (" + name + b") " + TAIL) == Life("S", 7, 5775344)


@pytest.mark.parametrize("line", [b"", b"77 (python)", b"77 (python) S 1 2", b"77 python S"])
def test_what_cannot_be_read_says_nothing(line: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        Life.read(line)


@pytest.mark.parametrize(
    ("state", "threads", "over"),
    [("R", 1, False), ("T", 1, False), ("D", 4, False), ("Z", 1, True), ("X", 0, True), ("Z", 2, False)],
)
def test_who_is_dead_and_who_only_looks_like_it(state: str, threads: int, over: bool) -> None:
    assert Life(state, threads, 1).is_over is over


def test_a_process_is_alive_until_it_ends_and_then_never_again() -> None:
    with sleeper() as process:
        since = Life.of(process.pid).since
        assert not is_dead(process.pid, since)
        assert is_dead(process.pid, since + 1), "the pid is used again"
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: Life.of(process.pid).state == "T")
        assert not is_dead(process.pid, since), "frozen is not dead"
        process.send_signal(signal.SIGKILL)
        eventually(lambda: is_dead(process.pid, since))
        assert Life.of(process.pid).state == "Z", "nobody has waited for it yet"
        process.wait()
        assert is_dead(process.pid, since)


def test_a_process_of_somebody_else_is_alive() -> None:
    assert not is_dead(1, Life.of(1).since)
    assert not is_dead(0, 0)
    assert not is_dead(-1, 0)


def test_what_is_hidden_may_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dwelling, "PROC", tmp_path)
    assert here() is None
    assert not is_dead(os.getpid(), 1)
    with sleeper() as process:
        pass
    assert is_dead(process.pid, 1), "that there is none is said by the kernel itself"


def test_a_place_stays_the_same_as_long_as_the_machine_does(hearth: Path) -> None:
    ours = here()
    assert ours is not None
    assert ours == here()
    assert ours.since == Life.of(os.getpid()).since
    hearth.unlink()
    another = here()
    assert another is not None
    assert another.place != ours.place, "a machine copied before anybody had lived there"


def test_the_first_to_ask_draws_the_word(hearth: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        words = set(pool.map(lambda _: dwelling._word(hearth), range(32)))
    assert len(words) == 1
    assert list(hearth.parent.iterdir()) == [hearth], "no draft is left"


def test_nothing_is_said_where_another_has_been_first(hearth: Path, tmp_path: Path) -> None:
    hearth.write_text("")
    assert here() is None
    hearth.unlink()
    (tmp_path / "word").write_text("theirs")
    hearth.symlink_to(tmp_path / "word")
    assert here() is None
    hearth.unlink()
    os.mkfifo(hearth)
    assert here() is None


def test_nothing_is_said_without_a_place_for_the_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dwelling, "HEARTH", tmp_path / "nowhere")
    assert here() is None
    monkeypatch.setattr(dwelling, "HEARTH", None)
    assert here() is None


def test_only_who_says_so_lives_here() -> None:
    ours = Dwelling("host", "boot pid:[1] word", 7)
    there = Dwelling("host", "boot pid:[1] word", 9)
    elsewhere = Dwelling("host", "boot pid:[2] word", 9)
    assert ours.since_there({"birth": "x", **there.told()}) == 9
    assert ours.since_there(elsewhere.told()) is None
    since = {"place": ours.place, "since": "9"}
    odd: list[object] = [None, [], {}, {"dwelling": "here"}, {"dwelling": since}]
    assert [ours.since_there(details) for details in odd] == [None] * 5


def test_a_knock_is_heard_by_those_of_the_same_door(hearth: Path, tmp_path: Path) -> None:
    assert here() is not None
    assert dwelling.last_knock("ours") == dwelling.last_knock("theirs") == -1
    dwelling.knock("ours")
    first = dwelling.last_knock("ours")
    assert first > 0
    dwelling.knock("theirs")
    assert dwelling.last_knock("ours") == first
    dwelling.knock("ours")
    assert dwelling.last_knock("ours") > first
    for number in range(1000):
        dwelling.knock(f"database {number}")
    assert len(list(tmp_path.iterdir())) <= dwelling.DOORS + 1


def test_a_door_that_leads_elsewhere_is_not_touched(hearth: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("not ours")
    before = other.stat().st_mtime_ns
    dwelling._door("ours").symlink_to(other)
    dwelling.knock("ours")
    assert other.stat().st_mtime_ns == before
