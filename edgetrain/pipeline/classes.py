"""How many classes the model tells apart: as the recipe says, else as the data needs it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgetrain.compiler.request import ZOO
from edgetrain.dataset.batches import check_labels
from edgetrain.dataset.class_order import in_class_order
from edgetrain.dataset.samples import Dataset
from edgetrain.errors import DataError, EdgetrainError
from edgetrain.pipeline.job import Job
from edgetrain.recipes import CLASS_LOSSES, Recipe

if TYPE_CHECKING:
    from edgetrain.model.class_outputs import ClassOutputs


@dataclass(frozen=True, slots=True, kw_only=True)
class DataClasses:
    """What the data says of its classes. `names` are empty where its labels are numbers."""

    count: int
    names: tuple[str, ...] = ()
    has_gaps: bool = False  # among the numbers up to the highest some do not occur

    @classmethod
    def of(cls, dataset: Dataset) -> DataClasses | None:
        """None where labels are values, or rows of classes."""
        count = dataset.classes
        if count is None or dataset.train.labels.ndim != 1:
            return None
        parts = (dataset.train, dataset.validation, dataset.test)
        present = {int(label) for part in parts if part is not None for label in np.unique(part.labels)}
        return cls(count=count, names=dataset.class_names, has_gaps=len(present) < count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassChoice:
    """What becomes of the model's last layer: a new one with `classes` outputs, or its own where that is None.

    `order` are the classes in the order of the model's own outputs, where it knows them by name. `said` is for people.
    """

    classes: int | None = None
    order: tuple[str, ...] = ()
    said: str = ""


def with_classes(job: Job, dataset: Dataset) -> tuple[Job, Dataset]:
    """The job with the number of classes that its data needs, and the data numbered as the model numbers them.

    Says what it changed. Raises `DataError` for a folder or a table with a single class, and where the model has too
    few outputs and no layer that can be replaced.
    """
    recipe = job.recipe
    data = DataClasses.of(dataset) if recipe.train.loss in CLASS_LOSSES else None
    if data is None:
        return job, dataset
    _require_two(data, dataset)
    if np.unique(dataset.train.labels).size == 1:
        job.notify("all training samples are of one class: there is nothing to tell apart")
    if recipe.model.classes is not None:
        _compare(job, recipe.model.classes, data, dataset)
        return job, dataset
    model = outputs_of(recipe)
    if model is None:
        return job, dataset
    if data.has_gaps and not data.names:  # a stray label makes no thousand classes
        _require_labels_below(model.count, dataset)
    choice = choose_classes(model, data, keep_head=recipe.model.keep_head, where=dataset.name)
    if choice.said:
        job.notify(choice.said)
    if choice.classes is not None:
        section = dataclasses.replace(recipe.model, classes=choice.classes)
        job = dataclasses.replace(job, recipe=dataclasses.replace(recipe, model=section))
    return job, in_class_order(dataset, choice.order)


def needs_classes(recipe: Recipe) -> bool:
    """Whether the data decides how many classes the model tells apart."""
    model = recipe.model
    return (
        recipe.train.loss in CLASS_LOSSES and bool(recipe.data.source) and model.classes is None and not model.keep_head
    )


def choose_classes(model: ClassOutputs, data: DataClasses, *, keep_head: bool, where: str) -> ClassChoice:
    """Pure. Raises `DataError` where the model cannot have as many classes as the data."""
    if data.names and set(data.names) <= set(model.names):
        return _known_by_name(model, data)
    if data.count == model.count:
        return ClassChoice(said=_told_other_names(model, data) if data.names and model.names else "")
    if data.count > model.count:
        if keep_head or model.head is None:
            raise _too_few(model, data, where, keep_head=keep_head)
        return _new_head(model, data)
    if keep_head:
        return ClassChoice(said=_told_more(model.count, data.count, because=", as `model.keep_head` says"))
    if not data.names:  # the numbers may be some of the model's own classes
        return ClassChoice(said=_told_more(model.count, data.count))
    if model.head is None:
        because = f", which cannot be replaced ({model.why})"
        return ClassChoice(said=_told_more(model.count, data.count, because=because))
    return _new_head(model, data)


def _known_by_name(model: ClassOutputs, data: DataClasses) -> ClassChoice:
    said = ""
    if len(data.names) < len(model.names):
        said = (
            f"the model knows the data's {len(data.names)} classes by name, among {len(model.names)}: it keeps its "
            f"last layer; `model.classes={max(len(data.names), 2)}` gives it a new one"
        )
    return ClassChoice(order=model.names, said=said)


def _told_other_names(model: ClassOutputs, data: DataClasses) -> str:
    was, becomes = next((old, new) for old, new in zip(model.names, data.names, strict=False) if old != new)
    return (
        f"the model's outputs get the names of the data's classes: what it knew as `{was}` becomes `{becomes}`; "
        f"`model.classes={max(data.count, 2)}` gives it a new last layer"
    )


def _new_head(model: ClassOutputs, data: DataClasses) -> ClassChoice:
    assert model.head is not None
    head = model.head
    return ClassChoice(
        classes=data.count,
        said=(
            f"the model tells {model.count} classes apart and the data has {data.count}: its last layer "
            f"(`{head.name}`, {head.inputs} → {head.outputs}) is replaced by a new one, {head.inputs} → {data.count}"
            + ("; `model.keep_head=true` keeps it" if data.count < model.count else "")
        ),
    )


def _told_more(outputs: int, classes: int, *, because: str = "") -> str:
    told = f"the model tells {outputs} classes apart and the data has {classes}: it keeps its last layer"
    return told + (because or f"; `model.classes={max(classes, 2)}` gives it a new one")


def _too_few(model: ClassOutputs, data: DataClasses, where: str, *, keep_head: bool) -> DataError:
    what = f"{where} has {data.count} classes and the model tells {model.count} apart"
    if keep_head:
        return DataError(
            what, why="`model.keep_head` keeps its last layer", fix="set `model.keep_head=false` for a new last layer"
        )
    return DataError(
        what,
        why=f"its last layer cannot be replaced: {model.why}",
        fix=f"name the layer: `model.classes={data.count} model.head=LAYER`; or export the model with a dense layer at "
        "the end",
    )


def _compare(job: Job, asked: int, data: DataClasses, dataset: Dataset) -> None:
    """The recipe's own number stands. Raises `DataError` for a label beyond it, says where it is more than needed."""
    _require_labels_below(asked, dataset)
    if data.count < asked:
        job.notify(
            f"the recipe gives the model {asked} classes and the data has {data.count}: the others are never right; "
            f"`model.classes={max(data.count, 2)}` fits"
        )


