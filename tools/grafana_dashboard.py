"""Write docs/grafana-dashboard.json: the panels that an operator looks at.

Usage: python tools/grafana_dashboard.py [--check] [--prefix octavo]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "docs" / "grafana-dashboard.json"
WIDTH, HEIGHT = 12, 8  # of a panel, in Grafana's grid of 24 columns
SELECT = '{model_name=~"$model"}'

# title, unit, [(legend, expression)]; P stands for the metrics' prefix.
PANELS = [
    ("Requests", "short", [
        ("running", f"sum(P:num_requests_running{SELECT})"),
        ("waiting", f"sum(P:num_requests_waiting{SELECT})"),
        ("HTTP", f"sum(P:server_load{SELECT})"),
    ]),
    ("Tokens per second", "short", [
        ("prompt", f"sum(rate(P:prompt_tokens_total{SELECT}[1m]))"),
        ("generated", f"sum(rate(P:generation_tokens_total{SELECT}[1m]))"),
    ]),
    ("Time to first token", "s", ["time_to_first_token_seconds"]),
    ("Time between tokens", "s", ["inter_token_latency_seconds"]),
    ("Whole request", "s", ["e2e_request_latency_seconds"]),
    ("In the queue", "s", ["request_queue_time_seconds"]),
    ("KV cache", "percentunit", [
        ("in use", f"avg(P:kv_cache_usage_perc{SELECT})"),
        (
            "prefix hits",
            f"sum(rate(P:prefix_cache_hits_total{SELECT}[5m]))"
            f" / sum(rate(P:prefix_cache_queries_total{SELECT}[5m]))",
        ),
    ]),
    ("Ends per second", "short", [
        (
            "{{finished_reason}}",
            f"sum by (finished_reason) (rate(P:request_success_total{SELECT}[1m]))",
        ),
        ("refused", f"sum(rate(P:requests_refused_total{SELECT}[1m]))"),
        ("preempted", f"sum(rate(P:num_preemptions_total{SELECT}[1m]))"),
    ]),
    ("Prompt length", "short", ["request_prompt_tokens"]),
    ("Answer length", "short", ["request_generation_tokens"]),
]  # fmt: skip


def quantiles(name: str) -> list[tuple[str, str]]:
    """Median, p95 and p99 of a histogram."""
    return [
        (
            f"p{percent}",
            f"histogram_quantile({percent / 100}, sum by (le) (rate(P:{name}_bucket{SELECT}[1m])))",
        )
        for percent in (50, 95, 99)
    ]


def panel(number: int, title: str, unit: str, queries: list[Any], prefix: str) -> dict[str, Any]:
    pairs = [
        pair
        for query in queries
        for pair in (quantiles(query) if isinstance(query, str) else [query])
    ]
    return {
        "id": number + 1,
        "title": title,
        "type": "timeseries",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {
            "x": number % 2 * WIDTH,
            "y": number // 2 * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + i), "legendFormat": legend, "expr": text.replace("P:", prefix)}
            for i, (legend, text) in enumerate(pairs)
        ],
    }


def dashboard(prefix: str) -> dict[str, Any]:
    return {
        "title": "octavo",
        "uid": "octavo",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {
                    "name": "model",
                    "type": "query",
                    "datasource": {"type": "prometheus", "uid": "${datasource}"},
                    "query": f"label_values({prefix}num_requests_running, model_name)",
                    "includeAll": True,
                    "multi": True,
                    "refresh": 2,
                },
            ]
        },
        "panels": [panel(i, *entry, prefix) for i, entry in enumerate(PANELS)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--prefix", default="octavo", help="vllm: for --metrics-prefix vllm")
    args = parser.parse_args()
    text = json.dumps(dashboard(f"{args.prefix}:"), indent=1) + "\n"
    if args.check:
        return int(not TARGET.exists() or TARGET.read_text() != text)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
