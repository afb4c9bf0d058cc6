"""The checkpoint service as a process of its own."""

from ebbtide.chassis.process import main
from ebbtide.checkpoint import CARD
from ebbtide.checkpoint.shell import parts

if __name__ == "__main__":
    main(CARD.name, [parts])
