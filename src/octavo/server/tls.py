"""TLS: uvicorn's options from ours, and certificates that are renewed while the server runs."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from typing import Any

import uvicorn

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError

logger = logging.getLogger(__name__)
LOOK_EVERY_S = 10.0
DEFAULT_CIPHERS = "TLSv1"  # uvicorn's own default


def tls_options(config: ServerConfig) -> dict[str, Any]:
    """Keyword arguments for `uvicorn.Config`."""
    if config.ssl_certfile is None:
        return {}
    return {
        "ssl_keyfile": config.ssl_keyfile,
        "ssl_certfile": config.ssl_certfile,
        "ssl_ca_certs": config.ssl_ca_certs,
        "ssl_cert_reqs": config.ssl_cert_reqs,
        "ssl_ciphers": config.ssl_ciphers or DEFAULT_CIPHERS,
    }


def check_tls(config: ServerConfig) -> None:
    """Raises ConfigError for files or ciphers that make no TLS server."""
    if config.ssl_certfile is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _try("--ssl-certfile, --ssl-keyfile", lambda: _load_chain(context, config))
    if config.ssl_ca_certs is not None:
        _try("--ssl-ca-certs", lambda: context.load_verify_locations(config.ssl_ca_certs))
    if config.ssl_ciphers is not None:
        _try("--ssl-ciphers", lambda: context.set_ciphers(config.ssl_ciphers or ""))


class Certificates:
    """The certificate of a running server. New connections get what was loaded last."""

    def __init__(self, config: ServerConfig, http: uvicorn.Config) -> None:
        self._config, self._http = config, http

    def load(self) -> None:
        """Load the files again; when they are wrong, what was loaded stays."""
        if self._config.ssl_certfile is None or self._http.ssl is None:
            return
        try:
            check_tls(self._config)  # a half-written pair must not reach the live context
            _load_chain(self._http.ssl, self._config)
        except (ConfigError, OSError) as error:
            logger.error("the TLS certificate stays as it was: %s", error)
            return
        logger.info("the TLS certificate was loaded again")

    async def watch(self) -> None:
        """With --enable-ssl-refresh: load the files whenever they have changed."""
        if not self._config.enable_ssl_refresh:
            return
        known = self._stamps()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now = self._stamps()
            if now != known:
                known = now
                self.load()

    def _stamps(self) -> list[tuple[int, int]]:
        stamps = []
        for path in (self._config.ssl_certfile, self._config.ssl_keyfile):
            try:
                facts = os.stat(path or "")
                stamps.append((facts.st_mtime_ns, facts.st_ino))
            except OSError:
                stamps.append((0, 0))
        return stamps


def _load_chain(context: ssl.SSLContext, config: ServerConfig) -> None:
    assert config.ssl_certfile is not None
    context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, password=_no_password)


def _no_password() -> str:
    """An encrypted key would make OpenSSL ask at the terminal."""
    raise ConfigError("--ssl-keyfile is encrypted; give a key without a password")


def _try(flags: str, load: Any) -> None:
    try:
        load()
    except OSError as error:  # ssl.SSLError is one
        reason = error.strerror or str(error)
        raise ConfigError(f"{flags}: {reason}") from None
