"""The compilers of GPUs that are not here (tools/offline_compile.py), where they are there."""

import os
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parent.parent / "tools"
if not (TOOLS / "offline_compile.py").is_file():
    pytest.skip("not a checkout", allow_module_level=True)
sys.path.insert(0, str(TOOLS))

import offline_compile as tool  # noqa: E402
import offline_compilers as compilers  # noqa: E402

TARGETS = {x.chip: x for x in compilers.targets()}


@pytest.fixture(scope="module")
def found():
    return compilers.Compilers(os.environ.get("CLMATMUL_OFFLINE_COMPILERS"))


@pytest.mark.slow
@pytest.mark.parametrize("chip", TARGETS)
def test_no_default_spills(found, chip):
    target = TARGETS[chip]
    try:
        found.check(target.compiler)
    except compilers.UnavailableError as error:
        pytest.skip(str(error))
    rows = tool.compile_all(found, [target], tool.DTYPES)
    bad = [f"{x.dtype} {x.config}: {x.compiled.error or x.compiled.spilled}"
           for x in rows if not x.good]  # fmt: skip
    assert len(rows) > 30 and not bad, "\n".join(bad)


def test_every_portable_variant_is_compiled():
    names = {config.variant for config, *_ in tool.kernels(TARGETS["gfx1100"], ["float32"])}
    assert names == set(tool.PORTABLE)


def test_without_compilers_it_says_how_to_get_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(compilers.shutil, "which", lambda name: None)
    assert tool.main(["--compilers", str(tmp_path), "--target", "dg2"]) == 2
    assert "--fetch" in capsys.readouterr().err


def test_what_intels_compiler_says():
    """Patch tokens, as its disassembler prints them: the first of each kind is the kernel's."""
    text = (
        "Unidentified PatchToken:\n\t4 Token 15\n\t4 Size 16\n\tHex 0 0 0 0 0 21 0 0\n"
        "Unidentified PatchToken:\n\t4 Token 17\n\t4 Size 12\n\tHex 1 0 0 0\n"
        "Unidentified PatchToken:\n\t4 Token 17\n\t4 Size 12\n\tHex 2 0 0 0\n"
    )
    tokens = compilers._patch_tokens(text)
    assert compilers._word(tokens[15], 1) == 0x2100
    assert compilers._word(tokens[17], 0) == 1
    assert compilers._word(tokens.get(18), 1) is None


@pytest.mark.parametrize(
    "registers, local_bytes, work_items, groups",
    [(32, 0, 64, 32), (168, 25088, 128, 3), (238, 33280, 128, 2), (64, 0, 1024, 1)],
)
def test_work_groups_of_a_multiprocessor(registers, local_bytes, work_items, groups):
    assert compilers._nvidia_groups("sm_90", registers, local_bytes, work_items) == groups


def test_the_table_goes_between_its_marks(tmp_path):
    file = tmp_path / "page.md"
    file.write_text(f"before\n{tool._BEGIN}\nold\n{tool._END}\nafter\n")
    tool.write_table(file, "new")
    assert file.read_text() == f"before\n{tool._BEGIN}\nnew\n{tool._END}\nafter\n"
    (tmp_path / "other.md").write_text("none")
    with pytest.raises(SystemExit, match="no place for the table"):
        tool.write_table(tmp_path / "other.md", "new")


def test_what_spills_is_bad():
    target = TARGETS["dg2"]
    config = tool.TileConfig.of("naive", work_group_size=64)
    good = compilers.Compiled(None, 0, 0, 32)
    spilling = compilers.Compiled(None, 3, 0, 8)
    failing = compilers.Compiled(None, 0, None, None, "error")
    for compiled, expected in ((good, True), (spilling, False), (failing, False)):
        row = tool.Row(target, config, "float32", "naive", compiled)
        assert row.good == expected
        text = tool.table([row])
        assert ("spills" in text or "fails" in text) == (not expected)
