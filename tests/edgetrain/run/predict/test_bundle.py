from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

from edgetrain.dataset.reading import Reading
from edgetrain.run.predict.bundle import CLASSES_HEADER, DATA, READING, bundle_files, classes_header
from edgetrain.toolchain.c_compiler import find_compiler
from tests.edgetrain.run.predict.test_task import DESCRIPTION

NAMES = ("cat", "Größe 12", 'a "quoted\\" name', "what??/", "猫7")
PROGRAM = """#include <stdio.h>
#include "edgetrain_classes.h"
int main(void) {
  for (int i = 0; i < EDGE_CLASSES; i++) puts(edge_class_names[i]);
  return 0;
}
"""


def test_c_prints_the_names_as_they_are(tmp_path: Path) -> None:
    (tmp_path / CLASSES_HEADER).write_text(classes_header(NAMES), encoding="ascii")
    (tmp_path / "main.c").write_text(PROGRAM)
    strict = ("-std=c11", "-Wall", "-Wextra", "-Werror")
    built = subprocess.run([*find_compiler().command, *strict, "main.c", "-o", "main"], cwd=tmp_path, check=False)
    assert built.returncode == 0
    ran = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, check=True)
    assert ran.stdout.decode().splitlines() == list(NAMES)


def test_the_files_say_what_the_models_metadata_says() -> None:
    files = bundle_files(DESCRIPTION)
    assert Reading.from_json(files[READING], where="here") == DESCRIPTION.reading
    data = json.loads(files[DATA])
    assert (data["format"], data["data"]["mean"], data["task"]["output"]) == ("edgetrain.data/1", [0.5], "logits")
    assert CLASSES_HEADER in files


def test_without_names_there_is_no_header() -> None:
    assert CLASSES_HEADER not in bundle_files(dataclasses.replace(DESCRIPTION, reading=Reading()))
