"""The graph that a program builds, and the uids of its operators."""

from __future__ import annotations

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.graph.graph import Graph
from holdfast.graph.nodes import Edge, Node
from holdfast.graph.operations import MapOperation, SourceOperation
from holdfast.graph.uids import assign_uids

SOURCE = SourceOperation(None)
MAP = MapOperation(abs)


def chain(*kinds: str) -> list[Node]:
    nodes = [Node(0, kinds[0], kinds[0], SOURCE)]
    for number, kind in enumerate(kinds[1:], start=1):
        nodes.append(Node(number, kind, kind, MAP, (Edge(number - 1),)))
    return nodes


def test_nodes_are_numbered_in_order() -> None:
    graph = Graph()
    assert graph.add("source", "s", SOURCE) == 0
    assert graph.add("map", "m", MAP, [Edge(0)]) == 1
    assert graph[1].inputs == (Edge(0),)


def test_update_replaces_a_node() -> None:
    graph = Graph()
    graph.add("source", "s", SOURCE)
    before = graph[0]
    graph.update(0, name="renamed", parallelism=3)
    assert (graph[0].name, graph[0].parallelism) == ("renamed", 3)
    assert before.name == "s"


def test_pending_is_what_was_added_and_what_it_reads() -> None:
    graph = Graph()
    for name in ("a", "b", "c"):
        graph.add("source", name, SOURCE)
    graph.add("map", "of a", MAP, [Edge(0)])
    assert [node.name for node in graph.pending()] == ["a", "b", "c", "of a"]
    graph.mark_executed()
    assert graph.pending() == ()
    graph.add("map", "of of a", MAP, [Edge(3)])
    assert [node.name for node in graph.pending()] == ["a", "of a", "of of a"]


def test_derived_uids_do_not_depend_on_names_or_numbers() -> None:
    nodes = chain("source", "map", "filter")
    renamed = [
        Node(node.id, node.kind, f"other {node.name}", node.operation, node.inputs, parallelism=7)
        for node in nodes
    ]
    assert assign_uids(nodes) == assign_uids(renamed)


def test_derived_uids_depend_on_what_comes_before() -> None:
    short, longer = chain("source", "filter"), chain("source", "map", "filter")
    assert assign_uids(short)[1] != assign_uids(longer)[2]


def test_equal_siblings_have_different_uids() -> None:
    nodes = [*chain("source"), *(Node(i, "map", "m", MAP, (Edge(0),)) for i in (1, 2, 3))]
    assert len(set(assign_uids(nodes).values())) == 4


def test_a_uid_given_stays_and_shields_what_comes_after() -> None:
    def program(*extra: str) -> dict[int, str]:
        nodes = chain("source", *extra, "map", "filter")
        named = nodes[-2]
        nodes[-2] = Node(named.id, "map", "m", MAP, named.inputs, uid="mine")
        return assign_uids(nodes)

    assert list(program().values())[-2:] == list(program("flat_map").values())[-2:]


def test_calls_only_build_nodes(env: StreamExecutionEnvironment) -> None:
    def never(value: object) -> object:
        raise AssertionError("nothing runs while a program is built")

    env.from_collection([1]).map(never).key_by(never).filter(never).print()
    assert [node.kind for node in env._graph.pending()] == ["source", "map", "filter", "print"]
