"""database/boundary: an outage is no row's fault: nothing is set aside, and all of it is done afterwards."""

from collections.abc import Callable

import pytest

from penstock import Penstock
from penstock.errors import DatabaseUnavailable
from penstock.queue import reclaim
from penstock.runtime.liveness.reaper import Reaper
from penstock.telemetry.events import RowSetAside
from penstock.testing import drain
from penstock.values.ids import new_id
from tests.conformance.faults import deadlocked, disconnected, failing_at, out_of_disk
from tests.conformance.operate.helpers import declare_tasks, enqueue, register, take


@pytest.mark.parametrize("fault", [deadlocked, disconnected, out_of_disk])
@pytest.mark.parametrize("count", [1, 3])
def test_work_is_taken_back_after_an_outage(
    app: Penstock, fault: Callable[[Penstock], Exception], count: int
) -> None:
    declare_tasks(app)
    said: list[RowSetAside] = []
    app.events.on(RowSetAside, said.append)
    jobs = [enqueue(app, "quick", number) for number in range(count)]
    take(app, dead := register(app))
    app.database.in_transaction(reclaim.remove_process, dead)
    reaper = Reaper(app.database, new_id, app.events, app.follow, lambda _: None)
    with failing_at("reclaim.2", fault(app), times=1_000), pytest.raises(DatabaseUnavailable):
        reaper.turn()
    assert not said
    assert reaper.turn()
    drain(app)
    assert [job.result(timeout=0) for job in jobs] == list(range(count))
