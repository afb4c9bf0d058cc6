"""Exit codes of ``ebb``, for scripts; ``ebb help exit-codes`` prints them."""

OK = 0
JOB_FAILED = 1
USAGE = 2
NOT_FOUND = 3
REFUSED = 4
UNAVAILABLE = 5
JOB_STOPPED = 6
INTERRUPTED = 130

MEANINGS: dict[int, str] = {
    OK: "done; with --wait: the job succeeded",
    JOB_FAILED: "with --wait: the job failed",
    USAGE: "the command line or the job has a mistake; the field is named",
    NOT_FOUND: "there is no such job, worker, attempt or token, or not for you",
    REFUSED: "the platform refused: not allowed, or the job can never run",
    UNAVAILABLE: "the platform does not answer, or there is none; trying again is safe",
    JOB_STOPPED: "with --wait: somebody stopped the job",
    INTERRUPTED: "you pressed Ctrl-C; a submitted job goes on",
}
