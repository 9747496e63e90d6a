"""runtime/liveness/host_identity: where a process lives, and what the operating system says about others."""

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.runtime.liveness import host_identity
from penstock.runtime.liveness.host_identity import HostIdentity, ProcStat, is_dead, this_host
from tests.waiting import eventually

TAIL = b"S 1 5 5 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 7 0 5775344 3133440 382 18446744073709551615"


@pytest.fixture
def word_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host_identity, "SHARED_MEMORY", tmp_path)
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
    assert ProcStat.read(b"77 (" + name + b") " + TAIL) == ProcStat("S", 7, 5775344)


@pytest.mark.parametrize("line", [b"", b"77 (python)", b"77 (python) S 1 2", b"77 python S"])
def test_what_cannot_be_read_says_nothing(line: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        ProcStat.read(line)


@pytest.mark.parametrize(
    ("state", "threads", "over"),
    [("R", 1, False), ("T", 1, False), ("D", 4, False), ("Z", 1, True), ("X", 0, True), ("Z", 2, False)],
)
def test_who_is_dead_and_who_only_looks_like_it(state: str, threads: int, over: bool) -> None:
    assert ProcStat(state, threads, 1).is_over is over


def test_a_process_is_alive_until_it_ends_and_then_never_again() -> None:
    with sleeper() as process:
        since = ProcStat.of(process.pid).since
        assert not is_dead(process.pid, since)
        assert is_dead(process.pid, since + 1), "the pid is used again"
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: ProcStat.of(process.pid).state == "T")
        assert not is_dead(process.pid, since), "frozen is not dead"
        process.send_signal(signal.SIGKILL)
        eventually(lambda: is_dead(process.pid, since))
        assert ProcStat.of(process.pid).state == "Z", "its parent has not waited for it yet"
        process.wait()
        assert is_dead(process.pid, since)


def test_a_process_of_another_user_is_alive() -> None:
    assert not is_dead(1, ProcStat.of(1).since)
    assert not is_dead(0, 0)
    assert not is_dead(-1, 0)


def test_what_is_hidden_may_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_identity, "PROC", tmp_path)
    assert this_host() is None
    assert not is_dead(os.getpid(), 1)
    with sleeper() as process:
        pass
    assert is_dead(process.pid, 1), "that there is none is said by the kernel itself"


def test_a_place_stays_the_same_as_long_as_the_machine_does(word_file: Path) -> None:
    ours = this_host()
    assert ours is not None
    assert ours == this_host()
    assert ours.since == ProcStat.of(os.getpid()).since
    word_file.unlink()
    another = this_host()
    assert another is not None
    assert another.place != ours.place, "a machine copied before any process had run there"


def test_the_first_to_ask_draws_the_word(word_file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        words = set(pool.map(lambda _: host_identity._word(word_file), range(32)))
    assert len(words) == 1
    assert list(word_file.parent.iterdir()) == [word_file], "no draft is left"


def test_nothing_is_said_where_another_has_been_first(word_file: Path, tmp_path: Path) -> None:
    word_file.write_text("")
    assert this_host() is None
    word_file.unlink()
    (tmp_path / "word").write_text("theirs")
    word_file.symlink_to(tmp_path / "word")
    assert this_host() is None
    word_file.unlink()
    os.mkfifo(word_file)
    assert this_host() is None


def test_nothing_is_said_without_a_place_for_the_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_identity, "SHARED_MEMORY", tmp_path / "nowhere")
    assert this_host() is None
    monkeypatch.setattr(host_identity, "SHARED_MEMORY", None)
    assert this_host() is None


def test_only_who_says_so_lives_here() -> None:
    ours = HostIdentity("host", "boot pid:[1] word", 7)
    there = HostIdentity("host", "boot pid:[1] word", 9)
    elsewhere = HostIdentity("host", "boot pid:[2] word", 9)
    assert ours.since_there({"birth": "x", **there.details()}) == 9
    assert ours.since_there(elsewhere.details()) is None
    since = {"place": ours.place, "since": "9"}
    odd: list[object] = [None, [], {}, {"dwelling": "here"}, {"dwelling": since}]
    assert [ours.since_there(details) for details in odd] == [None] * 5


def test_a_knock_is_heard_by_those_of_the_same_door(word_file: Path, tmp_path: Path) -> None:
    assert this_host() is not None
    assert host_identity.last_announcement("ours") == host_identity.last_announcement("theirs") == -1
    host_identity.announce("ours")
    first = host_identity.last_announcement("ours")
    assert first > 0
    host_identity.announce("theirs")
    assert host_identity.last_announcement("ours") == first
    host_identity.announce("ours")
    assert host_identity.last_announcement("ours") > first
    for number in range(1000):
        host_identity.announce(f"database {number}")
    assert len(list(tmp_path.iterdir())) <= host_identity.ANNOUNCEMENT_FILES + 1


def test_a_door_that_leads_elsewhere_is_not_touched(word_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("not ours")
    before = other.stat().st_mtime_ns
    host_identity._announcement_file("ours").symlink_to(other)
    host_identity.announce("ours")
    assert other.stat().st_mtime_ns == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_name_that_another_user_has_taken_is_left_to_that_user(word_file: Path, tmp_path: Path) -> None:
    taken = [word_file, tmp_path / f"{word_file.name}.1"]
    for squatted in taken:
        squatted.write_text("theirs")
        os.chown(squatted, 65534, 65534)
    ours = this_host()
    assert ours is not None
    assert ours == this_host()
    word = tmp_path / f"{word_file.name}.2"
    assert word.stat().st_mode & 0o777 == 0o600, "no other user can foresee the names of the doors"
    host_identity.announce("ours")
    assert host_identity.last_announcement("ours") > 0
    taken[0].unlink()
    assert this_host() == ours, "they all stay together, also when the first name becomes free"
