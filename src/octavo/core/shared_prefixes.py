"""SharedPrefixes: running requests whose block tables begin with the same blocks, as groups."""

from __future__ import annotations

from operator import eq
from typing import NamedTuple

from octavo.types.kv_spec import FullAttentionSpec, KVCacheConfig
from octavo.types.scheduler_output import MAX_SHARED_PREFIXES, SharedPrefix

# When a group pays. Reading n rows' prefix of P tokens once instead of n times saves
# (n - 1) * P * bytes of keys and values in each layer, and costs each layer partial results that
# are written, read and merged: 4 to 8 us predicted for an H200, in which it reads 18 to 36 MB.
# With 8 KV heads of 128 in bf16 (4 KiB a token) that is 2 rows on 8k tokens, or 33 rows on 256.
# 128 rows on 8k would read 4.3 GB a layer alone and 34 MB as a group: 960 us by bytes against
# 7.5, or 22 to 45 us by the arithmetic, which the group does not lessen.
MIN_SAVED_BYTES = 32 << 20
MIN_PREFIX_TOKENS = 256  # shorter ones have too few tiles of keys to spread over a device


class Arrangement(NamedTuple):
    """How a step's decode rows should be ordered for its groups to be ranges of rows."""

    order: list[int] | None  # new row -> old row; None: as they are
    prefixes: list[SharedPrefix]


_NOTHING = Arrangement(None, [])


class _Node:
    """A run of blocks in a tree of block tables; all its requests hold every block up to `end`."""

    __slots__ = ("blocks", "children", "end", "num_requests", "parent", "slots")

    def __init__(self, parent: _Node | None, blocks: list[int], end: int) -> None:
        self.parent = parent
        self.blocks = blocks
        self.end = end  # blocks from the root to the end of this run
        self.children: dict[int, _Node] = {}  # by the first block of theirs
        self.num_requests = 0  # in this node and below
        self.slots: set[int] = set()  # of requests whose tables end here


class _Choice(NamedTuple):
    """The best groups at or below a node."""

    saved: int  # blocks that need not be read
    num_requests: int  # in the groups
    nodes: list[_Node]  # those below a node come before it and have first call on requests


