"""Litestar: `uvicorn with_litestar:api`."""

from litestar import Litestar, get, post
from litestar.handlers import asgi
from work import app, greet, who

from penstock.integrations.asgi import lifespan


@post("/greetings/{name:str}")
async def begin(name: str) -> dict[str, str]:
    job = await greet.enqueue_async(name)
    return {"job": job.id}


@get("/greetings/{job_id:str}")
async def end(job_id: str) -> dict[str, str]:
    return {"said": await app.job(job_id).result_async(timeout=30)}


dashboard = asgi("/jobs", is_mount=True, copy_scope=True)(app.dashboard(guard=who, prefix="/jobs"))
api = Litestar([begin, end, dashboard], lifespan=[lifespan(app)])
