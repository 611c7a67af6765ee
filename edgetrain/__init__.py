"""edgetrain: fine-tunes an ONNX model on a device, inside a memory budget.

    import edgetrain
    run = edgetrain.fit("model.onnx", (x, y), budget="64MB", train_epochs=3)
    print(run.report.to_text())

Nothing is imported before it is used: `import edgetrain` costs no more than this file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgetrain.api import Run as Run
    from edgetrain.api import fit as fit
    from edgetrain.api import open_run as open_run
    from edgetrain.api import plan as plan
    from edgetrain.errors import EdgetrainError as EdgetrainError
    from edgetrain.planner.explain import Explanation as Explanation
    from edgetrain.run.files.report import RunReport as RunReport
    from edgetrain.run.files.tensorboard import TensorBoard as TensorBoard
    from edgetrain.run.loop.callbacks import Callback as Callback
    from edgetrain.run.loop.callbacks import History as History
    from edgetrain.run.loop.callbacks import ProgressBar as ProgressBar
    from edgetrain.run.predict.prediction import Prediction as Prediction

__version__ = "0.2.0.dev0"

_EXPORTS = {
    "Callback": "edgetrain.run.loop.callbacks",
    "EdgetrainError": "edgetrain.errors",
    "Explanation": "edgetrain.planner.explain",
    "History": "edgetrain.run.loop.callbacks",
    "Prediction": "edgetrain.run.predict.prediction",
    "ProgressBar": "edgetrain.run.loop.callbacks",
    "Run": "edgetrain.api",
    "RunReport": "edgetrain.run.files.report",
    "TensorBoard": "edgetrain.run.files.tensorboard",
    "fit": "edgetrain.api",
    "open_run": "edgetrain.api",
    "plan": "edgetrain.api",
}

__all__ = [
    "Callback",
    "EdgetrainError",
    "Explanation",
    "History",
    "Prediction",
    "ProgressBar",
    "Run",
    "RunReport",
    "TensorBoard",
    "fit",
    "open_run",
    "plan",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module `edgetrain` has no attribute `{name}`")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])
