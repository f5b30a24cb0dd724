"""Transformers: encoders (BERT and its kin) and decoders (GPT), as Hugging Face's transformers registers them.

A block is attention (four matrices of hidden x hidden) and a perceptron (hidden to four times hidden and back), each
with biases and a normalisation: 12 h² + 13 h parameters. For a sequence of s tokens it takes 12 s h² multiply-
accumulates, and 2 s² h for the products of attention, which have no parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from workloads.models.layers import Layer


def encoder(
    vocabulary: int, positions: int, types: int, tokens: int, hidden: int = 768, depth: int = 12
) -> tuple[Layer, ...]:
    """The layers of an encoder with pooler and without the head of its training task.

    `positions` and `types` are rows of the embeddings beside the vocabulary's; a sample has `tokens`.
    """
    embeddings = (vocabulary * hidden, positions * hidden, types * hidden, hidden, hidden)
    pooler = Layer("pooler", (hidden * hidden, hidden), hidden * hidden)
    return (Layer("embeddings", embeddings, 0), *_blocks(hidden, depth, tokens, fused=False), pooler)


@dataclass(frozen=True)
class Decoder:
    """A GPT. Those from GPT-2 on have a normalisation behind the last block (`last_norm`)."""

    vocabulary: int
    positions: int
    hidden: int
    depth: int
    last_norm: bool = True

    def layers(self, tokens: int) -> tuple[Layer, ...]:
        """Its layers, for samples of so many `tokens`: embeddings, then two per block, then the head.

        The head that predicts tokens shares the embeddings' weights: arithmetic without parameters.
        """
        tables = Layer("embeddings", (self.vocabulary * self.hidden, self.positions * self.hidden), 0)
        norm = (self.hidden, self.hidden) if self.last_norm else ()
        head = Layer("head", norm, tokens * self.vocabulary * self.hidden)
        return (tables, *_blocks(self.hidden, self.depth, tokens, fused=True), head)


def _blocks(hidden: int, depth: int, tokens: int, *, fused: bool) -> list[Layer]:
    square, norm = hidden * hidden, (hidden, hidden)
    inwards = (3 * square, 3 * hidden) if fused else (square, hidden) * 3
    layers = list[Layer]()
    for block in range(depth):
        attention = (*inwards, square, hidden, *norm)
        layers.append(Layer(f"block{block}.attention", attention, 4 * tokens * square + 2 * tokens**2 * hidden))
        perceptron = (4 * square, 4 * hidden, 4 * square, hidden, *norm)
        layers.append(Layer(f"block{block}.perceptron", perceptron, 8 * tokens * square))
    return layers