class SharedPrefixes:
    """A radix tree of the full blocks that decoding requests had when their prompt was computed.

    These blocks stay in their tables until the requests leave, so the tree changes only when a
    request joins or leaves, and the groups are chosen anew only then. Identity is that of the
    physical block: equal content in different blocks can't be read once.
    """

    def __init__(self, config: KVCacheConfig, *, enabled: bool) -> None:
        """Groups are found where one KV group keeps every token; `enabled` False: never."""
        full = [
            (index, group.spec)
            for index, group in enumerate(config.groups)
            if isinstance(group.spec, FullAttentionSpec)
        ]
        self._enabled = enabled and len(full) == 1
        self._group, self._block_size, page_bytes = 0, 1, 1
        if self._enabled:
            self._group, spec = full[0]
            self._block_size, page_bytes = spec.block_size, spec.page_bytes
        self._min_end = -(-MIN_PREFIX_TOKENS // self._block_size)
        self._min_saved = -(-MIN_SAVED_BYTES // page_bytes)
        self._root = _Node(None, [], 0)
        self._nodes: dict[int, _Node] = {}  # by slot: where the request's table ends
        self._changed = False
        self._chosen: list[_Node] = []
        self._chosen_of: dict[int, int] = {}  # slot -> index in _chosen
        self._last_rows: tuple[list[int], list[int]] = ([], [])
        self._last = _NOTHING

    def add(self, slot: int, tables: list[list[int]], num_tokens: int) -> None:
        """A request has computed its `num_tokens` known tokens and will decode from now on."""
        count = num_tokens // self._block_size
        if not self._enabled or not count:
            return
        node = self._insert(tables[self._group][:count])
        node.slots.add(slot)
        self._nodes[slot] = node
        parent: _Node | None = node
        while parent is not None:
            parent.num_requests += 1
            parent = parent.parent
        self._changed = True

    def remove(self, slot: int) -> None:
        """A request leaves its slot; one that never was added is ignored."""
        node = self._nodes.pop(slot, None)
        if node is None:
            return
        node.slots.remove(slot)
        parent: _Node | None = node
        while parent is not None:
            parent.num_requests -= 1
            parent = parent.parent
        while node.parent is not None and not node.num_requests:
            del node.parent.children[node.blocks[0]]
            node = node.parent
        _merge_with_only_child(node)
        self._changed = True

    def arrange(self, slots: list[int], num_tokens: list[int]) -> Arrangement:
        """The groups among the decode rows of a step; only rows of one token are in groups."""
        if self._changed:
            self._changed = False
            self._choose()
        elif self._last_rows == (slots, num_tokens):
            return self._last
        if not self._chosen:
            return _NOTHING
        self._last_rows = (slots.copy(), num_tokens.copy())
        self._last = self._arrange(slots, num_tokens)
        return self._last

    def _insert(self, blocks: list[int]) -> _Node:
        """The node where the table `blocks` ends; made, and runs split, as needed."""
        node, at = self._root, 0
        while at < len(blocks):
            child = node.children.get(blocks[at])
            if child is None:
                child = node.children[blocks[at]] = _Node(node, blocks[at:], len(blocks))
                return child
            common = _common_length(child.blocks, blocks[at : at + len(child.blocks)])
            if common < len(child.blocks):
                child = _split(child, common)
            at += common
            node = child
        return node

    def _choose(self) -> None:
        """Choose the groups that save most; a request is in one at most.

        For each node, from the leaves: either all its requests as one group, or the best of its
        children, and of what these leave over a group of its own.
        """
        shared = [self._root]
        for node in shared:
            shared += [child for child in node.children.values() if child.num_requests > 1]
        choices: dict[int, _Choice] = {}
        for node in reversed(shared):
            saved, covered, nodes = 0, 0, []
            for child in node.children.values():
                below = choices.get(id(child))
                if below is not None:
                    saved += below.saved
                    covered += below.num_requests
                    nodes += below.nodes
            left = node.num_requests - covered
            if self._pays(left, node.end):
                saved += (left - 1) * node.end
                covered += left
                nodes.append(node)
            whole = (node.num_requests - 1) * node.end
            if whole > saved and self._pays(node.num_requests, node.end):
                saved, covered, nodes = whole, node.num_requests, [node]
            choices[id(node)] = _Choice(saved, covered, nodes)
        best = choices[id(self._root)].nodes
        self._chosen = best
        self._chosen_of = {}
        for index, node in enumerate(best):
            for slot in _slots_below(node):
                self._chosen_of.setdefault(slot, index)
        self._last_rows = ([], [])
        self._last = _NOTHING

    def _pays(self, num_rows: int, num_blocks: int) -> bool:
        return num_blocks >= self._min_end and (num_rows - 1) * num_blocks >= self._min_saved

    def _arrange(self, slots: list[int], num_tokens: list[int]) -> Arrangement:
        rows_of: list[list[int]] = [[] for _ in self._chosen]
        lone = []
        chosen_of = self._chosen_of
        for row, slot in enumerate(slots):
            index = chosen_of.get(slot)
            if index is None or num_tokens[row] != 1:
                lone.append(row)
            else:
                rows_of[index].append(row)
        # Some of a group's requests may have no row in this step, so the rule is asked again.
        found = [
            (rows, node.end)
            for rows, node in zip(rows_of, self._chosen, strict=True)
            if self._pays(len(rows), node.end)
        ]
        found.sort(key=lambda group: (1 - len(group[0])) * group[1])
        del found[MAX_SHARED_PREFIXES:]
        order: list[int] = []
        prefixes = []
        for rows, end in found:
            prefixes.append(SharedPrefix(len(order), len(rows), end * self._block_size))
            order += rows
        grouped = set(order)
        order += [row for row in range(len(slots)) if row not in grouped]
        unmoved = all(map(eq, order, range(len(order))))
        return Arrangement(None if unmoved else order, prefixes)


def _split(node: _Node, length: int) -> _Node:
    """Cut a run after `length` blocks; returns the new node of the first part."""
    parent = node.parent
    assert parent is not None, "the root has no run"
    first = _Node(parent, node.blocks[:length], node.end - len(node.blocks) + length)
    first.num_requests = node.num_requests
    node.blocks = node.blocks[length:]
    node.parent = first
    first.children[node.blocks[0]] = node
    parent.children[first.blocks[0]] = first
    return first


def _merge_with_only_child(node: _Node) -> None:
    """Undo a split that nobody needs any more."""
    if node.parent is None or node.slots or len(node.children) != 1:
        return
    (child,) = node.children.values()
    child.blocks = node.blocks + child.blocks
    child.parent = node.parent
    node.parent.children[child.blocks[0]] = child


def _common_length(first: list[int], second: list[int]) -> int:
    """Equal leading entries, found by comparing ever shorter slices (each is one C loop)."""
    if first == second:
        return len(first)
    low, high = 0, min(len(first), len(second))  # equal up to low
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _slots_below(node: _Node) -> list[int]:
    slots: list[int] = []
    nodes = [node]
    for below in nodes:
        slots += below.slots
        nodes += below.children.values()
    return slots
