"""Kernel variants that only tests have, in a folder of their own (CLMATMUL_KERNEL_PATH)."""

import pytest

from clmatmul import choose, templates, variants, walk
from clmatmul import device as devices

_CACHES = (
    templates._folders, templates.variant_files, templates.text, templates.part_names,
    templates.header, templates.digest, templates._lookup, variants.load_variant,
)  # fmt: skip

NAMESPACES = "".join(
    f'<%namespace name="{x}" file="parts/{x}.mako"/>\\\n'
    for x in ("types", "load", "index", "store")
)


def forget():
    """Read the kernel folders afresh."""
    for cached in _CACHES:
        cached.cache_clear()
    walk.forget()


@pytest.fixture
def kernel_folder(tmp_path, monkeypatch):
    """add(name, text): put a variant into a folder that is searched during this test."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    monkeypatch.setenv("CLMATMUL_KERNEL_PATH", str(folder))
    monkeypatch.setenv("CLMATMUL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CLMATMUL_DB", str(tmp_path / "data"))
    forget()

    def add(name, text):
        file = folder / f"{name}.cl.mako"
        file.write_text(text)
        forget()
        return file

    yield add
    monkeypatch.undo()
    forget()


@pytest.fixture(scope="module", autouse=True)
def two_kernels():
    """In a module that imports this, products are served by naive and tiled alone.

    What arrays and keywords mean does not depend on the kernel, and large ones build for seconds.
    """
    patch = pytest.MonkeyPatch()
    two = tuple(variants.load_variant(name) for name in ("naive", "tiled"))
    patch.setattr(choose, "all_variants", lambda: two)
    # Asking PoCL for a binary takes longer than building; the cache has tests of its own.
    patch.setattr(devices.Device, "binary_of", lambda self, program: b"")
    walk.forget()
    yield
    patch.undo()
    walk.forget()


def one_item(name, *, rank=None, header="", derived="", sum_="sum", local=1, body="", term="k",
             constraints=()):  # fmt: skip
    """A variant of one work-item an element, with room for faults.

    rank: what `propose` asks for; header: more of the header; derived: more entries of `derive`;
    sum_: the C expression that is stored; local: work-items a group; body: more C; term: the
    number of terms that are summed up.
    """
    propose = (
        "" if rank is None else f"def propose(problem, profile):\n    yield {rank}, {{}}, 'test'\n"
    )
    return f"""<%!
SUMMARY = "A variant for tests"
SOURCES = ()
PARAMETERS = {{"unit": (1, 2)}}
DEFAULT = {{"unit": 1}}
CONSTRAINTS = {tuple(constraints)!r}

def derive(config, kind, profile):
    return dict(work_items={local}, {derived})

{propose}
def launches(config, derived, problem, profile):
    items = problem.batch_count * problem.m * problem.n
    groups = -(-items // {local})
    return [dict(entry="{name}", global_size=(groups * {local},), local_size=({local},),
                 args=("a", "b", "out", "sizes", "batch", "scalars"))]
{header}
%>\\
{NAMESPACES}\
${{types.prelude()}}
${{load.functions()}}
${{store.functions()}}
__kernel void ${{entry}}(${{parameters}}) {{
    {body}
    const index_t item = get_global_id(0);
    const index_t batch = item / (m * n), element = item % (m * n);
    if (batch >= batch_count) return;
    const index_t row = element / n, col = element % n;
${{index.bases("batch")}}
    acc_t sum = zero();
% if kind.alpha != "zero":
    for (index_t i = 0; i < {term}; i++)
        sum = multiply_add(load_a(a, ${{index.at("a", "row", "i")}}),
                           load_b(b, ${{index.at("b", "i", "col")}}), sum);
% endif
${{store.store("{sum_}", "row", "col")}}
}}
"""


# The sum over k in PARTS pieces, added up in a fixed order by a second launch.
SPLIT_K = (
    """<%!
SUMMARY = "The sum in pieces, and a second launch that adds them in order."
SOURCES = ()
PARAMETERS = {"lanes": (1, 4)}
RUNTIME_PARAMETERS = {"pieces": (1, 2, 3, 5)}
DEFAULT = {"lanes": 4, "pieces": 3}
TEST_CONFIGS = ({"lanes": 4, "pieces": 3}, {"lanes": 1, "pieces": 2})
CONSTRAINTS = ("lanes <= profile.max_work_group_size", "not kind.reproducible")
WORKSPACE_TYPES = {"partial": "acc_t"}


def derive(config, kind, profile):
    return dict(work_items=config.lanes)


def workspace(config, derived, problem, profile):
    elements = problem.batch_count * problem.m * problem.n
    size = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}.get(problem.compute, 8)
    return dict(partial=dict(bytes=elements * config.pieces * size, first=0, last=1))


def launches(config, derived, problem, profile):
    elements = problem.batch_count * problem.m * problem.n
    def geometry(items):
        groups = -(-items // config.lanes)
        return dict(global_size=(groups * config.lanes,), local_size=(config.lanes,))
    return [
        dict(entry="sum_pieces", **geometry(elements * config.pieces),
             args=("a", "b", "out", "sizes", "batch", "pieces", "partial")),
        dict(entry="add_pieces", **geometry(elements),
             args=("out", "sizes", "batch", "scalars", "pieces", "partial")),
    ]
%>\\
"""
    + NAMESPACES
    + """\
${types.prelude()}
${load.functions()}
${store.functions()}

__kernel __attribute__((reqd_work_group_size(${lanes}, 1, 1)))
void ${entry}(${parameters}) {
    const index_t elements = m * n;
    const index_t total = elements * batch_count;
% if entry == "sum_pieces":
    const index_t item = get_global_id(0) % total, piece = get_global_id(0) / total;
    if (piece >= pieces) return;
% else:
    const index_t item = get_global_id(0);
    if (item >= total) return;
% endif
    const index_t batch = item / elements, element = item % elements;
    const index_t row = element / n, col = element % n;
${index.bases("batch")}
    acc_t sum = zero();
% if entry == "sum_pieces":
% if kind.alpha != "zero":
    for (index_t i = piece; i < k; i += pieces)
        sum = multiply_add(load_a(a, ${index.at("a", "row", "i")}),
                           load_b(b, ${index.at("b", "i", "col")}), sum);
% endif
    partial[piece * total + item] = sum;
% else:
    for (index_t p = 0; p < pieces; p++) sum = add(sum, partial[p * total + item]);
${store.store("sum", "row", "col")}
% endif
}
"""
)
