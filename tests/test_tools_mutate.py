"""tools/mutate: the faults that it makes are those that people make, and none is overlooked."""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools"
sys.path.insert(0, str(TOOLS))

import mutants as mutants_module  # noqa: E402
import mutate_children  # noqa: E402
import mutate_places  # noqa: E402
import mutate_run  # noqa: E402
import mutate_worker  # noqa: E402
from mutate_children import result, results  # noqa: E402
from mutate_run import Reason, merged, survivors, table  # noqa: E402

from clmatmul import selection, templates  # noqa: E402
from clmatmul.plan import make_plan, render_launch  # noqa: E402

KERNEL = """\
// a comment with i < k and a + b
__kernel __attribute__((reqd_work_group_size(4, 2, 1)))
void tiled(__global const float *a,
    const index_t k) {
    __local acc_t tile_a[16];  // [tile_m][tile_k]
    acc_t part_a[4], part_b[2][8];
    asm volatile("" : "+f"(part_a[3]) :: "memory");
    const index_t first_row = (tile / tiles_n) * 2;
    const index_t safe_row = row < m ? row : m - 1;
    for (index_t i = 0; i <= last; i++) {
        tile_a[r * 8 + i] = inside ? element : zero();
        barrier(CLK_LOCAL_MEM_FENCE);
        c0_0 += x * b0_0;
        c0_1 += x * b0_1;
        c0_2 += x * b0_2;
    }
    const index_t a_base = a_offset + batch_index_0 * a_batch_stride_0;
    acc_t value = add(multiply(alpha, sum), multiply(beta, load_c(c, at)));
    write_out(out, out_base + (row) * out_row_stride + (col), value);
}
"""


def mutants(text=KERNEL, places=None):
    """Each line from a line of its own, but for the unrolled ones."""
    lines = text.split("\n")
    own = ["unrolled" if "c0_" in x else f"tiled#{i}" for i, x in enumerate(lines)]
    return mutants_module.mutants(text, places or own)


def changed(operator):
    return [x.after.strip() for x in mutants() if x.operator == operator]


@pytest.mark.parametrize("operator, texts", [
    ("no barrier", [";"]),
    ("< for <=", ["for (index_t i = 0; i < last; i++) {"]),
    ("<= for <", ["const index_t safe_row = row <= m ? row : m - 1;"]),
    ("limit - 1", ["const index_t first_row = (tile / (tiles_n - 1)) * 2;",
                   "const index_t safe_row = row < (m - 1) ? row : m - 1;"]),
    ("other branch", ["const index_t safe_row = row;", "const index_t safe_row = m - 1;",
                      "tile_a[r * 8 + i] = element;", "tile_a[r * 8 + i] = zero();"]),
    ("stride", ["const index_t a_base = a_offset + batch_index_0 * b_batch_stride_0;",
                "const index_t a_base = a_offset + batch_index_0;"]),
    ("forgotten", ["acc_t value = multiply(alpha, sum);",
                   "acc_t value = multiply(beta, load_c(c, at));",
                   "acc_t value = add(multiply(alpha, sum), load_c(c, at));",
                   "acc_t value = add(sum, multiply(beta, load_c(c, at)));"]),
    ("number", ["const index_t first_row = (tile / tiles_n) * 3;",
                "tile_a[r * 7 + i] = inside ? element : zero();"]),
    ("swapped", ["write_out(out, out_base + (col) * out_col_stride + (row), value);"]),
    ("% for /", ["const index_t first_row = (tile % tiles_n) * 2;"]),
    ("left out", [";"]),
])  # fmt: skip
def test_faults_that_people_make(operator, texts):
    made = changed(operator)
    assert all(text in made for text in texts), made


def test_only_code_is_changed_and_only_one_line():
    for mutant in mutants():
        lines = KERNEL.split("\n")
        assert not mutant.before.strip().startswith(("//", "__kernel", "const index_t k"))
        assert not any(x in mutant.before for x in ("__local", "part_b", "asm"))
        after = mutant.applied(KERNEL).split("\n")
        assert [i for i, x in enumerate(after, 1) if x != lines[i - 1]] == [mutant.number]


def test_swapped_means_something_else():
    """Not the same sum in another order."""
    text = "item = local_row * 4 + local_col;", "at = base + (row) * row_step + (col) * col_step;"
    (swapped,) = (x for x in mutants("\n".join(text)) if x.operator == "swapped")
    assert swapped.after.strip() == "item = local_col * 4 + local_row;"


