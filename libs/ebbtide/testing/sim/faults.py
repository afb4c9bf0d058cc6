"""What each kind of fault does to a world, and how it is mended again.

Nothing here breaks what the real thing promises: the log loses only what a failover may lose, the
bus only what it may lose, and a machine that is called dead is dead.
"""

from collections.abc import Callable, Sequence

import msgspec

from ebbtide.testing.bus import Faults
from ebbtide.testing.sim.agents import Agent
from ebbtide.testing.sim.ground import Ground
from ebbtide.testing.sim.plan import Act
from ebbtide.testing.sim.processes import Process
from ebbtide.testing.sim.store import Trouble

HOUR_S = 3600.0
NEVER_BACK = 0.25
"""The share of nodes that lose power and never come back."""
BACK_CALLS = 12
"""The most appends that a standby may lag behind."""


class Calamities:
    """Does acts to processes, agents, store and bus, and undoes them."""

    def __init__(
        self,
        ground: Ground,
        processes: Sequence[Process],
        agents: Sequence[Agent],
        on_failover: Callable[[], None],
    ) -> None:
        self._ground = ground
        self._processes, self._agents = processes, agents
        self._on_failover = on_failover

    def do(self, act: Act) -> None:
        """Do an act now, and have it undone when its time is over."""
        undo = getattr(self, f"_{act.do}")(act)
        if undo is not None:
            self._ground.later(act.for_s, undo)

    def end_all(self) -> None:
        """Mend everything but nodes that are lost for good."""
        self._ground.store.trouble = Trouble()
        self._ground.server.hub.network.faults = Faults(delay_s=0.002)
        self._server_back()
        for process in self._processes:
            process.clock.offset_s = 0.0
            process.thaw()
            process.restore()
            process.start()
        for agent in self._agents:
            agent.thaw()
            agent.restore()
            agent.start()

    def _process(self, act: Act) -> Process:
        return self._processes[int(act.who * len(self._processes))]

    def _agent(self, act: Act) -> Agent:
        return self._agents[int(act.who * len(self._agents))]

    def _kill(self, act: Act) -> Callable[[], None]:
        one = self._process(act)
        one.kill()
        return one.start

    def _freeze(self, act: Act) -> Callable[[], None]:
        one = self._process(act)
        one.freeze()
        return one.thaw

    def _cut(self, act: Act) -> Callable[[], None]:
        one = self._process(act)
        one.cut()
        return one.restore

    def _jump_clock(self, act: Act) -> Callable[[], None]:
        """Set a wall clock wrong, by seconds or by up to a day."""
        one = self._process(act)
        most_s = 24 * HOUR_S if act.much > 0.5 else 30.0
        one.clock.offset_s = (4 * act.much % 2 - 1) * most_s

        def mend() -> None:
            one.clock.offset_s = 0.0

        return mend

    def _kill_agent(self, act: Act) -> Callable[[], None]:
        one = self._agent(act)
        one.kill()
        return one.start

    def _freeze_agent(self, act: Act) -> Callable[[], None]:
        one = self._agent(act)
        one.freeze()
        return one.thaw

    def _cut_agent(self, act: Act) -> Callable[[], None]:
        one = self._agent(act)
        one.cut()
        return one.restore

    def _lose_power(self, act: Act) -> Callable[[], None] | None:
        one = self._agent(act)
        if not one.machine.alive:
            return None
        one.kill()
        one.machine.lose_power()
        if act.much < NEVER_BACK:
            return None

        def come_back() -> None:
            one.machine.come_back(new_disk=act.much > 0.7)
            one.start()

        return come_back

    def _bad_network(self, act: Act) -> Callable[[], None]:
        """Lose, repeat and delay messages; delays of one subject do not keep up with another's."""
        network = self._ground.server.hub.network
        network.faults = Faults(
            drop=act.much * 0.3,
            duplicate=act.who * 0.3,
            delay_s=act.much * act.who * 3,
            lose_answer=act.much * 0.2,
        )

        def mend() -> None:
            network.faults = Faults(delay_s=0.002)

        return mend

    def _slow_network(self, act: Act) -> Callable[[], None]:
        """Delay messages, and do nothing worse to them."""
        network = self._ground.server.hub.network
        network.faults = Faults(delay_s=act.much * 3)

        def mend() -> None:
            network.faults = Faults(delay_s=0.002)

        return mend

    def _trouble(self, **fields: object) -> Callable[[], None]:
        store = self._ground.store
        store.trouble = msgspec.structs.replace(store.trouble, **fields)

        def mend() -> None:
            store.trouble = Trouble()

        return mend

    def _slow_store(self, act: Act) -> Callable[[], None]:
        return self._trouble(delay_s=0.05 + act.much)

    def _lossy_store(self, act: Act) -> Callable[[], None]:
        return self._trouble(lose=0.1 + act.much / 2)

    def _store_away(self, _act: Act) -> Callable[[], None]:
        self._ground.store.break_connections()
        return self._trouble(away=True)

    def _bus_away(self, _act: Act) -> Callable[[], None]:
        self._ground.server_up = False
        self._ground.server.stop()
        return self._server_back

    def _empty_bus(self, act: Act) -> Callable[[], None]:
        """Have NATS start again on an empty disk."""
        undo = self._bus_away(act)
        self._ground.server.hub.buckets.clear()
        self._ground.server.hub.streams.clear()
        return undo

    def _server_back(self) -> None:
        self._ground.server_up = True
        everybody: list[Process | Agent] = [*self._processes, *self._agents]
        for one in everybody:
            if not isinstance(one, Agent) or not one.is_cut:
                one.restore()

    def _fail_over(self, act: Act) -> Callable[[], None]:
        """Have a standby take over that had not heard of the newest appends."""
        self._ground.store.put_back(int(act.much * BACK_CALLS))
        self._on_failover()
        return self._trouble(away=True)
