"""Flags of `octavo bench serve`; names and meanings are those of `vllm bench serve`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from octavo.bench.load import Ramp
from octavo.bench.metrics import METRICS, parse_goodput, parse_metrics, parse_percentiles
from octavo.bench.plots.chart import check_plot
from octavo.config.convert import convert
from octavo.config.flags import FlagParser, add_flags
from octavo.config.options import option, options_of
from octavo.types.errors import ConfigError

# Options that are fields of a request as they are.
SAMPLING_FIELDS = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty",
    "repetition_penalty",
)  # fmt: skip
_ENDPOINTS = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}


@dataclass(frozen=True, kw_only=True)
class ServeBenchOptions:
    """What to send, how fast, and what to report."""

    base_url: str | None = option(None, "URL of the server, in place of host and port.")
    host: str = option("127.0.0.1", "Address of the server.")
    port: int = option(8000, "Port of the server.", low=1, high=65535)
    backend: Literal["openai", "openai-chat", "vllm"] = option(
        "openai", "The API to measure; vllm is another word for openai."
    )
    endpoint: str | None = option(None, "Path of the API; by default the backend's usual one.")
    model: str | None = option(None, "Name of the model; by default the first one served.")
    api_key: str | None = option(None, "Key to send as `Authorization: Bearer KEY`.")
    tokenizer: str | None = option(
        None, "Folder or Hugging Face id of the tokenizer; by default the server tokenizes."
    )
    header: tuple[str, ...] | None = option(None, "More headers of every request, NAME=VALUE.")
    dataset_name: Literal["random", "prefix_repetition", "sharegpt", "custom"] = option(
        "random",
        "Where prompts come from. prefix_repetition: random ones that share a few beginnings; "
        "custom: lines of JSON with `prompt` and, if they like, `output_tokens`.",
    )
    dataset_path: str | None = option(None, "File of the sharegpt or custom dataset.")
    num_prompts: int = option(1000, "Requests to send.", low=1, high=10**7)
    random_input_len: int = option(1024, "Tokens of a random prompt.", low=1, high=10**7)
    random_output_len: int = option(
        128, "Tokens to ask for with a random prompt.", low=1, high=10**7
    )
    random_range_ratio: float = option(
        0.0, "Spread of both lengths: 0.2 draws from 80 to 120 percent.", low=0.0, high=1.0
    )
    random_prefix_len: int = option(
        0, "Tokens that all random prompts begin with.", low=0, high=10**7
    )
    prefix_repetition_prefix_len: int = option(
        256, "Tokens of a shared beginning.", low=1, high=10**7
    )
    prefix_repetition_suffix_len: int = option(
        256, "Tokens that each prompt has of its own.", low=1, high=10**7
    )
    prefix_repetition_num_prefixes: int = option(
        10, "Different shared beginnings.", low=1, high=10**6
    )
    prefix_repetition_output_len: int = option(
        128, "Tokens to ask for with such a prompt.", low=1, high=10**7
    )
    sharegpt_output_len: int | None = option(
        None, "Tokens to ask for with a ShareGPT prompt; by default as many as the recorded "
        "answer has.", low=1, high=10**7,
    )  # fmt: skip
    custom_output_len: int = option(
        256, "Tokens to ask for with a line that does not say how many.", low=1, high=10**7
    )
    input_len: int | None = option(
        None, "Tokens of a random prompt, in place of --random-input-len.", low=1, high=10**7
    )
    output_len: int | None = option(
        None, "Tokens to ask for, whatever the dataset.", low=1, high=10**7
    )
    request_rate: float | Literal["inf"] = option(
        "inf", "Requests per second; inf: all at once.", low=0.0, low_open=True
    )
    burstiness: float = option(
        1.0, "Shape of the gaps: 1 is Poisson, less is more bursty.", low=0.0, low_open=True
    )
    ramp_up_strategy: Literal["linear", "exponential"] | None = option(
        None, "Let the rate grow from --ramp-up-start-rps to --ramp-up-end-rps over the test."
    )
    ramp_up_start_rps: float | None = option(
        None, "Requests per second at the begin.", low=0.0, low_open=True
    )
    ramp_up_end_rps: float | None = option(
        None, "Requests per second at the end.", low=0.0, low_open=True
    )
    max_concurrency: int | None = option(None, "Most requests in flight.", low=1, high=10**6)
    num_client_processes: int | None = option(
        None,
        "Processes that send: one that follows many streams adds its own delays to what it "
        "measures. By default one per 32 streams, as far as there are cores.",
        low=1,
        high=256,
    )
    num_warmups: int = option(0, "Requests sent before, not measured.", low=0, high=10**6)
    seed: int = option(0, "Of prompts and arrival times.", low=0, high=2**63 - 1)
    ignore_eos: bool = option(False, "Generate to the full length whatever the model says.")
    temperature: float | None = option(
        None, "Sampling temperature; by default the server's.", low=0.0, high=2.0
    )
    top_p: float | None = option(None, "Nucleus to sample from.", low=0.0, high=1.0)
    top_k: int | None = option(None, "Tokens to sample from.", low=-1, high=2**31 - 1)
    min_p: float | None = option(None, "Least probability, by the likeliest's.", low=0.0, high=1.0)
    frequency_penalty: float | None = option(None, "Per occurrence.", low=-2.0, high=2.0)
    presence_penalty: float | None = option(None, "Once for a token.", low=-2.0, high=2.0)
    repetition_penalty: float | None = option(
        None, "Divisor of a token's logit.", low=0.0, low_open=True
    )
    extra_body: Mapping[str, Any] = option({}, "More fields of every request.")
    percentile_metrics: str = option(
        "ttft,tpot,itl,e2el", f"Latencies to report, of {', '.join(METRICS)}."
    )
    metric_percentiles: str = option("99", "Percentiles to report, as 50,90,99.")
    goodput: tuple[str, ...] | None = option(
        None, "Limits of a well-served request in ms: ttft:500 tpot:50 e2el:10000."
    )
    ready_check_timeout_sec: int = option(
        0, "Seconds to wait for the server to come up.", low=0, high=86_400
    )
    save_result: bool = option(False, "Write the figures to a JSON file.")
    save_detailed: bool = option(False, "Write each request's times too.")
    result_dir: str = option(".", "Folder of the JSON file.")
    result_filename: str | None = option(
        None, "Name of the JSON file; by default made of the date."
    )
    label: str | None = option(None, "A word of one's own for the JSON file.")
    metadata: tuple[str, ...] | None = option(None, "More entries for the JSON file, NAME=VALUE.")
    plot: tuple[str, ...] | None = option(
        None, "Files for charts: .html needs nothing else, .png needs octavo[bench]."
    )
    profile: bool = option(
        False, "Have the server record a trace meanwhile; it must allow that (--profiler-config)."
    )
    disable_tqdm: bool = option(False, "Show no progress.")

    @property
    def url(self) -> str:
        """The server."""
        return (self.base_url or f"http://{self.host}:{self.port}").rstrip("/")

    @property
    def path(self) -> str:
        """The API's path."""
        return self.endpoint or _ENDPOINTS.get(self.backend, _ENDPOINTS["openai"])

    @property
    def is_chat(self) -> bool:
        """Whether that API takes messages."""
        return self.path.endswith("/chat/completions")

    @property
    def rate(self) -> float:
        """Requests per second."""
        return float(self.request_rate)

    @property
    def headers(self) -> dict[str, str]:
        """Of every request."""
        key = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return key | pairs("header", self.header or ())

    @property
    def ramp(self) -> Ramp | None:
        """How the rate grows."""
        if self.ramp_up_strategy is None:
            return None
        begin, end = self.ramp_up_start_rps, self.ramp_up_end_rps
        if begin is None or end is None:
            raise ConfigError(
                f"ramp_up_strategy={self.ramp_up_strategy} needs --ramp-up-start-rps and "
                "--ramp-up-end-rps"
            )
        if self.request_rate != "inf":
            raise ConfigError("request_rate and ramp_up_strategy both set the rate; keep one")
        return Ramp(begin, end, self.ramp_up_strategy == "exponential")


