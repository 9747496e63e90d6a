"""One stream of typed events; logs, metrics, test signals and kill points hang from it."""
