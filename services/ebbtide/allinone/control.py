"""Every service in one process, with one reader of the log: the committed append wakes them.

They are woken in the order in which a job needs them; copying and showing come last.
"""

from ebbtide.api import shell as api
from ebbtide.chassis.process import main
from ebbtide.checkpoint import shell as checkpoint
from ebbtide.fleet import shell as fleet
from ebbtide.node_health import shell as node_health
from ebbtide.quota import shell as quota
from ebbtide.recovery import shell as recovery
from ebbtide.relay import shell as relay
from ebbtide.scheduler import shell as scheduler

SERVICES = (quota, scheduler, fleet, recovery, checkpoint, node_health, api, relay)

if __name__ == "__main__":
    main("control", [service.parts for service in SERVICES], hear="memory")
