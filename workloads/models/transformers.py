"""Transformers: encoders (BERT and its kin) and decoders (GPT), as Hugging Face's transformers registers them.

A block is attention (four matrices of hidden x hidden) and a perceptron (hidden to four times hidden and back), each
with biases and a normalisation: 12 h² + 13 h parameters. For a sequence of s tokens it takes 12 s h² multiply-
accumulates, and 2 s² h for the products of attention, which have no parameters.
"""

from __future__ import annotations

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


def decoder(vocabulary: int, positions: int, hidden: int, depth: int, *, last_norm: bool) -> tuple[Layer, ...]:
    """The layers of a GPT; a sample has as many tokens as there are `positions`.

    The head that predicts tokens shares the embeddings' weights: arithmetic without parameters. GPT-2 and its
    successors have a normalisation behind the last block (`last_norm`).
    """
    embeddings = Layer("embeddings", (vocabulary * hidden, positions * hidden), 0)
    norm = (hidden, hidden) if last_norm else ()
    head = Layer("head", norm, positions * vocabulary * hidden)
    return (embeddings, *_blocks(hidden, depth, positions, fused=True), head)


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
