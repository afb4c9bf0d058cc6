"""The recovery service as a process of its own."""

from ebbtide.chassis.process import main
from ebbtide.recovery import CARD
from ebbtide.recovery.shell import parts

if __name__ == "__main__":
    main(CARD.name, [parts])
