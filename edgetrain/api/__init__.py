"""The Python interface: `edgetrain.fit`, `edgetrain.plan` and `edgetrain.open_run`.

Values of the recipe are keyword arguments named `section_key`: `train_epochs=3` is `train.epochs=3` on the command
line, `model_classes=5` is `model.classes=5`, `metric="mse"` is `metric=mse`.
"""

from edgetrain.api.overrides import override_texts
from edgetrain.api.planning import plan
from edgetrain.api.runs import Run, open_run
from edgetrain.api.training import fit

__all__ = ["Run", "fit", "open_run", "override_texts", "plan"]
