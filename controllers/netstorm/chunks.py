"""Parameters are cut into chunks, and chunks are dealt to roots by their quotas (the authors' public code)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

CHUNK_ELEMENTS = 1_000_000
ELEMENT_BYTES = 4  # fp32


@dataclass(frozen=True)
class Chunk:
    """A piece of a tensor: `elements` from `offset` on."""

    tensor: int
    offset: int
    elements: int
    element_bytes: int = ELEMENT_BYTES

    @property
    def size_bytes(self) -> int:
        """Bytes it takes on the wire, headers apart."""
        return self.elements * self.element_bytes


def cut(tensors: Sequence[int], chunk_elements: int = CHUNK_ELEMENTS) -> tuple[Chunk, ...]:
    """Return the chunks of tensors of so many elements each; the last one of a tensor may be smaller.

    Raises ValueError for a tensor, or a chunk, without elements.
    """
    if chunk_elements < 1 or any(elements < 1 for elements in tensors):
        raise ValueError(f"cannot cut {list(tensors)} elements into chunks of {chunk_elements}")
    return tuple(
        Chunk(number, offset, min(chunk_elements, elements - offset))
        for number, elements in enumerate(tensors)
        for offset in range(0, elements, chunk_elements)
    )


def deal(chunks: Sequence[Chunk], weights: Sequence[float]) -> tuple[int, ...]:
    """Return which root each chunk goes to: round-robin, skipping roots that are full.

    A root's quota is its weight's part of all bytes; it is full once what it has been dealt reaches the quota, so no
    root gets a whole chunk more than its quota. Raises ValueError unless weights are positive somewhere and nowhere
    negative.
    """
    if not weights or min(weights) < 0 or not sum(weights) > 0:
        raise ValueError(f"quotas cannot be had from weights {list(weights)}")
    parts = [Fraction(weight) for weight in weights]  # exact: as long as a chunk is left, some root is not full
    whole, total = sum(parts), sum(chunk.size_bytes for chunk in chunks)
    left = [part / whole * total for part in parts]
    dealt, turn = [], 0
    for chunk in chunks:
        while left[turn] <= 0:
            turn = (turn + 1) % len(left)
        left[turn] -= chunk.size_bytes
        dealt.append(turn)
        turn = (turn + 1) % len(left)
    return tuple(dealt)
