"""DLRM (Naumov et al. 2019, arXiv 1906.00091): embeddings of categories, two perceptrons, and their products.

CASSINI does not say which configuration it trained, but its table has 890 to 1962 MB. The one of the authors' own
benchmark (facebookresearch/dlrm, bench/dlrm_s_benchmark.sh) has 1962.66 MiB in fp32 [derived], so it is taken: eight
tables of a million vectors of 64, a lower perceptron 512-512-64 and an upper one 1024-1024-1024-1 on the 36 products of
pairs and the lower one's output.
"""

from __future__ import annotations

from itertools import pairwise

from workloads.models.layers import Layer, linear

VECTOR = 64
LOWER, UPPER = (512, 512, 64), (1024, 1024, 1024, 1)
TABLES, ROWS = 8, 1_000_000
PRODUCTS = "products"


def dlrm() -> tuple[Layer, ...]:
    """The layers of DLRM; looking rows up takes no arithmetic."""
    tables = [Layer(f"table{index}", (ROWS * VECTOR,), 0) for index in range(TABLES)]
    vectors = TABLES + 1
    products = vectors * (vectors - 1) // 2
    lower = [linear(f"lower{index}", *sizes) for index, sizes in enumerate(pairwise(LOWER))]
    upper = [linear(f"upper{index}", *sizes) for index, sizes in enumerate(pairwise((products + VECTOR, *UPPER)))]
    return (*tables, *lower, Layer(PRODUCTS, (), products * VECTOR), *upper)
