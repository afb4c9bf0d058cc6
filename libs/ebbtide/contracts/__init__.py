"""What is said: ids, units, job specifications, events, messages and subjects.

Everything that crosses a process boundary has its shape here and nowhere else. This package imports
msgspec and the standard library only, and reads no clock, no randomness, no files.

Glossary, one word each:

- **job**: what a person submits; it has roles and ends exactly once.
- **attempt**: one life of the gang on its placement. A restart of the whole gang is a next attempt.
- **round**: one rendezvous in an attempt.
- **role**: workers of one kind; **worker**: one process tree on one node; **rank**: one process in
  it.
- **gang**: all workers of a job, placed whole or not at all.
- **node**: a machine with an agent; **pool**: nodes that share one stream of placements.
- **placement**: the nodes and devices of a gang; **charge**: how a placement counts for its quota.
- **workspace**: whose job it is; **quota**: who is entitled to what.
- **lease**: an agent's right to let workers run; **fence**: what keeps a stale attempt without
  effect.
- **log**: the append-only order of events; **position**: the place of one event in it; **epoch**:
  one history of the log (it rises when Postgres is restored or promoted); **stream**: the events
  that one thing's decisions depend on; **unit**: appends that stand or fall together.
"""
