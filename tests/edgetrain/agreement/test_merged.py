"""Files in which an exporter merged equal tensors train as the same files with a copy for each use, in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.models import small_networks as models
from benchmarks.models.merged import held_by_constants, merged_by_identity, merged_in_place, untrained_batch_norm_cnn
from benchmarks.references.torch_reference import train_in_torch
from benchmarks.references.trained import VALUE_TOLERANCE, assert_agrees, make_batches, relative_difference
from benchmarks.references.workshop import Workshop
from edgetrain.graph.options import OptimizerOptions, TrainOptions

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("needs_torch")]

OPTIONS = TrainOptions(batch=4, optimizer=OptimizerOptions(kind="sgd", momentum=0.9))
BATCHES = make_batches(models.BATCH_NORM_IMAGE, models.CLASSES, loss="cross-entropy", size=4, seed=5)
RATE = 0.02


def test_tensors_that_identities_name_train_as_copies_do(workshop: Workshop) -> None:
    copies = untrained_batch_norm_cnn()
    found = workshop.train_model(merged_by_identity(copies), BATCHES, OPTIONS, learning_rate=RATE)
    assert_agrees(found, train_in_torch(copies, BATCHES, OPTIONS, learning_rate=RATE))


def test_tensors_that_only_their_readers_tell_apart_train_as_copies_do(workshop: Workshop) -> None:
    copies = untrained_batch_norm_cnn()
    found = workshop.train_model(merged_in_place(copies), BATCHES, OPTIONS, learning_rate=RATE)
    wanted = train_in_torch(copies, BATCHES, OPTIONS, learning_rate=RATE)
    assert relative_difference(np.array(found.losses), np.array(wanted.losses)) < VALUE_TOLERANCE


@pytest.mark.parametrize("merge", [merged_by_identity, merged_in_place])
def test_weights_of_constant_nodes_train_as_copies_do(workshop: Workshop, merge: Any) -> None:
    copies = untrained_batch_norm_cnn()
    found = workshop.train_model(held_by_constants(merge(copies)), BATCHES, OPTIONS, learning_rate=RATE)
    wanted = train_in_torch(copies, BATCHES, OPTIONS, learning_rate=RATE)
    assert relative_difference(np.array(found.losses), np.array(wanted.losses)) < VALUE_TOLERANCE


def called_twice() -> onnx.ModelProto:
    """A convolution and a BatchNorm that two branches share, as in a siamese network."""
    net = models.Net(7)
    x = net.batch_norm(net.convolution("image", "conv", inputs=3, outputs=8), "norm", 8)
    y = net.writer.node("Neg", [x], "again")
    joined = net.writer.node("Sub", [net.relu(x), net.relu(y)], "joined")
    flat = net.writer.node("Flatten", [joined], "features")
    net.dense(flat, "head", inputs=8 * 10 * 10, outputs=models.CLASSES, output="logits")
    proto = net.finish("siamese", *models.BATCH_NORM_IMAGE)
    first, turn = list(proto.graph.node[:2]), proto.graph.node[2]
    turn.input[0], turn.output[0] = "image", "turned"
    second = []
    for node, (read, made) in zip(first, (("turned", "conv.again"), ("conv.again", "again")), strict=True):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[0], copy.output[0], copy.name = read, made, made
        second.append(copy)
    nodes = [*first, turn, *second, *proto.graph.node[3:]]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    return proto


def test_a_batch_norm_that_is_called_twice_measures_both_times(workshop: Workshop) -> None:
    model = called_twice()
    found = workshop.train_model(model, BATCHES, OPTIONS, learning_rate=RATE)
    assert_agrees(found, train_in_torch(model, BATCHES, OPTIONS, learning_rate=RATE))