def test_unrolled_lines_are_changed_at_both_ends():
    assert {x.number for x in mutants() if "c0_" in x.before} == {13, 15}


def test_one_line_of_a_template_is_one_place_whatever_a_configuration_puts_there():
    """Other types, numbers and neighbours further away; another line with the same text is not."""
    one = "    const float4 x = a[row * 4 + 1];", ["parts/load.mako#1"]
    other = "const half2 y = 5, x = a[row * 16 + 3];", ["parts/load.mako#1"]

    def keys(text, places):
        return {x.key for x in mutants(text, places) if x.operator == "number"}

    assert len(keys(*one)) == 4 and keys(*one) < keys(*other)
    assert not keys(*one) & keys(one[0], ["parts/load.mako#2"])
    assert len(keys(one[0].replace("row", "col"), one[1]) & keys(*one)) == 2  # those of the 1
    assert mutants(one[0], [None]) == []


def test_places_of_a_rendered_kernel():
    """Each line that can be changed comes from a template, shared lines from the same place."""
    from kinds import plain_kind, test_configs

    from clmatmul.cases import make_case

    found = {}
    for name in ("naive", "tiled"):
        config, kind = test_configs(name)[0], plain_kind("float32", beta="general", c="float32")
        case = make_case(kind, 5, 6, 7, "exact", np.random.default_rng(1), with_result=False)
        plan = make_plan(case.problem, selection.resolve().profile, config)
        text = render_launch(plan, plan.launches[0])
        places = mutate_places.places_of(plan, plan.launches[0])
        assert render_launch(plan, plan.launches[0]) == text and "\x01" not in text
        for line, place in zip(text.split("\n"), places, strict=True):
            if place and "write_out(out, out_base" in line:
                found.setdefault(place, set()).add(name)
            if place and place.startswith(name):
                assert line.strip()[:8] in templates.text(name) or "${" in templates.text(name)
        assert {x.partition("#")[0] for x in places if x} >= {name, "parts/store.mako"}
    assert list(found.values()) == [{"naive", "tiled"}]


def test_marks_stand_behind_lines_of_text_alone():
    text = (
        "<%! \nx = 1\n%>\n## no\n% if x:\na ${f('}')} b\\\n% endif\n${g(\n1)} c\n<%doc>\n\n</%doc>"
    )
    lines = mutate_places.marked("part", text).split("\n")
    assert [i for i, x in enumerate(lines) if "\x01part#" in x] == [2, 5, 8, 11]
    assert lines[5].startswith("a ${f('}')} b\x01") and lines[5].endswith("\x02\\")
    same = mutate_places.marked("part", "x\nx\ny").split("\n")
    assert len(set(same)) == 3
    assert mutate_places.marked("part", "new\nx\nx\ny").split("\n")[1:] == same


def test_results_of_a_child_that_crashes_or_does_not_end(monkeypatch):
    """What it said before counts, and to wait a little is no fault."""

    def crashing():
        yield [os.getpid(), "said"]
        os._exit(3)

    def looping():
        yield ["first", ""]
        while True:
            pass

    def waiting():
        time.sleep(1.2)
        yield ["late", ""]
        time.sleep(600)

    said, crash = results(crashing, 1)
    assert said[0] != os.getpid() and crash == ["crash", "the process ended with status 3"]
    assert [x[0] for x in results(looping, 0.2)] == ["first", "hang"]
    monkeypatch.setattr(mutate_children, "_MOST_IDLE", 4)
    late, crash = results(waiting, 0.5)
    assert late == ["late", ""] and crash == ["crash", "the process waits for what never comes"]
    assert result(lambda: 7, 1) == 7


def fate(key, how, variant="tiled", operator="number", before="a + 1", step="quick", **more):
    return dict(variant=variant, entry="tiled", key=key, how=how, operator=operator, before=before,
                after="", step=step, **{"text": "t", "place": "tiled#1", **more})  # fmt: skip


def test_what_later_steps_see_counts():
    fates = [fate("x", "survived"), fate("x", "simulator", step="simulate"), fate("y", "wrong"),
             fate("z", "survived"), fate("z", "same", step="compile")]  # fmt: skip
    assert {x["how"] for x in merged(fates).values()} == {"simulator", "wrong", "same"}
    assert survivors(merged(fates).values(), ()) == []
    assert table(merged(fates).values(), ())[1] == ["tiled", "3", "1", "0", "0", "1", "1", "0", "0"]


