"""Transfer-tuning between networks, the experiment of Gibson and Cano (2022): `benchmarks.transfer --networks all`.

In the paper, each of 11 networks borrows the schedules that a search found for another one. The donor is the network
that has kernels of the classes that take most of the receiver's inference time. Each kernel tries all of the donor's
schedules of its class and keeps the fastest. The result is compared with a search of the receiver's own.

The paper's networks are ResNet-18 and -50, AlexNet, VGG-16, MobileNetV2, EfficientNet-B0 and -B4, GoogLeNet, MnasNet,
BERT and MobileBERT. Here they are replaced by the 11 that this repository builds: two are the same, and seven are much
smaller. Where the paper keeps TVM's unscheduled loops, a kernel here keeps its rule's schedule. `kept s` is the time if
the rule's schedule is also a candidate for every kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import onnx

from benchmarks.measure import show_table
from benchmarks.models.drawn_networks import mobilenet_v2, resnet18
from benchmarks.step_models import IMAGE_SIZE, TOKENS, mlp
from benchmarks.transfer_search import Searched, Tuner
from edgetrain.compiler.search.tune_kernels import subject_of
from edgetrain.errors import EdgetrainError
from edgetrain.graph.build import build_step
from edgetrain.graph.extract import extract
from edgetrain.graph.ir import EVALUATE
from edgetrain.graph.options import TrainOptions
from edgetrain.model.head import replace_head
from edgetrain.model.importer import import_model
from edgetrain.model.output import trained_output
from edgetrain.model.zoo import build_zoo_model
from edgetrain_tuner import rules
from edgetrain_tuner.measure.bench import Subject
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError
from edgetrain_tuner.workload import workload_of

ALL = "all"
MOST_LENT = 6  # schedules of one class that are tried
LEAST_SHARE = 0.01  # of the inference; what is less is neither tuned nor lent
LEAST_TRIALS = 2  # of a kernel
_TOKEN_SHAPES = {"input_ids": (TOKENS,), "attention_mask": (TOKENS,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    build: Callable[[], onnx.ModelProto]
    input_shapes: Mapping[str, tuple[int, ...]] | None = None


def _zoo(name: str) -> Source:
    return Source(build=partial(build_zoo_model, name))


NETWORKS: Mapping[str, Source] = {
    "resnet-18": Source(build=partial(resnet18, IMAGE_SIZE)),
    "mobilenet-v2": Source(build=partial(mobilenet_v2, IMAGE_SIZE)),
    "efficientnet-lite0": _zoo("efficientnet-lite0"),
    "minilm-l6": Source(build=partial(build_zoo_model, "minilm-l6"), input_shapes=_TOKEN_SHAPES),
    "fashion-cnn": _zoo("fashion-cnn"),
    "mlp": Source(build=mlp),
    "digits-cnn": _zoo("digits-cnn"),
    "digits-cnn-bn": _zoo("digits-cnn-bn"),
    "voice-cnn": _zoo("voice-cnn"),
    "watch-cnn": _zoo("watch-cnn"),
    "magika": _zoo("magika"),
}


@dataclass(frozen=True, kw_only=True)
class NetworkKernel:
    """A kernel of an inference, with the seconds of all its calls as its rule has it."""

    class_: str
    subject: Subject
    calls: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Network:
    name: str
    kernels: tuple[NetworkKernel, ...]

    @property
    def seconds(self) -> float:
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def heavy(self) -> tuple[NetworkKernel, ...]:
        return tuple(kernel for kernel in self.kernels if kernel.seconds >= LEAST_SHARE * self.seconds)


def covered_share(receiver: Network, donor: Network) -> float:
    """The share of the receiver's inference in kernels of classes that the donor has tuned ones of."""
    lent = {kernel.class_ for kernel in donor.heavy}
    return sum(kernel.seconds for kernel in receiver.kernels if kernel.class_ in lent) / receiver.seconds


def donor_of(receiver: Network, networks: Sequence[Network]) -> Network | None:
    """Who covers the most of the receiver's inference; of equals, who has the most kernels to lend."""
    others = [network for network in networks if network.name != receiver.name]
    best = max(others, key=lambda n: (covered_share(receiver, n), len(n.heavy), n.name), default=None)
    return best if best is not None and covered_share(receiver, best) > 0 else None


