"""The node_health service as a process of its own."""

from ebbtide.chassis.process import main
from ebbtide.node_health import CARD
from ebbtide.node_health.shell import parts

if __name__ == "__main__":
    main(CARD.name, [parts])
