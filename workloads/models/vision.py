"""Networks for images, as torchvision builds them (torchvision/models/vgg.py and resnet.py).

Parameters stand in the order in which torchvision registers them, since DDP's buckets follow it; arithmetic is
for images of 224 x 224 pixels. Convolutions of a VGG have a bias; those of a ResNet have none, but a
normalisation of two tensors behind each.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.models.layers import Layer, linear

CLASSES = 1000
# Convolutions of 3 x 3 between one pooling and the next (Simonyan and Zisserman 2015, table 1: A, D, E).
VGG_BLOCKS = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
# Bottlenecks in each of the four stages (He et al. 2016, table 1).
RESNET_BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def vgg(depth: int) -> tuple[Layer, ...]:
    """The layers of VGG-`depth` without batch normalisation; 11, 16 and 19 are known."""
    layers, inputs, side = list[Layer](), 3, 224
    for block, count in enumerate(VGG_BLOCKS[depth]):
        outputs = min(64 << block, 512)
        for index in range(count):
            weights = inputs * outputs * 9
            name = f"conv{block + 1}_{index + 1}"
            layers.append(Layer(name, (weights, outputs), weights * side**2, spatial=True))
            inputs = outputs
        side //= 2
    # Images of any size are pooled to 7 x 7, so the first of these never changes.
    first = linear(f"fc{len(VGG_BLOCKS[depth]) + 1}", 512 * 7 * 7, 4096)
    return (*layers, first, linear("fc7", 4096, 4096), linear("fc8", 4096, CLASSES))


def resnet(depth: int, *, width: int = 1) -> tuple[Layer, ...]:
    """The layers of ResNet-`depth` of bottlenecks; 50 and 101 are known.

    `width` multiplies the inner channels of a bottleneck: WideResNet-101-2 is `resnet(101, width=2)`.
    """
    layers = [_normalised("conv1", 3, 64, 7, 112)]
    inputs, side = 64, 56
    for stage, count in enumerate(RESNET_BLOCKS[depth]):
        inner, outer = (64 << stage) * width, 256 << stage
        for block in range(count):
            layers += _bottleneck(f"layer{stage + 1}.{block}", inputs, inner, outer, side, stage > 0 and block == 0)
            side = side // 2 if stage > 0 and block == 0 else side
            inputs = outer
    return (*layers, linear("fc", inputs, CLASSES))


def _bottleneck(name: str, inputs: int, inner: int, outer: int, side: int, halves: bool) -> Iterator[Layer]:
    after = side // 2 if halves else side
    yield _normalised(f"{name}.conv1", inputs, inner, 1, side)
    yield _normalised(f"{name}.conv2", inner, inner, 3, after)
    yield _normalised(f"{name}.conv3", inner, outer, 1, after)
    if inputs != outer:
        yield _normalised(f"{name}.downsample", inputs, outer, 1, after)


def _normalised(name: str, inputs: int, outputs: int, kernel: int, side: int) -> Layer:
    """A convolution that makes a map of `side` x `side`, and the normalisation behind it."""
    weights = inputs * outputs * kernel**2
    return Layer(name, (weights, outputs, outputs), weights * side**2, spatial=True)