def parse(argv: Sequence[str]) -> ServeBenchOptions:
    """The options of a command line. Raises ConfigError."""
    known = options_of(ServeBenchOptions, "bench serve")
    parser = FlagParser("octavo bench serve", "Measure a running server under load.")
    parser.usage = "%(prog)s [FLAGS]"
    add_flags(parser, known, sections=False)
    values = parser.parse(argv)
    options = ServeBenchOptions(**{name: convert(known[name], v) for name, v in values.items()})
    check(options)
    return options


def check(options: ServeBenchOptions) -> None:
    """Raises ConfigError for options that don't go together or can't be read."""
    if options.dataset_name in ("sharegpt", "custom") and options.dataset_path is None:
        raise ConfigError(f"dataset_name={options.dataset_name} needs --dataset-path")
    parse_percentiles(options.metric_percentiles)
    parse_metrics(options.percentile_metrics)
    parse_goodput(options.goodput or ())
    pairs("header", options.header or ())
    pairs("metadata", options.metadata or ())
    for path in options.plot or ():
        check_plot(path)
    if options.ramp is None and (options.ramp_up_start_rps or options.ramp_up_end_rps):
        raise ConfigError("ramp_up_start_rps and ramp_up_end_rps need --ramp-up-strategy")


def pairs(name: str, words: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE words. Raises ConfigError."""
    for word in words:
        if not word.partition("=")[0] or "=" not in word:
            raise ConfigError(f"{name}={word!r}: write NAME=VALUE")
    return {key: value for key, _, value in (word.partition("=") for word in words)}
