"""GroupCodes: weights as small integers with a scale for every few inputs, and their sizes."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from octavo.utils.misc import round_up

SPAN = 32  # inputs of a packed record: a weight's inputs are a multiple of it
PANEL = 16  # outputs of a packed record, the last ones of a weight padded


class Minimum(enum.IntEnum):
    """What is added to every weight of a group, besides its code times the scale."""

    NONE = 0
    STORED = 1
    MINUS_EIGHT_SCALES = 2


@dataclass(frozen=True, slots=True)
class CodeForm:
    """How a kind of packed weight is kept: w = scale * code + minimum.

    `bits` 4 are codes 0..15, 8 are codes -128..127. `group` inputs (32 or 16) share a scale.
    `number_bytes` is 4 for float32 scales and minimums, 2 for float16.
    """

    bits: int
    group: int
    number_bytes: int
    minimum: Minimum

    def num_bytes(self, rows: int, inputs: int) -> int:
        """Memory of a packed weight [rows, inputs]; inputs: a multiple of SPAN."""
        numbers = SPAN // self.group + (self.minimum is Minimum.STORED)
        record = PANEL * (SPAN * self.bits // 8 + numbers * self.number_bytes)
        return round_up(rows, PANEL) // PANEL * (inputs // SPAN) * record


@dataclass(frozen=True, slots=True, eq=False)
class GroupCodes:
    """A weight [N, K] in a form, not yet packed.

    codes: [N, K], uint8 for 4 bits (one code a byte) and int8 for 8; scales: [N, K / group] and
    minimums: the same or None, of the form's number type.
    """

    form: CodeForm
    codes: NDArray[Any]
    scales: NDArray[Any]
    minimums: NDArray[Any] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs)."""
        rows, inputs = self.codes.shape
        return rows, inputs

    def part(self, rows: slice, inputs: slice) -> GroupCodes:
        """Some outputs and inputs; the inputs begin and end with a group."""
        groups = slice(inputs.start // self.form.group, inputs.stop // self.form.group)
        minimums = None if self.minimums is None else self.minimums[rows, groups]
        return GroupCodes(self.form, self.codes[rows, inputs], self.scales[rows, groups], minimums)


# Online quantization, from the least to the greatest weight of a group. INT8_WIDE: for weights
# whose scales float16 can't hold well. INT8_SYMMETRIC: for weights that had such codes before.
INT8 = CodeForm(8, 32, 2, Minimum.STORED)
INT8_SYMMETRIC = CodeForm(8, 32, 4, Minimum.NONE)
INT8_WIDE = CodeForm(8, 32, 4, Minimum.STORED)
INT4 = CodeForm(4, 32, 4, Minimum.STORED)
