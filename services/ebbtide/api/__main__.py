"""The api service as a process of its own."""

from ebbtide.api import CARD
from ebbtide.api.shell import parts
from ebbtide.chassis.process import main

if __name__ == "__main__":
    main(CARD.name, [parts])
