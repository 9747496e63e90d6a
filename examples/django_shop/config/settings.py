"""Settings of the shop. `DATABASE_URL` names PostgreSQL or MySQL; without it, a SQLite file."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = os.environ.get("SECRET_KEY", "for-development-only")
DEBUG = os.environ.get("DEBUG", "") == "1"
ALLOWED_HOSTS = ["*"]

INSTALLED_APPS = [
    "shop",
    "penstock.django",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]


def database(url: str) -> dict[str, object]:
    """An entry of DATABASES from a URL."""
    parts = urlsplit(url)
    engine = {"postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite3"}[parts.scheme]
    name = unquote(parts.path[1:])
    return {
        "ENGINE": f"django.db.backends.{engine}",
        "NAME": name,
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "CONN_MAX_AGE": int(os.environ.get("CONN_MAX_AGE", "0")),
    }


DATABASES = {"default": database(os.environ.get("DATABASE_URL") or f"sqlite:///{BASE_DIR / 'shop.db'}")}

# Penstock works on DATABASES["default"]. Every setting of `Penstock(...)` may be given here.
PENSTOCK = {"CONCURRENCY": 20}

# django.tasks (Django 6.0; before that, the django-tasks package): its tasks are run by the same worker.
TASKS = {"default": {"BACKEND": "penstock.django.TaskBackend", "QUEUES": []}}

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
USE_TZ = True
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
