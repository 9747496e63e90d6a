"""The reconcilers of the cloud. Run them with `penstock worker examples.cloud.app:app --role reconciler`."""

from __future__ import annotations

from typing import Any

from examples.cloud.models import Fleet, Instance, Volume
from examples.cloud.provider import Provider
from penstock import NOW, Children, Penstock, Retry, Shared, Snooze

app = Penstock()
provider = Provider()
SOON = Retry(delay=0.1, factor=2, jitter=0.1)


@app.reconciler(
    Fleet,
    where=Fleet.status.in_(["active", "deleting"]),
    every=5,
    locks=[Children(Instance, (Instance.fleet_id == Fleet.id) & (Instance.status != "terminated"))],
)
async def keep_size(item: Any) -> dict[str, Any] | None:
    """As many instances as were asked for: with all of them in hand, nobody else adds or removes one meanwhile."""
    wanted = item.row.size if item.row.status == "active" else 0
    alive = [child for child in item.children if child.status != "terminating"]
    for _ in range(wanted - len(alive)):
        item.insert(Instance(fleet_id=item.id, status="submitted"))
    for child in alive[wanted:]:
        item.update(child, status="terminating")
    return {"status": "deleted"} if wanted == 0 and not item.children else None


@app.reconciler(
    Instance,
    where=Instance.status.in_(["submitted", "provisioning"]),
    every=1,
    workers=20,
    timeout=30,
    backoff=SOON,
    max_attempts=8,
    on_exhausted={"status": "failed"},
)
async def provision(item: Any) -> dict[str, Any]:
    machine = await provider.create_machine(f"instance-{item.id}")
    return {"status": "idle", "machine": machine, "ready_at": NOW}


@app.reconciler(Instance, where=Instance.status == "terminating", every=1, workers=20, backoff=SOON)
async def terminate(item: Any) -> dict[str, Any]:
    await provider.delete_machine(f"instance-{item.id}")
    return {"status": "terminated", "machine": None}


@app.reconciler(
    Volume,
    where=Volume.status == "submitted",
    every=1,
    backoff=SOON,
    locks=[Shared(Instance, Instance.id == Volume.instance_id)],
)
async def attach(item: Any) -> dict[str, Any] | Snooze:
    """One volume at a time is attached to an instance; nobody terminates it meanwhile."""
    if item.shared is None or item.shared.machine is None:
        return Snooze(1)
    disk = await provider.create_disk(f"volume-{item.id}", item.shared.machine)
    return {"status": "attached", "disk": disk}
