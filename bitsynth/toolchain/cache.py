"""The folder of compiled code, and who may have written it.

Code in this folder is loaded into our process, so nobody else may write it. Every folder on its path belongs to the
user or to root, and nobody else may write in it. Folders above it, such as /tmp, may let users
remove their own files alone. So nobody else can add code, or replace it between a check and its use.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from bitsynth import paths


def cache_folder() -> Path:
    """Return the folder of compiled libraries: BITSYNTH_BUILD_CACHE, or one in the user's cache."""
    given = os.environ.get("BITSYNTH_BUILD_CACHE")
    return Path(given).absolute() if given else paths.user_cache() / "build"


def secure(folder: Path, *, make: bool = True) -> Path:
    """Return `folder` without links, created if missing; PermissionError if others could change its contents."""
    path = Path(os.path.realpath(folder))
    for place in (*reversed(path.parents), path):
        try:
            status = place.lstat()
        except FileNotFoundError:
            if not make:
                break
            place.mkdir(0o700, exist_ok=True)
            status = place.lstat()
        require_own(place, status, sticky=place != path)
    return path


def require_own(place: Path, status: os.stat_result, *, sticky: bool = False) -> None:
    """Raise PermissionError if anybody but the user and root owns `place` or may write it.

    If `sticky`, others may write a folder in which each can only remove their own. Whoever owns `/` counts as root,
    who has another number in a user namespace.
    """
    if status.st_uid not in {os.geteuid(), 0, os.stat("/").st_uid}:
        raise PermissionError(errno.EPERM, f"{place} belongs to another user, who could change the code in it")
    if _others_write(status) and not (sticky and status.st_mode & stat.S_ISVTX):
        raise PermissionError(errno.EPERM, f"other users may write {place}, and so change the code in it")


def _others_write(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _alone_in(status.st_gid)


def _alone_in(group: int) -> bool:
    """Return whether the user is alone in a group of their own name, which many systems create for each user."""
    import grp
    import pwd

    try:
        user, entry = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == user and set(entry.gr_mem) <= {user}
