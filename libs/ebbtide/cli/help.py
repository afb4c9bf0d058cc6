"""``ebb help``: what there is, how each verb is used, and what exit codes mean."""

import sys

from ebbtide.cli import VERBS, exits

HEAD = "ebb: submit, watch and stop training jobs.\n\nusage: ebb VERB [ARGUMENTS]\n"
TAIL = "\n`ebb help VERB` explains one, `ebb help exit-codes` what scripts may rely on.\n"
ENVIRONMENT = (
    "environment: EBB_URL and EBB_TOKEN name a platform; else the one in EBB_HOME is used.\n"
)


def main(argv: list[str]) -> int:
    """Explain everything, one verb, or exit codes."""
    if not argv:
        width = max(map(len, VERBS))
        lines = [f"  {verb.ljust(width)}  {what}" for verb, what in VERBS.items()]
        sys.stdout.write("\n".join([HEAD, *lines, TAIL]) + ENVIRONMENT)
        return exits.OK
    if argv[0] == "exit-codes":
        for code, meaning in exits.MEANINGS.items():
            sys.stdout.write(f"{code:>4}  {meaning}\n")
        return exits.OK
    if argv[0] in ("help", "version"):
        sys.stdout.write(f"ebb {argv[0]}: {VERBS[argv[0]]}\n")
        return exits.OK
    from ebbtide.cli import main as run

    return run([argv[0], "--help"])
