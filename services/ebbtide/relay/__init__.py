"""Relay: repeats the log's events on the bus, each under its own number."""

from ebbtide.chassis.service import Card

CARD = Card(
    name="relay",
    duty="copies the log to the events stream, where the sequence is the position",
    reads=("",),
    serves=("evt.>",),
)
