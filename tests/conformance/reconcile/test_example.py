"""reconcile: the example cloud, with a provider that fails every third time: it comes, it grows, it goes."""

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from examples.cloud import app as cloud_module
from examples.cloud.models import Base, Fleet, Instance, Volume
from penstock import Penstock
from penstock.reconcile.events import LeaseLost, RowSettled
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.conformance.reconcile.apply.test_apply import heard
from tests.waiting import until


@pytest.fixture
def cloud(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example's own module, on the database of this test."""
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", database_url)
    module = importlib.reload(cloud_module)
    module.provider.failures = 0.33
    Base.metadata.create_all(module.app.database.engine)
    yield module
    module.app.close()


def test_a_fleet_comes_and_goes(cloud: Any) -> None:
    app: Penstock = cloud.app
    settled, lost = heard(app, RowSettled), heard(app, LeaseLost)

    def states(model: Any = Instance) -> Counter[str]:
        with app.database.engine.begin() as connection:
            return Counter(connection.scalars(select(model.status)))

    def reaches(**wanted: int) -> Callable[[], bool]:
        return lambda: states() == Counter(wanted)

    def change(**values: Any) -> None:
        with app.lock(Fleet, 1) as connection:
            connection.execute(update(Fleet).where(Fleet.id == 1).values(**values))

    async def live(_: Worker) -> None:
        with app.database.engine.begin() as connection:
            connection.execute(insert(Fleet).values(id=1, name="demo", size=3))
        await app.hint_async(Fleet)
        await until(reaches(idle=3), 60)
        with app.database.engine.begin() as connection:
            connection.execute(insert(Volume), [{"instance_id": None} for _ in range(2)])
            first = connection.scalars(select(Instance.id).limit(1)).one()
            connection.execute(update(Volume).values(instance_id=first))
        await app.hint_async(Volume)
        await until(lambda: states(Volume) == Counter(attached=2), 60)
        await app.bridge.run(change, size=5)
        await until(reaches(idle=5), 60)
        await app.bridge.run(change, status="deleting")
        await until(reaches(terminated=5), 60)
        await until(lambda: states(Fleet) == Counter(deleted=1), 60)

    beside_a_worker(app, live, role="reconciler")
    assert cloud.provider.machines == {}
    assert len(cloud.provider.disks) == 2
    assert "errored" in {event.outcome for event in settled}, "the provider did fail now and then"
    assert lost == []
