"""Django projects in processes of their own: the example, the contract of django.tasks, servers that are restarted."""
