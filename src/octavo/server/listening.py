"""The listening socket: had before the model is looked for, or refused with what is in the way.

Owns addresses, socket files, and where clients find them. Imports next to nothing: the model loads
while the rest of the server is imported.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError

BACKLOG = 2048


@contextlib.contextmanager
def listening(config: ServerConfig) -> Iterator[socket.socket]:
    """The listening socket; a clean end leaves no socket file behind. Raises as `listen`."""
    with listen(config) as listener:
        try:
            yield listener
        finally:
            if config.uds is not None:
                _remove_socket(config.uds)


def listen(config: ServerConfig) -> socket.socket:
    """The listening socket. Raises ConfigError that says what is in the way."""
    if config.uds is not None:
        return _listen_unix(config.uds)
    try:
        family, _, _, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise ConfigError(f"--host {config.host!r} cannot be resolved: {error.strerror}") from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(_why_not(config, family, error)) from None
    return listener


def _remove_socket(path: str) -> None:
    """A clean end leaves no socket file behind."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def _listen_unix(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            if _is_dead_socket(path):
                os.unlink(path)
        listener.bind(path)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"--uds {path}: {error.strerror}") from None
    return listener


def _is_dead_socket(path: str) -> bool:
    """Whether a socket file is left from a server that has ended. Other files are none."""
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        return False  # a connection to any file is refused, so trying it would tell nothing
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def _why_not(config: ServerConfig, family: socket.AddressFamily, error: OSError) -> str:
    if error.errno != errno.EADDRINUSE:
        return f"cannot listen on {config.host}:{config.port}: {error.strerror}"
    for port in range(config.port + 1, min(config.port + 100, 65536)):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            if probe.connect_ex((config.host, port)) != 0:
                return f"port {config.port} is in use; the next free one is --port {port}"
    return f"port {config.port} is in use; choose another with --port, or 0 for a free one"


def url_of(config: ServerConfig, listener: socket.socket) -> str:
    """Where clients find the server."""
    if config.uds is not None:
        return f"unix:{config.uds}"
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    scheme = "http" if config.ssl_certfile is None else "https"
    return f"{scheme}://{shown}:{port}"