def test_one_program_that_shows_a_fault_is_enough():
    """What is the same code in one program may be a fault in another, and survive in a third."""
    other, third = {"text": "u"}, {"text": "v"}
    fates = [fate("x", "survived"), fate("x", "wrong", **other), fate("y", "survived"),
             fate("y", "same", step="compile"), fate("y", "survived", **other),
             fate("z", "survived"), fate("z", "same", step="compile"),
             fate("z", "same", step="compile", **third), fate("w", "build"),
             fate("w", "survived", **other)]  # fmt: skip
    ends = merged(fates)
    assert {k: x["how"] for k, x in ends.items()} == {
        "x": "wrong", "y": "survived", "z": "same", "w": "survived"
    }  # fmt: skip
    work = {step: mutate_run.work_of(step, fates, ()) for step in mutate_run.STEPS}
    assert work["quick"]["over"] == work["simulate"]["over"] == ["x"]
    assert len(work["quick"]["places"]) == 7
    assert work["compile"]["places"] == [("w", "u"), ("y", "u")]
    assert work["simulate"]["places"] == [("w", "u"), ("y", "u")]
    fates.append(fate("y", "survived", step="compile", text="u"))
    assert mutate_run.work_of("compile", fates, ())["places"] == [("w", "u")]
    fates.append(fate("y", "survived", step="simulate", text="u"))
    assert mutate_run.work_of("simulate", fates, ())["places"] == [("w", "u")]


def test_survivors_need_a_reason():
    fates = [fate("x", "survived"), fate("y", "survived", before="b"), fate("z", "build")]
    because = Reason("for a test", operator="number", variant="tiled", before=r"a \+")
    assert [x["key"] for x in survivors(fates, (because,))] == ["y"]
    assert survivors(fates, (Reason("other kernel", variant="naive"),)) == fates[:2]
    assert survivors(fates, (Reason("its place", place="tiled"),)) == []
    of_ends = [fate("v", "survived", end=-1), fate("w", "survived", end=0), fates[0]]
    assert survivors(of_ends, (Reason("the last line", end="-1"),)) == of_ends[1:]
    assert table(fates, (because,))[1] == ["tiled", "2", "0", "0", "0", "0", "0", "1", "1"]


def test_a_reason_for_one_kernel_does_not_cover_another_that_shares_the_line():
    shared = {"place": "parts/store.mako#1"}
    fates = [fate("x", "survived", **shared),
             fate("x", "survived", variant="naive", text="u", **shared)]  # fmt: skip
    for because, left in ((Reason("one", variant="tiled"), ["naive"]), (Reason("both"), [])):
        found = survivors(merged(fates, (because,)).values(), (because,))
        assert [x["variant"] for x in found] == left


class Program:
    """One of a schedule: what it says of mutants, in place of a child's work."""

    def __init__(self, variant, digest, keys):
        self.variant, self.entry, self.digest = variant, variant, digest
        self.target = Target()
        self.mutants, self.waiting, self.checked = dict.fromkeys(keys), [], True
        self.text, self.failed = "as long as any", ""

    def fate(self, key, how, note, step):
        return fate(key, how, self.variant, text=self.digest, step=step)


def judge_all(programs, killed, step="quick", limit=9, given=None):
    """(key, program) in the order in which a schedule tries them; `killed`: such that are seen."""
    tried = []
    schedule = mutate_worker.Schedule(
        programs, given or {"over": [], "places": []}, step, limit, lambda fate: None
    )
    while task := schedule.take(1):
        for key in list(task.left):
            tried.append((key, task.program.digest))
            task.got("wrong" if tried[-1] in killed else "survived", "")
        task.over()
    return tried


def test_a_survivor_goes_on_to_another_kernel_first_and_a_kill_ends_it():
    programs = [Program("tiled", "t1", "xy"), Program("tiled", "t2", "xyz"),
                Program("naive", "n1", "x")]  # fmt: skip
    tried = judge_all(programs, {("y", "t1"), ("x", "t2")})
    assert [x for x in tried if x[0] == "x"] == [("x", "t1"), ("x", "n1"), ("x", "t2")]
    assert [x for x in tried if x[0] == "y"] == [("y", "t1")]
    assert tried.index(("z", "t2")) < tried.index(("x", "n1"))  # what nobody judged yet
    tried = judge_all([Program("a", "1", "x"), Program("b", "2", "x")], set(), limit=1)
    assert tried == [("x", "1")]
    known = {"over": ["y"], "places": [("x", "t1")]}
    programs = [Program("tiled", "t1", "xy"), Program("tiled", "t2", "xy")]
    assert judge_all(programs, set(), given=known) == [("x", "t2")]


