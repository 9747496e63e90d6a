"""One command, `manage.py penstock`, which has all those of the command line."""
