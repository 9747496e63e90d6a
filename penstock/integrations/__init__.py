"""Penstock inside web applications: a worker in the lifespan of ASGI applications, and an extension for Flask.

Each module imports its framework only if it needs it: `asgi` serves FastAPI, Starlette and Litestar and imports none.
"""
