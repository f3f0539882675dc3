"""Finding, reading and filling in kernel templates."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from extra_variants import forget, kernel_folder, one_item

from clmatmul import templates
from clmatmul.errors import TemplateError
from clmatmul.explanation import plain_problem
from clmatmul.plan import make_plan, render
from clmatmul.variants import load_variant, variant_names

__all__ = ["kernel_folder"]


def test_the_kernels_are_found():
    assert {"naive", "tiled"} <= set(variant_names())
    assert {"parts/store.mako", "parts/types.mako"} <= set(templates.part_names())


@pytest.mark.parametrize("name", variant_names())
def test_headers_import_nothing(name):
    """Not even what their restricted names would allow, in text that is plain Python."""
    block = re.match(r"\s*<%!(.*?)%>", templates.text(name), re.DOTALL).group(1)
    for node in ast.walk(ast.parse(block)):
        assert not isinstance(node, (ast.Import, ast.ImportFrom)), ast.dump(node)


@pytest.mark.parametrize("name", variant_names())
def test_no_line_is_taken_for_mako_by_accident(name):
    """A C line that begins with % or ## would vanish; so would a backslash at its end."""
    for text in (templates.text(name), *map(templates.text, templates.part_names())):
        for line in text.splitlines():
            if line.lstrip().startswith("%"):
                assert re.match(
                    r"\s*%(>|\s*(if|elif|else|for|endif|endfor|while|endwhile)\b)", line
                )
            assert not line.lstrip().startswith("##")


@pytest.mark.parametrize("header, message", [
    ("import os", "ImportError"), ("open('/etc/passwd')", "NameError"),
    ("x = 1 +", "invalid syntax"), ("y = 1 / 0", "ZeroDivisionError"),
    ("__import__('os')", "NameError"),
])  # fmt: skip
def test_headers_that_do_not_run(kernel_folder, header, message):
    file = kernel_folder("bad", f"<%!\nA = 1\n{header}\n%>")
    with pytest.raises(TemplateError, match=message) as caught:
        templates.header("bad")
    assert caught.value.file == str(file) and caught.value.line == 3


def test_a_variant_needs_a_header(kernel_folder):
    kernel_folder("bad", "__kernel void x() {}")
    with pytest.raises(TemplateError, match="starts with a module block"):
        load_variant("bad")
    kernel_folder("bad", "<%!\nSUMMARY = ''\n%>")
    with pytest.raises(TemplateError, match="the header lacks SOURCES, PARAMETERS"):
        load_variant("bad")


def test_post_build_needs_its_function(kernel_folder):
    kernel_folder("bad", one_item("bad", header='POST_BUILD = "retarget"'))
    with pytest.raises(TemplateError, match="no post_build"):
        load_variant("bad")


def test_default_covers_the_parameters(kernel_folder):
    kernel_folder("bad", one_item("bad", header='DEFAULT = {"unit": 1, "more": 2}'))
    with pytest.raises(TemplateError, match="DEFAULT must give a value"):
        load_variant("bad")


def test_constraints_must_parse(kernel_folder):
    kernel_folder("bad", one_item("bad", constraints=["unit <"]))
    with pytest.raises(TemplateError, match="constraint 'unit <'"):
        load_variant("bad")


def test_unknown_variant():
    with pytest.raises(TemplateError, match="no such kernel variant; there are .*naive"):
        templates.text("fastest")


def test_two_variants_of_one_name(kernel_folder):
    kernel_folder("naive", one_item("naive"))
    with pytest.raises(TemplateError, match="a variant called naive exists already"):
        templates.variant_files()


def test_a_kernel_path_that_is_not_there(kernel_folder, monkeypatch):
    monkeypatch.setenv("CLMATMUL_KERNEL_PATH", "/no/such/folder")
    forget()
    with pytest.raises(TemplateError, match="no such folder .from CLMATMUL_KERNEL_PATH"):
        templates.variant_files()


def plan_of(name, device):
    return make_plan(plain_problem(5, 6, 7), device.profile, load_variant(name).default)


def test_a_missing_name_is_named_with_its_place(kernel_folder, device):
    """Even in a branch that is not taken."""
    text = one_item("bad", body='% if kind.alpha == "zero":\n  ${missing_name}\n% endif')
    kernel_folder("bad", text.replace("    % if kind", "% if kind"))
    with pytest.raises(TemplateError, match="missing_name") as caught:
        render(plan_of("bad", device))
    lines = text.splitlines()
    assert caught.value.line == 1 + next(i for i, x in enumerate(lines) if "missing_name" in x)
    assert "bad.cl.mako" in str(caught.value)


def test_broken_mako_is_reported_with_its_place(kernel_folder, device):
    kernel_folder("bad", one_item("bad", body="\n% if True:\n"))
    with pytest.raises(TemplateError, match=r"bad.cl.mako, line \d+: .*Exception"):
        render(plan_of("bad", device))


@pytest.mark.parametrize("derived", ["kind=1", "entry='x'", "literal=2"])
def test_reserved_names(kernel_folder, device, derived):
    kernel_folder("bad", one_item("bad", derived=derived))
    with pytest.raises(TemplateError, match="reserved names"):
        render(plan_of("bad", device))


def test_header_and_values_may_not_share_a_name(kernel_folder, device):
    kernel_folder("bad", one_item("bad", header="unit = 3"))
    with pytest.raises(TemplateError, match=r"both define \['unit'\]"):
        render(plan_of("bad", device))


def test_digest_covers_the_parts(kernel_folder):
    file = kernel_folder("mine", one_item("mine"))
    before = templates.digest("mine"), templates.digest("naive")
    file.write_text(one_item("mine", body="/* changed */"))
    forget()
    assert templates.digest("mine") != before[0]
    assert templates.digest("naive") == before[1]


def test_digest_of_another_part(tmp_path):
    """Another text of a shared part is another digest of every variant that uses it, also
    through another part, and of no other."""
    import shutil

    root = Path(templates.__file__).resolve().parent.parent
    if not (root / "kernels").is_dir():
        pytest.skip("not a checkout")
    digests = []
    for name in ("one", "two", "three"):
        copy = tmp_path / name
        shutil.copytree(
            root / "clmatmul", copy / "clmatmul", ignore=shutil.ignore_patterns("__pyc*")
        )
        shutil.copytree(root / "kernels", copy / "kernels")
        shutil.copy(root / "setup.cfg", copy)
        if name == "two":
            with open(copy / "kernels/parts/activation.mako", "a") as part:  # by way of store
                part.write("\n")
        if name == "three":
            with open(copy / "kernels/parts/gpu_header.mako", "a") as part:
                part.write("\n")
        code = f"import sys; sys.path[0] = {str(copy)!r}\nfrom clmatmul import templates\n"
        code += f"assert templates.__file__.startswith({str(copy)!r})\n"
        code += "print(templates.digest('naive'), templates.digest('tiled'))"
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        digests.append(found.stdout.split())
    assert digests[0][0] != digests[1][0] and digests[0][0] == digests[2][0]
    assert len({tiled for _, tiled in digests}) == 3
