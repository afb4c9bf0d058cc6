"""How a process lives: settings, clock, logs, bus, cycle, effects, start and drain."""
