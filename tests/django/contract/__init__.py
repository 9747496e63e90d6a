"""A Django project whose tests are the contract of `django.tasks` backends, in this project's own words.

They are run by `tests/django/test_projects.py`, on every database: `python -m django test tests.django.contract`.
"""
