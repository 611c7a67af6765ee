"""An ONNX interpreter on PyTorch in float64: autograd, torch's losses and torch's optimizers. Shares no code with ours.

The ops are in `torch_ops`. PyTorch is optional: `optional_torch` says whether it is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from onnx import helper, numpy_helper

from benchmarks.references.kinks import KinkWatch
from benchmarks.references.optional_torch import F, Tensor, torch
from benchmarks.references.torch_ops import OPS, Node
from benchmarks.references.trained import Array, Batch, Trained
from edgetrain.graph.options import OptimizerOptions, TrainOptions

NO_MORE: Mapping[str, Tensor] = MappingProxyType({})

_LOSSES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross-entropy": lambda output, labels: F.cross_entropy(output, labels),
    "bce": lambda output, labels: F.binary_cross_entropy_with_logits(output, labels),
    "mse": lambda output, labels: F.mse_loss(output, labels),
    "l1": lambda output, labels: F.l1_loss(output, labels),
    "ctc": lambda output, labels: F.ctc_loss(
        F.log_softmax(output, 2).transpose(0, 1),
        labels.clamp(min=0),
        torch.full((len(output),), output.shape[1]),
        (labels >= 0).sum(1),
    ),
}

_OPTIMIZERS: Mapping[str, Callable[[list[Tensor], float, OptimizerOptions], Any]] = {
    "sgd": lambda p, rate, o: torch.optim.SGD(p, lr=rate, momentum=o.momentum, weight_decay=o.weight_decay),
    "adam": lambda p, rate, o: torch.optim.Adam(
        p, lr=rate, betas=(o.beta1, o.beta2), eps=o.epsilon, weight_decay=o.weight_decay
    ),
    "adamw": lambda p, rate, o: torch.optim.AdamW(
        p, lr=rate, betas=(o.beta1, o.beta2), eps=o.epsilon, weight_decay=o.weight_decay
    ),
}


@dataclass
class TorchModel:
    """An ONNX model that torch runs. `parameters` are torch tensors by name; BatchNorm writes its statistics there."""

    proto: Any
    dtype: str = "float64"
    watch: KinkWatch | None = None
    parameters: dict[str, Tensor] = field(init=False)
    statistics: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._constants: dict[str, Tensor] = {}
        self.parameters = {}
        kind = getattr(torch, self.dtype)
        for tensor in self.proto.graph.initializer:
            value = torch.from_numpy(numpy_helper.to_array(tensor).copy())
            value = value.to(kind) if value.is_floating_point() else value
            is_parameter = value.is_floating_point() and value.numel() > 1
            (self.parameters if is_parameter else self._constants)[tensor.name] = value
        norms = [n for n in self.proto.graph.node if n.op_type == "BatchNormalization"]
        self.statistics = frozenset(name for norm in norms for name in norm.input[3:5])

    @property
    def learned(self) -> tuple[str, ...]:
        """Parameters that a gradient changes: all but running statistics."""
        return tuple(n for n in self.parameters if n not in self.statistics)

    def forward(self, data: Tensor, more: Mapping[str, Tensor] = NO_MORE, *, training_batchnorm: bool) -> Tensor:
        """The model's first output; `data` is its first input, `more` the others by name.

        Raises `NotImplementedError` for an op the table does not hold.
        """
        graph = self.proto.graph
        values: dict[str, Tensor] = {**self._constants, **self.parameters, graph.input[0].name: data, **more}
        for node in graph.node:
            if node.op_type not in OPS:
                raise NotImplementedError(node.op_type)
            resolved = Node(
                op=node.op_type,
                inputs=[values[name] if name else None for name in node.input],
                attributes={a.name: helper.get_attribute_value(a) for a in node.attribute},
                training_batchnorm=training_batchnorm,
                kind=getattr(torch, self.dtype),
                output=node.output[0],
                watch=self.watch,
            )
            values[node.output[0]] = OPS[node.op_type](resolved)
        return values[graph.output[0].name]

    def outputs(self, data: Array) -> Array:
        """What the trained model says, BatchNorm with its running statistics."""
        tensor = torch.from_numpy(data).to(getattr(torch, self.dtype))
        found: Array = self.forward(tensor, training_batchnorm=False).detach().numpy()
        return found

    def settle(self, data: Array) -> None:
        """A forward pass for BatchNorm's running statistics alone."""
        with torch.no_grad():
            self.forward(torch.from_numpy(data).to(getattr(torch, self.dtype)), training_batchnorm=True)

    def arrays(self) -> dict[str, Array]:
        return {n: p.detach().numpy().copy() for n, p in self.parameters.items()}


@dataclass
class TorchTrainer:
    """Steps of one torch optimizer over a `TorchModel`; what benchmarks time and tests compare with."""

    model: TorchModel
    options: TrainOptions
    learning_rate: float
    trained: tuple[str, ...] | None = None  # None: all that can be learned

    def __post_init__(self) -> None:
        names = self.model.learned if self.trained is None else self.trained
        self._parameters = [self.model.parameters[n].requires_grad_() for n in names]
        optimizer = self.options.optimizer
        self._optimizer = _OPTIMIZERS[optimizer.kind](self._parameters, self.learning_rate, optimizer)
        self._kind = getattr(torch, self.model.dtype)

    def step(self, batch: Batch) -> float:
        data, labels = self._tensor(batch.data), self._tensor(batch.labels)
        more = {name: self._tensor(value) for name, value in batch.more.items()}
        output = self.model.forward(data, more, training_batchnorm=self.options.batchnorm == "train")
        loss = _LOSSES[self.options.loss](output, labels)
        self._optimizer.zero_grad()
        loss.backward()
        if self.options.clip_norm > 0:
            torch.nn.utils.clip_grad_norm_(self._parameters, self.options.clip_norm)
        self._optimizer.step()
        return float(loss.detach())

    def _tensor(self, value: Array) -> Tensor:
        """Floating point values in the model's type, whole numbers as they are."""
        tensor = torch.from_numpy(value)
        return tensor.to(self._kind) if tensor.is_floating_point() else tensor


def train_in_torch(
    proto: Any,
    batches: Sequence[Batch],
    options: TrainOptions,
    *,
    learning_rate: float,
    trained: tuple[str, ...] | None = None,
    dtype: str = "float64",
    watch: KinkWatch | None = None,
) -> Trained:
    """One step for each batch; float64 unless it is float32's own rounding that is wanted."""
    model = TorchModel(proto, dtype, watch)
    initial = model.arrays()
    trainer = TorchTrainer(model, options, learning_rate, trained)
    losses = []
    for step, batch in enumerate(batches):
        if watch is not None:
            watch.step = step
        losses.append(trainer.step(batch))
    return Trained(losses=tuple(losses), initial=initial, final=model.arrays())
