"""Finds the kernel templates, reads their headers and fills them in; the only user of Mako.

A variant is the file `NAME.cl.mako`. It starts with a module block, `<%! … %>`: plain constants
and pure functions, importing nothing. `header` executes that block without Mako, because a call
that finds its program in the cache needs the header but no rendered text, and importing Mako
costs tens of milliseconds. `parts/*.mako` hold what variants share.
"""

import builtins
import hashlib
import os
import re
from functools import cache
from importlib import resources
from pathlib import Path

from clmatmul.errors import TemplateError

SUFFIX = ".cl.mako"
_PART = re.compile(r"""["'](parts/\w+\.mako)["']""")
_HEADER = re.compile(r"\s*<%!(.*?)%>", re.DOTALL)
# A header computes sizes; it has no business with files, imports or the interpreter.
_HEADER_BUILTINS = (
    *("abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "int", "isinstance"),
    *("len", "list", "max", "min", "pow", "range", "reversed", "round", "set", "sorted", "str"),
    *("sum", "tuple", "zip", "ValueError"),
)


@cache
def _folders():
    """Where variants are looked for: the package's kernels, then the user's own folders.

    CLMATMUL_KERNEL_PATH names further folders of variants (separated as in PATH).
    """
    try:
        found = [resources.files("clmatmul.kernels")]
    except ModuleNotFoundError:
        # Running from a checkout with nothing installed. setup.cfg is the sign of it: the
        # folder beside an installed package may be another project's `kernels`.
        root = Path(__file__).resolve().parent.parent
        if not (root / "setup.cfg").is_file() or not (root / "kernels").is_dir():
            raise TemplateError(
                "clmatmul.kernels", 0, "the kernel templates are not installed; reinstall clmatmul"
            ) from None
        found = [root / "kernels"]
    for folder in os.environ.get("CLMATMUL_KERNEL_PATH", "").split(os.pathsep):
        if folder:
            found.append(Path(folder))
    return tuple(found)


@cache
def variant_files():
    """Name → file of every variant; a name in two folders is an error."""
    files = {}
    for folder in _folders():
        if not folder.is_dir():
            raise TemplateError(folder, 0, "no such folder (from CLMATMUL_KERNEL_PATH)")
        for file in sorted(folder.iterdir(), key=lambda f: f.name):
            if file.name.endswith(SUFFIX):
                name = file.name[: -len(SUFFIX)]
                if name in files:
                    raise TemplateError(file, 0, f"a variant called {name} exists already")
                files[name] = file
    return files


@cache
def text(name):
    """The template text of a variant, or of a part such as 'parts/store.mako'."""
    if name.startswith("parts/"):
        file = _folders()[0].joinpath(*name.split("/"))
    else:
        try:
            file = variant_files()[name]
        except KeyError:
            known = ", ".join(variant_files())
            raise TemplateError(name, 0, f"no such kernel variant; there are {known}") from None
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise TemplateError(file, 0, f"cannot be read: {error.strerror}") from None


@cache
def part_names():
    """The shared parts, 'parts/NAME.mako', in order of name."""
    folder = _folders()[0].joinpath("parts")
    names = sorted(f.name for f in folder.iterdir() if f.name.endswith(".mako"))
    return tuple(f"parts/{name}" for name in names)


@cache
def header(name):
    """The names that a variant's module block defines, as a dict.

    `EXTENDS = "parts/NAME.mako"` on a line of its own puts that part's names there first.
    """
    allowed = {x: getattr(builtins, x) for x in _HEADER_BUILTINS}
    names = {"__builtins__": allowed, "__name__": f"clmatmul.kernels.{name}"}
    file = str(variant_files()[name]) if name in variant_files() else name
    extended = re.search(r'^EXTENDS = "(parts/\w+\.mako)"$', text(name), re.MULTILINE)
    if extended:
        _execute_block(extended.group(1), extended.group(1), names)
    _execute_block(name, file, names)
    return {k: v for k, v in names.items() if not k.startswith("__")}


def _execute_block(name, file, names):
    """Run the module block of a template in a namespace; TemplateError with file and line."""
    source = text(name)
    match = _HEADER.match(source)
    if not match:
        raise TemplateError(file, 1, "a variant starts with a module block <%! … %>")
    # Keep the line numbers of the file in tracebacks.
    block = "\n" * source.count("\n", 0, match.start(1)) + match.group(1)
    try:
        exec(compile(block, file, "exec"), names)
    except SyntaxError as error:
        raise TemplateError(file, error.lineno, error.msg) from None
    except Exception as error:
        line = error.__traceback__.tb_next.tb_lineno if error.__traceback__.tb_next else 0
        raise TemplateError(file, line, f"{type(error).__name__}: {error}") from None


@cache
def digest(name):
    """SHA-256 of a variant's template with every part that it uses, and that those use: what its
    sources are made from. Other variants' parts may change without it."""
    sha = hashlib.sha256(text(name).encode())
    for part in sorted(_parts_of(text(name))):
        sha.update(part.encode() + b"\0" + text(part).encode())
    return sha.hexdigest()


def _parts_of(template):
    """The names of all parts that a template's text names, directly or through others."""
    found, waiting = set(), _PART.findall(template)
    while waiting:
        part = waiting.pop()
        if part not in found:
            found.add(part)
            waiting += _PART.findall(text(part))
    return found


def render(name, values):
    """Fill in a variant's template; every name in it must be in `values` or in its header.

    TemplateError with file, line and the missing name.
    """
    from mako.exceptions import RichTraceback

    clash = sorted(set(values) & set(header(name)))
    if clash:
        raise TemplateError(name + SUFFIX, 0, f"header and passed values both define {clash}")
    try:
        return _lookup().get_template(name + SUFFIX).render(**values)
    except TemplateError:
        raise
    except Exception as error:
        file, line = name + SUFFIX, 0
        where = getattr(error, "lineno", 0)
        if where:  # a syntax error carries its own place
            file, line = getattr(error, "filename", None) or file, where
        else:
            for record in RichTraceback().records:
                if record[4] is not None:  # a line of a template, not of Mako itself
                    file, line = record[4], record[5]
        if isinstance(error, NameError):
            file, line = _place_of_name(error, file, line)
        raise TemplateError(file, line, f"{type(error).__name__}: {error}") from None


def _place_of_name(error, file, line):
    """Where a template first uses the name that is missing; Mako looks names up beforehand."""
    step, uri = error.__traceback__, None
    while step is not None:
        uri = step.tb_frame.f_globals.get("_template_uri", uri)
        step = step.tb_next
    name = re.search(r"'(\w+)'", str(error))
    if uri is None or name is None:
        return file, line
    lines = text(uri.removesuffix(SUFFIX)).splitlines()
    uses = (i for i, x in enumerate(lines, 1) if re.search(rf"\b{name[1]}\b", x))
    return uri, next(uses, line)


@cache
def _lookup():
    from mako.lookup import TemplateCollection
    from mako.template import Template

    class Lookup(TemplateCollection):
        """Templates by name, from wherever the kernels are installed (a zip file too)."""

        def __init__(self):
            super().__init__()
            self.loaded = {}

        def get_template(self, uri, relativeto=None):
            uri = uri.lstrip("/")
            if uri not in self.loaded:
                key = uri[: -len(SUFFIX)] if uri.endswith(SUFFIX) else uri
                self.loaded[uri] = Template(
                    text=text(key), uri=uri, lookup=self, strict_undefined=True
                )
            return self.loaded[uri]

        def adjust_uri(self, uri, filename):
            return uri

    return Lookup()
