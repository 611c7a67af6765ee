"""Claims about augmented batches: what they depend on, what they leave alone, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.dataset.augment.augmentation import Augmentation, check_augmentation
from edgetrain.dataset.augment.operations import MIXES, OPERATIONS
from edgetrain.dataset.batches import BatchStream, Position, evaluation_batches
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.samples import Part
from edgetrain.errors import DataError, UsageError
from edgetrain.recipes import AugmentSection

CLASSES = 5
# Every operation alone, and all together; each strong enough to be seen.
ALONE: dict[str, Any] = {
    "flip": "both",
    "crop": 0.4,
    "rotate": 40.0,
    "shift": 0.3,
    "brightness": 0.4,
    "contrast": 0.4,
    "saturation": 0.8,
    "cutout": 0.4,
    "noise": 0.2,
    "mixup": 0.5,
    "cutmix": 1.0,
}
SECTIONS = (*(AugmentSection(**{key: value}) for key, value in ALONE.items()), AugmentSection(**ALONE))
RNG = np.random.default_rng(0)
PICTURES = Part(features=RNG.integers(0, 256, (23, 8, 9, 3), dtype=np.uint8), labels=RNG.integers(0, CLASSES, 23))
SERIES = Part(features=RNG.normal(size=(23, 4, 30)).astype(np.float32), labels=RNG.integers(0, CLASSES, 23))
CONVERSION = Conversion(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))


def rows_of(
    section: AugmentSection, *, part: Part = PICTURES, batch: int, seed: int = 0, epoch: int = 0, start: int = 0
) -> dict[int, tuple[bytes, bytes]]:
    """The bits of sample and label by row, from the batch `start` to the epoch's end."""
    stream = BatchStream(
        part,
        batch=batch,
        seed=seed,
        conversion=CONVERSION if part is PICTURES else Conversion(),
        position=Position(epoch=epoch, index=start),
        augmentation=Augmentation.of(section, part),
    )
    x = np.empty((batch, 3, 8, 9) if part is PICTURES else (batch, *np.asarray(part.features).shape[1:]), np.float32)
    y = np.empty((batch, CLASSES), np.float32)
    order = np.random.Generator(np.random.PCG64([seed, epoch])).permutation(len(part))
    found = {}
    for index in range(start, stream.batches_per_epoch):
        stream.fill(x, y)
        for slot, row in enumerate(order[index * batch : (index + 1) * batch]):
            found[int(row)] = (x[slot].tobytes(), y[slot].tobytes())
    return found


def test_every_key_is_tested_here() -> None:
    assert set(ALONE) == {o.key for o in OPERATIONS} | set(MIXES) == set(AugmentSection.__dataclass_fields__)


@settings(max_examples=40)
@given(
    section=st.sampled_from(SECTIONS),
    one=st.integers(1, 23),
    other=st.integers(1, 23),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 5),
)
def test_a_row_has_the_same_bits_in_an_epoch_whatever_the_batch(
    section: AugmentSection, one: int, other: int, seed: int, epoch: int
) -> None:
    first, second = (rows_of(section, batch=batch, seed=seed, epoch=epoch) for batch in (one, other))
    common = first.keys() & second.keys()
    assert common
    assert {row: first[row] for row in common} == {row: second[row] for row in common}


@settings(max_examples=25)
@given(section=st.sampled_from(SECTIONS), start=st.integers(0, 6), epoch=st.integers(0, 3))
def test_a_stream_that_begins_in_the_middle_of_an_epoch_gives_the_same_bits(
    section: AugmentSection, start: int, epoch: int
) -> None:
    whole, rest = (rows_of(section, batch=3, epoch=epoch, start=begin) for begin in (0, start))
    assert {row: whole[row] for row in rest} == rest


@pytest.mark.parametrize("section", SECTIONS, ids=[*ALONE, "all"])
def test_epochs_and_seeds_differ(section: AugmentSection) -> None:
    plain = rows_of(AugmentSection(), batch=23)
    first, later, other = (rows_of(section, batch=23, seed=s, epoch=e) for s, e in ((0, 0), (0, 1), (1, 0)))
    for one, two in ((plain, first), (first, later), (first, other)):
        differing = [row for row in range(23) if one[row] != two[row]]
        assert len(differing) > 5


