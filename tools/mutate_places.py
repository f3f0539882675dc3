"""Which line of which template each line of a rendered kernel came from.

Templates are rendered once more with a mark at the end of each line of text. The kernel itself is
never made from marked text.
"""

import hashlib
import re
from collections import Counter
from functools import cache
from unittest import mock

from clmatmul import plan, templates

_MARK = re.compile("\x01([^\x02]*)\x02")
_OPENS = re.compile(r"<%doc>|<%!?(?=\s|$)|\$\{")
_CLOSES = {"<%doc>": "</%doc>", "${": "}"}  # else %>


def places_of(made, launch):
    """For each line of `render_launch(made, launch)` the place that it came from, or None.

    A place is FILE#DIGEST, of the line's text in the template: it stays when lines move.
    """
    lookup = _marked_lookup()
    with (
        mock.patch.object(templates, "_lookup", lambda: lookup),
        mock.patch.object(plan, "_tidy", lambda text: text),
    ):
        raw = plan.render_launch(made, launch)
    return _aligned(plan.render_launch(made, launch), raw)


@cache
def _marked_lookup():
    lookup = templates._lookup.__wrapped__()
    plain, text = lookup.get_template, templates.text

    def get_template(uri, relativeto=None):
        with mock.patch.object(templates, "text", lambda name: marked(name, text(name))):
            return plain(uri, relativeto)

    lookup.get_template = get_template
    return lookup


def _aligned(text, raw):
    """The last mark of each line; `text` has fewer blank lines than `raw`."""
    lines = iter([(_MARK.sub("", x).rstrip(), _MARK.findall(x)) for x in raw.split("\n")])
    found = []
    for line in text.split("\n"):
        marks = next(marks for x, marks in lines if x == line) if line else []
        found.append(marks[-1] if marks else None)
    return found


def marked(name, text):
    """A template's text with the place of each line at its end, between two control characters.

    Lines for Mako alone (directives, comments, Python) stay as they are.
    """
    found, closes, directive, alike = [], None, False, Counter()
    for line in text.split("\n"):
        if closes is None and (directive or re.match(r"\s*(##|%(?![%>]))", line)):
            directive = line.endswith("\\")
            found.append(line)
            continue
        closes = _open_at_end(line, closes)
        alike[line.strip()] += 1
        body = line.removesuffix("\\")
        mark = "" if closes else f"\x01{_place(name, line.strip(), alike[line.strip()])}\x02"
        found.append(body + mark + line[len(body) :])
    return "\n".join(found)


def _place(name, line, nth):
    return f"{name}#{hashlib.sha256(repr((line, nth)).encode()).hexdigest()[:8]}"


def _open_at_end(line, closes):
    """What would close the block or expression that is open at the end of a line, or None."""
    at = 0
    while True:
        if closes == "}":
            at = _end_of_expression(line, at)
        elif closes:
            end = line.find(closes, at)
            at = -1 if end < 0 else end + len(closes)
        if at < 0:
            return closes
        opens = _OPENS.search(line, at)
        if not opens:
            return None
        at, closes = opens.end(), _CLOSES.get(opens.group(), "%>")


def _end_of_expression(line, at):
    """Behind the bracket that closes `${`, or -1; brackets in quotes do not count."""
    depth, quote = 1, None
    while at < len(line) and depth:
        c = line[at]
        if quote:
            at += c == "\\"
            quote = None if c == quote else quote
        elif c in "\"'":
            quote = c
        else:
            depth += (c == "{") - (c == "}")
        at += 1
    return at if depth == 0 else -1
