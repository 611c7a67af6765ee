"""One stored tensor becomes several, each read by some of its nodes: the rewriting behind `separate_roles`."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from edgetrain.model.tensor_uses import GraphIndex, TensorUse, last_name


def part_tensor(index: GraphIndex, name: str, groups: Sequence[Sequence[TensorUse]]) -> list[str]:
    """Gives every group of uses but the first a tensor of its own, by its own name where the file tells it.

    Returns the names, those of the groups in order. `index.rebuild` must follow.
    """
    names = [name]
    for group in groups[1:]:
        use = group[0]
        wanted = use.label or f"{use.module or use.node.name or use.node.output[0]}.{last_name(use, name)}"
        names.append(_fresh_name(index, wanted))
        copy = index.graph.initializer.add()
        copy.CopyFrom(index.stored[name])
        copy.name = names[-1]
        index.stored[copy.name] = copy
        declared = next((value for value in index.graph.input if value.name == name), None)
        if declared is not None:  # files of IR version 3 declare their weights as inputs
            value = index.graph.input.add()
            value.CopyFrom(declared)
            value.name = copy.name
    for own, group in zip(names, groups, strict=True):
        for use in group:
            use.node.input[use.position] = _through_views(index, own, use)
    return names


def _fresh_name(index: GraphIndex, wanted: str) -> str:
    """`wanted`, or with a number where something has that name. An `Identity` gives up the name of its result."""
    made = index.producers.get(wanted)
    if made is not None and made.op_type == "Identity" and wanted not in index.pinned:
        index.rename(made, f"{wanted}.stored")
    name, count = wanted, 1
    taken = {*index.stored, *index.producers, *(value.name for value in index.graph.input)}
    while name in taken:
        name, count = f"{wanted}.{count}", count + 1
    return name


def _through_views(index: GraphIndex, name: str, use: TensorUse) -> str:
    """What the use reads of the tensor `name`: copies of its views, without `Identity`."""
    for view in (node for node in use.chain if node.op_type != "Identity"):
        copy = onnx.NodeProto()
        copy.CopyFrom(view)
        made = _fresh_name(index, f"{view.output[0]}.{name}")
        copy.name, copy.input[0], copy.output[0] = "", name, made
        index.add_before(view, copy)
        name = made
    return name
