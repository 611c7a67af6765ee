"""What an application in C may get wrong, under sanitizers: documented codes, and nothing else happens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.references.workshop import Workshop
from edgetrain.files.build_cache import BuildCache
from edgetrain.graph import ir as names
from edgetrain.pipeline.stages import compile_job
from tests.edgetrain import test_c_bounds
from tests.edgetrain.run.test_several_inputs import arrays
from tests.edgetrain.runtime.sanitizers import MEMORY, build, run
from tests.edgetrain.runtime.sessions import Session, storing_network, tiny_session

pytestmark = pytest.mark.compile


def _misuse(session: Session, folder: Path, *options: str) -> None:
    session.lay_out(folder)
    run(build(folder, session.program, MEMORY, ("misuse.c", "session.c"), options=options), MEMORY, "3")


@pytest.mark.parametrize("option", ["", "-DEDGE_NO_THREADS"])
@pytest.mark.parametrize("plan", ["keep", "page", "store"])
def test_a_program_refuses_wrong_arguments_and_goes_on(plan: str, option: str, tmp_path: Path) -> None:
    _misuse(tiny_session(plan), tmp_path, *filter(None, [option]))


def test_labels_out_of_range_are_refused_by_a_program_that_stores_its_parameters(
    workshop: Workshop, tmp_path: Path
) -> None:
    _misuse(storing_network(workshop), tmp_path)


def test_ids_out_of_range_are_refused_before_a_kernel_reads_them(build_cache: BuildCache, tmp_path: Path) -> None:
    job = test_c_bounds.job_of(tmp_path, build_cache, arrays())
    planned = compile_job(job).plan()
    graph = planned.compiled.graph
    session = Session(
        graph=graph,
        plan=planned.plan,
        kernels=planned.compiled.kernels(job.device.name),
        values={**planned.compiled.initial(), **_zeros(graph)},
        artifact=planned.build().program,
    )
    assert {tensor.name for tensor in graph.bounded_inputs(names.STEP)} == {"ids", names.LABELS}
    _misuse(session, tmp_path / "program")


def _zeros(graph: names.TrainGraph) -> Mapping[str, Any]:
    return {tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in graph.by_role(names.Role.INPUT)}