def test_one_more_operation_leaves_what_the_others_draw_as_it_was() -> None:
    flipped = rows_of(AugmentSection(flip="horizontal"), batch=23)
    plain = rows_of(AugmentSection(), batch=23)
    both = rows_of(AugmentSection(flip="horizontal", brightness=1e-9), batch=23)
    assert plain != flipped
    assert both == flipped


def test_nothing_is_changed_where_everything_is_off() -> None:
    assert Augmentation.of(AugmentSection(), PICTURES) is None


@pytest.mark.parametrize("key", ["shift", "cutout", "noise", "mixup"])
def test_series_are_augmented_over_time(key: str) -> None:
    section = AugmentSection(**{key: ALONE[key]})
    plain, varied = (rows_of(s, part=SERIES, batch=23) for s in (AugmentSection(), section))
    assert sum(plain[row] != varied[row] for row in range(23)) > 5


def test_evaluation_is_never_augmented() -> None:
    x, y = np.empty((23, 3, 8, 9), np.float32), np.empty((23, CLASSES), np.float32)
    assert list(evaluation_batches(PICTURES, x, y, CONVERSION)) == [23]
    plain = rows_of(AugmentSection(), batch=23)
    for row in range(23):
        assert (x[row].tobytes(), y[row].tobytes()) == plain[row]


@pytest.mark.parametrize("section", [AugmentSection(mixup=1.0), AugmentSection(cutmix=1.0)], ids=["mixup", "cutmix"])
@pytest.mark.parametrize("epoch", range(3))
def test_mixed_labels_are_shares_of_at_most_two_classes(section: AugmentSection, epoch: int) -> None:
    for _, bits in rows_of(section, batch=7, epoch=epoch).values():
        label = np.frombuffer(bits, np.float32)
        assert label.sum() == pytest.approx(1, abs=1e-6)
        assert label.min() >= 0
        assert np.count_nonzero(label) <= 2


def test_a_label_is_mixed_as_its_picture_is() -> None:
    """Each class is one colour, so that a picture shows which classes are in it, and how much."""
    pictures = np.repeat(np.array([0, 255], np.uint8)[:, None, None], 64, axis=1).reshape(2, 8, 8)
    part = Part(features=pictures, labels=np.array([0, 1]))
    for section in (AugmentSection(mixup=1.0), AugmentSection(cutmix=1.0)):
        stream = BatchStream(part, batch=2, seed=0, augmentation=Augmentation.of(section, part))
        x, y = np.empty((2, 1, 8, 8), np.float32), np.empty((2, 2), np.float32)
        shares = []
        for _ in range(20):
            stream.fill(x, y)
            np.testing.assert_allclose(y[:, 1], x.mean(axis=(1, 2, 3)), atol=1e-6)
            shares += y[:, 1].tolist()
        assert any(0.1 < share < 0.9 for share in shares)


def test_values_are_mixed_too() -> None:
    part = Part(features=np.arange(6, dtype=np.float32)[:, None], labels=np.arange(6, dtype=np.float32) * 2)
    stream = BatchStream(part, batch=6, seed=0, augmentation=Augmentation.of(AugmentSection(mixup=1.0), part))
    x, y = np.empty((6, 1), np.float32), np.empty((6, 1), np.float32)
    stream.fill(x, y)
    np.testing.assert_allclose(y, 2 * x, rtol=1e-5)
    assert not np.allclose(x, np.rint(x))


def test_pictures_of_bytes_stay_between_black_and_white() -> None:
    section = AugmentSection(brightness=0.9, contrast=0.9, noise=1.0)
    stream = BatchStream(PICTURES, batch=23, seed=0, augmentation=Augmentation.of(section, PICTURES))
    x, y = np.empty((23, 3, 8, 9), np.float32), np.empty(23, np.int64)
    stream.fill(x, y)
    assert x.min() == 0
    assert x.max() == 1


