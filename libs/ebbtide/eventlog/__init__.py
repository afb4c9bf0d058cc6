"""What is remembered: the append-only log, in Postgres and in memory, and those who read it.

What the log must give, whoever implements it (``tests/contracts/test_log.py`` asks each):

1. One order: positions are gapless and in commit order, whatever writes concurrently.
2. One order per stream: versions are gapless; a unit whose expectation fails is dropped whole and
   returned.
3. A service's position is recorded in the same transaction as the events that it decided at it.
4. A decision is taken once: the compare-and-set of the service's revision decides between
   replicas.
5. No frozen client can hold the log.
6. Nothing decided in an older epoch is ever recorded.
"""
