"""Events are for ever.

Every tag has an author, a description, and a stored example that still reads.
"""

from pathlib import Path

import msgspec
import pytest

from ebbtide.api import CARD as API
from ebbtide.checkpoint import CARD as CHECKPOINT
from ebbtide.contracts.authors import AUTHORS
from ebbtide.contracts.events import EVENT_TYPES, tag_of
from ebbtide.contracts.upcasts import UPCASTS, UnknownEvent, decode_body, encode_body
from ebbtide.fleet import CARD as FLEET
from ebbtide.node_health import CARD as NODE_HEALTH
from ebbtide.quota import CARD as QUOTA
from ebbtide.recovery import CARD as RECOVERY
from ebbtide.scheduler import CARD as SCHEDULER

GOLDEN = Path(__file__).parent / "golden"
CARDS = (API, QUOTA, SCHEDULER, FLEET, NODE_HEALTH, RECOVERY, CHECKPOINT)


@pytest.mark.parametrize("tag", sorted(EVENT_TYPES))
def test_every_event_type_has_one_author_and_says_so(tag: str) -> None:
    doc = EVENT_TYPES[tag].__doc__ or ""
    assert f"({AUTHORS[tag]})." in " ".join(doc.split()), (
        "the docstring names the author in brackets"
    )


def test_cards_name_what_their_services_emit() -> None:
    emitted = [(tag, card.name) for card in CARDS for tag in card.emits]
    assert sorted(emitted) == sorted(AUTHORS.items())


@pytest.mark.parametrize("tag", sorted(EVENT_TYPES.keys() | UPCASTS.keys()))
def test_every_released_event_has_a_stored_example_that_still_reads(tag: str) -> None:
    stored = (GOLDEN / f"{tag}.json").read_bytes()
    event = decode_body(tag, stored)
    assert decode_body(tag_of(event), encode_body(event)) == event


def test_every_stored_example_is_of_a_known_tag() -> None:
    assert {file.stem for file in GOLDEN.glob("*.json")} == EVENT_TYPES.keys() | UPCASTS.keys()


def test_an_event_of_a_later_release_stops_the_reader() -> None:
    with pytest.raises(UnknownEvent, match="teleported"):
        decode_body("job.teleported", b'{"type":"job.teleported"}')


def test_a_field_of_a_later_release_is_tolerated() -> None:
    stored = msgspec.json.decode((GOLDEN / "job.queued.json").read_bytes())
    body = msgspec.json.encode({**stored, "colour": "red"})
    assert decode_body("job.queued", body) == decode_body("job.queued", msgspec.json.encode(stored))