def test_a_flat_input_gets_the_picture_that_a_square_one_gets() -> None:
    section = AugmentSection(rotate=30.0, flip="both")
    part = Part(features=PICTURES.features[:, :, :8].copy(), labels=PICTURES.labels)
    flat, square, y = np.empty((23, 192), np.float32), np.empty((23, 3, 8, 8), np.float32), np.empty(23, np.int64)
    for x in (flat, square):
        BatchStream(part, batch=23, seed=0, augmentation=Augmentation.of(section, part)).fill(x, y)
    np.testing.assert_array_equal(flat.reshape(23, 8, 8, 3).transpose(0, 3, 1, 2), square)


def test_class_numbers_cannot_be_mixed() -> None:
    augmentation = Augmentation.of(AugmentSection(mixup=0.2), PICTURES)
    x, y = np.empty((4, 3, 8, 9), np.float32), np.empty(4, np.int64)
    with pytest.raises(DataError, match="class numbers"):
        BatchStream(PICTURES, batch=4, seed=0, augmentation=augmentation).fill(x, y)


def test_an_input_of_whole_numbers_is_not_augmented() -> None:
    augmentation = Augmentation.of(AugmentSection(flip="both"), PICTURES)
    with pytest.raises(DataError, match="whole numbers cannot be augmented"):
        BatchStream(PICTURES, batch=4, seed=0, augmentation=augmentation).fill(
            np.empty((4, 8, 9, 3), np.uint8), np.empty(4, np.int64)
        )


def part_with(shape: tuple[int, ...], dtype: Any = np.float32, labels: Any = None) -> Part:
    return Part(features=np.zeros((4, *shape), dtype), labels=np.zeros(4, np.int64) if labels is None else labels)


@pytest.mark.parametrize(
    ("part", "asked", "loss", "expected"),
    [
        (
            part_with((12,)),
            {"flip": "horizontal"},
            "cross-entropy",
            "rows of numbers: `data.augment.flip` works",
        ),
        (part_with((12,)), {"noise": 0.1}, "cross-entropy", "works on pictures, series, sound"),
        (part_with((3, 50)), {"rotate": 5.0}, "cross-entropy", "series: `data.augment.rotate` works on pictures"),
        (part_with((12,), np.int64), {"rotate": 5.0, "mixup": 0.2}, "bce", "tokens: `data.augment.rotate` works on"),
        (part_with((8, 8), np.uint8), {"saturation": 0.5}, "cross-entropy", "pictures of 3 channels, and these have 1"),
        (
            part_with((3, 8, 8), labels=np.zeros((4, 8, 8), np.int64)),
            {"flip": "both", "cutmix": 1.0, "brightness": 0.1},
            "cross-entropy",
            "labels of places",
        ),
        (part_with((3, 8, 8), labels=np.zeros((4, 3, 8, 8))), {"mixup": 0.1}, "mse", "labels of places"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_fix_that_works(
    part: Part, asked: dict[str, Any], loss: str, expected: str
) -> None:
    with pytest.raises(UsageError, match=expected) as caught:
        check_augmentation(AugmentSection(**asked), part, Conversion(), loss=loss)
    left = {k: v for k, v in asked.items() if f"data.augment.{k}=" not in caught.value.fix}
    assert left != asked
    check_augmentation(AugmentSection(**left), part, Conversion(), loss=loss)


@pytest.mark.parametrize(
    ("part", "asked"),
    [
        (part_with((8, 8), np.uint8), {k: v for k, v in ALONE.items() if k != "saturation"}),
        (part_with((8, 8, 3), np.uint8), ALONE),
        (part_with((3, 50)), {"shift": 0.1, "noise": 0.1, "cutout": 0.1, "mixup": 0.1}),
        (part_with((12,)), {"mixup": 0.1}),
        (part_with((3, 8, 8), labels=np.zeros((4, 8, 8), np.int64)), {"brightness": 0.1, "noise": 0.1}),
        (part_with((3, 50), labels=np.ones((4, 6), np.int64)), {"shift": 0.1}),
    ],
)
def test_what_makes_sense_is_accepted(part: Part, asked: dict[str, Any]) -> None:
    loss = "ctc" if part.labels.ndim == 2 else "cross-entropy"
    check_augmentation(AugmentSection(**asked), part, Conversion(), loss=loss)
