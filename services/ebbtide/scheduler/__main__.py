"""The scheduler service as a process of its own."""

from ebbtide.chassis.process import main
from ebbtide.scheduler import CARD
from ebbtide.scheduler.shell import parts

if __name__ == "__main__":
    main(CARD.name, [parts])
