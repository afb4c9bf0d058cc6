"""Names on the bus: subjects, buckets and headers. Job ids travel in headers, not in subjects.

Every distinct subject costs the server memory, so a subject names the kind of thing and who may
read it; and every subject carries the cell, so that two cells may share a server.
"""

from ebbtide.contracts.ids import NodeName, Workspace

HEADER_EPOCH = "Ebb-Epoch"
HEADER_EVENT = "Nats-Msg-Id"
"""Carries the event id under the name by which JetStream knows a message, so that it can refuse one
that does not follow a given other."""
HEADER_JOB = "Ebb-Job"
HEADER_STREAM = "Nats-Stream"
"""The server puts it on what it answers out of a stream; nobody can take it off."""
EXPECTED_LAST = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_EVENT = "Nats-Expected-Last-Msg-Id"
EXPECTED_LAST_ON_SUBJECT = "Nats-Expected-Last-Subject-Sequence"


def event(cell: str, workspace: Workspace, tag: str) -> str:
    """Subject of an event of type ``tag`` (``job.submitted``): only the relay publishes there."""
    return f"evt.{cell}.{workspace}.{tag}"


def events(cell: str) -> str:
    """All events of a cell."""
    return f"evt.{cell}.>"


def events_stream(cell: str) -> str:
    """JetStream stream whose sequence is the position in the log."""
    return f"EVT_{cell}"


def desired_bucket(cell: str) -> str:
    """KV bucket with one key per node: what shall run there. Written by fleet."""
    return f"desired_{cell}"


def lease_bucket(cell: str) -> str:
    """KV bucket with one key per node: the right to let workers run. Written by the agent."""
    return f"lease_{cell}"


def kv(bucket: str, key: str) -> str:
    """Subject under which JetStream keeps ``key`` of ``bucket``."""
    return f"$KV.{bucket}.{key}"


def kv_changed(bucket: str, key: str) -> str:
    """Subject on which a write to ``key`` is told once it was accepted, with its revision."""
    return f"kv.{bucket}.{key}"


def agent(cell: str, node: NodeName | str, verb: str) -> str:
    """Subject on which the agent of ``node`` speaks: ``register``, ``report``, ``checkpoint``."""
    return f"agent.{cell}.{node}.{verb}"


def agents(cell: str, verb: str) -> str:
    """What all agents say of one kind."""
    return f"agent.{cell}.*.{verb}"


def node(cell: str, name: NodeName | str, verb: str) -> str:
    """Subject on which the agent of ``name`` answers: ``logs``, ``tell``."""
    return f"node.{cell}.{name}.{verb}"


def tell_all(cell: str) -> str:
    """Subject on which fleet asks every agent to report again all that it knows."""
    return f"agents.{cell}.tell"


def ask(cell: str, service: str, question: str) -> str:
    """Subject on which a service answers what other services ask: ``ask.main.scheduler.why``."""
    return f"ask.{cell}.{service}.{question}"


def inbox(cell: str, name: NodeName | str) -> str:
    """Prefix of the reply subjects of one agent, so that no agent reads another's answers."""
    return f"_INBOX.{cell}.{name}"


def node_of(subject: str) -> str:
    """Give the node that ``subject`` (of :func:`agent`) speaks of."""
    return subject.split(".")[2]