def _require_labels_below(classes: int, dataset: Dataset) -> None:
    for name, part in (("training", dataset.train), ("validation", dataset.validation), ("test", dataset.test)):
        if part is not None:
            check_labels(part, classes, name=f"the {name} part")


def _require_two(data: DataClasses, dataset: Dataset) -> None:
    if len(data.names) == 1:
        raise DataError(
            f"{dataset.name} has one class, `{data.names[0]}`",
            why="there is nothing to tell it apart from",
            fix="add samples of another class: in a folder, a sub-folder of its own",
        )


def outputs_of(recipe: Recipe) -> ClassOutputs | None:
    """What the recipe's model has for outputs; None where it cannot be read: the compiler says why."""
    from edgetrain.model.class_outputs import class_outputs  # onnx loads here, where there are classes to count
    from edgetrain.model.output import trained_output

    try:
        model = _structure(recipe.model.source)
        output = trained_output(model, recipe.model.output) if model is not None else ""
    except EdgetrainError:
        return None
    return class_outputs(model, output=output, head=recipe.model.head) if model is not None else None


def _structure(source: str) -> Any:
    """The model without the weights that lie in other files; None for a file that is none."""
    import onnx

    if source.startswith(ZOO):
        from edgetrain.model.zoo import build_zoo_model

        return build_zoo_model(source.removeprefix(ZOO))
    if not Path(source).is_file():
        return None
    try:
        return onnx.load(source, load_external_data=False)
    except Exception:  # OSError, or protobuf's own DecodeError
        return None
