"""Gives the tests their fixtures where a browser's driver and the dashboard's libraries are installed.

Elsewhere each module of tests skips itself.
"""

from contextlib import suppress

from penstock.errors import ConfigurationError

with suppress(ImportError, ConfigurationError):
    from tests.browser.fixtures import browser, look, shop, site

    __all__ = ["browser", "look", "shop", "site"]
