"""A platform that was ended and started again goes on with what it had accepted."""

from pathlib import Path

import pytest
from tests.e2e.conftest import running, wait_for

from ebbtide.contracts.events import AttemptEnded, JobRestarting
from ebbtide.contracts.outcomes import Outcome

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_a_job_without_restarts_goes_on_after_down_and_up(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text('{"name": "long", "command": ["sleep", "600"], "restart": {"max_restarts": 0}}')
    with running("--nodes", "1", "--capacity", "cpu=2,memory=2Gi") as platform:
        platform.wait_for_nodes(1)
        job = platform.ebb("submit", str(file)).split()[0]
        wait_for(lambda: platform.workers(job), "a running worker")
        platform.ebb("down")
        platform.ebb("up")
        wait_for(lambda: platform.client.get(job).attempt == 2, "the next attempt")
        wait_for(lambda: platform.workers(job), "a running worker")
        bodies = [one.body for one in platform.story(job)]
        ended = next(body for body in bodies if isinstance(body, AttemptEnded))
        again = next(body for body in bodies if isinstance(body, JobRestarting))
        assert (ended.outcome, again.counted) == (Outcome.CUT_OFF, False)
        platform.ebb("stop", job)
        assert platform.client.wait(job, timeout_s=60).phase == "stopped"
