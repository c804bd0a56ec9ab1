"""Every exception that Octavo raises on purpose.

    OctavoError
    |- InvalidRequestError      the request is wrong: HTTP 400, names the field (also a ValueError)
    |  |- PromptTooLongError    prompt and answer cannot fit the context
    |  `- ModelNotFoundError    no such model is served: HTTP 404
    |- ConfigError              an option, or a combination, is wrong: exit code 2 (also a
    ValueError)
    |  `- DoesNotFitError       the memory plan fails; says the numbers and the one flag to change
    |- ModelFileError           a model file cannot be used
    |  |- CorruptFileError      truncated, malformed or hostile file
    |  `- UnsupportedModelError architecture, quantisation or type that we lack; lists what we have
    |     `- UnknownArchitectureError  of which nothing here has a model
    |- DownloadError            a model could not be fetched
    |- RequestFailedError       one request failed inside the engine; the others go on: HTTP 500
    |  `- UnanswerableError     the tokens so far leave nothing that is as it asks for: HTTP 400
    |                           (also an InvalidRequestError)
    |- DeadlineExceededError    a request's `timeout` passed before its first token: HTTP 408
    |- OverloadedError          the queue is full: HTTP 429, or the server drains: HTTP 503
    `- EngineDeadError          the engine loop ended, nothing can be served: HTTP 503

The caller's fault is always one of the first two; an `assert` marks a fault of our own.
"""

from __future__ import annotations


class OctavoError(Exception):
    """Root of every exception raised on purpose."""


class InvalidRequestError(OctavoError, ValueError):
    """A request that cannot be served as asked.

    `param` is the name of the offending field as the user wrote it.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class PromptTooLongError(InvalidRequestError):
    """The prompt, or prompt and answer together, exceed the context."""


class ModelNotFoundError(InvalidRequestError):
    """The request names a model that is not served here."""


class ConfigError(OctavoError, ValueError):
    """An option, or a combination of options, that cannot work."""


class DoesNotFitError(ConfigError):
    """The model or its KV cache does not fit the memory that may be used."""


class ModelFileError(OctavoError):
    """A model file that cannot be used."""


class CorruptFileError(ModelFileError):
    """A model file that is truncated, malformed or hostile."""


class UnsupportedModelError(ModelFileError):
    """An architecture, a quantisation or a type that is not implemented."""


class UnknownArchitectureError(UnsupportedModelError):
    """No architecture of a config.json is Octavo's own or registered."""


class DownloadError(OctavoError):
    """A model could not be fetched; the message says what to try."""


class RequestFailedError(OctavoError):
    """One request failed inside the engine. Its neighbours were not touched."""


class UnanswerableError(RequestFailedError, InvalidRequestError):
    """No answer is as a request asks, which showed only while its tokens were made.

    Constraints exclude each other, or a grammar became too complex to follow.
    """


class DeadlineExceededError(OctavoError):
    """A request with a `timeout` ended without a token, because it could not be met."""


class OverloadedError(OctavoError):
    """No further request is taken now. `retry_after_s` is a computed hint."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineDeadError(OctavoError):
    """The engine loop has ended; the cause is the `__cause__`."""
