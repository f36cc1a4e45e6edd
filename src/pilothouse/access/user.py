"""The name of the user that this process runs as. Containers often run as a uid that has no entry in passwd(5)."""

from __future__ import annotations

import os
import pwd


def user_name() -> str:
    """The name of the effective user, or the uid as text where passwd(5) has no entry for it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def has_name() -> bool:
    """Whether passwd(5) has an entry for the effective user."""
    return user_name() != str(os.geteuid())
