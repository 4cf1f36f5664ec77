"""State without a class: ``map_with_state``, ``flat_map_with_state`` and ``filter_with_state``.

The function gets the value and the state of its key, None at first, and returns its result
together with the new state; None clears it. Prints, among other lines:

    visit> ann comes for the 1st time
    visit> ann comes for the 2nd time
    sessions> ('ann', ['home', 'cart', 'pay'])
    changes> ('ann', 'cart')
"""

from holdfast.datastream import StreamExecutionEnvironment

CLICKS = [
    ("ann", "home"),
    ("ben", "home"),
    ("ann", "cart"),
    ("ann", "cart"),
    ("ann", "pay"),
    ("ben", "home"),
    ("ben", "pay"),
]
ENDINGS = {1: "st", 2: "nd", 3: "rd"}


def number_visit(click: tuple[str, str], visits: int | None) -> tuple[str, int]:
    """One result per click: which visit of the user it is."""
    number = (visits or 0) + 1
    return f"{click[0]} comes for the {number}{ENDINGS.get(number, 'th')} time", number


def end_session(
    click: tuple[str, str], pages: list[str] | None
) -> tuple[list[tuple[str, list[str]]], list[str] | None]:
    """A result only when the user pays; then the state is cleared."""
    user, page = click
    path = [*(pages or []), page] if not pages or pages[-1] != page else pages
    return ([(user, path)], None) if page == "pay" else ([], path)


def is_change(click: tuple[str, str], last: str | None) -> tuple[bool, str]:
    """Keep a click if it leads to another page than the one before."""
    return click[1] != last, click[1]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    clicks = env.from_collection(CLICKS).key_by(lambda click: click[0])
    clicks.map_with_state(number_visit).print("visit")
    clicks.flat_map_with_state(end_session).print("sessions")
    clicks.filter_with_state(is_change).print("changes")
    env.execute("with state")


if __name__ == "__main__":
    main()
