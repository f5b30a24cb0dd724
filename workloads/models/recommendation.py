"""DLRM (Naumov et al. 2019, arXiv 1906.00091): embeddings of categories, two perceptrons, and their products.

The configuration is the one its authors publish for Criteo's Kaggle data (facebookresearch/dlrm,
bench/dlrm_s_criteo_kaggle.sh): 26 tables of vectors of 16, a lower perceptron 13-512-256-64-16 and an upper one
512-256-1 on the 351 products of pairs and the lower one's output. CASSINI does not say which one it trained.
"""

from __future__ import annotations

from itertools import pairwise

from workloads.models.layers import Layer, linear

VECTOR = 16
LOWER, UPPER = (13, 512, 256, 64, 16), (512, 256, 1)
TABLE_ROWS = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip


def dlrm() -> tuple[Layer, ...]:
    """The layers of DLRM for Criteo's Kaggle data; looking rows up takes no arithmetic."""
    tables = [Layer(f"table{index}", (rows * VECTOR,), 0) for index, rows in enumerate(TABLE_ROWS)]
    vectors = len(TABLE_ROWS) + 1
    products = vectors * (vectors - 1) // 2
    lower = [linear(f"lower{index}", *sizes) for index, sizes in enumerate(pairwise(LOWER))]
    upper = [linear(f"upper{index}", *sizes) for index, sizes in enumerate(pairwise((products + VECTOR, *UPPER)))]
    return (*tables, *lower, Layer("products", (), products * VECTOR), *upper)
