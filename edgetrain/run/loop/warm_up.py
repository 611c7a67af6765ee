"""Everything that a run does beside its program, once, so that the growth measured afterwards is the program's alone.

The first batch, the first metric and the first checkpoint bring code of Python, NumPy and the system's libraries into
memory that stays there. None of it belongs to the program, and a small program would be hidden behind it.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from edgetrain.files.scratch import scratch_folder
from edgetrain.graph.ir import LABELS, evaluated
from edgetrain.model.tensor_names import graph_name
from edgetrain.program.manifest import Manifest, TensorRecord
from edgetrain.run.engines.engine import Array, BatchSource
from edgetrain.run.files.checkpoint import Progress, save_run_checkpoint
from edgetrain.run.loop.evaluation import metrics_of
from edgetrain.run.loop.finite import is_finite
from edgetrain.run.loop.learning_rate import learning_rate
from edgetrain.run.loop.settings import TrainSettings

_BORROWED = ("expf", "logf")  # what kernels take from the system's mathematical library


def warm_up(manifest: Manifest, source: BatchSource, settings: TrainSettings) -> None:
    """Reads one batch, takes every metric of an output of zeros, and saves a checkpoint to a folder that does not last.

    Leaves the source at its second batch. Raises as the source does for data that cannot be read, `DeviceError` when
    the disk refuses.
    """
    inputs = {name: _zeros(manifest.tensors[graph_name(name)]) for name in settings.inputs}
    labels, outputs = _zeros(manifest.tensors[LABELS]), _zeros(manifest.tensors[evaluated(settings.output)])
    source.seek((0, 0))
    source.fill(inputs, labels)
    for metric in metrics_of(settings).values():
        metric.tally().add(metric.values(outputs, labels))
    is_finite(outputs)
    warm = settings.learning_rate.warmup_steps
    learning_rate(settings.learning_rate, warm + 1, total_steps=warm + 3)
    progress = Progress(step=0, position=(0, 0), steps_per_epoch=source.steps_per_epoch, seed=settings.seed)
    with scratch_folder("warm-up") as folder:
        save_run_checkpoint(folder, memoryview(b"\0"), progress, program_sha256=settings.program_sha256)
    warm_up_mathematics()


def warm_up_mathematics() -> None:
    """Calls what kernels take from the system, which is in this process anyway but may not be in memory yet."""
    process = ctypes.CDLL(None)
    for name in _BORROWED:
        function = process[name]
        function.restype, function.argtypes = ctypes.c_float, (ctypes.c_float,)
        function(2.5)  # not 1: its logarithm is known without the table


def _zeros(record: TensorRecord) -> Array:
    """In a mapping of its own, which goes back to the system whole, where the heap might keep it."""
    pages = mmap.mmap(-1, max(1, record.nbytes))
    return np.frombuffer(memoryview(pages)[: record.nbytes], dtype=record.dtype).reshape(record.shape)
