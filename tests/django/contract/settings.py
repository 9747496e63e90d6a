"""Settings of the contract's project."""

import os
from importlib.util import find_spec

import pymysql

from examples.django_shop.config.settings import database

pymysql.install_as_MySQLdb()

SECRET_KEY = "for tests"
USE_TZ = True
DATABASES = {"default": database(os.environ["DATABASE_URL"])}
INSTALLED_APPS = [
    "penstock.django",
    *([] if find_spec("django.tasks") else ["django_tasks"]),
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "tests.django.contract",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "tests.django.contract.urls"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
TASKS = {
    "default": {"BACKEND": "penstock.django.TaskBackend", "QUEUES": ["default", "mail"]},
    "patient": {"BACKEND": "penstock.django.TaskBackend", "QUEUES": [], "OPTIONS": {"retries": 1}},
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
