from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.reading import Reading, Scaling
from edgetrain.run.predict.prediction import Prediction, prediction_of

NAMES = Reading(class_names=("cat", "dog", "bird"))


def predict(output: Any, *, kind: str, reading: Reading = NAMES, is_activated: bool = False) -> Prediction:
    return prediction_of("a", np.array(output, np.float32), kind=kind, reading=reading, is_activated=is_activated)


@pytest.mark.parametrize("kind", ["classes", "scores"])
def test_logits_become_probabilities_with_the_names_of_the_classes(kind: str) -> None:
    found = predict(np.log([1, 6, 3]), kind=kind)
    assert (found.label, list(found.probabilities)) == ("dog", ["cat", "dog", "bird"])
    assert list(found.probabilities.values()) == pytest.approx([0.1, 0.6, 0.3])
    assert [label for label, _ in found.best(2)] == ["dog", "bird"]


def test_a_model_that_ends_in_a_softmax_is_believed() -> None:
    assert predict([0.1, 0.6, 0.3], kind="classes", is_activated=True).probability == pytest.approx(0.6)
    assert predict([0.1, 0.6, 0.3], kind="scores").probability == pytest.approx(0.6)  # they add up to one


@pytest.mark.parametrize("logit", [-1000.0, 1000.0])
def test_no_logit_overflows(logit: float) -> None:
    with np.errstate(all="raise", under="ignore"):
        assert predict([logit, 0.0, 0.0], kind="classes").probability is not None
        assert predict([logit], kind="yes-no").probability == pytest.approx(1.0)


def test_a_single_question_tells_two_classes_apart() -> None:
    reading = Reading(class_names=("ham", "spam"))
    found = predict([np.log(3.0)], kind="yes-no", reading=reading)
    assert found.label == "spam"
    assert found.probability == pytest.approx(0.75)
    assert found.probabilities["ham"] == pytest.approx(0.25)
    assert predict([0.25], kind="yes-no", reading=reading, is_activated=True).label == "ham"


def test_several_questions_have_probabilities_of_their_own() -> None:
    found = predict([0.0, np.log(3.0), np.log(3.0)], kind="yes-no")
    assert list(found.probabilities.values()) == pytest.approx([0.5, 0.75, 0.75])


def test_classes_without_names_go_by_their_numbers() -> None:
    assert predict([0, 1, 2], kind="classes", reading=Reading()).label == "2"


def test_a_class_for_each_place_is_an_array() -> None:
    found = predict([[[0, 5], [5, 0]], [[1, 1], [1, 1]]], kind="classes")
    np.testing.assert_array_equal(np.asarray(found.value), [[1, 0], [0, 1]])


def test_a_sequence_is_spelt_without_blanks_and_repeats() -> None:
    assert predict(np.eye(3)[[1, 1, 0, 1, 2]], kind="sequence", reading=Reading()).label == "1 1 2"


def test_values_are_in_the_units_of_the_data() -> None:
    reading = Reading(target=Scaling(mean=1000.0, std=50.0))
    assert predict([2.0], kind="values", reading=reading).value == 1100.0
    assert predict([2.0], kind="values", reading=reading, is_activated=True).value == 2.0  # the model did it
    np.testing.assert_array_equal(np.asarray(predict([[0, 1]], kind="values", reading=reading).value), [[1000, 1050]])


def test_an_output_that_is_no_number_is_an_error() -> None:
    assert predict([np.nan, 0], kind="classes").to_json(top=3) == {
        "name": "a",
        "error": "the model's output is no number",
    }


def test_plain_data_lists_the_likeliest_first() -> None:
    data = predict(np.log([1, 6, 3]), kind="classes").to_json(top=2)
    assert (data["label"], [c["label"] for c in data["classes"]]) == ("dog", ["dog", "bird"])
    assert predict([1.5], kind="values").to_json(top=2) == {"name": "a", "value": 1.5}
