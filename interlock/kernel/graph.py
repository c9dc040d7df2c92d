"""Directed graphs as pairs of nodes: cycles, order, successors."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from heapq import heappop, heappush
from typing import TypeVar

N = TypeVar("N", bound=Hashable)


def successors(edges: Iterable[tuple[N, N]]) -> dict[N, list[N]]:
    """Each node's next nodes, in the order of the edges."""
    after: dict[N, list[N]] = {}
    for source, target in edges:
        after.setdefault(source, []).append(target)
    return after


def reachable(start: Iterable[N], edges: Iterable[tuple[N, N]]) -> set[N]:
    """`start` and every node that can be reached from it."""
    after = successors(edges)
    reached = set(start)
    frontier = list(reached)
    while frontier:
        for node in after.get(frontier.pop(), ()):
            if node not in reached:
                reached.add(node)
                frontier.append(node)
    return reached


def reaching(ends: Iterable[N], edges: Iterable[tuple[N, N]]) -> set[N]:
    """`ends` and every node from which one of them can be reached."""
    return reachable(ends, [(target, source) for source, target in edges])


def cycle(edges: Iterable[tuple[N, N]]) -> list[N]:
    """Some cycle, its first node repeated at the end; empty if there is none."""
    after = successors(edges)
    done: set[N] = set()
    for root in after:
        path, branches = {root: None}, [after[root][::-1]]  # a dict keeps its order, and is asked fast
        while branches and root not in done:
            if not branches[-1]:
                branches.pop()
                done.add(path.popitem()[0])
                continue
            node = branches[-1].pop()
            if node in path:
                members = list(path)
                return [*members[members.index(node) :], node]
            if node not in done:
                path[node] = None
                branches.append(after.get(node, [])[::-1])
    return []


def arrange(before: Sequence[Iterable[int]]) -> list[int]:
    """The places of nodes, each behind those that `before` names for it, else in their order.

    It is shorter than `before` if there is a cycle.
    """
    waits = [set(some) for some in before]
    after: dict[int, list[int]] = {}
    for place, some in enumerate(waits):
        for item in some:
            after.setdefault(item, []).append(place)
    free = [place for place, some in enumerate(waits) if not some]
    order = []
    while free:
        order.append(place := heappop(free))
        for item in after.get(place, ()):
            waits[item].discard(place)
            if not waits[item]:
                heappush(free, item)
    return order


def ranks(nodes: Iterable[N], edges: Iterable[tuple[N, N]]) -> dict[N, int]:
    """The length of the longest way to each node of an acyclic graph: every edge leads to a higher rank.

    Takes time in proportion to nodes and edges. Nodes of a cycle, and those behind one, are left at 0.
    """
    pairs = list(edges)
    after, rank = successors(pairs), dict.fromkeys(nodes, 0)
    before = Counter(target for _, target in pairs)
    free = [node for node in rank if not before[node]]
    while free:
        node = free.pop()
        for target in after.get(node, ()):
            rank[target] = max(rank[target], rank[node] + 1)
            before[target] -= 1
            if not before[target]:
                free.append(target)
    return rank
