"""One total import order: a module imports only modules that stand before it in the list."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import clmatmul

PACKAGE = Path(clmatmul.__file__).parent
ORDER = [
    "errors", "element_types", "precision", "array_view", "expression", "epilogue", "problem",
    "problem_json", "arrangement", "device_profile", "config", "templates",
    "variants", "space", "database", "choose", "plan", "reference", "cases", "sample",
    "probe_records", "worker_threads", "huge_pages", "installed", "device", "device_arrays",
    "selection", "program_cache", "executable", "measure", "trial",
    "probes", "transfers", "staging", "containers", "operands",
    "packed", "call_log", "host_launches", "repeats", "kept_launches", "worker_messages",
    "supervisor", "lanes", "first_tuning", "walk", "row_blocks",
    "request", "arguments", "host_product", "emulated", "calls", "emulated_calls",
    "fallbacks", "explanation", "api", "views",
    "products", "contraction", "array", "array_api", "packing", "matrix_*", "self_check", "tune.*",
    "bench_*", "bench", "experiment", "demo", "walkthrough*", "cli.*", "tune.__main__", "__main__",
]  # fmt: skip
# What each of these may be imported by; everything else imports them from nowhere.
OWNERS = {"pyopencl": {"installed", "device", "device_arrays"}, "mako": {"templates"}}
HEAVY = ("mako", "scipy", "rich", "pandas", "ml_dtypes", "tools", "filelock")


def modules():
    """(dotted name without the package, file) of every source file."""
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        if "kernels" not in parts:
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


def position(name):
    """The place in ORDER; groups (with *) are entered by name, exact names win."""
    if name in ORDER:
        return ORDER.index(name)
    for i, entry in enumerate(ORDER):
        if entry.endswith("*") and (name + ".").startswith(entry.rstrip("*")):
            return i
    raise AssertionError(f"clmatmul.{name} is not in the import order; give it a place")


def imports(file, package):
    """Every dotted name that a file imports, also inside functions."""
    known = {name for name, _ in modules()}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(["clmatmul", *package][: len(package) + 2 - node.level] + [base])
            for alias in node.names:
                inner = f"{base}.{alias.name}".removeprefix("clmatmul.")
                yield f"clmatmul.{inner}" if inner in known else base


def test_the_documented_order_is_this_one():
    docs = PACKAGE.parent / "docs" / "architecture.md"
    if not docs.is_file():
        pytest.skip("not a checkout")
    section = docs.read_text().partition("in import order")[2].partition("\n## ")[0]
    rows = [x.split("|")[1] for x in section.splitlines() if x.startswith("| `")]
    names = [x.strip("` ") for row in rows for x in row.split(",")]
    order = [x.rstrip(".*") for x in ORDER]
    listed = [x.rstrip(".*") for x in names]
    assert len(listed) > 25
    assert listed == sorted(listed, key=order.index)


def test_every_module_has_a_place():
    for name, _ in modules():
        if name:
            position(name)


@pytest.mark.parametrize(
    "name, file", list(modules()), ids=lambda x: x if isinstance(x, str) else ""
)
def test_imports_go_backwards(name, file):
    package = name.split(".")[:-1] if file.name != "__init__.py" else name.split(".")
    for found in imports(file, [x for x in package if x]):
        top, _, rest = found.partition(".")
        assert top != "tools" and top != "tests", f"{name} imports {found}"
        if top in OWNERS:
            assert name in OWNERS[top], f"{name} imports {found}"
        if top != "clmatmul" or not rest or not name or rest.startswith("kernels"):
            continue
        mine, other = position(name), position(rest)
        same_group = mine == other and ORDER[mine].endswith("*")
        assert other < mine or same_group, f"{name} imports {found}, which stands later"


@pytest.mark.parametrize("group", [x for x in ORDER if x.endswith("*")])
def test_groups_have_no_cycle(group):
    """Within a group of the list the order is free, but there is one."""
    wanted = {
        name: {
            found.removeprefix("clmatmul.")
            for found in imports(
                file, name.split(".")[: -1 if file.name != "__init__.py" else None]
            )
            if found.startswith("clmatmul.")
        }
        for name, file in modules()
        if name and ORDER[position(name)] == group
    }
    while wanted:
        ready = [name for name, needs in wanted.items() if not (needs - {name}) & set(wanted)]
        assert ready, f"these import each other: {sorted(wanted)}"
        for name in ready:
            del wanted[name]


def test_importing_the_package_is_light():
    """Nothing heavy is imported before it is needed: Mako costs 28 ms, SciPy far more."""
    code = "import sys, clmatmul; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                         cwd=PACKAGE.parent)  # fmt: skip
    loaded = set(run.stdout.split())
    assert "pyopencl" in loaded
    # pyopencl imports Mako's own dependencies in no version, and none of these at all
    assert not loaded & set(HEAVY)


def test_nothing_public_is_missing():
    for name in clmatmul.__all__:
        assert getattr(clmatmul, name) is not None
    assert set(clmatmul.__all__) >= {"matmul", "gemm", "MatMul", "scale", "explain", "Epilogue",
                                     "devices", "default_device", "use_device"}  # fmt: skip
