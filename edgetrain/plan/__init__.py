"""TrainGraph → Plan: which tensors to keep, recompute or page, and where each one lies. Never imports TVM.

The package can be called: `edgetrain.plan("model.onnx", budget="64MB")` is the Python API's word for planning, and
Python gives a package and a function of one name one attribute.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return import_module("edgetrain.api").plan(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
