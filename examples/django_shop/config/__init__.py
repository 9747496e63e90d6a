"""The project: settings, urls, and the doors for servers."""
