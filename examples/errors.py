"""What a failing job looks like: the exception names the operator, the record and your line.

A function that raises ends the job with a ``UserFunctionError``. A program that cannot run at all
is refused before anything starts, with a ``JobDefinitionError``. Prints:

    the job failed in operator 'parse', subtask 0, at record '7,five'
    it was: ValueError
    refused: operator 'orphan' has parallelism 300, above its max parallelism 128
"""

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.errors import JobDefinitionError, UserFunctionError


def parse(line: str) -> tuple[int, int]:
    left, right = line.split(",")
    return int(left), int(right)


def fail_at_a_record() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.from_collection(["1,2", "7,five", "3,4"]).map(parse).name("parse").print()
    try:
        env.execute("failing")
    except UserFunctionError as error:
        where = f"operator '{error.operator}', subtask {error.subtask}"
        print(f"the job failed in {where}, at record {error.record}")
        print(f"it was: {type(error.original).__name__}")
        # ``print(error)`` shows it all, with the traceback from the frame of ``parse``.


def fail_before_anything_runs() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_max_parallelism(128)
    env.from_collection([1]).map(str).name("orphan").set_parallelism(300).print()
    try:
        env.execute("refused")
    except JobDefinitionError as error:
        print(f"refused: {str(error).split(';')[0]}")


def main() -> None:
    fail_at_a_record()
    fail_before_anything_runs()


if __name__ == "__main__":
    main()
