"""What is checked before a model loads, so that a wrong option is told in a second."""

from __future__ import annotations

import ssl

import jinja2
from uvicorn.config import create_ssl_context

from octavo.config.files import tokenizer_files
from octavo.config.octavo_config import OctavoConfig
from octavo.config.server import ServerArgs
from octavo.engine.tracing import make_tracer
from octavo.entrypoints.chat_template import RESERVED_NAMES, template_source
from octavo.entrypoints.openai.keys import ApiKeys
from octavo.entrypoints.openai.response_store import check_address
from octavo.entrypoints.tool_parsers.answer_parsers import check_parser_names
from octavo.tokenizers.template_sandbox import ChatEnvironment, TemplateLimits
from octavo.types.errors import ConfigError


def check_server_args(args: ServerArgs) -> None:
    """Refuse at once what every request would be refused for. Raises ConfigError."""
    _check_tls(args)
    ApiKeys.of(args)
    check_address(args.responses_store)
    check_parser_names(
        args.tool_call_parser,
        args.reasoning_parser,
        (args.tool_parser_plugin, args.reasoning_parser_plugin),
    )
    reserved = sorted(RESERVED_NAMES & args.default_chat_template_kwargs.keys())
    if reserved:
        raise ConfigError(
            f"default_chat_template_kwargs can't set {reserved[0]!r}, which requests say themselves"
        )


def check_template_setting(setting: str | None) -> None:
    """Raises ConfigError for a chat template that can't be read or is not valid Jinja."""
    if setting is not None:
        _compile("chat_template", template_source(setting), "correct it")


def check_model_template(config: OctavoConfig) -> None:
    """The model's own chat template. Raises ConfigError."""
    model = config.model
    if model.chat_template is not None or model.skip_tokenizer_init:
        return
    for title, source in tokenizer_files(config).chat_templates().items():
        remedy = "give another one with --chat-template"
        _compile(f"the model's chat template {title!r}", source, remedy)


def check_tracing(config: OctavoConfig) -> None:
    """Raises ConfigError if traces are wanted and can't be made."""
    make_tracer(config.observability.otlp_traces_endpoint).shutdown()


def _compile(what: str, source: str, remedy: str) -> None:
    try:
        ChatEnvironment(TemplateLimits()).from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(
            f"{what} is not valid Jinja, line {error.lineno}: {error.message}; {remedy}"
        ) from None
    except (RecursionError, SyntaxError, MemoryError) as error:
        raise ConfigError(f"{what} can't be compiled: {error}; {remedy}") from None


def _check_tls(args: ServerArgs) -> None:
    """Try the TLS files."""
    if args.ssl_certfile is None:
        for name in ("ssl_keyfile", "ssl_ca_certs"):
            if getattr(args, name) is not None:
                raise ConfigError(f"{name} is set without ssl_certfile; give both or neither")
        return
    try:
        create_ssl_context(
            certfile=args.ssl_certfile,
            keyfile=args.ssl_keyfile,
            password=None,
            ssl_version=ssl.PROTOCOL_TLS_SERVER,
            cert_reqs=args.ssl_cert_reqs,
            ca_certs=args.ssl_ca_certs,
            ciphers=args.ssl_ciphers,
        )
    except OSError as error:  # ssl.SSLError is one
        files = ", ".join(
            f"{name}={getattr(args, name)!r}"
            for name in ("ssl_certfile", "ssl_keyfile", "ssl_ca_certs")
            if getattr(args, name) is not None
        )
        raise ConfigError(f"TLS can't be set up with {files}: {error}") from None
