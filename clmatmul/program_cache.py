"""Built programs on disk: the binary, the source beside it, and the mark of the first-use check.

An entry is written to temporary names and renamed, the description last, so another process sees
all of it or none. An entry that cannot be read, or whose digest does not fit, is built again.
"""

import hashlib
import json
import logging
import os
from pathlib import Path

import platformdirs

from clmatmul.database import replace_file

SCHEMA = 1
_MOST_BYTES = 2**28
_log = logging.getLogger("clmatmul")
_warned = set()


def cache_folder():
    """The folder of programs: under CLMATMUL_CACHE_DIR, or the user's cache folder."""
    chosen = os.environ.get("CLMATMUL_CACHE_DIR")
    return Path(chosen or platformdirs.user_cache_dir("clmatmul", appauthor=False)) / "programs"


def enabled():
    """False if CLMATMUL_CACHE=0: nothing is kept, and nothing that was kept is used.

    Making a binary takes a runtime such as PoCL as long as building; programs that are used once
    (a tuner's candidates, most tests) are not worth it.
    """
    return os.environ.get("CLMATMUL_CACHE", "1") != "0"


def program_key(source_key, options, post_build, device_key):
    """The name of an entry: all that decides what binary comes out."""
    # pyopencl appends this variable to every build's options.
    forced = os.environ.get("PYOPENCL_BUILD_OPTIONS", "")
    text = json.dumps([SCHEMA, source_key, list(options), post_build, device_key, forced])
    return hashlib.sha256(text.encode()).hexdigest()


def read(key):
    """The binary of an entry, or None."""
    if not enabled():
        return None
    folder = cache_folder() / key[:2]
    if not _is_own(folder):
        return None
    try:
        if max((folder / f"{key}{x}").stat().st_size for x in (".json", ".bin")) > _MOST_BYTES:
            raise ValueError("larger than any program")
        description = json.loads((folder / f"{key}.json").read_text())
        binary = (folder / f"{key}.bin").read_bytes()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.info("program cache: entry %s is unreadable and is built again: %s", key[:12], error)
        return None
    intact = isinstance(description, dict) and description.get("schema") == SCHEMA
    if not intact or description.get("sha256") != hashlib.sha256(binary).hexdigest():
        _log.info("program cache: entry %s is damaged and is built again", key[:12])
        return None
    return binary


def _is_own(folder):
    """False, with one warning, if another user may have put programs there: they are code."""
    if os.name != "posix":
        return True
    for place in (folder, folder.parent):
        try:
            facts = place.stat()
        except OSError:
            continue  # what is not there has nothing in it
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
            _warn_once(
                f"programs in {place} are not used, because others may write there; make it your "
                "own (chmod go-w), or set CLMATMUL_CACHE_DIR to a folder of yours"
            )
            return False
    return True


def write(key, binary, source, about):
    """Store an entry; a folder that cannot be written is reported once and otherwise ignored."""
    folder = cache_folder() / key[:2]
    description = {
        "schema": SCHEMA,
        "sha256": hashlib.sha256(binary).hexdigest(),
        "about": about,
    }
    try:
        for place in (folder.parent, folder):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(folder / f"{key}.cl", source.encode())
        replace_file(folder / f"{key}.bin", binary)
        replace_file(folder / f"{key}.json", json.dumps(description, indent=1).encode())
    except OSError as error:
        _warn_once(
            f"programs cannot be kept in {cache_folder()} ({error.strerror}), so each process "
            "builds them again; set CLMATMUL_CACHE_DIR to a writable folder"
        )


def is_verified(key):
    """True if this program passed its first-use check on this machine."""
    folder = cache_folder() / key[:2]
    return enabled() and (folder / f"{key}.verified").is_file() and _is_own(folder)


def mark_verified(key):
    """Remember that this program passed its first-use check."""
    if not enabled():
        return
    try:
        replace_file(cache_folder() / key[:2] / f"{key}.verified", b"")
    except OSError:
        return  # `write` has said already that the folder cannot be used


def _warn_once(text):
    if text not in _warned:
        _warned.add(text)
        _log.warning("%s", text)
