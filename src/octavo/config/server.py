"""ServerArgs: options of the HTTP server that the engine does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from octavo.config.convert import convert
from octavo.config.flatten import flatten
from octavo.config.options import Option, option, options_of


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
    max_log_len: int | None = option(
        None,
        "Most characters of a prompt in the request log; by default no limit.",
        low=0,
    )
    response_role: str = option("assistant", "Role of the messages that chat answers with.")
    trust_request_chat_template: bool = option(
        False, "Allow requests to bring their own chat template (rendered in a sandbox)."
    )
    default_chat_template_kwargs: Mapping[str, Any] = option(
        {}, "Variables for the chat template that a request may override."
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


@dataclass(frozen=True, kw_only=True)
class ServerArgs(ServerOptions):
    """Options of the server, checked. Raises ConfigError naming the field."""

    def __post_init__(self) -> None:
        for name, known in server_options().items():
            object.__setattr__(self, name, convert(known, getattr(self, name)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ServerArgs:
        """From names with underscores or dashes; unknown ones raise ConfigError with a guess."""
        return cls(**flatten(values, server_options()))

    def dump(self) -> dict[str, Any]:
        """Every option as plain data, the API keys hidden."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.api_key:
            values["api_key"] = ["***"] * len(self.api_key)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def server_options() -> dict[str, Option]:
    """The server's options by name."""
    return options_of(ServerOptions, "server")
