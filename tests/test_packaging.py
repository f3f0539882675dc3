"""Wheel, sdist, editable install and checkout: each finds every template and works."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import clmatmul

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.skipif(not (ROOT / "setup.cfg").is_file(), reason="not a checkout")
KERNELS = sorted(
    f.relative_to(ROOT / "kernels").as_posix() for f in (ROOT / "kernels").rglob("*.mako")
)
CHECK = """
import sys
from pathlib import Path
import numpy as np
import clmatmul
from clmatmul import templates, variants
print(Path(clmatmul.__file__).resolve().parent)
print(templates._folders()[0])
names = [f"{n}.cl.mako" for n in variants.variant_names()] + list(templates.part_names())
assert sorted(names) == sys.argv[1].split(","), names
for name in templates.part_names():
    templates.text(name)
variants.all_variants()
a = np.arange(6, dtype="f4").reshape(2, 3)
plan = clmatmul.MatMul(a, a.T, config="tiled(tile_m=2, tile_n=2, tile_k=2)")
assert np.array_equal(plan(a, a.T), a @ a.T)
assert np.array_equal(clmatmul.matmul(a, a.T), a @ a.T)
"""


def run(command, **keywords):
    done = subprocess.run(command, capture_output=True, text=True, **keywords)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the tree, so that building leaves nothing in the checkout."""
    copy = tmp_path_factory.mktemp("source") / "tree"
    ignore = shutil.ignore_patterns("__pycache__", ".*", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, copy, ignore=ignore)
    return copy


@pytest.fixture(scope="module")
def distributions(source, tmp_path_factory):
    """(sdist, the wheel that is made from it)."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check", "--outdir",
         str(folder), str(source)])  # fmt: skip
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def check(python_path, cwd, *options):
    """Run CHECK with only these folders before the installed packages; (package, kernels)."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, python_path))}
    env.pop("CLMATMUL_KERNEL_PATH", None)
    command = [sys.executable, *options, "-c", CHECK, ",".join(KERNELS)]
    return run(command, cwd=cwd, env=env).splitlines()


@pytest.fixture
def elsewhere(tmp_path):
    """A folder to work in, where another project's package is called `kernels`."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text("raise AssertionError('the wrong kernels')\n")
    (tmp_path / "kernels" / "stray.cl.mako").write_text("not ours")
    return tmp_path


def test_wheel(distributions, elsewhere):
    site = elsewhere / "site"
    with zipfile.ZipFile(distributions[1]) as wheel:
        wheel.extractall(site)
    (site / "kernels").mkdir()  # beside the installed package, as another project's would be
    (site / "kernels" / "stray.cl.mako").write_text("not ours")
    package, kernels = check([site], elsewhere)
    assert package == str(site / "clmatmul") and kernels == str(site / "clmatmul" / "kernels")


def test_wheel_contents(distributions):
    with zipfile.ZipFile(distributions[1]) as wheel:
        names = set(wheel.namelist())
        (about,) = (n for n in names if n.endswith("dist-info/METADATA"))
        text = wheel.read(about).decode()
        entry_points = wheel.read(about.replace("METADATA", "entry_points.txt")).decode()
    assert {f"clmatmul/kernels/{name}" for name in KERNELS} <= names
    assert {
        "clmatmul/py.typed",
        "clmatmul/kernels/README.md",
        "clmatmul/kernels/__init__.py",
    } <= names
    assert any(re.fullmatch(r".*dist-info/(licenses/)?LICENSE", n) for n in names)
    modules = {f.relative_to(ROOT).as_posix() for f in (ROOT / "clmatmul").rglob("*.py")}
    assert modules <= names
    for folder in ("shipped", "data"):
        files = (f for f in (ROOT / "clmatmul" / folder).glob("[!.]*") if f.is_file())
        assert {f.relative_to(ROOT).as_posix() for f in files} <= names
    assert not [n for n in names if n.split("/")[0] in ("tests", "tools", "docs", "kernels")]
    assert f"\nVersion: {clmatmul.__version__}\n" in text
    assert "Requires-Python: >=3.10" in text
    required = set(re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra ==)", text, re.M))
    assert required == {"numpy", "pyopencl", "mako", "platformdirs", "filelock", "rich"}
    assert "clmatmul = clmatmul.__main__:main" in entry_points


def test_sdist_contents(distributions):
    with tarfile.open(distributions[0]) as sdist:
        names = {n.split("/", 1)[1] for n in sdist.getnames() if "/" in n}
    assert {f"kernels/{name}" for name in KERNELS} <= names
    assert {
        "LICENSE",
        "setup.cfg",
        "pyproject.toml",
        "tests/conftest.py",
        "clmatmul/py.typed",
    } <= names
    assert {f"tests/profiles/{f.name}" for f in (ROOT / "tests/profiles").iterdir()} <= names


def test_editable_install(source, elsewhere):
    """By pip, into an environment of its own that sees the packages installed here."""
    venv = elsewhere / "venv"
    run([sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", str(venv)])
    site = next(venv.glob("lib*/python*/site-packages"), None) or venv / "Lib" / "site-packages"
    # What is installed here, without a clmatmul that may be installed too: it would hide the
    # editable one, which Python asks last.
    others = elsewhere / "others"
    others.mkdir()
    for folder in [p for p in sys.path if p.endswith("site-packages")]:
        for entry in Path(folder).iterdir():
            name = entry.name.lower().removeprefix("__editable__")
            if not name.lstrip("_").startswith("clmatmul") and not (others / entry.name).exists():
                (others / entry.name).symlink_to(entry)
    (site / "others.pth").write_text(str(others))
    python = venv / ("Scripts" if os.name == "nt" else "bin") / "python"
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CLMATMUL_KERNEL_PATH")}
    run([str(python), "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps",
         "--disable-pip-version-check", "-e", str(source)], env=env)  # fmt: skip
    output = run([str(python), "-c", CHECK, ",".join(KERNELS)], cwd=elsewhere, env=env)
    package, kernels = output.splitlines()
    assert package == str(source / "clmatmul")
    assert Path(kernels).resolve() == source / "kernels" or "MultiplexedPath" in kernels
    version = "from importlib import metadata; print(metadata.version('clmatmul'))"
    assert run([str(python), "-c", version], cwd=elsewhere, env=env).strip() == clmatmul.__version__


def test_checkout_with_nothing_installed(source, elsewhere):
    package, kernels = check([source], elsewhere)
    assert package == str(source / "clmatmul") and kernels == str(source / "kernels")


def test_anothers_kernels_beside_a_broken_install(source, elsewhere):
    """Without setup.cfg the folder beside the package is not ours, whatever it is called."""
    site = elsewhere / "broken"
    shutil.copytree(source / "clmatmul", site / "clmatmul")
    shutil.copytree(source / "kernels", site / "kernels")
    done = subprocess.run([sys.executable, "-c", CHECK, ""], capture_output=True, text=True,
                          cwd=elsewhere, env={**os.environ, "PYTHONPATH": str(site)})  # fmt: skip
    assert done.returncode == 1
    assert "the kernel templates are not installed; reinstall clmatmul" in done.stderr


def test_the_version_is_one():
    stated = re.search(r"^version = (.*)$", (ROOT / "setup.cfg").read_text(), re.M).group(1)
    assert clmatmul.__version__ == stated
    try:
        installed = metadata.distribution("clmatmul")
    except metadata.PackageNotFoundError:
        return
    assert installed.version == stated
