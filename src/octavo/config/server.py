"""Options of the HTTP server."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import msgspec

from octavo.config.field import check_options, flag_name, option
from octavo.config.json_option import json_option, typed_option
from octavo.errors import ConfigError

METRICS_NAMESPACES = ("vllm", "octavo")
CONTENT_FORMATS = ("auto", "string", "openai")
_OF_BATCHES = ("max_file_bytes", "max_stored_bytes", "max_batch_requests", "batch_concurrency")


class ReasoningTags(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a model marks its thoughts; empty: as its style says."""

    reasoning_parser: str = ""
    reasoning_start_str: str = ""
    reasoning_end_str: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where to listen, whom to let in, and how to present the model."""

    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 for every interface.")
    port: int = option(8000, "Port to listen on; 0 takes a free one.", at_least=0, at_most=65535)
    uds: str | None = option(None, "Path of a Unix socket to listen on instead of a port.")
    api_key: tuple[str, ...] = option(
        (), "Keys that clients may present; none: no key is asked for."
    )
    admin_api_key: tuple[str, ...] = option(
        (),
        "Keys that also open /debug/kv and /reset_prefix_cache; none: these paths answer only "
        "where no key is asked for and the server listens on the loopback.",
    )
    api_keys_file: str | None = option(
        None,
        "YAML or JSON file of hashed keys with scopes and limits, as `octavo keys` maintains it; "
        "read again when it changes.",
    )
    metrics_public: bool = option(False, "Answer /metrics without a key where others need one.")
    ssl_keyfile: str | None = option(None, "Private key of the TLS certificate, PEM.")
    ssl_certfile: str | None = option(None, "TLS certificate with its chain, PEM; turns TLS on.")
    ssl_ca_certs: str | None = option(None, "Authorities of clients' certificates, PEM.")
    ssl_cert_reqs: int = option(
        0, "Client certificates: 0 none, 1 optional, 2 required.", at_least=0, at_most=2
    )
    ssl_ciphers: str | None = option(None, "TLS 1.2 ciphers, as OpenSSL writes them.")
    enable_ssl_refresh: bool = option(False, "Load certificate and key again when they change.")
    allowed_origins: tuple[str, ...] = option(
        (), "Sites whose pages may call the server (CORS), or *; default: none."
    )
    allowed_methods: tuple[str, ...] = option(("*",), "Methods that such pages may use, or *.")
    allowed_headers: tuple[str, ...] = option(("*",), "Headers that such pages may send, or *.")
    allow_credentials: bool = option(False, "Let such pages send cookies and certificates.")
    served_model_name: tuple[str, ...] = option(
        (), "Names of the model in the API; default: its own."
    )
    chat_template: str | None = option(None, "Jinja file, or the template itself.")
    chat_template_content_format: str = option(
        "auto",
        "How the chat template gets contents: string as texts, openai as lists of parts, auto as "
        "it shows.",
        choices=CONTENT_FORMATS,
    )
    default_chat_template_kwargs: str | None = option(
        None,
        'JSON of variables for the chat template, such as {"enable_thinking": false}; those of '
        "a request come before them.",
        is_json=True,
    )
    enable_auto_tool_choice: bool = option(
        True, "Let the model decide about tool calls where a request has tools."
    )
    tool_call_parser: str | None = option(
        None, "How the model writes tool calls, or none; default: as its chat template shows."
    )
    reasoning_parser: str | None = option(
        None, "How the model marks its thoughts, or none; default: as its chat template shows."
    )
    reasoning_config: str | None = option(
        None,
        'JSON of the tags of thoughts, such as {"reasoning_start_str": "<think>", '
        '"reasoning_end_str": "</think>"}, for models of no known style.',
        is_json=True,
    )
    exclude_tools_when_tool_choice_none: bool = option(
        False, "Leave tools out of the prompt where tool_choice is none."
    )
    ui: bool = option(True, "Serve the chat page at /.")
    disable_fastapi_docs: bool = option(False, "Serve neither /docs nor /openapi.json.")
    root_path: str = option("", "Path prefix under which a proxy serves us.")
    max_body_bytes: int = option(8 * 2**20, "Largest request body.", at_least=1024)
    max_header_bytes: int = option(
        64 * 2**10, "Largest sum of a request's headers, and most of its address.", at_least=1024
    )
    max_messages: int = option(4096, "Most messages of a chat.", at_least=1)
    batch_store: str | None = option(
        None, "SQLite file that keeps /v1/files and /v1/batches; default: neither is served."
    )
    max_file_bytes: int = option(200 * 2**20, "Largest file of /v1/files.", at_least=1024)
    max_stored_bytes: int = option(
        10 * 2**30, "Most bytes that --batch-store keeps of one key's files.", at_least=1024
    )
    max_batch_requests: int = option(50_000, "Most lines of one batch.", at_least=1)
    batch_concurrency: int = option(
        4, "Batch lines that are computed at once, beside live requests.", at_least=1
    )
    response_store: str | None = option(
        None, "SQLite file that keeps /v1/responses over restarts; default: kept in memory."
    )
    max_stored_responses: int | None = option(
        None,
        "Responses that are kept, the least recently used go first. Default: 10,000 in memory, "
        "1,000,000 in --response-store.",
        at_least=1,
    )
    max_response_store_bytes: int | None = option(
        None,
        "Bytes that kept responses may take. Default: 256 MiB in memory, 16 GiB in "
        "--response-store.",
        at_least=1024,
    )
    max_queued_requests: int | None = option(
        None,
        "Requests that may wait for rows or blocks, others get 429. Default: no bound.",
        at_least=1,
    )
    shutdown_timeout: float = option(
        5.0, "Seconds that running requests get after SIGTERM.", at_least=0, at_most=86400
    )
    enable_prompt_tokens_details: bool = option(
        False, "Report cached prompt tokens in `usage.prompt_tokens_details`."
    )
    enable_per_request_metrics: bool = option(
        False, "Report times, preemptions and cached tokens of each request in its answer."
    )
    enable_force_include_usage: bool = option(
        False, "Send usage in streams that did not ask for it."
    )
    enable_tokenizer_info_endpoint: bool = option(
        False, "Serve /tokenizer_info: special tokens and the chat template."
    )
    return_tokens_as_token_ids: bool = option(
        False, "Show tokens in log-probabilities as token_id:N, whatever a request says."
    )
    enable_request_id_headers: bool = option(
        False, "Every answer has X-Request-Id: the client's own or a fresh one."
    )
    metrics_namespace: str = option(
        "vllm",
        "Prefix of the metrics that vLLM has too; those that it has not are octavo's anyway.",
        choices=METRICS_NAMESPACES,
    )
    disable_log_stats: bool = option(False, "No statistics line every 10 seconds.")

    def __post_init__(self) -> None:
        check_options(self)
        if not all(self.api_key):  # it would let everybody in who sends no key
            raise ConfigError("--api-key must not be empty; leave it out to ask for no key")
        if not all(self.admin_api_key):
            raise ConfigError("--admin-api-key must not be empty; leave it out to have none")
        if not all(self.served_model_name):
            raise ConfigError("--served-model-name must not be empty")
        self._check_tls()
        self._check_batches()
        _ = self.template_kwargs, self.reasoning_tags
        for name in ("allowed_origins", "allowed_methods", "allowed_headers"):
            object.__setattr__(self, name, _plain_list(name, getattr(self, name)))
        if self.allow_credentials and "*" in self.allowed_origins:
            raise ConfigError(
                "--allow-credentials with --allowed-origins * would open the server to every site; "
                "name the sites"
            )
        object.__setattr__(self, "root_path", self.root_path.rstrip("/"))
        if self.root_path and not re.fullmatch(r"(/[\w.~%-]+)+", self.root_path):
            raise ConfigError(f"--root-path must look like /prefix, got {self.root_path!r}")

    def _check_tls(self) -> None:
        if self.ssl_certfile is None:
            for name in ("ssl_keyfile", "ssl_ca_certs", "ssl_ciphers"):
                if getattr(self, name) is not None:
                    raise ConfigError(f"{flag_name(name)} needs --ssl-certfile")
            if self.ssl_cert_reqs or self.enable_ssl_refresh:
                name = "ssl_cert_reqs" if self.ssl_cert_reqs else "enable_ssl_refresh"
                raise ConfigError(f"{flag_name(name)} needs --ssl-certfile")
        elif self.ssl_cert_reqs and self.ssl_ca_certs is None:
            raise ConfigError("--ssl-cert-reqs needs --ssl-ca-certs: whose certificates count?")

    def _check_batches(self) -> None:
        if self.batch_store is not None:
            return
        for name in _OF_BATCHES:
            if getattr(self, name) != self.__dataclass_fields__[name].default:
                raise ConfigError(
                    f"{flag_name(name)} needs --batch-store: without it neither files nor batches "
                    "are served"
                )

    @property
    def template_kwargs(self) -> dict[str, Any]:
        """`--default-chat-template-kwargs` as an object. Raises ConfigError."""
        return json_option("default_chat_template_kwargs", self.default_chat_template_kwargs)

    @property
    def reasoning_tags(self) -> ReasoningTags:
        """`--reasoning-config` as a struct. Raises ConfigError."""
        if self.reasoning_config is None:
            return ReasoningTags()
        example = '{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}'
        return typed_option("--reasoning-config", self.reasoning_config, ReasoningTags, example)

    @property
    def is_private(self) -> bool:
        """Whether only this machine reaches the server: no proxy, no other interface."""
        if self.root_path:
            return False
        if self.uds is not None or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def _plain_list(name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """The values of a list flag; vLLM writes the whole list as JSON, which is taken as well."""
    found: list[str] = []
    for value in values:
        if not value.startswith("["):
            found.append(value)
            continue
        try:
            items = json.loads(value)
        except ValueError:
            items = [None]
        if not all(isinstance(item, str) for item in items):
            raise ConfigError(f"{flag_name(name)} takes texts, or a JSON list of texts")
        found += items
    return tuple(found)
