"""Certificates, as the tests of our HTTP client have them."""

from tests.net.conftest import certificate, client_tls, server_tls

__all__ = ["certificate", "client_tls", "server_tls"]
