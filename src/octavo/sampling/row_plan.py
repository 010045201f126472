"""RowPlan: which rows of a step go through which stages of sampling."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.sampling.interface import LogitsEditor, TokenFollower, Variant
from octavo.sampling.mirostat import Mirostat
from octavo.sampling.row_filters import RowSubset


@dataclass(frozen=True, slots=True)
class RowPlan:
    """Which rows of a step go through which stage; None where no row does.

    Where `variant` is not HOST, its kernels make the tokens of all rows, and only logprobs and
    errors are told here.
    """

    variant: Variant
    logprobs: list[tuple[RowSubset, list[int]]]  # and how many top ones per row
    row_errors: dict[int, str]
    # Before the plug-ins, in order.
    editors: list[tuple[LogitsEditor, RowSubset]] = field(default_factory=list)
    # After the penalties, in order; then, of random rows, around temperature and truncation.
    late_editors: list[tuple[LogitsEditor, RowSubset]] = field(default_factory=list)
    scalers: list[tuple[LogitsEditor, RowSubset]] = field(default_factory=list)
    shapers: list[tuple[LogitsEditor, RowSubset]] = field(default_factory=list)
    followers: list[tuple[TokenFollower, RowSubset]] = field(default_factory=list)
    mirostat: list[tuple[Mirostat, RowSubset]] = field(default_factory=list)
    processors: list[RowSubset | None] = field(default_factory=list)  # one per plug-in
    penalties: RowSubset | None = None
    history: RowSubset | None = None
    random: RowSubset | None = None  # all that are not greedy
    whole_softmax: RowSubset | None = None  # random ones without top-k and top-p
    truncated: RowSubset | None = None  # random ones with top-k or top-p
    min_p: RowSubset | None = None
    has_greedy: bool = False
    num_candidates: int = 0  # for the truncated rows
