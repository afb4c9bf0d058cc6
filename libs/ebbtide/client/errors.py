"""What the platform answered when it did not do as asked."""

from ebbtide.contracts.errors import EbbtideError
from ebbtide.contracts.http import Problem


class Refused(EbbtideError):
    """The platform said no; ``problem`` says to what, why, and what to do."""

    code = "refused"

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.field}: {problem.detail}" if problem.field else problem.detail)
        self.problem = problem
        self.code = problem.code
        self.retryable = problem.status in (429, 503)
