"""Hints at the end of an error message: which name was meant, and what to install."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def install_hint(*extras: str) -> str:
    """The command that installs extras: for the released package, and for a clone of the repository."""
    names = ",".join(extras)
    return f"pip install 'tableless[{names}]' (in a clone: pip install -e '.[{names}]')"


def require_known_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name that is not known; `kind` says what it should be the name of."""
    known = list(known)
    if name not in known:
        raise ValueError(f"no {kind} is called {name!r}; known are {', '.join(known)}{did_you_mean(name, known)}")


def require_choice(option: str, value: str, choices: Iterable[str]) -> None:
    """Refuse a value that is not one of the choices; `option` says what it was given for."""
    choices = list(choices)
    if value not in choices:
        raise ValueError(f"{option} is {value!r}; it must be {' or '.join(choices)}{did_you_mean(value, choices)}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the known name that is nearest. It is empty if none is near."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.strip().lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""
