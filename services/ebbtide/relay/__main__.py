"""The relay as a process of its own; it hears of new events from Postgres itself."""

from ebbtide.chassis.process import main
from ebbtide.relay import CARD
from ebbtide.relay.shell import parts

if __name__ == "__main__":
    main(CARD.name, [parts], hear="log")
