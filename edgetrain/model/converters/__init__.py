"""ONNX op → Relax, one file per family, for ops whose stock converter fails or gives what cannot be differentiated.

A converter takes the node's context and returns one expression, or one per output. What is not in `CONVERTERS` goes
through TVM's own converter for that op.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgetrain.model.converters.activation import ACTIVATION_CONVERTERS
from edgetrain.model.converters.arithmetic import ARITHMETIC_CONVERTERS
from edgetrain.model.converters.attention import ATTENTION_CONVERTERS
from edgetrain.model.converters.context import CannotConvert, Converter, NodeContext
from edgetrain.model.converters.fused import FUSED_CONVERTERS
from edgetrain.model.converters.indexing import INDEXING_CONVERTERS
from edgetrain.model.converters.layout import LAYOUT_CONVERTERS
from edgetrain.model.converters.loss import LOSS_CONVERTERS
from edgetrain.model.converters.normalisation import NORMALISATION_CONVERTERS
from edgetrain.model.converters.ordering import ORDERING_CONVERTERS
from edgetrain.model.converters.product import PRODUCT_CONVERTERS
from edgetrain.model.converters.quantisation import MICROSOFT_CONVERTERS, QUANTISATION_CONVERTERS
from edgetrain.model.converters.recurrent import RECURRENT_CONVERTERS
from edgetrain.model.converters.reduction import REDUCTION_CONVERTERS
from edgetrain.model.converters.resize import RESIZE_CONVERTERS
from edgetrain.model.converters.sampling import SAMPLING_CONVERTERS
from edgetrain.model.converters.spectrum import SPECTRUM_CONVERTERS
from edgetrain.model.converters.window import WINDOW_CONVERTERS

__all__ = ["CONVERTERS", "FOREIGN_CONVERTERS", "CannotConvert", "Converter", "NodeContext"]

CONVERTERS: Mapping[str, Converter] = {
    **ACTIVATION_CONVERTERS,
    **ARITHMETIC_CONVERTERS,
    **ATTENTION_CONVERTERS,
    **INDEXING_CONVERTERS,
    **LAYOUT_CONVERTERS,
    **LOSS_CONVERTERS,
    **NORMALISATION_CONVERTERS,
    **ORDERING_CONVERTERS,
    **PRODUCT_CONVERTERS,
    **QUANTISATION_CONVERTERS,
    **RECURRENT_CONVERTERS,
    **REDUCTION_CONVERTERS,
    **RESIZE_CONVERTERS,
    **SAMPLING_CONVERTERS,
    **SPECTRUM_CONVERTERS,
    **WINDOW_CONVERTERS,
}

# Ops of other domains, by domain and op.
FOREIGN_CONVERTERS: Mapping[tuple[str, str], Converter] = {**FUSED_CONVERTERS, **MICROSOFT_CONVERTERS}
