# file: enrich.py
from penstock import Penstock, StepValue

app = Penstock()


@app.task
def query_users(days: int) -> list[int]:
    return [11, 12, 13]


@app.task
async def load_user(id: int) -> dict[str, int]:
    return {"id": id}


@app.task
async def fetch_plan(user: dict[str, int]) -> str:
    return "free" if user["id"] % 2 else "pro"


@app.task
async def fetch_usage(user: dict[str, int]) -> int:
    return user["id"] * 10


@app.task
def report(plans: list[str], usage: list[int]) -> str:
    return f"{plans.count('pro')} on pro, {sum(usage)} calls"


@app.pipeline
def enrich_users(days: int) -> StepValue[str]:
    user = load_user.map(query_users(days))  # from here on, once per user
    plan, usage = fetch_plan(user), fetch_usage(user)  # side by side
    return report(plan.collect(), usage.collect())  # lists in element order, once all are done
