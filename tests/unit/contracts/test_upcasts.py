"""How a retired event is read: through its old shape and one pure function."""

import msgspec
import pytest

from ebbtide.contracts import upcasts
from ebbtide.contracts.events import JobStopRequested
from ebbtide.contracts.ids import JobId


class JobStopRequestedOnce(msgspec.Struct, frozen=True, kw_only=True, tag="job.stop_asked"):
    """A shape as an old release may have written it."""

    name: str


@pytest.fixture
def _retired(monkeypatch: pytest.MonkeyPatch) -> None:
    def upcast(old: JobStopRequestedOnce) -> JobStopRequested:
        return JobStopRequested(job=JobId(old.name), reason="asked")

    monkeypatch.setitem(upcasts.UPCASTS, "job.stop_asked", (JobStopRequestedOnce, upcast))


@pytest.mark.usefixtures("_retired")
def test_an_event_of_a_retired_shape_becomes_a_live_one() -> None:
    stored = b'{"type":"job.stop_asked","name":"job_main_1"}'
    live = upcasts.decode_body("job.stop_asked", stored)
    assert live == JobStopRequested(job=JobId("job_main_1"), reason="asked")
