"""Starlette, which has a lifespan of its own: the worker joins it. `uvicorn with_starlette:api`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from work import app, greet, who

from penstock.integrations.asgi import lifespan


@asynccontextmanager
async def resources(_api: Starlette) -> AsyncIterator[dict[str, str]]:
    """Whatever the application opens itself; the worker starts after it and stops before it."""
    yield {"shop": "tea"}


async def begin(request: Request) -> JSONResponse:
    job = await greet.enqueue_async(f"{request.path_params['name']} of {request.state.shop}")
    return JSONResponse({"job": job.id})


async def end(request: Request) -> JSONResponse:
    job = app.job(request.path_params["job_id"])
    return JSONResponse({"said": await job.result_async(timeout=30)})


api = Starlette(
    routes=[
        Route("/greetings/{name}", begin, methods=["POST"]),
        Route("/greetings/{job_id}", end),
        Mount("/jobs", app.dashboard(guard=who)),
    ],
    lifespan=lifespan(app, resources),
)
