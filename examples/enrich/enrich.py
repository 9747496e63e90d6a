"""Data enrichment: an expand inside an expand.

For every region its customers are loaded, for every customer two sources are asked at the same time and their answers
put together; then each region is summed up, and all regions are reported in one place. Results come in the order of
the elements, whatever the order in which they were finished. The same pipeline is spelled twice.

    python enrich.py
"""

from __future__ import annotations

import asyncio
import random

from penstock import Penstock, Retry

app = Penstock()


@app.task
def regions(year: int) -> list[str]:
    return ["north", "east", "south"] if year > 2000 else []


@app.task
def customers(region: str) -> list[int]:
    return list(range(len(region)))


@app.task
async def load(customer: int) -> dict[str, int]:
    await asyncio.sleep(random.uniform(0, 0.02))
    return {"id": customer}


@app.task(retries=Retry(max=5, delay=0.05, factor=1, on=(ConnectionError,)))
async def ask_billing(customer: dict[str, int]) -> int:
    if random.random() < 0.1:
        raise ConnectionError("billing is busy")
    return customer["id"] * 10


@app.task
async def ask_support(customer: dict[str, int]) -> int:
    return customer["id"] % 2


@app.task
def merge(answers: list[int]) -> int:
    spent, complaints = answers
    return spent - 5 * complaints


@app.task
def sum_up(values: list[int]) -> int:
    return sum(values)


@app.task
def report(sums: list[int]) -> str:
    return f"{len(sums)} regions, worth {sums}"


@app.pipeline
def enrich(year: int):
    region = customers.map(regions(year))
    customer = load.map(region)
    value = merge([ask_billing(customer), ask_support(customer)])
    return report(sum_up(value.collect()).collect())


enrich_fluently = (
    app.flow("enrich_fluently")
    .start(regions)
    .expand(customers)
    .expand(load)
    .divide(ask_billing, ask_support)
    .combine(merge)
    .collapse(sum_up)
    .collapse(report)
)


async def main() -> None:
    async with app.worker():
        print(await (await enrich.trigger_async(2026)).result_async(60))
        print(await (await enrich_fluently.trigger_async(2026)).result_async(60))
        print(await (await enrich.trigger_async(1999)).result_async(60))


if __name__ == "__main__":
    asyncio.run(main())
    app.close()
