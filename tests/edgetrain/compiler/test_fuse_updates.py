"""Updates move to where their gradient is summed, and compute the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from edgetrain.compiler.fuse_updates import fuse_updates, joined_ops
from edgetrain.compiler.lower import lower
from edgetrain.compiler.measure.kernel_library import KernelLibrary
from edgetrain.graph.build import build_step
from edgetrain.graph.extract import Extracted, extract
from edgetrain.graph.ir import Op, Phase, Role, Tensor
from edgetrain.graph.options import OptimizerOptions, TrainOptions
from edgetrain.model.importer import import_model
from edgetrain.model.zoo import build_zoo_model
from edgetrain_tuner import rules
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.measure.arguments import aligned_copy
from tests.edgetrain.compiler.kernel_case import KernelCase
from tests.edgetrain.compiler.update_cases import update_cases
from tests.edgetrain.processors import this_processor
from tests.edgetrain_tuner.machines import eager

MACHINE = Machine(vector_bits=256, vector_registers=16, cores=2)
BATCH = 8


def _tensor(name: str, role: Role) -> Tensor:
    return Tensor(name=name, shape=(4,), dtype="float32", role=role)


TENSORS = {
    "x": _tensor("x", Role.INPUT),
    "w": _tensor("w", Role.PARAMETER),
    "v": _tensor("v", Role.PARAMETER),
    **{name: _tensor(name, Role.TEMPORARY) for name in ("g", "h", "dx")},
}


def _op(name: str, reads: str, writes: str) -> Op:
    return Op(
        name=name, kernel=f"k_{name}", reads=tuple(reads.split()), writes=tuple(writes.split()), phase=Phase.UPDATE
    )


def _join(gradient: Op, update: Op, name: str) -> Op:
    reads = " ".join((*gradient.reads, *(read for read in update.reads if read != name)))
    return _op(f"{gradient.name}+{update.name}", reads, " ".join(update.writes))


def _names(*ops: Op) -> list[str]:
    return [op.name for op in joined_ops(ops, TENSORS, _join)]


def test_a_gradient_moves_into_its_update_behind_every_reader_of_the_weight() -> None:
    ops = (_op("gradient", "x", "g"), _op("reader", "w", "dx"), _op("update", "w g", "w"))
    assert _names(*ops) == ["reader", "gradient+update"]


def test_a_gradient_that_someone_else_reads_stays() -> None:
    ops = (_op("gradient", "x", "g"), _op("norm", "g", "h"), _op("update", "w g", "w"))
    assert _names(*ops) == ["gradient", "norm", "update"]


def test_a_gradient_that_reads_the_weight_stays() -> None:
    assert _names(_op("gradient", "x w", "g"), _op("update", "w g", "w")) == ["gradient", "update"]


def test_a_gradient_does_not_wait_until_what_it_reads_is_overwritten() -> None:
    ops = (_op("gradient", "v", "g"), _op("other", "v x", "v"), _op("update", "w g", "w"))
    assert _names(*ops) == ["gradient", "other", "update"]


def test_a_kernel_with_two_results_stays() -> None:
    assert _names(_op("gradient", "x", "g h"), _op("update", "w g", "w")) == ["gradient", "update"]


def _extracted(model: str, options: TrainOptions) -> Extracted:
    return extract(build_step(import_model(build_zoo_model(model), name=model, batch=BATCH), options), model)


@pytest.fixture(scope="module", params=["sgd", "adam"])
def before(request: pytest.FixtureRequest) -> Extracted:
    momentum = 0.9 if request.param == "sgd" else 0.0
    return _extracted(
        "digits-cnn", TrainOptions(batch=BATCH, optimizer=OptimizerOptions(kind=request.param, momentum=momentum))
    )


@pytest.mark.compile
def test_no_gradient_of_a_large_weight_is_in_memory(before: Extracted) -> None:
    after = fuse_updates(before, MACHINE)
    large = {t.name for t in before.graph.by_role(Role.PARAMETER) if t.nbytes >= 1024}
    updates = [op for op in after.graph.functions["step"] if large & set(op.writes)]
    assert len(updates) == len(large)
    for op in updates:
        (weight,) = large & set(op.writes)
        sizes = [after.graph.tensors[name].shape for name in op.reads if after.graph.tensors[name].is_temporary]
        assert after.graph.tensors[weight].shape not in sizes, op.name
    assert after.traffic is not None
    assert before.traffic is not None
    assert after.traffic.moved_bytes < before.traffic.moved_bytes
    assert after.traffic.unfused_bytes == before.traffic.unfused_bytes


@pytest.mark.compile
def test_only_kernels_that_are_called_are_left_and_all_of_them_can_be_lowered(before: Extracted) -> None:
    after = fuse_updates(before, MACHINE)
    called = {op.kernel for ops in after.graph.functions.values() for op in ops}
    assert called == {kernel.symbol for kernel in after.kernels}
    weight = max(before.graph.by_role(Role.PARAMETER), key=lambda t: t.nbytes)
    (update,) = (op for op in lower(after, MACHINE).graph.functions["step"] if weight.name in op.writes)
    assert update.total_scratch_bytes < weight.nbytes


@pytest.mark.compile
def test_where_no_rule_writes_the_joint_kernel_nothing_changes(
    before: Extracted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "writes_by_element", lambda _function, _machine: False)
    after = fuse_updates(before, MACHINE)
    assert after.graph == before.graph
    assert after.kernels == before.kernels


@pytest.mark.compile
def test_the_same_step_is_fused_the_same_way(before: Extracted) -> None:
    one, other = fuse_updates(before, MACHINE), fuse_updates(before, MACHINE)
    assert one.graph == other.graph
    assert [k.symbol for k in one.kernels] == [k.symbol for k in other.kernels]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelLibrary]:
    library = KernelLibrary(this_processor(cores=2), threads=2, folder=tmp_path_factory.mktemp("kernels"))
    yield library
    library.close()


@pytest.mark.compile
@pytest.mark.parametrize("case", tuple(update_cases()), ids=lambda case: case.name)
def test_a_joint_kernel_computes_what_numpy_does_on_this_host(case: KernelCase, library: KernelLibrary) -> None:
    schedule, function = rules.scheduled(case.function, eager(MACHINE))
    assert schedule.rule == case.vector_rule
    arrays = [aligned_copy(np.asarray(array)) for array in case.arrays()]
    runnable = library.build(function, case.aliases)
    runnable.bound([*arrays, *(arrays[read] for read in case.in_place)])()
    runnable.close()
    for read, answer in zip(case.in_place, case.answers(), strict=True):
        np.testing.assert_allclose(arrays[read], answer, atol=case.tolerance * np.abs(answer).max())
