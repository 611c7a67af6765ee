"""What subgraphs read of the graph around them. Without TVM: a model is looked at before the compiler is loaded."""

from __future__ import annotations

from typing import Any


def captured_names(node: Any) -> set[str]:
    """Names of the surrounding graph that the node's subgraphs read."""
    names: set[str] = set()
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names |= _free_names(attribute.g)
    return names


def _free_names(graph: Any) -> set[str]:
    made = {v.name for v in graph.input} | {i.name for i in graph.initializer}
    free: set[str] = set()
    for node in graph.node:
        free |= ({n for n in node.input if n} | captured_names(node)) - made
        made |= set(node.output)
    return free | ({o.name for o in graph.output} - made)
