"""The thirteen models: layer lists against published counts, Table 3, and the rule for compute times."""

import pytest

from testbed.errors import InputError
from workloads.models import MODELS, SNAPSHOTS, compute_s, ddp_buckets
from workloads.models.layers import Layer, backward_macs, for_images, forward_macs, linear

# Parameters as published: torchvision's model pages; Hugging Face's counts of bert-base-uncased, roberta-base,
# xlm-roberta-base, camembert-base (with pooler), openai-gpt, gpt2-xl; GPT-3's 174 600 M (its paper, table D.1).
PARAMETERS = {
    "vgg11": 132_863_336,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "resnet50": 25_557_032,
    "wideresnet101": 126_886_696,
    "bert": 109_482_240,
    "roberta": 124_645_632,
    "xlm": 278_043_648,
    "camembert": 110_621_952,
    "gpt1": 116_534_784,
    "gpt2": 1_557_611_200,
}
# Multiply-accumulates per image of 224 pixels, in thousands of millions (torchvision's GFLOPS).
GMACS = {"vgg11": 7.609, "vgg16": 15.470, "vgg19": 19.632, "resnet50": 4.089, "wideresnet101": 22.753}
DATA_PARALLEL = [name for name, model in MODELS.items() if model.strategy == "data parallel"]


def test_the_thirteen_models_of_the_paper_are_there() -> None:
    assert len(MODELS) == 13
    assert len(DATA_PARALLEL) == 9
    assert sorted(set(MODELS) - set(DATA_PARALLEL)) == ["dlrm", "gpt1", "gpt2", "gpt3"]
    assert all(name == model.name for name, model in MODELS.items())


@pytest.mark.parametrize("name", PARAMETERS)
def test_layers_have_the_published_parameters(name: str) -> None:
    assert MODELS[name].parameters == PARAMETERS[name]


def test_gpt3_and_dlrm_have_the_published_parameters() -> None:
    assert round(MODELS["gpt3"].parameters / 1e6, -2) == 174_600
    tables = sum(layer.parameters for layer in MODELS["dlrm"].layers if layer.name.startswith("table"))
    assert tables == 8 * 1_000_000 * 64
    # 512-512-64, and 1024-1024-1024-1 on 36 products and 64 values.
    assert MODELS["dlrm"].parameters - tables == 295_488 + 2_203_649
    assert MODELS["dlrm"].architecture_bytes // 2**20 == MODELS["dlrm"].table_mb[1]


@pytest.mark.parametrize("name", GMACS)
def test_layers_have_the_published_arithmetic(name: str) -> None:
    assert forward_macs(MODELS[name].layers) / 1e9 == pytest.approx(GMACS[name], abs=0.001)


def test_a_transformer_block_by_hand() -> None:
    attention, perceptron = MODELS["bert"].layers[1:3]
    assert attention.parameters + perceptron.parameters == 12 * 768**2 + 13 * 768
    assert attention.macs == 512 * 4 * 768**2 + 2 * 512**2 * 768
    assert perceptron.macs == 512 * 8 * 768**2


@pytest.mark.parametrize("name", DATA_PARALLEL)
def test_gradients_are_the_papers(name: str) -> None:
    model = MODELS[name]
    assert sum(bucket.size_bytes for bucket in ddp_buckets(model.layers, 0.1)) == model.architecture_bytes
    if name == "wideresnet101":  # Table 3 has about half of it
        assert round(model.gradient_bytes / 2**20) == 484
    elif model.kind == "vision":
        assert model.gradient_bytes / 2**20 == pytest.approx(model.table_mb[0], abs=1)
    else:
        assert model.gradient_bytes == model.table_mb[0] * 10**6


def test_language_models_differ_from_their_base_as_the_catalogue_says() -> None:
    ratios = {name: MODELS[name].gradient_bytes / MODELS[name].architecture_bytes for name in DATA_PARALLEL}
    assert {name: round(ratio, 2) for name, ratio in ratios.items() if ratio != 1.0} == {
        "bert": 1.03,
        "roberta": 1.60,
        "xlm": 1.00,
        "camembert": 0.60,
    }


def test_model_parallel_models_say_what_is_known_of_their_runs() -> None:
    hybrid = next(case for case in MODELS["gpt3"].cases if case.name == "hybrid")
    assert hybrid.pipeline * hybrid.tensor * hybrid.data == hybrid.servers == 8
    assert [(case.hidden, case.batch) for case in MODELS["gpt2"].cases if case.hidden] == [(1536, 24), (1184, 70)]
    for model in MODELS.values():
        for case in model.cases:
            assert case.servers is None or case.pipeline * case.tensor * case.data == case.servers
            assert case.memory_mb is None or model.table_mb[0] <= case.memory_mb <= model.table_mb[1]


def test_every_job_of_a_snapshot_is_within_its_models_range() -> None:
    assert sorted(SNAPSHOTS) == [1, 2, 3, 4, 5]
    for jobs in SNAPSHOTS.values():
        for job in jobs:
            low, high = MODELS[job.model].batches
            assert low <= job.batch <= high


def test_compute_time_by_hand() -> None:
    # VGG16 at 64 x 64: convolutions at (64/224)^2 of 15 346 630 656, then 123 633 664.
    macs = 15_346_630_656 * 64**2 // 224**2 + 123_633_664
    forward_s, backward_s = compute_s(MODELS["vgg16"], 1400)
    assert forward_s == pytest.approx(1400 * 2 * macs / 39e12)
    first = 3 * 64 * 9 * 64**2
    assert backward_s == pytest.approx(1400 * 2 * (2 * macs - first) / 39e12)
    assert compute_s(MODELS["vgg16"], 700, 0.8) == pytest.approx((forward_s * 0.4, backward_s * 0.4))


def test_the_utilisation_is_fitted_to_the_one_published_iteration() -> None:
    published = MODELS["vgg16"].published
    assert published is not None
    assert published.down_s + published.up_s == 0.255
    middle = sum(MODELS["vgg16"].batches) // 2
    assert sum(compute_s(MODELS["vgg16"], middle)) == pytest.approx(published.down_s + published.backward_s, rel=0.02)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_computes_longer_for_more_samples(name: str) -> None:
    low, high = (compute_s(MODELS[name], batch) for batch in MODELS[name].batches)
    assert all(0 < less < more for less, more in zip(low, high, strict=True))
    assert low[0] < low[1] < 2.0001 * low[0]


@pytest.mark.parametrize("batch", [511, 1801, 0, -1, True, 1000.0, "1000"])
def test_a_batch_outside_the_papers_range_is_refused(batch: object) -> None:
    with pytest.raises(InputError, match=r"model vgg16, batch: .* with 512 to 1800 samples"):
        compute_s(MODELS["vgg16"], batch)  # type: ignore[arg-type]


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_factor_that_is_none_is_refused(factor: float) -> None:
    with pytest.raises(InputError, match="compute_factor"):
        compute_s(MODELS["vgg16"], 1400, factor)


def test_arithmetic_follows_the_area_of_images_only_where_it_does() -> None:
    layers = (Layer("c", (27,), 27 * 224**2, spatial=True), linear("f", 5, 7))
    assert [layer.macs for layer in for_images(layers, 32)] == [27 * 32**2, 35]
    assert backward_macs(layers) == [27 * 224**2, 70]
    with pytest.raises(ValueError, match="multiple of 32"):
        for_images(layers, 65)
