"""A small client of our own server, for the commands that talk to one: standard library only."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from octavo.errors import ConfigError, OctavoError

DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT_S = 600.0


class ServerError(OctavoError):
    """The server answered with an error, or not at all: then there is no `status`."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """One server."""

    def __init__(self, url: str, api_key: str | None) -> None:
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            self._host, self._port = parts.hostname, parts.port
        except ValueError:  # a port that is no number, a bracket left open
            raise _bad_url(url) from None
        if parts.scheme not in ("http", "https") or not self._host:
            raise _bad_url(url)
        self._parts = parts
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def model(self) -> str:
        """The first model that the server lists."""
        connection, response = self._request("GET", "/v1/models", None)
        try:
            return str(json.load(response)["data"][0]["id"])
        except (ValueError, LookupError, TypeError):
            place = self._parts.geturl()
            raise ServerError(f"{place} does not answer like an OpenAI-compatible server") from None
        finally:
            connection.close()

    def get(self, path: str, timeout_s: float) -> bytes:
        """The body of an answer. Raises ServerError."""
        connection, response = self._request("GET", path, None, timeout_s)
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"the connection to the server broke: {error}") from error
        finally:
            connection.close()

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The chunks of a streamed answer."""
        connection, response = self._request("POST", path, {**body, "stream": True})
        try:
            for line in response:
                if not line.startswith(b"data: "):
                    continue
                data = line[6:].strip()
                if data == b"[DONE]":
                    return
                chunk = json.loads(data)
                if "error" in chunk:
                    raise ServerError(chunk["error"]["message"])
                yield chunk
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"the connection to the server broke: {error}") from error
        finally:
            connection.close()

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float = TIMEOUT_S
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        kind = (
            http.client.HTTPSConnection
            if self._parts.scheme == "https"
            else http.client.HTTPConnection
        )
        connection = kind(self._host or "", self._port, timeout=timeout_s)
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, self._prefix + path, data, self._headers)
            response = connection.getresponse()
        except (OSError, socket.gaierror, http.client.HTTPException) as error:
            connection.close()
            place = self._parts.geturl()
            raise ServerError(
                f"no server at {place}: {error}. Start one with: octavo serve"
            ) from error
        if response.status != 200:
            message = _message(response.read())
            connection.close()
            raise ServerError(f"{response.status}: {message}", response.status)
        return connection, response


def _bad_url(url: str) -> ConfigError:
    return ConfigError(f"--url must look like {DEFAULT_URL}, got {url!r}")


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return " ".join(body[:200].decode("utf-8", "replace").split()) or "no explanation"
