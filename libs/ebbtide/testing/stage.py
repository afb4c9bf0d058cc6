"""All deciding services on a log in memory and a virtual clock, with simulated agents.

The policies, pictures, inboxes and desired state are the real ones; only the bus is replaced by
calls. Services take turns in an order drawn from a seed, so a story can be told under many
interleavings. Every event passes the checks as it is recorded.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from ebbtide.api import policy as api_policy
from ebbtide.chassis.cycle import Picture
from ebbtide.chassis.service import Decision
from ebbtide.checkpoint import model as checkpoint_model
from ebbtide.checkpoint import policy as checkpoint_policy
from ebbtide.contracts.agents import CheckpointReport, Registration, Report
from ebbtide.contracts.envelope import Append, Appended, Position, Recorded, Unit
from ebbtide.contracts.errors import Conflict, Malformed, Rejected
from ebbtide.contracts.events import (
    JobStopRequested,
    JobSubmitted,
    NodeChange,
    TokenCreated,
    job_of,
    tag_of,
)
from ebbtide.contracts.http import ChangeNode
from ebbtide.contracts.ids import JobId, NodeName, TokenId
from ebbtide.contracts.job_spec import JobSpec
from ebbtide.eventlog.log import Decided
from ebbtide.eventlog.memory import MemoryLog
from ebbtide.fleet import model as fleet_model
from ebbtide.fleet import policy as fleet_policy
from ebbtide.fleet.desired import desired
from ebbtide.fleet.inbox import Inbox, is_settled
from ebbtide.model import job
from ebbtide.model.job import Job
from ebbtide.model.world import World
from ebbtide.node_health import model as node_health_model
from ebbtide.node_health import policy as node_health_policy
from ebbtide.node_health.model import Sight
from ebbtide.node_health.policy import Limits
from ebbtide.quota import model as quota_model
from ebbtide.quota import policy as quota_policy
from ebbtide.recovery import model as recovery_model
from ebbtide.recovery import policy as recovery_policy
from ebbtide.scheduler import model as scheduler_model
from ebbtide.scheduler import policy as scheduler_policy
from ebbtide.testing.agents import LEASE_S, SimulatedAgent
from ebbtide.testing.builders import TEAM, VirtualClock, job_name
from ebbtide.testing.checks import Checks

LIMITS = Limits(lease_s=LEASE_S, margin_s=LEASE_S / 10)
TWIN = "·2"
TURNS_MAX = 2_000
"""A stage that is not at rest after so many turns goes round in circles."""


class Player:
    """One service on the stage: its picture, its policy, and how far it has come."""

    def __init__(
        self, name: str, picture: type[Picture], decide: Callable[[Any], Decision]
    ) -> None:
        self.name = name
        self.kind = picture
        self.picture = picture()
        self.decide = decide
        self.folded = 0
        self.owed = 0
        self.revision = 0

    def crash(self) -> None:
        """Lose everything but what the log holds."""
        self.picture = self.kind()
        self.folded = 0

    def snapshot(self) -> None:
        """Go on from a snapshot of the picture, as after a restart."""
        body = msgspec.msgpack.encode(self.picture)
        self.picture = msgspec.msgpack.decode(body, type=self.kind)


class Stage:
    """Tell a story: submit jobs, let services and agents act, look at the log.

    With ``lagging`` a service often decides on less than the log holds, as one that reads over a
    bus does; with ``twins`` every service has a second replica.
    """

    def __init__(
        self, *nodes: Registration, seed: int = 0, lagging: bool = False, twins: bool = False
    ) -> None:
        self.clock = VirtualClock()
        self.log = MemoryLog(self.clock)
        self.checks = Checks()
        self.world = World()
        self.inbox = Inbox()
        self.events: list[Recorded] = []
        self.agents = {one.node: SimulatedAgent(one, self.clock) for one in nodes}
        self._random = random.Random(seed)  # noqa: S311  # a test's dice
        self._jobs = 0
        self.sight = Sight()
        self.reports: dict[str, tuple[str, CheckpointReport]] = {}
        self.lagging = lagging
        self.players = self._cast("")
        if twins:
            self.players.update(self._cast(TWIN))

    def _cast(self, suffix: str) -> dict[str, Player]:
        """Make one replica of every service."""
        now = self.clock.now
        players = (
            Player("quota", quota_model.Picture, lambda p: quota_policy.decide(p, now())),
            Player(
                "scheduler", scheduler_model.Picture, lambda p: scheduler_policy.decide(p, now())
            ),
            Player("recovery", recovery_model.Picture, lambda p: recovery_policy.decide(p, now())),
            Player(
                "fleet", fleet_model.Picture, lambda p: fleet_policy.decide(p, self.inbox, now())
            ),
            Player(
                "checkpoint",
                checkpoint_model.Picture,
                lambda p: checkpoint_policy.decide(p, self.reports.values()),
            ),
            Player("node_health", node_health_model.Picture, self._judge),
        )
        return {player.name + suffix: player for player in players}

    @property
    def _fleet(self) -> fleet_model.Picture:
        picture = self.players["fleet"].picture
        assert isinstance(picture, fleet_model.Picture)  # noqa: S101  # made so above
        return picture

    def _judge(self, picture: node_health_model.Picture) -> Decision:
        """Judge nodes by their leases, and take away those that are due."""
        now_s = self.clock.monotonic_s()
        verdicts = node_health_policy.decide(picture, self.sight, LIMITS, now_s, self.clock.now())
        for name, _ in verdicts.take:
            self.agents[name].lease.taken = True
            self.sight.took[name] = self.agents[name].lease.revision
        return verdicts.decision

    async def submit(self, spec: JobSpec) -> JobId:
        """Submit a job as api does."""
        self._jobs += 1
        name = job_name(self._jobs)
        await self._say(JobSubmitted(job=name, workspace=TEAM, spec=spec), job.stream(name), 0)
        return name

    async def stop(self, name: JobId) -> None:
        """Ask for a job to end, as api does; it is no error if the job has ended."""
        one = self.world.jobs.get(name)
        if one is not None and one.stage != "final" and not one.stop_requested:
            await self._say(JobStopRequested(job=name), job.stream(name), one.version)

    async def change(self, name: str, change: NodeChange) -> None:
        """Ask for a node to be used otherwise, as api does.

        Raises:
            Malformed: api would refuse it.
        """
        known = self.world.node_named(NodeName(name))
        assert known is not None, f"{name} has not joined"  # noqa: S101  # a mistake in the test
        unit = api_policy.change_node(known, ChangeNode(change=change), "token:t")
        if isinstance(unit, Rejected):
            raise Malformed(unit)
        if unit is not None:
            await self._append("api", None, (unit,))

    async def give_token(self, node: str, token: str) -> None:
        """Give a node's agent a credential, as api does."""
        body = TokenCreated(
            token=TokenId(token), kind="agent", subject=node, secret_sha256=f"hash of {token}"
        )
        await self._append("api", None, (api_policy.create_token(body, "token:t"),))

    async def revoke_token(self, token: str) -> None:
        """Revoke a credential, as api does."""
        await self._append("api", None, (api_policy.revoke_token(TokenId(token), "token:t"),))

    async def _say(self, body: JobSubmitted | JobStopRequested, stream: str, expected: int) -> None:
        unit = Unit(appends=(Append(stream=stream, body=body, expected=expected, workspace=TEAM),))
        await self._append("api", None, (unit,))

    async def rest(self) -> None:
        """Let everybody act until nobody has anything to do at this time."""
        for _ in range(TURNS_MAX):
            actors: list[Player | SimulatedAgent] = [*self.players.values(), *self.agents.values()]
            self._random.shuffle(actors)
            moved = [await self._act(actor) for actor in actors]
            if not any(moved):
                return
        raise RuntimeError(f"not at rest after {TURNS_MAX} turns: {self.events[-3:]}")

    async def step(self) -> None:
        """Let one of them act, drawn by the dice: what others see of it comes later."""
        actors: list[Player | SimulatedAgent] = [*self.players.values(), *self.agents.values()]
        await self._act(self._random.choice(actors))

    async def pass_time(self, seconds: float, step_s: float = 0.5) -> None:
        """Let time pass in steps, everybody acting in each."""
        left = seconds
        while left > 0:
            self.clock.advance(min(step_s, left))
            left -= step_s
            await self.rest()

    def lose_inbox(self) -> None:
        """Have fleet restart: it forgets what agents said, and asks them all to say it again."""
        self.players["fleet"].crash()
        self.inbox = Inbox()
        for agent in self.agents.values():
            agent.tell_again()

    async def _act(self, actor: "Player | SimulatedAgent") -> bool:
        if isinstance(actor, SimulatedAgent):
            return self._visit(actor)
        return await self._turn(actor)

    async def _turn(self, player: Player) -> bool:
        """Have one service fold, decide and commit, as a cycle does."""
        fresh = self.events[player.folded :]
        if self.lagging and fresh and player.folded >= player.owed:
            fresh = fresh[: self._random.randint(0, len(fresh))]
        for recorded in fresh:
            player.picture.apply(recorded)
        player.folded += len(fresh)
        if player is self.players["fleet"]:
            self.inbox.forget(self._fleet)
        if player.folded < player.owed:
            return bool(fresh)
        decision = player.decide(player.picture)
        if decision.units:
            await self._commit(player, decision.units)
        return bool(fresh or decision.units) or player.folded < len(self.events)

    async def _commit(self, player: Player, units: tuple[Unit, ...]) -> None:
        """Append a decision; after a conflict the player reads on."""
        try:
            player.revision = (await self._append(player.name, player, units)).revision
        except Conflict:
            player.revision = (await self.log.checkpoint(player.name)).revision
        player.owed = len(self.events)

    async def _append(
        self, service: str, player: Player | None, units: tuple[Unit, ...]
    ) -> Appended:
        epoch = (await self.log.head()).epoch
        read_to = player.folded if player is not None else len(self.events)
        decided = Decided(
            service=service,
            read_to=Position(epoch, read_to),
            decided_at=self.clock.now(),
            units=units,
            revision=player.revision if player is not None else None,
        )
        appended = await self.log.append(decided)
        for recorded in await self.log.read(len(self.events), 10_000):
            self.checks.apply(recorded)
            self.world.apply(recorded)
            self.events.append(recorded)
        return appended

    def _visit(self, agent: SimulatedAgent) -> bool:
        """Carry desired state to an agent and its reports back, as the bus would."""
        if not agent.renew(self.sight):
            return False
        node = self._fleet.world.node_named(agent.name)
        if node is None or node.boot != agent.registration.boot:
            asked = agent.name in self.inbox.registrations
            self.inbox.registrations[agent.name] = agent.registration
            return not asked
        self.inbox.registrations.pop(agent.name, None)
        wanted = desired(self._fleet, self.inbox, node.number, self.clock.now())
        moved = agent.reconcile(wanted)
        unsettled = agent.unsettled()
        if unsettled:
            self.inbox.take(self._fleet, Report(node=agent.name, workers=unsettled))
        agent.settle(tuple(one for one in unsettled if is_settled(self._fleet, one)))
        return moved or bool(unsettled)

    def job(self, name: JobId) -> Job | None:
        """Give a job as it is; None once it has ended and holds nothing."""
        return self.world.jobs.get(name)

    def story(self, name: JobId) -> list[str]:
        """Give the tags of all that was recorded about a job."""
        return [tag_of(recorded.body) for recorded in self.events if job_of(recorded.body) == name]
