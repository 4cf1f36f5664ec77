"""A reminder for everyone who left a full cart: event-time timers that are set, moved and deleted.

An addition to a cart sets a timer half an hour later, in the place of the one before; paying
deletes it. Time is that of the events, which come up to five minutes out of order: however fast
they are read, and wherever an epoch ends, the same carts are left at the same times. Prints

    at 09:35 ann left shoes, socks
    at 10:12 ann left a hat
    at 11:00 cem left a tent
    as plain Python says

A timer fires when the watermark comes to it, at the end of an epoch, so an event from after its
time may be there first: the function looks for that by itself. The last timers fire when the input
has ended, since then all time is over.
"""

from collections.abc import Iterator

from holdfast.common import Duration, Types, WatermarkStrategy
from holdfast.common.watermark_strategy import TimestampAssigner
from holdfast.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.state import ListStateDescriptor, ValueStateDescriptor

Event = tuple[str, str, str]
Left = tuple[int, str, str]

MINUTE = 60_000
PATIENCE = 30 * MINUTE
EVENTS: list[Event] = [
    ("ann", "09:00", "shoes"),
    ("ben", "09:02", "a lamp"),
    ("ann", "09:05", "socks"),
    ("ben", "09:10", "pays"),
    ("cem", "09:08", "a tent"),
    ("cem", "09:31", "pays"),
    ("ann", "09:42", "a hat"),
    ("cem", "10:30", "a tent"),
    ("ben", "10:28", "a coat"),
    ("ben", "10:41", "pays"),
]


def millis(clock: str) -> int:
    return (int(clock[:2]) * 60 + int(clock[3:])) * MINUTE


def clock(timestamp: int) -> str:
    return f"{timestamp // MINUTE // 60:02}:{timestamp // MINUTE % 60:02}"


class EventClock(TimestampAssigner):
    """Reads the timestamp off an event."""

    def extract_timestamp(self, value: Event, record_timestamp: int) -> int:
        return millis(value[1])


class Carts(KeyedProcessFunction):
    """The cart of each user, and when it counts as left."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.cart = runtime_context.get_list_state(ListStateDescriptor("cart", Types.STRING()))
        self.due = runtime_context.get_state(ValueStateDescriptor("due", Types.LONG()))

    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> Iterator[Left]:
        timers, due, now = ctx.timer_service(), self.due.value(), millis(value[1])
        if due is not None:
            timers.delete_event_time_timer(due)
            if due < now:
                yield self.give_up(due, ctx)
        if value[2] == "pays":
            self.cart.clear()
            self.due.clear()
        else:
            self.cart.add(value[2])
            self.due.update(now + PATIENCE)
            timers.register_event_time_timer(now + PATIENCE)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Left]:
        yield self.give_up(timestamp, ctx)

    def give_up(self, due: int, ctx: KeyedProcessFunction.Context) -> Left:
        left = due, ctx.get_current_key(), ", ".join(self.cart)
        self.cart.clear()
        self.due.clear()
        return left


def left_carts() -> list[Left]:
    """The same in plain Python: a cart is left if nothing follows within the patience."""
    found, carts = [], dict[str, list[str]]()
    for number, (user, at, what) in enumerate(EVENTS):
        cart = carts.setdefault(user, [])
        if what == "pays":
            cart.clear()
            continue
        cart.append(what)
        due = millis(at) + PATIENCE
        if not any(who == user and millis(then) <= due for who, then, _ in EVENTS[number + 1 :]):
            found.append((due, user, ", ".join(cart)))
            cart.clear()
    return sorted(found)


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(5))
    carts = (
        env.from_collection(EVENTS)
        .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(EventClock()))
        .key_by(lambda event: event[0])
        .process(Carts())
        .set_parallelism(2)
    )
    with carts.execute_and_collect("event-time timers") as results:
        found = sorted(results)
    for timestamp, user, things in found:
        print(f"at {clock(timestamp)} {user} left {things}")
    assert found == left_carts(), left_carts()
    print("as plain Python says")


if __name__ == "__main__":
    main()
