"""Become a server program that is not root and that dies with the process which started it.

    python child.py PARENT_PID DEATH_SIGNAL IDENTITY COMMAND...

IDENTITY is `same`, `namespace` (root outside, an ordinary user inside: PostgreSQL refuses root) or `nobody`.
Runs as a script by itself, so it imports nothing of ours.
"""

import ctypes
import os
import pwd
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000
ORDINARY_USER = 1000


def main() -> None:
    parent, death_signal, identity, *command = sys.argv[1:]
    match identity:
        case "namespace":
            enter_user_namespace()
        case "nobody":
            become_nobody()
    die_with_parent(int(parent), int(death_signal))
    # A shell starts what it puts in the background deaf to Ctrl-C, and its children inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execv(command[0], command)


def enter_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    if libc().unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "user namespaces are not allowed here")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{ORDINARY_USER} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{ORDINARY_USER} {gid} 1")


def become_nobody() -> None:
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)


def die_with_parent(parent: int, death_signal: int) -> None:
    # A change of identity clears this setting, so it comes last. Only Linux has it.
    if sys.platform == "linux" and libc().prctl(PR_SET_PDEATHSIG, death_signal) != 0:
        raise OSError(ctypes.get_errno(), "cannot ask to die with the parent")
    if os.getppid() != parent:
        sys.exit("the parent died first")


def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


if __name__ == "__main__":
    main()
