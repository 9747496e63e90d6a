"""Other libraries and frameworks: ready-made middleware, a worker inside ASGI applications, an extension for Flask.

Each module imports its library when it is used, and not before. `asgi` serves FastAPI, Starlette and Litestar, and
imports none of them. Django has a package of its own, `penstock.django`.
"""
