"""Ready-made middleware for other libraries: OpenTelemetry, Sentry, structlog, and values carried to handlers.

Each module imports its library when it is installed on an app, and not before.
"""
