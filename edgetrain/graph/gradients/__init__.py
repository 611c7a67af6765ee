"""Gradient rules by Relax op name, one file per op family. An op that is not here uses TVM's own gradient."""

from __future__ import annotations

from collections.abc import Mapping

from edgetrain.graph.gradients.activation import ACTIVATION_RULES
from edgetrain.graph.gradients.binary import BINARY_RULES
from edgetrain.graph.gradients.convolution import CONVOLUTION_RULES
from edgetrain.graph.gradients.group_norm import GROUP_NORM_RULES
from edgetrain.graph.gradients.indexing import INDEXING_RULES
from edgetrain.graph.gradients.layout import LAYOUT_RULES
from edgetrain.graph.gradients.matmul import MATMUL_RULES
from edgetrain.graph.gradients.normalisation import NORMALISATION_RULES
from edgetrain.graph.gradients.pooling import POOLING_RULES
from edgetrain.graph.gradients.reduction import REDUCTION_RULES
from edgetrain.graph.gradients.rule import Rule
from edgetrain.graph.gradients.scatter import SCATTER_RULES
from edgetrain.graph.gradients.scatter_nd import SCATTER_ND_RULES
from edgetrain.graph.gradients.unary import UNARY_RULES

RULES: Mapping[str, Rule] = {
    **ACTIVATION_RULES,
    **BINARY_RULES,
    **CONVOLUTION_RULES,
    **GROUP_NORM_RULES,
    **INDEXING_RULES,
    **LAYOUT_RULES,
    **MATMUL_RULES,
    **NORMALISATION_RULES,
    **POOLING_RULES,
    **REDUCTION_RULES,
    **SCATTER_RULES,
    **SCATTER_ND_RULES,
    **UNARY_RULES,
}
