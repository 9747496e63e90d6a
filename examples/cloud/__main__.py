"""`python -m examples.cloud`: ask for a fleet, watch it come, let it go."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from sqlalchemy import insert, select, update

from examples.cloud.app import app
from examples.cloud.models import Base, Fleet, Instance


async def main() -> None:
    Base.metadata.create_all(app.database.engine)
    with app.database.engine.begin() as connection:
        connection.execute(insert(Fleet).values(name="demo", size=5))
    async with app.worker(role="reconciler"):
        await app.hint_async(Fleet)
        await until(lambda found: found["idle"] >= 5)
        async with app.lock(Fleet, 1) as connection:
            await connection.execute(update(Fleet).where(Fleet.id == 1).values(status="deleting"))
        await until(lambda found: set(found) <= {"terminated"})


async def until(done: Callable[[Counter[str]], bool]) -> None:
    """Show the instances until this is true of their states."""
    while True:
        with app.database.engine.connect() as connection:
            found = Counter(connection.scalars(select(Instance.status)))
        print(dict(found))
        if done(found):
            return
        await asyncio.sleep(0.5)


if __name__ == "__main__":
    asyncio.run(main())
