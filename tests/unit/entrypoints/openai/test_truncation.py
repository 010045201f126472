"""Which messages go when a conversation is too long."""

import pytest

from octavo.entrypoints.openai.truncation import leave_out_oldest, removable

ROLES = {"s": "system", "d": "developer", "u": "user", "a": "assistant", "t": "tool"}


def conversation(roles):
    return [{"role": ROLES[role], "content": str(i)} for i, role in enumerate(roles)]


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ("", []),
        ("s", []),
        ("u", []),
        ("suaua", [[1, 2]]),
        ("suauau", [[1, 2], [3, 4]]),
        ("atuau", [[0, 1], [2, 3]]),
        ("uuu", [[0], [1]]),
        ("uatatt", [[1, 2]]),
        ("uatata", [[1, 2], [3, 4]]),
        ("uasadu", [[0, 1, 3]]),
        ("sa", []),
    ],
)
def test_groups_that_go_together(roles, expected):
    assert removable(conversation(roles)) == expected


@pytest.mark.parametrize(
    "roles", ["suauauau", "uatatau" * 5, "satatatat", "u" * 40, "s", "uatatat"]
)
async def test_as_few_as_will_do_go_and_the_rest_fits(roles):
    messages = conversation(roles)
    groups = removable(messages)
    for room in range(len(messages) + 1):
        asked = []

        async def fits(some, room=room, asked=asked):
            asked.append(len(some))
            return len(some) <= room

        left = await leave_out_oldest(messages, fits)
        gone = [i for i, message in enumerate(messages) if message not in left]
        whole = [sorted(i for group in groups[:k] for i in group) for k in range(len(groups) + 1)]
        number = whole.index(gone)
        if len(left) > room:
            assert number == len(groups)
        elif number:
            assert len(messages) - len(whole[number - 1]) > room
        assert len(asked) <= 2 + len(groups).bit_length()
