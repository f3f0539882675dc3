"""Faults put into the text of a kernel, one at a time: what tests are to find.

Pure: OpenCL C text in, mutants out. Each operator stands for a slip that people make when they
write such kernels. Lines that differ only in their digits (unrolled code, or other tiles) count as
one line, of which the first and the last are changed.
"""

import hashlib
import re
from dataclasses import dataclass

_LIMITS = r"m|n|k|terms|rows|cols|block|end_\w+|tiles_m|tiles_n|panels_m|panels_n|per_split|splits"
_SWAPS = (("row", "col"), ("first", "second"), ("_m", "_n"), ("tile_a", "tile_b"))
_CALLS = ("multiply", "add", "multiply_add")
_SKIPPED = re.compile(r"^\s*(//|#|typedef\b|__kernel\b|$)|__attribute__|^\s*const \w+ \w+[,)]|"
                      r"^\s*(static inline|__global|void)\b.*[,{]\s*$")  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One fault: the operator, the line that it changes (from 1), before and after.

    form: the same for the same change of a line that differs only in its digits.
    """

    operator: str
    number: int
    before: str
    after: str
    form: tuple

    @property
    def key(self):
        """The same for the same fault, wherever its line stands and whatever its digits are."""
        return hashlib.sha256(repr(self.form).encode()).hexdigest()[:10]

    def applied(self, text):
        """The text with this fault."""
        lines = text.split("\n")
        lines[self.number - 1] = self.after
        return "\n".join(lines)


def mutants(text):
    """Every Mutant of a kernel's text, in the order of its lines."""
    lines = text.split("\n")
    alike = {}
    for number, line in enumerate(lines, 1):
        alike.setdefault(re.sub(r"\d+", "0", line.strip()), []).append(number)
    chosen = {
        numbers[at]: (form, at) for form, numbers in alike.items() for at in (-1, 0)
    }  # fmt: skip
    found, seen = [], set()
    for number, line in enumerate(lines, 1):
        if number not in chosen or _SKIPPED.search(line):
            continue
        code, mark, comment = line.partition("//")
        for operator, change in OPERATORS.items():
            for i, after in enumerate(change(code)):
                if after != code and (number, after) not in seen:
                    seen.add((number, after))
                    form = (operator, i, *chosen[number])
                    found.append(Mutant(operator, number, line, after + mark + comment, form))
    return found


def _each(pattern, replacement):
    """An operator that replaces each match of a pattern, one at a time."""

    def change(line):
        for match in re.finditer(pattern, line):
            yield line[: match.start()] + match.expand(replacement) + line[match.end() :]

    return change


def _barrier(line):
    if re.match(r"\s*barrier\(", line):
        yield re.sub(r"barrier\(.*?\);", ";", line)


def _swapped(line):
    for one, other in _SWAPS:
        if one in line and other in line:
            names = {one: other, other: one}
            after = re.sub(f"{one}|{other}", lambda match, n=names: n[match[0]], line)
            if _parts(after) != _parts(line):  # not only x * y as y * x
                yield after


def _parts(line):
    """The terms of a line's sums and lists as sets of their factors: equal for x*y + z, z + y*x."""
    terms = re.split(r"[,;+]|&&", line)
    return sorted(sorted(x for x in re.split(r"const \w+|[*() ]", t) if x) for t in terms)


def _strides(line):
    """Another array's stride in place of the right one, or none at all."""
    for match in re.finditer(r"\b([a-z]\w*?)_((?:row|col)_stride|batch_stride_\d+)\b", line):
        other = "b" if match[1] == "a" else "a"
        yield line[: match.start()] + f"{other}_{match[2]}" + line[match.end() :]
    yield from _each(r" \* \w+_(?:row|col|batch)_stride(?:_\d+)?\b", "")(line)


def _literals(line):
    """Whole numbers one larger and one smaller; not those of a name or a floating number."""
    if re.match(r"\s*(__local\b|[a-z_0-9]+ \w+(\[\d+\])+[,;]|asm volatile\(\"\")", line):
        return  # how much memory there is: more of it is no fault; nor is a fence without code
    for match in re.finditer(r"(?<![\w.])\d+(?![\w.])", line):
        for value in (int(match[0]) + 1, int(match[0]) - 1):
            if value >= 0:
                yield line[: match.start()] + str(value) + line[match.end() :]


def _chosen(line):
    """`condition ? x : y` as x and as y: a missing clamp, a missing zero."""
    for match in re.finditer(r" \? ", line):
        start = _expression_start(line, match.start())
        middle = _end_of(line, match.end(), ":")
        end = _end_of(line, middle + 1, ",;") if middle < len(line) else None
        if end is not None:
            x, y = line[match.end() : middle].strip(), line[middle + 1 : end].strip()
            yield f"{line[:start]}{x}{line[end:]}"
            yield f"{line[:start]}{y}{line[end:]}"


def _arguments(line):
    """`multiply(x, y)` and `add(x, y)` as x and as y: alpha, beta, bias or a scale forgotten."""
    for match in re.finditer(rf"\b({'|'.join(_CALLS)})\(", line):
        comma = _end_of(line, match.end(), ",")
        end = _end_of(line, match.end(), "")
        if comma < end < len(line):
            yield line[: match.start()] + line[match.end() : comma] + line[end + 1 :]
            yield line[: match.start()] + line[comma + 1 : end].strip() + line[end + 1 :]


def _statement(line):
    """An assignment to something that exists, a store or a jump left out."""
    assignment = r"(?:[\w.\[\]]+|\*\(.*?\)) [-+*|&]?= [^;]*;"
    if re.match(rf"\s*(?:{assignment}|write_out\(.*;|continue;|break;)\s*$", line):
        yield re.sub(r"\S.*", ";", line)


def _end_of(line, start, stops):
    """Where one of `stops`, or the bracket that closes what is open at `start`, stands."""
    depth = 0
    for i in range(start, len(line)):
        if line[i] in "([":
            depth += 1
        elif line[i] in ")]":
            if depth == 0:
                return i
            depth -= 1
        elif depth == 0 and line[i] in stops:
            return i
    return len(line)


def _expression_start(line, end):
    """Where the condition that ends at `end` begins."""
    depth = 0
    for i in range(end - 1, -1, -1):
        if line[i] in ")]":
            depth += 1
        elif line[i] in "([":
            if depth == 0:
                return i + 1
            depth -= 1
        elif depth == 0 and (line[i] == "," or re.match(r"(?<![<>=!])= ", line[i : i + 2])):
            if line[i] == "=" and line[i - 1] in "<>!=":
                continue
            return i + 1 + (line[i + 1 : i + 2] == " ")
    match = re.match(r"\s*(return )?", line)
    return match.end()


#: What goes wrong → the texts that a line becomes.
OPERATORS = {
    "no barrier": _barrier,
    "<= for <": _each(r" < ", " <= "),
    "< for <=": _each(r" <= ", " < "),
    "!= for ==": _each(r" == ", " != "),
    "|| for &&": _each(r" && ", " || "),
    "limit - 1": _each(rf"(?<![\w*.] )(?<![\w.])({_LIMITS})(?![\w(])(?! =[^=])", r"(\1 - 1)"),
    "swapped": _swapped,
    "stride": _strides,
    "other branch": _chosen,
    "forgotten": _arguments,
    "number": _literals,
    "- for +": _each(r" \+ ", " - "),
    "+ for -": _each(r" - ", " + "),
    "left out": _statement,
    "% for /": _each(r" / ", " % "),
    "/ for %": _each(r" % ", " / "),
}
