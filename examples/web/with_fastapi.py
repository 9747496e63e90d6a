"""FastAPI: `uvicorn with_fastapi:api`."""

from fastapi import FastAPI
from work import app, greet, who

from penstock.integrations.asgi import lifespan

api = FastAPI(lifespan=lifespan(app))
api.mount("/jobs", app.dashboard(guard=who))


@api.post("/greetings/{name}")
async def begin(name: str, pause: float = 0.0) -> dict[str, str]:
    job = await greet.enqueue_async(name, pause)
    return {"job": job.id}


@api.get("/greetings/{job_id}")
async def end(job_id: str) -> dict[str, str]:
    return {"said": await app.job(job_id).result_async(timeout=30)}
