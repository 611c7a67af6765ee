"""The trained model of a run, as the run wrote it."""

from __future__ import annotations

import os
import shlex

from edgetrain.errors import DataError
from edgetrain.files.encrypted import SealedFileError
from edgetrain.files.sealed import is_sealed, is_whole_model
from edgetrain.files.secret_key import read_key
from edgetrain.run.files.protected import cannot_decrypt, opened_regular, reading
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained import read_recipe


def trained_onnx(folder: RunFolder) -> bytes:
    """The bytes of `model.onnx`.

    Raises `DataError` for a run that has none yet, for a link, and for bytes that the run did not write. Runs of older
    versions wrote no check sum: there it is enough that the file is an ONNX model.
    """
    recipe = read_recipe(folder)
    finish = f"edgetrain fit {recipe.name} --resume --out {shlex.quote(str(folder.path))}"
    try:
        opened = opened_regular(folder.model, flags=os.O_NOFOLLOW)
    except FileNotFoundError as error:
        raise DataError(
            f"`{folder.path}` holds no trained model",
            why="the run did not come to its end",
            fix=f"finish it with `{finish}`",
        ) from error
    except OSError as error:
        raise _unusable(folder, "it is a link, or cannot be read") from error
    with opened as file:
        try:
            model = reading(file, read_key(recipe.security.key), folder.model.name).read()
        except SealedFileError as error:
            raise cannot_decrypt(folder.model, error) from error
    if is_whole_model(model):
        return model
    if is_sealed(folder.recipe.read_bytes()) or not _is_onnx(model):
        raise _unusable(folder, "its check sum does not match its content")
    return model


def _is_onnx(model: bytes) -> bool:
    import onnx  # here: most commands run without it

    try:
        return bool(onnx.load_model_from_string(model).graph.node)
    except Exception:  # protobuf's own DecodeError
        return False


def _unusable(folder: RunFolder, why: str) -> DataError:
    epochs = read_recipe(folder).train.epochs
    words = f"train.epochs={2 * epochs} train.steps=none"
    again = f"edgetrain fit --resume --out {shlex.quote(str(folder.path))} {words}"
    return DataError(
        f"`{folder.model}` is not what the run wrote",
        why=why,
        fix=f"restore it from a copy, or train the run further, which writes it again: `{again}`",
    )
