"""What is synchronised: the gradient tensors of a model, as numbers of elements, cut into chunks.

The architectures are those of the published models with one input channel and ten classes, since NETSTORM trains on
Fashion-MNIST: AlexNet then has 57.0 M parameters, the 228 MB of fp32 that its authors state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from testbed.errors import InputError

FP32_BYTES = 4
CHUNK_ELEMENTS = 1_000_000
"""The chunk of the authors' code: 4 MB in fp32."""
CHANNELS, CLASSES = 1, 10
TRAINED, INPUTS, HIDDEN = "mlp", 196, 256
"""The model that is really trained (`learner`), one hidden layer."""


def tensors(model: str) -> list[int]:
    """The elements of each tensor of a model, from its first layer to its last; raises InputError."""
    if model not in MODELS:
        raise InputError("sync.model", f"there is no model {model!r}", f"one of {', '.join(MODELS)}")
    return MODELS[model]()


def scaled(sizes: Sequence[int], scale: float) -> list[int]:
    """The tensors of the scaled network: their elements divided, none left empty."""
    return [max(1, round(size / scale)) for size in sizes]


def chunks(sizes: Sequence[int], chunk_elements: int) -> list[int]:
    """Every tensor cut into pieces of `chunk_elements`, its last piece maybe smaller; the order of the tensors, and so
    of the chunks, is that of a backward pass: the last layer first."""
    pieces: list[int] = []
    for size in reversed(sizes):
        whole, rest = divmod(size, chunk_elements)
        pieces += [chunk_elements] * whole + ([rest] if rest else [])
    return pieces


def _convolution(inputs: int, outputs: int, side: int, bias: bool = True) -> list[int]:
    return [inputs * outputs * side * side] + ([outputs] if bias else [])


def _dense(inputs: int, outputs: int) -> list[int]:
    return [inputs * outputs, outputs]


def _norm(channels: int) -> list[int]:
    """Batch normalisation: scale and shift; running means are no gradients."""
    return [channels, channels]


def _alexnet() -> list[int]:
    found: list[int] = []
    for inputs, outputs, side in ((CHANNELS, 64, 11), (64, 192, 5), (192, 384, 3), (384, 256, 3), (256, 256, 3)):
        found += _convolution(inputs, outputs, side)
    return found + _dense(256 * 6 * 6, 4096) + _dense(4096, 4096) + _dense(4096, CLASSES)


def _vgg16() -> list[int]:
    found, inputs = [], CHANNELS
    for outputs in (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512):
        found += _convolution(inputs, outputs, 3)
        inputs = outputs
    return found + _dense(512 * 7 * 7, 4096) + _dense(4096, 4096) + _dense(4096, CLASSES)


def _resnet50() -> list[int]:
    found = _convolution(CHANNELS, 64, 7, bias=False) + _norm(64)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for ins, outs, side in ((inputs, width, 1), (width, width, 3), (width, 4 * width, 1)):
                found += _convolution(ins, outs, side, bias=False) + _norm(outs)
            if block == 0:  # the shortcut has to change the number of channels
                found += _convolution(inputs, 4 * width, 1, bias=False) + _norm(4 * width)
            inputs = 4 * width
    return found + _dense(inputs, CLASSES)


def _mobilenet() -> list[int]:
    found, inputs = _convolution(CHANNELS, 32, 3, bias=False) + _norm(32), 32
    for outputs in (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024):
        found += [inputs * 9, *_norm(inputs), *_convolution(inputs, outputs, 1, bias=False), *_norm(outputs)]
        inputs = outputs
    return found + _dense(inputs, CLASSES)


def _mlp() -> list[int]:
    return _dense(INPUTS, HIDDEN) + _dense(HIDDEN, CLASSES)


MODELS: dict[str, Callable[[], list[int]]] = {
    "alexnet": _alexnet,
    "resnet50": _resnet50,
    "mobilenet": _mobilenet,
    "vgg16": _vgg16,
    TRAINED: _mlp,
}


def size_bytes(elements: Sequence[int]) -> int:
    """The bytes of these tensors or chunks in fp32."""
    return FP32_BYTES * sum(elements)
