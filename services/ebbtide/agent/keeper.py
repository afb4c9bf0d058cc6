"""The node's keeper: forks one sitter per connection of the agent, and knows nothing else.

Workers must outlive the agent, so they are not its children; they are not the keeper's either, for
each has a sitter of its own. The keeper therefore keeps no state: killed and started again it has
lost nothing. It is single-threaded, imports builtin modules only and never executes anything
itself: what it holds in memory, every sitter holds again.

Run as ``python -m ebbtide.agent.keeper`` with ``EBB_AGENT_STATE`` set. It then executes itself
anew as a bare script, without site packages and without this package's own imports.
"""

import os
import sys

TYPE_CHECKING = False
NAME = "keeper.sock"
LOCK = "keeper.lock"
LIVES = "lives"
BACKLOG = 128
BUSY = 75
"""Exit status when another keeper serves this node (EX_TEMPFAIL)."""


def _bare_start() -> None:
    """Execute this file without site packages: a third of the memory and a tenth of the start."""
    state = os.environ.get("EBB_AGENT_STATE", "")
    if not state:
        os.write(2, b"keeper: set EBB_AGENT_STATE to the node's state folder\n")
        os._exit(64)
    node = os.environ.get("EBB_AGENT_NODE", "")  # for whoever looks at a list of processes
    bare = [sys.executable, "-S", "-E", "-s", os.path.realpath(__file__), state, node]
    os.execve(sys.executable, bare, {})  # noqa: S606 - ourselves


if __name__ == "__main__" and not sys.flags.no_site:
    _bare_start()

import gc  # noqa: E402 - nothing may be imported before the bare start
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_SEQPACKET, socket  # noqa: E402

if TYPE_CHECKING or __name__ != "__main__":
    from signal import SIG_DFL, SIG_IGN, SIGCHLD, SIGINT, SIGPIPE, SIGXFSZ, signal

    from ebbtide.agent import sitter
else:
    from _signal import SIG_DFL, SIG_IGN, SIGCHLD, SIGINT, SIGPIPE, SIGXFSZ, signal

    import sitter


def keep(state: str) -> None:
    """Fork a sitter per connection, for ever."""
    os.makedirs(state, 0o700, exist_ok=True)  # noqa: PTH103 - pathlib costs memory
    # A short relative name: a socket's path may have 107 bytes, a state folder's more.
    os.chdir(state)
    lock = _only_one()
    listener = _listen()
    gc.collect()
    gc.freeze()
    gc.disable()
    while True:
        # The builtin type's own method; the number is all that is wanted.
        number, _ = listener._accept()  # type: ignore[attr-defined] # noqa: SLF001
        try:
            if os.fork() == 0:
                os.close(lock)
                listener.close()
                _sit(number)
        except OSError as error:
            os.write(2, f"keeper: fork: {error.strerror}\n".encode())
        os.close(number)


def _sit(number: int) -> None:
    """Be a sitter, and exit."""
    try:
        signal(SIGCHLD, SIG_DFL)
        signal(SIGINT, SIG_DFL)
        door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, number)
        # Opened by each sitter for itself: locks are taken at the file's offset, which forks share.
        lives = os.open(LIVES, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        sitter.serve(door, lives)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the agent is gone
    except BaseException as error:  # noqa: BLE001 - a sitter must never go on as a keeper
        os.write(2, f"sitter: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(0)


def _only_one() -> int:
    """Lock this node's keeper. The lock is by process and not inherited: sitters never hold it."""
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.lockf(lock, os.F_TLOCK, 0)
    except OSError:
        os.write(2, b"keeper: another keeper serves this node\n")
        os._exit(BUSY)
    return lock


def _listen() -> socket:
    if os.path.exists(NAME):  # noqa: PTH110
        os.unlink(NAME)  # noqa: PTH108
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC)
    before = os.umask(0o177)
    listener.bind(NAME)
    os.umask(before)
    listener.listen(BACKLOG)
    return listener


if __name__ == "__main__":
    # Sitters that ended are nobody's business: the kernel reaps them.
    signal(SIGCHLD, SIG_IGN)
    signal(SIGINT, SIG_IGN)
    # Python ignores these two, and a worker would inherit that and never see a broken pipe.
    signal(SIGPIPE, SIG_DFL)
    signal(SIGXFSZ, SIG_DFL)
    keep(sys.argv[1])
