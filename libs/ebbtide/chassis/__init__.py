"""How a process lives: settings, clock, logs, bus, cycle, effects, start and drain."""

import sys

# Where rich is installed, and litestar brings it, structlog imports it for its console renderer. No
# process of ours writes to a console: that is 0.1 s of each start and 3.5 MB of each process for
# nothing. So structlog is imported once, here, while rich seems not to be there.
if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog as structlog
    finally:
        del sys.modules["rich"]
