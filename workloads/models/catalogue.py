"""The thirteen models of CASSINI (NSDI 2024, arXiv 2308.00852), its Table 3, and what else it says of them.

*Bytes.* Table 3 gives a "memory" in MB. For vision models it is their fp32 parameters in MiB [derived: all of VGG
and ResNet50 agree], so their gradients are those of the architecture; only WideResNet101 has 243 there, half of
its 126.9 M parameters, and 484 MiB is used. For language models the table's figure is taken as MB, and compared with
the base model of that name: BERT 450 against 438, XLM 1116 against 1112 (of XLM-RoBERTa; no other XLM is near).
RoBERTa's 800 and CamemBERT's 266 are 1.60 and 0.60 times their base models, and no public variant has them. Since a
job's traffic is the question, the paper's volume is the default and the architecture's can be chosen
(`jobs.job_plan`, `volume`); compute always follows the architecture.

*Model-parallel models.* Table 3 gives ranges of memory and no sizes. The layers here are those of the published models
of these names (GPT-2 with 1.5 billion parameters, GPT-3 with 175), `cases` what the paper says of its own runs;
where it is silent stands None, and `Assumed` says what is taken instead. The sizes of GPT-3 assumed for a run are the
largest of its own paper's (Brown et al. 2020, table 2.1) whose parameters, with Adam's state 16 bytes each, fit into
the memory that is given: 1.3 billion into 35 GB, 6.7 billion into 155 GB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workloads.models.layers import FP32_BYTES, Layer, for_images, parameters
from workloads.models.recommendation import VECTOR, dlrm
from workloads.models.transformers import Decoder, encoder
from workloads.models.vision import resnet, vgg

Kind = Literal["vision", "language", "recommendation"]
Strategy = Literal["data parallel", "model parallel"]
Volume = Literal["published", "architecture"]
IMAGE_SIDE, TOKENS, GPT_TOKENS = 64, 512, 256
"""What a sample is assumed to be (`compute`): pixels at an image's side, tokens of a sequence, and of a GPT's."""


@dataclass(frozen=True)
class Assumed:
    """What a run needs and the paper does not say: samples per replica, width and depth (None: the model's own)."""

    batch: int
    hidden: int | None = None
    depth: int | None = None


@dataclass(frozen=True)
class Iteration:
    """A published iteration: `down_s` without traffic, `up_s` with. `backward_s` of compute in Up is assumed."""

    down_s: float
    backward_s: float
    up_s: float


@dataclass(frozen=True)
class Case:
    """One run of a model-parallel model in the paper; None where it does not say.

    Workers are `pipeline` × `tensor` × `data`, one on each of `servers`. `batch` is samples per replica (workers that
    have the model once together), cut into `microbatches`. `traffic` is the paper's picture in words.
    """

    name: str
    traffic: str
    memory_mb: int | None = None
    servers: int | None = None
    pipeline: int = 1
    tensor: int = 1
    data: int = 1
    microbatches: int | None = None
    hidden: int | None = None
    batch: int | None = None
    iteration_s: float | None = None
    assumed: Assumed | None = None


@dataclass(frozen=True)
class Model:
    """A network. `batches`: samples per worker, from and to; `table_mb`: "memory" of Table 3, from and to.

    `layers` have the arithmetic of the published architecture (images of 224 pixels), `sample_layers` that of the
    sample assumed. `hidden` is the width of a transformer, or of DLRM's vectors; `decoder` says how a GPT is built.
    """

    name: str
    kind: Kind
    strategy: Strategy
    layers: tuple[Layer, ...]
    batches: tuple[int, int]
    table_mb: tuple[int, int]
    hidden: int | None = None
    published: Iteration | None = None
    cases: tuple[Case, ...] = ()
    decoder: Decoder | None = None

    @property
    def parameters(self) -> int:
        """Parameters of the architecture."""
        return parameters(self.layers)

    @property
    def architecture_bytes(self) -> int:
        """Bytes of all gradients of the architecture in fp32."""
        return FP32_BYTES * self.parameters

    @property
    def gradient_bytes(self) -> int:
        """Bytes of gradients that one worker of a data-parallel job has in the paper, by this module's rule."""
        if self.kind == "language" and self.strategy == "data parallel":
            return self.table_mb[0] * 1_000_000
        return self.architecture_bytes

    @property
    def sample_layers(self) -> tuple[Layer, ...]:
        """`layers` with the arithmetic of one sample as assumed."""
        return self.decoder.layers(GPT_TOKENS) if self.decoder else for_images(self.layers, IMAGE_SIDE)


@dataclass(frozen=True)
class SnapshotJob:
    """A job of a snapshot: `batch` per worker, `communication_s` its time of communication with a link to itself."""

    model: str
    batch: int
    communication_s: float


def _vision(
    name: str, layers: tuple[Layer, ...], batches: tuple[int, int], memory_mb: int, published: Iteration | None = None
) -> Model:
    return Model(name, "vision", "data parallel", layers, batches, (memory_mb, memory_mb), published=published)


def _language(name: str, layers: tuple[Layer, ...], batches: tuple[int, int], memory_mb: int) -> Model:
    return Model(name, "language", "data parallel", layers, batches, (memory_mb, memory_mb), hidden=768)


# The paper does not say how long VGG16's backward pass computes: 100 ms is assumed.
VGG16 = _vision("vgg16", vgg(16), (512, 1800), 528, Iteration(0.141, 0.100, 0.114))


def _gpt(name: str, decoder: Decoder, batches: tuple[int, int], table_mb: tuple[int, int], *cases: Case) -> Model:
    layers = decoder.layers(decoder.positions)
    return Model(
        name, "language", "model parallel", layers, batches, table_mb, decoder.hidden, cases=cases, decoder=decoder
    )


_GPT1 = _gpt(
    "gpt1", Decoder(40478, 512, 768, 12, last_norm=False), (32, 80), (650, 9000),
    Case("data", "one Up of up to 50 Gbit/s", memory_mb=9000, servers=4, data=4, iteration_s=0.2, assumed=Assumed(32)),
)  # fmt: skip
_GPT2 = _gpt(
    "gpt2", Decoder(50257, 1024, 1600, 48), (32, 80), (1623, 27000),
    # Of its own variants, which the paper describes elsewhere, A is the one whose batch is cut into three.
    Case("pipeline", "a small peak per microbatch, then a heavy all-reduce", memory_mb=27000, servers=2, pipeline=2,
         microbatches=3, iteration_s=0.2, assumed=Assumed(24, 1536)),
    # A's batch lies below the range of Table 3.
    Case("A", "not shown", hidden=1536, batch=24),
    Case("B", "not shown", hidden=1184, batch=70),
)  # fmt: skip
_GPT3 = _gpt(
    "gpt3", Decoder(50257, 2048, 12288, 96), (16, 48), (1952, 155000),
    Case("tensor", "about 25 Gbit/s forward and backward, near zero while data are loaded", memory_mb=35000,
         servers=2, tensor=2, iteration_s=0.5, assumed=Assumed(16, 2048, 24)),
    Case("hybrid", "six phases of Up and Down", memory_mb=155000, servers=8, pipeline=2, tensor=2, data=2,
         iteration_s=3.0, assumed=Assumed(18, 4096, 32)),
)  # fmt: skip
_DLRM = Model(
    "dlrm", "recommendation", "model parallel", dlrm(), (16, 1024), (890, 1962), VECTOR,
    cases=(Case("embeddings", "all-to-all of embeddings, all-reduce of the perceptrons"),),
)  # fmt: skip

MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        _vision("vgg11", vgg(11), (512, 1800), 507),
        VGG16,
        _vision("vgg19", vgg(19), (512, 1800), 549),
        _vision("resnet50", resnet(50), (256, 1800), 98),
        _vision("wideresnet101", resnet(101, width=2), (256, 1200), 243),
        _language("bert", encoder(30522, 512, 2, TOKENS), (8, 32), 450),
        _language("roberta", encoder(50265, 514, 1, TOKENS), (8, 32), 800),
        _language("xlm", encoder(250002, 514, 1, TOKENS), (4, 32), 1116),
        _language("camembert", encoder(32005, 514, 1, TOKENS), (8, 32), 266),
        _GPT1,
        _GPT2,
        _GPT3,
        _DLRM,
    )
}

SNAPSHOTS: dict[int, tuple[SnapshotJob, ...]] = {
    1: (SnapshotJob("wideresnet101", 800, 0.138), SnapshotJob("vgg16", 1400, 0.148)),
    2: (
        SnapshotJob("vgg19", 1400, 0.168),
        SnapshotJob("vgg16", 1700, 0.163),
        SnapshotJob("resnet50", 1600, 0.059),
    ),
    3: (SnapshotJob("vgg19", 1024, 0.166), SnapshotJob("vgg16", 1200, 0.168)),
    4: (SnapshotJob("roberta", 12, 0.164), SnapshotJob("roberta", 12, 0.164)),
    5: (SnapshotJob("bert", 8, 0.209), SnapshotJob("vgg19", 1400, 0.166), SnapshotJob("wideresnet101", 800, 0.138)),
}
"""The paper's snapshots. Jobs of one share a link; how many workers each has is not published."""
