"""Wrong uses: mypy and pyright have to find exactly the lines that are marked. Nothing here is run."""

from typing import assert_type

from penstock import Item, Penstock, StepValue, current
from tests.typing.pipelines import ids, load, name, plain, report, three
from tests.typing.reconcilers import Base, Volume
from tests.typing.tasks import add, app, charge, double

Penstock("sqlite://", proceses=4)  # wrong
Penstock("sqlite://", processes="many", log_level="loud")  # wrong
app.task(retry=5)  # wrong
app.task(retries="often")  # wrong
app.task(executor="gevent")  # wrong
app.pipeline(deadline="soon")  # wrong
app.flow("f", max_fan_out=5)  # wrong
app.reconciler(Volume, wher=True)  # wrong
app.reconciler(Volume, executor="proces")  # wrong

double.enqueue("one")  # wrong
double.enqueue()  # wrong
double.enqueue(1, 2)  # wrong
double("one")  # wrong
add.enqueue_many(3)  # wrong
add.options(queu="mail")  # wrong
add.options(priority="high")  # wrong
add.options(limits=[])  # wrong
plain.options(colour="red")  # wrong
text: str = add.enqueue(1, 2).result()  # wrong
plain.trigger("thirty")  # wrong
plain.trigger()  # wrong
words: str = plain.trigger(30).result()  # wrong
double.schedule(cron="0 3 * * *")  # wrong
double.schedule("@daily", overlap="sometimes")  # wrong
app.schedules.create(double, evry=5)  # wrong


def handler(order: int) -> None:
    job = current()
    _number: int = job.once("charge", charge, order)  # wrong
    job.once("charge", charge, "order")  # wrong
    job.progress("half")  # wrong
    job.colour  # wrong  # noqa: B018


async def waits() -> None:
    assert_type(await add.enqueue(1).result_async(), str)  # wrong
    _words: str = await add.enqueue(1).result_async()  # wrong


@app.pipeline
def described(days: int) -> StepValue[str]:
    user = load.map(ids(days))
    named = name(user)
    counted = report(named.collect())
    report(counted)  # wrong
    report(named)  # wrong
    name(named)  # wrong
    load(named, deep=True)  # wrong
    load.map(named.collect())  # wrong
    load.map(counted)  # wrong
    three(counted, counted, 1.5)  # wrong
    named.colour  # wrong  # noqa: B018
    return counted  # wrong


app.flow("a").start(ids).chain(name)  # wrong
app.flow("b").start(ids).expand(name)  # wrong
app.flow("c").start(ids).expand(load).collapse(report)  # wrong
app.flow("d").start(name).expand(load)  # wrong


@app.reconciler(Volume)  # wrong
def provision(item: Item[Base]) -> None: ...
