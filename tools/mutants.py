"""Faults put into the text of a kernel, one at a time: what tests are to find.

Pure: OpenCL C text in, mutants out. Each operator stands for a slip that people make when they
write such kernels. What is mutated is the templates, in what is made of them: a change of the same
words of a line of a template, between the same neighbours, is one mutant, whatever the types and
numbers are that a configuration puts there, and in whichever kernels a shared part stands. Of the
lines that one line of a template becomes in a program (unrolled code), the first and the last are
changed, each for itself.
"""

import hashlib
import re
from dataclasses import dataclass

_LIMITS = r"m|n|k|terms|rows|cols|block|end_\w+|tiles_m|tiles_n|panels_m|panels_n|per_split|splits"
_SWAPS = (("row", "col"), ("first", "second"), ("_m", "_n"), ("tile_a", "tile_b"))
_CALLS = ("multiply", "add", "multiply_add")
_SKIPPED = re.compile(r"^\s*(//|#|typedef\b|__kernel\b|$)|__attribute__|^\s*const \w+ \w+[,)]|"
                      r"^\s*(static inline|__global|void)\b.*[,{]\s*$")  # fmt: skip
_TYPES = re.compile(
    r"\b(float|double|half|u?char|u?short|u?int|u?long|acc_t|scalar_t|index_t)\d*\b"
)
_WORDS = re.compile(r"\w+|[^\w\s]")
_NEIGHBOURS = 2  # words on either side that make a change this one


@dataclass(frozen=True)
class Mutant:
    """One fault: the operator, the line that it changes (from 1), before and after.

    place: the line of a template that it came from (see mutate_places). end: 0 for the first, -1
    for the last of the lines that it became.
    """

    operator: str
    number: int
    before: str
    after: str
    place: str
    end: int

    @property
    def key(self):
        """The same for the same fault in the same line of a template, in whatever program."""
        form = (self.operator, _change(self.before, self.after), self.place, self.end)
        return hashlib.sha256(repr(form).encode()).hexdigest()[:10]

    def applied(self, text):
        """The text with this fault."""
        lines = text.split("\n")
        lines[self.number - 1] = self.after
        return "\n".join(lines)


def mutants(text, places):
    """Every Mutant of a kernel's text, in the order of its lines; of those with one key, the first.

    places: for each line, the place that it came from, or None where nothing is to be changed.
    """
    lines = text.split("\n")
    alike = {}
    for number, (line, place) in enumerate(zip(lines, places, strict=True), 1):
        if place and not _SKIPPED.search(line):
            alike.setdefault((place, re.sub(r"\d+", "0", line.strip())), []).append(number)
    ends = {numbers[end]: (place, end) for (place, _), numbers in alike.items() for end in (-1, 0)}
    found = {}
    for number, (place, end) in sorted(ends.items()):
        line = lines[number - 1]
        code, mark, comment = line.partition("//")
        for operator, change in OPERATORS.items():
            for after in change(code):
                if after != code:
                    after += mark + comment
                    mutant = Mutant(operator, number, line, after, place, end)
                    found.setdefault(mutant.key, mutant)
    return _distinct(found.values())


def _distinct(found):
    """One Mutant of each text that comes of it: two operators may make the same."""
    return list({(x.number, x.after): x for x in reversed(list(found))}.values())[::-1]


def _change(before, after):
    """(words before it, what is changed, what it becomes, words behind it), types and numbers 0."""
    i = j = 0
    short = min(len(before), len(after))
    while i < short and before[i] == after[i]:
        i += 1
    while j < short - i and before[-1 - j] == after[-1 - j]:
        j += 1
    while i and _is_of_word(before[i - 1]):
        i -= 1
    while j and _is_of_word(before[len(before) - j]):
        j -= 1
    old, new = before[i : len(before) - j], after[i : len(after) - j]
    if old.isdecimal() and new.isdecimal():
        new = "larger" if int(new) > int(old) else "smaller"
    left, old, new, right = map(_words, (before[:i], old, new, before[len(before) - j :]))
    return left[-_NEIGHBOURS:], old, new, right[:_NEIGHBOURS]


def _is_of_word(c):
    return c.isalnum() or c == "_"


def _words(text):
    return _WORDS.findall(re.sub(r"\d+", "0", _TYPES.sub("T", text)))


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
