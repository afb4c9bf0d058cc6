"""The fleet service as a process of its own."""

from ebbtide.chassis.process import main
from ebbtide.fleet import CARD
from ebbtide.fleet.shell import parts

if __name__ == "__main__":
    main(CARD.name, [parts])
