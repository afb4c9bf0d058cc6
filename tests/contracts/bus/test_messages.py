"""What a bus must give, whoever implements it: messages, queues and requests."""

import asyncio

import pytest
from tests.contracts.bus.rig import Connect, Heard, settled

from ebbtide.chassis.bus import Bus, Message
from ebbtide.contracts.errors import Unavailable
from ebbtide.testing.waiting import wait_until


async def answering(bus: Bus, subject: str) -> None:
    async def answer(message: Message) -> None:
        await bus.publish(message.reply, b"re: " + message.data)

    await bus.subscribe(subject, answer)


async def test_a_message_reaches_everybody_who_listens(connect: Connect, cell: str) -> None:
    one, two, speaker = await connect(), await connect(), await connect()
    first, second = Heard(), Heard()
    await one.subscribe(f"agent.{cell}.*.report", first)
    await two.subscribe(f"agent.{cell}.>", second)
    await settled(one, two)
    await speaker.publish(f"agent.{cell}.n1.report", b"up")
    await wait_until(lambda: first.data() == second.data() == [b"up"], "both hear it")


async def test_one_member_of_a_queue_gets_each_message(connect: Connect, cell: str) -> None:
    one, two, speaker = await connect(), await connect(), await connect()
    first, second = Heard(), Heard()
    await one.subscribe(f"work.{cell}", first, queue="q")
    await two.subscribe(f"work.{cell}", second, queue="q")
    await settled(one, two)
    for number in range(20):
        await speaker.publish(f"work.{cell}", b"%d" % number)
    await wait_until(lambda: len(first) + len(second) >= 20, "all are heard")
    assert sorted(int(data) for data in first.data() + second.data()) == list(range(20))


async def test_a_closed_subscription_hears_nothing_more(bus: Bus, cell: str) -> None:
    heard, after = Heard(), Heard()
    subscription = await bus.subscribe(f"x.{cell}", heard)
    await bus.subscribe(f"x.{cell}", after)
    await subscription.close()
    await bus.publish(f"x.{cell}", b"late")
    await wait_until(lambda: len(after) == 1, "the other one hears it")
    assert heard == []


async def test_a_handler_is_awaited_for_one_message_at_a_time_in_order(bus: Bus, cell: str) -> None:
    running, order = [], []

    async def handler(message: Message) -> None:
        running.append(message)
        await asyncio.sleep(0)
        assert len(running) == 1
        order.append(int(message.data))
        running.pop()

    await bus.subscribe(f"x.{cell}", handler)
    for number in range(50):
        await bus.publish(f"x.{cell}", b"%d" % number)
    await wait_until(lambda: len(order) == 50, "all are handled")
    assert order == list(range(50))


async def test_a_handler_that_raises_still_gets_the_next_message(bus: Bus, cell: str) -> None:
    heard: list[bytes] = []

    async def handler(message: Message) -> None:
        heard.append(message.data)
        raise ValueError("bad message")

    await bus.subscribe(f"x.{cell}", handler)
    await bus.publish(f"x.{cell}", b"1")
    await bus.publish(f"x.{cell}", b"2")
    await wait_until(lambda: heard == [b"1", b"2"], "both are handed over")


async def test_a_handler_may_close_its_own_subscription(bus: Bus, cell: str) -> None:
    done: list[str] = []

    async def handler(_: Message) -> None:
        await subscription.close()
        done.append("closed")

    subscription = await bus.subscribe(f"x.{cell}", handler)
    await bus.publish(f"x.{cell}", b"1")
    await wait_until(lambda: done == ["closed"], "the handler ran to its end")


async def test_a_request_is_answered(connect: Connect, cell: str) -> None:
    asker, answerer = await connect(), await connect()
    await answering(answerer, f"q.{cell}")
    await settled(answerer)
    assert await asker.request(f"q.{cell}", b"hello", 5) == b"re: hello"


async def test_many_requests_at_once_get_their_own_answers(bus: Bus, cell: str) -> None:
    await answering(bus, f"q.{cell}")
    answers = await asyncio.gather(*(bus.request(f"q.{cell}", b"%d" % n, 5) for n in range(50)))
    assert answers == [b"re: %d" % n for n in range(50)]


async def test_a_request_that_nobody_listens_to_is_unavailable_at_once(bus: Bus, cell: str) -> None:
    with pytest.raises(Unavailable, match="nobody listens"):
        await bus.request(f"q.{cell}", b"", 30)


async def test_a_request_that_nobody_answers_is_unavailable_in_time(bus: Bus, cell: str) -> None:
    await bus.subscribe(f"q.{cell}", Heard())
    with pytest.raises(Unavailable, match="no answer"):
        await bus.request(f"q.{cell}", b"", 0.05)


async def test_closing_a_connection_lets_a_running_handler_end(connect: Connect, cell: str) -> None:
    asker, answerer = await connect(), await connect()
    begun, go = asyncio.Event(), asyncio.Event()

    async def answer(message: Message) -> None:
        begun.set()
        await go.wait()
        await answerer.publish(message.reply, b"answered")

    await answerer.subscribe(f"q.{cell}", answer)
    await settled(answerer)
    request = asyncio.create_task(asker.request(f"q.{cell}", b"", 5))
    await begun.wait()
    closing = asyncio.create_task(answerer.close())
    await asyncio.sleep(0)
    go.set()
    assert await request == b"answered"
    await closing
