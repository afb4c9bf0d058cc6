"""The ``ebb`` command: looks at the name of the verb before it imports anything that takes time.

Each verb is a module with ``main(argv) -> int``. Tables are for people, ``--json`` for programs;
what others read goes to standard output, what only people want to know to standard error.
"""

import sys

VERBS: dict[str, str] = {
    "submit": "submit a job from a file, flags, or both",
    "ls": "list jobs",
    "show": "show one job",
    "why": "say what keeps a job from running",
    "logs": "print or follow a worker's log",
    "stop": "ask for jobs to end",
    "events": "tell a job's story",
    "node": "nodes: ls, show, cordon, uncordon, drain, fence",
    "token": "credentials: create, ls, revoke",
    "up": "start the platform on this machine",
    "down": "stop it",
    "status": "the platform at a glance",
    "version": "say which release this is",
    "help": "explain a verb, or exit-codes",
}
_ALIASES = {"-h": "help", "--help": "help", "-V": "version", "--version": "version"}


def main(argv: list[str] | None = None) -> int:
    """Run one verb and give the exit code (``exits.py`` lists them)."""
    arguments = sys.argv[1:] if argv is None else argv
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    verb = _ALIASES.get(verb, verb)
    if verb not in VERBS:
        return _unknown(verb)
    try:
        code = _run(verb, rest)
        sys.stdout.flush()
    except KeyboardInterrupt:
        from ebbtide.cli.exits import INTERRUPTED

        return INTERRUPTED
    except BrokenPipeError:
        return _forget_output(0)
    except OSError as error:
        from ebbtide.cli.exits import UNAVAILABLE

        sys.stderr.write(f"ebb: the output cannot be written: {error.strerror}\n")
        return _forget_output(UNAVAILABLE)
    return code


def _run(verb: str, rest: list[str]) -> int:
    from importlib import import_module

    code: int = import_module(f"ebbtide.cli.{verb}").main(rest)
    return code


def _unknown(verb: str) -> int:
    from difflib import get_close_matches

    from ebbtide.cli.exits import USAGE
    from ebbtide.cli.printing import clean

    near = get_close_matches(verb, VERBS, n=1)
    hint = f"did you mean `ebb {near[0]}`?" if near else "`ebb help` lists what there is"
    sys.stderr.write(f"ebb: there is no verb {clean(verb)[:80]!r}; {hint}\n")
    return USAGE


def _forget_output(code: int) -> int:
    """End quietly when whoever read our output has left, as ``head`` does, or takes no more."""
    import os

    # What is still buffered must not raise once more while the interpreter ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
