"""What tools/gpu_bench.py times: products, and the configurations to try for each."""

from dataclasses import dataclass

from clmatmul.config import TileConfig


@dataclass(frozen=True)
class Product:
    """A product to time: batch × m × n × k; layout letters N and T as the library has them."""

    dtype: str
    m: int
    n: int
    k: int
    batch: int = 1
    layout: str = "NN"

    @property
    def flops(self):
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def least_bytes(self):
        """Bytes of A, B and the result, each moved once."""
        elements = self.m * self.k + self.k * self.n + self.m * self.n
        return self.batch * elements * {"float32": 4, "float64": 8}[self.dtype]

    def __str__(self):
        batch = f"{self.batch}×" if self.batch > 1 else ""
        return f"{self.dtype} {batch}{self.m}×{self.n}×{self.k} {self.layout}"


def blocked(tile_m, tile_n, tile_k, micro_m, micro_n, **more):
    """A configuration of register_blocked, in the order in which people write tiles."""
    values = dict(vector_width=4, prefetch=1, unroll=16, slices=1, group_rows=8, splits=1)
    values.update(more)
    values["unroll"] = min(values["unroll"], tile_k // values["slices"])
    return TileConfig.of(
        "register_blocked", tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, micro_m=micro_m,
        micro_n=micro_n, **values,
    )  # fmt: skip


def dots(micro_m, micro_n, lanes, teams, **more):
    values = dict(vector_width=4, unroll=2, splits=1)
    values.update(more)
    return TileConfig.of(
        "line_dot", micro_m=micro_m, micro_n=micro_n, lanes=lanes, teams=teams, **values
    )


def sweeps(few, vector_width, lanes, slices, **more):
    values = dict(large="b", tile_k=32, unroll=8, splits=1)
    values.update(more)
    return TileConfig.of(
        "line_sweep", few=few, vector_width=vector_width, lanes=lanes, slices=slices, **values
    )


# None: what the library chooses by itself.
CHOSEN = {
    "float32": (
        None,
        blocked(64, 128, 16, 8, 8),
        blocked(64, 64, 16, 8, 8),
        blocked(128, 128, 16, 16, 8, unroll=4),
        blocked(32, 64, 16, 4, 4),
    ),
    "float64": (
        None,
        blocked(64, 64, 8, 8, 8, vector_width=2, prefetch=0),
        blocked(64, 64, 16, 8, 4, vector_width=2),
        blocked(32, 64, 16, 4, 4, vector_width=2),
    ),
}
SEARCHED = {
    "float32": (
        blocked(128, 128, 16, 16, 8),
        blocked(128, 128, 16, 16, 8, group_rows=1),
        blocked(128, 128, 16, 16, 8, unroll=4),
        blocked(128, 128, 16, 16, 8, prefetch=0),
        blocked(128, 128, 8, 16, 8),
        blocked(64, 128, 16, 8, 8),
        blocked(64, 128, 16, 8, 8, group_rows=1),
        blocked(64, 128, 16, 8, 8, group_rows=4),
        blocked(64, 128, 16, 8, 8, group_rows=16),
        blocked(64, 128, 16, 8, 8, unroll=8),
        blocked(64, 128, 16, 8, 8, prefetch=0),
        blocked(64, 128, 16, 8, 8, prefetch=0, unroll=4),
        blocked(64, 128, 8, 8, 8),
        blocked(128, 64, 16, 8, 8),
        blocked(128, 128, 16, 8, 8),
        blocked(128, 128, 16, 8, 8, prefetch=0),
        blocked(128, 128, 8, 8, 8, prefetch=0, unroll=4),
        blocked(128, 64, 16, 16, 8),
        blocked(64, 128, 16, 16, 8),
        blocked(64, 64, 16, 8, 8),
        blocked(64, 64, 16, 8, 4),
        blocked(64, 64, 16, 4, 4),
        blocked(64, 64, 8, 8, 4),
        blocked(32, 64, 16, 4, 4),
        blocked(32, 32, 16, 4, 4),
    ),
    "float64": (
        blocked(64, 64, 8, 8, 4, vector_width=2),
        blocked(64, 64, 16, 8, 4, vector_width=2),
        blocked(64, 64, 16, 8, 4, vector_width=2, prefetch=0),
        blocked(64, 64, 8, 8, 8, vector_width=2, prefetch=0),
        blocked(64, 64, 16, 8, 8, vector_width=2, prefetch=0),
        blocked(64, 64, 16, 8, 8, vector_width=2, prefetch=0, unroll=4),
        blocked(64, 128, 8, 8, 8, vector_width=2, prefetch=0),
        blocked(64, 128, 8, 8, 8, vector_width=2, prefetch=0, unroll=4),
        blocked(64, 64, 16, 4, 4, vector_width=2),
        blocked(64, 64, 16, 4, 4, vector_width=2, prefetch=0),
        blocked(64, 64, 8, 4, 8, vector_width=2),
        blocked(64, 64, 8, 8, 4, vector_width=4),
        blocked(128, 64, 8, 8, 4, vector_width=2),
        blocked(128, 64, 8, 8, 4, vector_width=2, prefetch=0),
        blocked(128, 64, 8, 8, 8, vector_width=2, prefetch=0),
        blocked(128, 128, 8, 8, 8, vector_width=2, prefetch=0),
        blocked(32, 64, 16, 4, 4, vector_width=2),
    ),
}
# Products other than large squares, each with configurations to try beside the library's own.
SHAPES = {
    Product("float32", 8192, 1, 8192, layout="NT"): (
        dots(1, 1, 256, 1), dots(1, 1, 256, 1, unroll=4), dots(2, 1, 128, 2), dots(4, 1, 32, 8),
        dots(4, 1, 64, 4, unroll=1), dots(2, 1, 64, 4), dots(1, 1, 128, 2, unroll=4),
    ),
    Product("float32", 1, 8192, 8192): (
        sweeps(1, 4, 32, 8, splits=4), sweeps(1, 4, 32, 8, splits=16),
        sweeps(1, 2, 32, 8, splits=4),
        sweeps(1, 2, 32, 8, splits=8), sweeps(1, 4, 32, 8, splits=16, unroll=16),
        sweeps(1, 4, 64, 4, splits=16), sweeps(1, 4, 64, 4, splits=32),
        sweeps(1, 4, 128, 2, splits=32, tile_k=64), sweeps(1, 4, 256, 1, splits=64, tile_k=64),
        sweeps(1, 2, 64, 4, splits=8), sweeps(1, 4, 32, 8, splits=16, tile_k=64),
        sweeps(1, 4, 32, 8, splits=32, unroll=4),
    ),
    Product("float64", 8192, 1, 8192, layout="NT"): (
        dots(1, 1, 256, 1, vector_width=2), dots(2, 1, 128, 2, vector_width=2),
        dots(1, 1, 256, 1, vector_width=2, unroll=4), dots(1, 1, 256, 1, vector_width=4, unroll=1),
        dots(1, 1, 256, 1, vector_width=2, unroll=1), dots(1, 1, 256, 1, vector_width=4),
        dots(2, 1, 256, 1, vector_width=2, unroll=1), dots(2, 1, 256, 1, vector_width=2),
    ),
    Product("float64", 1, 8192, 8192): (
        sweeps(1, 2, 32, 8, splits=4), sweeps(1, 2, 32, 8, splits=8),
        sweeps(1, 2, 64, 4, splits=16),
        sweeps(1, 2, 128, 2, splits=32, tile_k=64), sweeps(1, 4, 32, 8, splits=8),
        sweeps(1, 2, 32, 8, splits=16, unroll=4),
    ),
    Product("float32", 4096, 16, 4096): (
        blocked(32, 16, 64, 4, 4, slices=8), blocked(32, 16, 64, 4, 4, slices=8, splits=2),
        blocked(64, 16, 32, 4, 4, slices=4, splits=4),
        blocked(64, 16, 64, 8, 4, slices=8, splits=4),
        blocked(64, 16, 32, 8, 4, slices=8, splits=4),
        blocked(64, 16, 32, 8, 4, slices=8, splits=8),
        blocked(64, 16, 32, 8, 4, slices=4, splits=8),
        blocked(128, 16, 32, 8, 4, slices=4, splits=8),
        blocked(32, 16, 64, 4, 4, slices=4, splits=4),
        blocked(64, 16, 32, 8, 4, slices=8, splits=2),
    ),
    Product("float32", 16, 4096, 4096): (
        sweeps(16, 4, 32, 8, tile_k=16, unroll=4, splits=8), sweeps(16, 2, 32, 8, splits=4),
        sweeps(16, 4, 32, 8, unroll=4, splits=4), sweeps(16, 4, 32, 4, unroll=4, splits=8),
        sweeps(8, 4, 32, 8, splits=4), sweeps(16, 2, 32, 16, unroll=4, splits=2),
        sweeps(16, 1, 32, 16, unroll=8), blocked(16, 32, 64, 4, 4, slices=8),
        blocked(16, 32, 64, 4, 4, slices=8, splits=2),
        blocked(16, 64, 32, 4, 8, slices=8, splits=4),
        blocked(16, 64, 32, 4, 8, slices=4, splits=8),
        sweeps(16, 2, 32, 8, splits=8, unroll=4), sweeps(8, 4, 32, 8, splits=8),
    ),
    Product("float32", 128, 128, 65536): (
        blocked(64, 64, 16, 8, 8, splits=128), blocked(64, 128, 16, 8, 8, splits=128),
        blocked(128, 128, 16, 16, 8, splits=128, unroll=4),
        blocked(64, 64, 32, 8, 8, splits=64, slices=2),
        blocked(64, 64, 32, 8, 8, splits=64, slices=4),
        blocked(64, 64, 32, 8, 4, splits=128), blocked(128, 64, 16, 8, 8, splits=128),
    ),
    Product("float32", 64, 64, 64, batch=1024): (
        blocked(64, 64, 16, 8, 8), blocked(64, 64, 16, 8, 4), blocked(64, 64, 32, 8, 4),
        blocked(64, 64, 32, 8, 4, prefetch=0), blocked(64, 64, 32, 8, 8, slices=2),
    ),
    Product("float32", 256, 256, 256): (
        blocked(32, 16, 64, 4, 4, slices=8), blocked(32, 32, 64, 4, 4, slices=4),
        blocked(32, 32, 32, 4, 4, slices=4), blocked(32, 32, 32, 4, 4, slices=4, unroll=4),
        blocked(16, 32, 64, 4, 4, slices=8), blocked(32, 32, 64, 8, 4, slices=8),
    ),
    Product("float32", 64, 64, 64): (
        blocked(16, 16, 64, 2, 2, slices=4), blocked(8, 16, 64, 2, 2, slices=4),
        blocked(8, 8, 64, 2, 2, slices=4), blocked(8, 16, 64, 2, 2, slices=8),
        blocked(8, 8, 64, 2, 2, slices=8),
    ),
    Product("float32", 8, 8192, 8192, layout="NT"): (
        dots(8, 1, 256, 1, unroll=1), dots(8, 1, 128, 2, unroll=1), dots(4, 1, 256, 1, unroll=1),
    ),
    Product("float32", 512, 512, 512): (
        blocked(32, 64, 32, 8, 4, slices=2), blocked(32, 64, 32, 8, 4, slices=4),
        blocked(32, 32, 32, 4, 4, slices=4), blocked(64, 64, 32, 8, 8, slices=4),
        blocked(32, 64, 64, 8, 4, slices=4), blocked(32, 32, 32, 8, 4, slices=4),
    ),
}  # fmt: skip
