"""ServerArgs: options of the HTTP server that the engine does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from octavo.config.convert import convert, nearest
from octavo.config.flatten import flatten
from octavo.config.options import Option, option, options_of
from octavo.types.errors import ConfigError

_PROFILER_KEYS = ("profiler", "torch_profiler_dir")


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """What may be asked of the server.

    Names of the model, its chat template, request logging and the queue's limit belong to the
    engine's sections, because programs without a server use them too.
    """

    host: str | None = option(None, "Address to listen on; by default every one.")
    port: int = option(8000, "TCP port to listen on; 0: any free one.", low=0, high=65535)
    uds: str | None = option(None, "Unix domain socket to listen on, in place of host and port.")
    root_path: str = option("", "Path under which a proxy serves this server.")
    api_key: tuple[str, ...] | None = option(
        None, "Keys of which a client must send one as `Authorization: Bearer KEY`."
    )
    api_key_file: str | None = option(
        None, "File with further keys, one a line, which no process list shows."
    )
    admin_api_key: tuple[str, ...] | None = option(
        None,
        "Keys for the admin endpoints (/abort_requests, /reset_prefix_cache, /server_info), which "
        "are not served without one.",
    )
    api_server_count: int = option(
        1, "Processes that answer HTTP, all of them on the same address.", low=1, high=64
    )
    shutdown_timeout: float = option(
        25.0, "Seconds after SIGTERM for the requests that run; new ones get 503.", low=0
    )
    responses_store: str = option(
        "memory",
        "Where /v1/responses keeps answers: memory, sqlite:///FILE or redis://HOST.",
    )
    responses_store_size: int = option(
        1000, "Most answers that are kept; the oldest goes first.", low=0, high=1_000_000
    )
    allowed_origins: tuple[str, ...] = option(("*",), "CORS: origins that browsers may call from.")
    allowed_methods: tuple[str, ...] = option(("*",), "CORS: methods that browsers may use.")
    allowed_headers: tuple[str, ...] = option(("*",), "CORS: headers that browsers may send.")
    allow_credentials: bool = option(False, "CORS: let browsers send credentials.")
    ssl_keyfile: str | None = option(None, "File of the TLS private key.")
    ssl_certfile: str | None = option(None, "File of the TLS certificate; turns HTTPS on.")
    ssl_ca_certs: str | None = option(None, "File of the CA certificates for client certificates.")
    ssl_cert_reqs: int = option(
        0, "Client certificates: 0 not asked for, 1 optional, 2 required.", low=0, high=2
    )
    ssl_ciphers: str | None = option(None, "TLS ciphers, in OpenSSL's notation.")
    uvicorn_log_level: Literal["critical", "error", "warning", "info", "debug", "trace"] = option(
        "info", "Log level of the HTTP layer."
    )
    disable_uvicorn_access_log: bool = option(False, "Log no line per HTTP request.")
    max_log_len: int = option(
        0,
        "With --enable-log-requests: characters (or token ids) of each prompt in the log. 0: none.",
        low=0,
    )
    response_role: str = option("assistant", "Role of the messages that chat answers with.")
    trust_request_chat_template: bool = option(
        False, "Allow requests to bring their own chat template (rendered in a sandbox)."
    )
    default_chat_template_kwargs: Mapping[str, Any] = option(
        {}, "Variables for the chat template that a request may override."
    )
    enable_auto_tool_choice: bool | None = option(
        None,
        "Let models decide whether to call a tool; by default where a tool call parser is known.",
    )
    tool_call_parser: str | None = option(
        None,
        "How the model writes tool calls; by default told by its chat template. `none`: calls are "
        "not looked for.",
    )
    tool_parser_plugin: str | None = option(
        None, "Python file that registers further tool call parsers."
    )
    exclude_tools_when_tool_choice_none: bool = option(
        False, "With tool_choice none, don't show the tools to the model either."
    )
    reasoning_parser: str | None = option(
        None,
        "How the model marks its reasoning; by default told by its chat template. `none`: "
        "reasoning stays in the content.",
    )
    reasoning_parser_plugin: str | None = option(
        None, "Python file that registers further reasoning parsers."
    )
    return_tokens_as_token_ids: bool = option(
        False, "In logprobs, write tokens as `token_id:N`, so that none is lost in the text."
    )
    enable_prompt_tokens_details: bool = option(
        False, "Report in `usage` how many prompt tokens were found in the prefix cache."
    )
    enable_force_include_usage: bool = option(
        False, "Send `usage` at the end of every stream, asked for or not."
    )
    enable_request_id_headers: bool = option(False, "Send each request's id as `X-Request-Id`.")
    strict_fields: bool = option(
        False, "Refuse requests with fields nobody knows; by default they are ignored and logged."
    )
    clamp_max_tokens: bool = option(
        False, "Lower a max_tokens that does not fit the model's length; by default refuse it."
    )
    profiler_config: Mapping[str, Any] = option(
        {},
        "Let /start_profile and /stop_profile, which need an --admin-api-key, record a trace of "
        "the engine: `profiler`: torch, `torch_profiler_dir`: folder of the traces.",
    )


@dataclass(frozen=True, kw_only=True)
class ServerArgs(ServerOptions):
    """Options of the server, checked. Raises ConfigError naming the field."""

    def __post_init__(self) -> None:
        for name, known in server_options().items():
            object.__setattr__(self, name, convert(known, getattr(self, name)))
        _check_profiler(self.profiler_config)

    @property
    def profiler_folder(self) -> str | None:
        """Where traces go; None: none are recorded."""
        return self.profiler_config.get("torch_profiler_dir")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ServerArgs:
        """From names with underscores or dashes; unknown ones raise ConfigError with a guess."""
        return cls(**flatten(values, server_options()))

    def dump(self) -> dict[str, Any]:
        """Every option as plain data, the API keys hidden."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("api_key", "admin_api_key"):
            if values[name]:
                values[name] = ["***"] * len(values[name])
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def _check_profiler(config: Mapping[str, Any]) -> None:
    for name in config:
        if name not in _PROFILER_KEYS:
            guess = nearest(name, _PROFILER_KEYS) or f"; there are {', '.join(_PROFILER_KEYS)}"
            raise ConfigError(f"profiler_config: unknown key {name!r}{guess}")
    if not config:
        return
    if config.get("profiler", "torch") != "torch":
        raise ConfigError(f"profiler_config: profiler={config['profiler']!r}; there is only torch")
    folder = config.get("torch_profiler_dir")
    if not isinstance(folder, str) or not folder:
        raise ConfigError("profiler_config: torch_profiler_dir names the folder of the traces")


def server_options() -> dict[str, Option]:
    """The server's options by name."""
    return options_of(ServerOptions, "server")
