"""How to read data for an exported program: files beside its manifest, for people, scripts and C."""

from __future__ import annotations

import json
from collections.abc import Sequence

from edgetrain.program.c_text import escaped
from edgetrain.run.predict.task import Description

READING = "reading.json"
DATA = "data.json"
CLASSES_HEADER = "edgetrain_classes.h"
_FORMAT = "edgetrain.data/1"


def bundle_files(description: Description) -> dict[str, str]:
    """The texts by file name: `reading.json` as in a run folder, `data.json`, and names of classes as a C header."""
    metadata = description.to_metadata()
    data = {key: json.loads(metadata[f"edgetrain.{key}"]) for key in ("task", "data")}
    files = {READING: metadata["edgetrain.reading"], DATA: json.dumps({"format": _FORMAT, **data}, indent=1) + "\n"}
    if description.reading.class_names:
        files[CLASSES_HEADER] = classes_header(description.reading.class_names)
    return files


def classes_header(names: Sequence[str]) -> str:
    """The names as C strings."""
    rows = "".join(f'  "{escaped(name)}",\n' for name in names)
    return (
        "/* The names of the classes in UTF-8, in the order of the model's outputs. */\n"
        "#ifndef EDGETRAIN_CLASSES_H\n#define EDGETRAIN_CLASSES_H\n\n"
        f"#define EDGE_CLASSES {len(names)}\n"
        f"static const char* const edge_class_names[EDGE_CLASSES] = {{\n{rows}}};\n\n"
        "#endif\n"
    )
