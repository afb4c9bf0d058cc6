"""The quota service as a process of its own."""

from ebbtide.chassis.process import main
from ebbtide.quota import CARD
from ebbtide.quota.shell import parts

if __name__ == "__main__":
    main(CARD.name, [parts])
