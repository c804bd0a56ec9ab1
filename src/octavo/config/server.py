"""Options of the HTTP server."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from octavo.config.field import check_options, option
from octavo.errors import ConfigError


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
    served_model_name: tuple[str, ...] = option(
        (), "Names of the model in the API; default: its own."
    )
    chat_template: str | None = option(None, "Jinja file, or the template itself.")
    enable_auto_tool_choice: bool = option(
        True, "Let the model decide about tool calls where a request has tools."
    )
    tool_call_parser: str | None = option(
        None, "How the model writes tool calls, or none; default: as its chat template shows."
    )
    reasoning_parser: str | None = option(
        None, "How the model marks its thoughts, or none; default: as its chat template shows."
    )
    exclude_tools_when_tool_choice_none: bool = option(
        False, "Leave tools out of the prompt where tool_choice is none."
    )
    root_path: str = option("", "Path prefix under which a proxy serves us.")
    max_body_bytes: int = option(8 * 2**20, "Largest request body.", at_least=1024)
    max_queued_requests: int | None = option(
        None, "Requests that may wait; beyond it the answer is 429. Default: no bound.", at_least=1
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
    enable_request_id_headers: bool = option(False, "Echo X-Request-Id in the answer.")
    disable_log_stats: bool = option(False, "No statistics line every 10 seconds.")

    def __post_init__(self) -> None:
        check_options(self)
        if not all(self.api_key):  # it would let everybody in who sends no key
            raise ConfigError("--api-key must not be empty; leave it out to ask for no key")
        if not all(self.admin_api_key):
            raise ConfigError("--admin-api-key must not be empty; leave it out to have none")
        if not all(self.served_model_name):
            raise ConfigError("--served-model-name must not be empty")

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