def opened(name: str, tuner: Tuner) -> Network:
    """The kernels of one inference of one input, each timed as its rule has it."""
    source = NETWORKS[name]
    proto = source.build()
    if source.input_shapes:  # its own head has no loss: what is tuned is the inference below it
        proto = replace_head(proto, 2, 0, "", output=trained_output(proto, ""))
    options = TrainOptions(batch=1, input_shapes=source.input_shapes)
    shapes = {n: (1, *shape) for n, shape in (source.input_shapes or {}).items()}
    model = import_model(proto, name=name, batch=1, shapes=shapes, output=trained_output(proto, ""))
    extracted = extract(build_step(model, options), name)
    ops = extracted.graph.functions[EVALUATE]
    found = []
    for kernel in extracted.kernels:
        calls = [op for op in ops if op.kernel == kernel.symbol]
        if not calls:
            continue
        workload = workload_of(kernel.function)
        subject = subject_of(kernel, calls[0], workload.operations)
        seconds = tuner.tried(subject, ()).default_seconds * len(calls)
        found.append(NetworkKernel(class_=workload.class_, subject=subject, calls=len(calls), seconds=seconds))
    return Network(name=name, kernels=tuple(found))


def borrow_between(names: Sequence[str], tuner: Tuner, *, trials: int) -> list[dict[str, object]]:
    """A row for each network: its donor, and what borrowing is worth beside a deep search of its own.

    A network whose weights are not installed is left out, and named. `trials` are those of a network.
    """
    networks = []
    for name in NETWORKS:
        if ALL not in names and name not in names:
            continue
        try:
            networks.append(opened(name, tuner))
        except EdgetrainError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    searched = {network.name: _deep(network, tuner, trials) for network in networks}
    rows = []
    for network in networks:
        rows.append(_row(network, networks, searched, tuner))
        print(f"{network.name}: from {rows[-1]['donor']}, {rows[-1]['covered']:.0%} covered", file=sys.stderr)
    columns = ("network", "donor", "covered", "rule s", "deep s", "transferred s", "kept s", "of deep", "search ratio")
    show_table(rows, columns)
    print()
    return rows


def _deep(network: Network, tuner: Tuner, trials: int) -> dict[int, Searched]:
    """MetaSchedule on each heavy kernel, by the kernel's place; trials by its share of the time."""
    found = {}
    for place, kernel in enumerate(network.kernels):
        if kernel in network.heavy:
            own_trials = max(LEAST_TRIALS, round(trials * kernel.seconds / network.seconds))
            found[place] = tuner.deep(kernel.subject, own_trials)
    print(f"{network.name}: {len(found)} kernels searched", file=sys.stderr)
    return found


def _row(
    network: Network, networks: Sequence[Network], searched: Mapping[str, Mapping[int, Searched]], tuner: Tuner
) -> dict[str, object]:
    own = searched[network.name]
    donor = donor_of(network, networks)
    lent = {} if donor is None else _lent_by(donor, searched[donor.name])
    deep_s, transferred_s, kept_s, transfer_search_s = 0.0, 0.0, 0.0, 0.0
    for place, kernel in enumerate(network.kernels):
        deep_s += _seconds(kernel, own.get(place))
        refitted = [s for one in lent.get(kernel.class_, ()) if (s := _refit(kernel, one, tuner)) is not None]
        tried = tuner.tried(kernel.subject, refitted) if refitted and place in own else None
        transfer_search_s += 0.0 if tried is None else tried.search_s
        transferred_s += _seconds(kernel, tried)
        kept_s += min(kernel.seconds, _seconds(kernel, tried))
    deep_search_s = sum(found.search_s for found in own.values())
    return {
        "network": network.name,
        "donor": "none" if donor is None else donor.name,
        "covered": 0.0 if donor is None else covered_share(network, donor),
        "rule s": network.seconds,
        "deep s": deep_s,
        "transferred s": transferred_s,
        "kept s": kept_s,  # with the rule's schedule in the race
        "of deep": deep_s / transferred_s,
        "deep search s": deep_search_s,
        "transfer search s": transfer_search_s,
        "search ratio": deep_search_s / transfer_search_s if transfer_search_s else None,
    }


def _seconds(kernel: NetworkKernel, searched: Searched | None) -> float:
    """With the fastest schedule that was found, faster than the rule's or not; with the rule's where none was."""
    fastest = None if searched is None else searched.fastest()
    return kernel.seconds if fastest is None else kernel.seconds / fastest[1]


def _lent_by(donor: Network, searched: Mapping[int, Searched]) -> dict[str, list[Schedule]]:
    """By class, the best that the donor's search found."""
    found: dict[str, list[Schedule]] = {}
    for place, search in searched.items():
        fastest = search.fastest()
        if fastest is not None:
            found.setdefault(donor.kernels[place].class_, []).append(fastest[0])
    return {class_: schedules[:MOST_LENT] for class_, schedules in found.items()}


def _refit(kernel: NetworkKernel, schedule: Schedule, tuner: Tuner) -> Any:
    try:
        return rules.refit(kernel.subject.function, schedule, tuner.machine)
    except ScheduleRefusedError:
        return None
