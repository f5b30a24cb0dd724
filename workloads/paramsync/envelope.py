"""The messages of controllers.netstorm between nodes and scheduler, as JSON. Data has a form of its own (`wire`)."""

from __future__ import annotations

from controllers.netstorm.messages import Answer, Hello, Link, Policy, Report, Request, Routes
from controllers.netstorm.tree import Tree, Way

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Message = Request | Hello | Link | Report | Answer | Routes
_FLAT: dict[str, type[Request] | type[Hello] | type[Link] | type[Report]] = {
    "request": Request,
    "hello": Hello,
    "link": Link,
    "report": Report,
}


def packed(message: Message) -> list[Any]:
    """A message as plain lists, its name first."""
    if isinstance(message, Routes):
        return ["routes", *_routes(message)]
    if isinstance(message, Answer):
        policy = None if message.policy is None else _policy(message.policy)
        return ["answer", list(message.stage), message.version, policy, _routes(message.routes)]
    name = next(name for name, kind in _FLAT.items() if isinstance(message, kind))
    return [name, *vars(message).values()]


def unpacked(data: list[Any]) -> Message:
    """The inverse of `packed`."""
    name, *rest = data
    if name == "routes":
        return _read_routes(rest)
    if name == "answer":
        stage, version, policy, routes = rest
        return Answer((stage[0], stage[1]), version, policy and _read_policy(policy), _read_routes(routes))
    return _FLAT[name](*rest)


def _policy(policy: Policy) -> list[Any]:
    ways = [[_tree(way.push)] + ([] if way.pull == way.push else [_tree(way.pull)]) for way in policy.ways]
    return [policy.version, ways, list(policy.way_of)]


def _read_policy(data: list[Any]) -> Policy:
    version, ways, way_of = data
    trees = [[Tree(root, parent) for root, parent in way] for way in ways]
    return Policy(version, tuple(Way(way[0], way[-1]) for way in trees), tuple(way_of))


def _tree(tree: Tree) -> list[Any]:
    return [tree.root, dict(tree.parent)]


def _routes(routes: Routes) -> list[Any]:
    return [routes.number, [[*pair, paths] for pair, paths in routes.paths.items() if paths]]


def _read_routes(data: list[Any]) -> Routes:
    number, paths = data
    return Routes(number, {(a, b): tuple(tuple(path) for path in found) for a, b, found in paths})
