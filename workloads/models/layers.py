"""What a network is made of, as far as its traffic and its compute time depend on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

FP32_BYTES = 4
REFERENCE_SIDE = 224
"""Pixels at the side of an image for which a vision model's arithmetic is listed (ImageNet's crop)."""


@dataclass(frozen=True)
class Layer:
    """A layer. `tensors`: elements of each of its parameters, in order of registration (weight, bias).

    `macs`: multiply-accumulates of its forward pass for one sample; if it is `spatial`, for an image of 224
    pixels at the side, and in proportion to the image's area.
    """

    name: str
    tensors: tuple[int, ...]
    macs: int
    spatial: bool = False

    @property
    def parameters(self) -> int:
        """Elements of all its tensors."""
        return sum(self.tensors)


def linear(name: str, inputs: int, outputs: int, positions: int = 1) -> Layer:
    """A fully connected layer with bias, applied to `positions` vectors of one sample."""
    return Layer(name, (inputs * outputs, outputs), inputs * outputs * positions)


def parameters(layers: Iterable[Layer]) -> int:
    """Parameters of all `layers`."""
    return sum(layer.parameters for layer in layers)


def forward_macs(layers: Iterable[Layer]) -> int:
    """Multiply-accumulates of the forward pass for one sample."""
    return sum(layer.macs for layer in layers)


def backward_macs(layers: Iterable[Layer]) -> list[int]:
    """Multiply-accumulates of the backward pass for one sample, of each layer in the order given.

    Twice the forward pass (gradients of weights and of inputs), once for the first layer, whose inputs need none.
    """
    return [layer.macs * (1 if index == 0 else 2) for index, layer in enumerate(layers)]


def for_images(layers: Iterable[Layer], side: int) -> tuple[Layer, ...]:
    """`layers` with the arithmetic for images of `side` pixels, a multiple of 32 so that every map is whole."""
    if side <= 0 or side % 32:
        raise ValueError(f"side {side} is not a multiple of 32")
    return tuple(
        replace(layer, macs=layer.macs * side**2 // REFERENCE_SIDE**2) if layer.spatial else layer for layer in layers
    )