def test_a_crash_behind_another_mutant_is_judged_anew():
    program = Program("tiled", "t1", ["x", "y"])
    seen = []
    given = {"over": [], "places": []}
    schedule = mutate_worker.Schedule(
        [program], given, "quick", 1, lambda x: seen.append((x["key"], x["how"]))
    )
    task = schedule.take(1)
    task.got("wrong", "")
    task.got("crash", "")
    task.over()
    assert seen == [("x", "wrong")] and program.waiting == ["y"]
    schedule.take(1).got("crash", "")
    assert seen[-1] == ("y", "crash")


def test_nothing_is_judged_by_a_kernel_that_fails_as_it_is():
    bad, good = Program("tiled", "t1", ["x", "y"]), Program("tiled", "t2", ["y"])
    bad.checked, seen = False, []
    schedule = mutate_worker.Schedule(
        [bad, good], {"over": [], "places": []}, "quick", 1, lambda x: seen.append(x["key"])
    )
    task = schedule.take(1)
    task.got("wrong", "why")
    task.got("survived", "which nobody asks any more")
    task.over()
    assert bad.failed == "wrong why" and bad.waiting == [] and seen == []
    task = schedule.take(1)  # the other has only one of the two
    task.got("wrong", "")
    assert (task.program, seen, schedule.take(1)) == (good, ["y"], None)


def test_one_text_with_other_numbers_is_another_program(monkeypatch):
    class OfConfig(Target):
        def __init__(self, config):
            self.config = config

        def programs(self):
            return {KERNEL: ("tiled", [f"tiled#{i}" for i in range(KERNEL.count("\n") + 1)])}

    listed = [OfConfig(x) for x in ("splits=2", "splits=2", "splits=5")]
    monkeypatch.setattr(mutate_worker, "targets", lambda name, profile: listed)
    one, other = mutate_worker.programs_of(["tiled"], None)
    assert (one.target.config, other.target.config) == ("splits=2", "splits=5")
    assert one.text == other.text and one.digest != other.digest
    assert one.mutants == other.mutants != {}


def test_of_programs_alike_the_shortest_is_built():
    programs = [Program("tiled", "t1", "xy"), Program("tiled", "t2", "x")]
    programs[1].text = "short"
    tried = judge_all(programs, {("x", "t2"), ("y", "t1")})
    assert sorted(tried) == [("x", "t2"), ("y", "t1")]


class Target:
    config = "tiled@"

    class kind:
        key = "float32"


def test_every_reason_is_one():
    for reason in mutate_run.reasons():
        assert len(reason.reason) > 20
        assert reason.before or reason.after or reason.variant != ".*"


def test_a_report_of_survivors_fails(tmp_path, capsys):
    journal = tmp_path / "journal.jsonl"
    more = {"number": 3, "kind": "float32"}
    journal.write_text(json.dumps(fate("x", "survived", before="nobody's line", **more)) + "\n")
    assert mutate_run.main(["--report", "--journal", str(journal)]) == 1
    said = capsys.readouterr()
    assert "nobody's line" in said.err and "tiled" in said.out
    journal.write_text(json.dumps(fate("x", "wrong", **more)) + "\n")
    assert mutate_run.main(["--report", "--markdown", "--journal", str(journal)]) == 0
    assert "| tiled | 1 | 1 |" in capsys.readouterr().out


def test_what_survived_is_forgotten_when_cases_have_changed(tmp_path):
    journal = tmp_path / "journal.jsonl"
    fates = [fate("x", "survived", number=3, kind="float32"), fate("y", "wrong")]
    journal.write_text("".join(json.dumps(x) + "\n" for x in fates))
    assert mutate_run.main(["--report", "--journal", str(journal)]) == 1
    assert mutate_run.main(["--report", "--again", "--journal", str(journal)]) == 0
    assert [json.loads(x)["key"] for x in journal.read_text().splitlines()] == ["y"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_mutant_of_the_plainest_kernel_survives(tmp_path, capsys):
    """naive, with every kind of problem: a few hundred programs."""
    journal = tmp_path / "journal.jsonl"
    status = mutate_run.main(["--variants", "naive", "--journal", str(journal)])
    assert status == 0, capsys.readouterr().err
