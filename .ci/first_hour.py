"""The first hour of a new user, with an installed edgetrain: own photos, tables, PyTorch models, a stop, a way out.

    python .ci/first_hour.py      with the Python of the environment that has edgetrain and what each step names

Works in a temporary folder with a home of its own, and fails at the first step that is not as a user would expect it.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

BIN = Path(sys.executable).parent


class Hour:
    """Where the user works, and what they type."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.home = folder / "home"
        self.temporary = folder / "tmp"
        for path in (self.work, self.home, self.temporary):
            path.mkdir()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("EDGETRAIN_", "XDG_", "PYTHON"))}
        self.environment = {
            **kept,
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }

    def type(self, command: str, *, code: int = 0) -> str:
        """A command as it is typed; what it says on both channels."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.work,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"$ {command}\n{done.stdout}\nexit code {done.returncode}, not {code}"
        assert "Traceback" not in done.stdout, f"$ {command}\n{done.stdout}"
        return done.stdout

    def python(self, script: str) -> str:
        (self.work / "script.py").write_text(script)
        return self.type(f"{shlex.quote(sys.executable)} script.py")


def expect(text: str, *words: str) -> None:
    missing = [word for word in words if word not in text]
    assert not missing, f"{missing} not in:\n{text}"


def look_round(hour: Hour) -> None:
    expect(hour.type("edgetrain doctor"), "ok")
    expect(hour.type("edgetrain train", code=2), "edgetrain fit")


def train_what_comes_along(hour: Hour) -> None:
    said = hour.type("edgetrain fit")
    expect(said, "test accuracy", "run folder: runs/digits")
    report = json.loads((hour.work / "runs/digits/report.json").read_text())
    assert report["test_accuracy"] > 0.97, said


PHOTOS = """
import numpy as np
from pathlib import Path
from PIL import Image

draw = np.random.default_rng(0)
shades = {"dark": 60, "light": 190}
for name, shade in shades.items():
    folder = Path("photos", name)
    folder.mkdir(parents=True)
    for number in range(24):
        grey = np.clip(draw.normal(shade, 25, (20, 28)), 0, 255)
        path = folder / f"{number:02}"
        match number % 4:
            case 0:  # 16 bits
                Image.fromarray((grey * 257).astype(np.uint16)).save(f"{path}.png")
            case 1:  # as a phone held upright stores it
                turned = Image.Exif()
                turned[0x0112] = 6
                Image.fromarray(grey.astype(np.uint8)).convert("RGB").save(f"{path}.jpg", exif=turned)
            case 2:  # grey
                Image.fromarray(grey.astype(np.uint8)).save(f"{path}.png")
            case _:
                Image.fromarray(grey.astype(np.uint8)).convert("RGB").save(f"{path}.bmp")
Path("photos", "empty").mkdir()
Path("photos", ".ipynb_checkpoints").mkdir()
Path("photos", "dark", "broken.jpg").write_bytes(b"\\xff\\xd8 no picture")
"""


def own_photos(hour: Hour) -> None:
    """Messy ones: the file that is none is named before anything is compiled, and the names come out again."""
    hour.python(PHOTOS)
    command = "edgetrain fit zoo:digits-cnn data.source=photos train.batch=8 train.epochs=15 train.optimizer=adam"
    said = hour.type(command, code=5)
    expect(said, "broken.jpg")
    assert "compiling" not in said, said
    (hour.work / "photos/dark/broken.jpg").unlink()
    said = hour.type(command)
    expect(said, "`empty`", "2", "validation accuracy")
    said = hour.type("edgetrain predict runs/digits-cnn photos/light/00.png photos/dark/01.jpg --json")
    found = json.loads(said[said.index("{") if said.lstrip().startswith("{") else said.index("[") :])
    labels = [each["label"] for each in (found["predictions"] if isinstance(found, dict) else found)]
    assert labels == ["light", "dark"], said
    expect(hour.type("edgetrain predict runs/digits-cnn/model.onnx photos/light/04.png"), "light")


TABLE_MODEL = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
torch.onnx.export(
    model,
    (torch.zeros(1, 3),),
    "prices.onnx",
    input_names=["row"],
    output_names=["price"],
    dynamic_axes={"row": {0: "batch"}, "price": {0: "batch"}},
    dynamo=False,
)
"""


def own_table(hour: Hour) -> None:
    """Large whole numbers to predict, a missing cell, semicolons: what the hint says is pasted."""
    import random

    draw = random.Random(0)
    with (hour.work / "houses.csv").open("w", newline="", encoding="utf-8-sig") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerow(["area", "rooms", "age", "price"])
        for number in range(400):
            area, rooms, age = draw.uniform(-1, 1), draw.uniform(-1, 1), draw.uniform(-1, 1)
            price = round(250_000 + 80_000 * area + 30_000 * rooms - 20_000 * age)
            rows.writerow(["" if number == 7 else f"{area:.3f}", f"{rooms:.3f}", f"{age:.3f}", price])
    hour.python(TABLE_MODEL)
    command = (
        "edgetrain fit prices.onnx data.source=houses.csv data.label=price data.test=0.2 train.loss=mse metric=mae "
        "train.epochs=60 train.optimizer=adam train.learning_rate=0.01"
    )
    hint = pasteable(hour.type(command, code=5), "data.missing")
    said = hour.type(f"{command} {hint}")
    report = json.loads((hour.work / "runs/prices/report.json").read_text())
    assert report["test_mae"] < 20_000, said  # the prices' own deviation is over 50,000
    said = hour.type("edgetrain predict runs/prices houses.csv --csv")
    assert len(said.strip().splitlines()) >= 401, said


MODULES = """
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
draw = np.random.default_rng(0)
x = draw.normal(size=(384, 3, 8, 8)).astype(np.float32)
y = np.arange(384) % 3
x[y == 1, :, :4] += 0.8
x[y == 2, :, :, :4] += 0.8
np.savez("squares.npz", x_train=x[:288], y_train=y[:288], x_test=x[288:], y_test=y[288:])


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(x + self.b(self.a(x)))


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Residual(16), Residual(16),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 3),
    )


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(24, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.layer(self.embed(x.permute(0, 2, 1, 3).flatten(2))).mean(1))


def accuracy(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    model.train()
    order = np.random.default_rng(1)
    for _ in range(6):
        for rows in order.permutation(288).reshape(-1, 32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(torch.from_numpy(x[rows])), torch.from_numpy(y[rows])).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        return float((model(torch.from_numpy(x[288:])).argmax(1).numpy() == y[288:]).mean())


found = {}
for name, make in {"resnet": resnet, "transformer": Transformer}.items():
    torch.manual_seed(0)
    model = make()
    for dynamo in (False, True):
        for folding in (False, True):
            path = f"{name}-{'dynamo' if dynamo else 'script'}-{'folded' if folding else 'plain'}.onnx"
            options = {"do_constant_folding": folding} if not dynamo else {"optimize": folding}
            if not dynamo:
                options |= {"dynamic_axes": {"x": {0: "batch"}, "y": {0: "batch"}}}
            else:
                options |= {"dynamic_shapes": ({0: torch.export.Dim("batch")},)}
            torch.onnx.export(
                model.eval(), (torch.zeros(2, 3, 8, 8),), path, input_names=["x"], output_names=["y"], dynamo=dynamo,
                **options,
            )
            found[path] = name
    found[name] = accuracy(model)
import json

json.dump(found, open("modules.json", "w"))
"""


def own_pytorch_models(hour: Hour) -> None:
    """A ResNet and a transformer, exported four ways each, reach what PyTorch reaches on the same data."""
    hour.python(MODULES)
    found = json.loads((hour.work / "modules.json").read_text())
    for path, name in found.items():
        if not path.endswith(".onnx"):
            continue
        hour.type(
            f"edgetrain fit {path} data.source=squares.npz data.validation=0 train.epochs=6 train.optimizer=adam "
            f"train.learning_rate=0.003 --out runs/{path} --trial-time 0s"
        )
        report = json.loads((hour.work / f"runs/{path}/report.json").read_text())
        ours, theirs = report["test_accuracy"], found[name]
        print(f"    {path:32} {ours:.3f}, PyTorch {theirs:.3f}")
        assert ours > theirs - 0.05, path


def too_small_a_budget(hour: Hour) -> None:
    """The first line of the hint, pasted, works."""
    said = hour.type("edgetrain plan digits --budget 600kB", code=3)
    ways = re.findall(r"^ *- .*`([^`\n]+)`$", said, re.MULTILINE)
    assert ways, said
    for way in ways:
        flags = way if "--budget" in way else f"--budget 600kB {way}"
        expect(hour.type(f"edgetrain plan digits {flags}"), "fits")


def stop_and_go_on(hour: Hour) -> None:
    """Ctrl-C in the middle; the command that it names ends with the bits of a run that nobody stopped."""
    command = "edgetrain fit digits train.epochs=40 --trial-time 0s"
    hour.type(f"{command} --out runs/whole")
    with subprocess.Popen(
        shlex.split(f"{command} --out runs/stopped"),
        cwd=hour.work,
        env=hour.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        log = hour.work / "runs/stopped/log.jsonl"
        while not (log.exists() and log.read_bytes().count(b"\n") > 100):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
    assert process.returncode == 130, said
    hour.type(pasteable(said, "--resume"))
    whole, stopped = (json.loads((hour.work / f"runs/{n}/report.json").read_text()) for n in ("whole", "stopped"))
    assert whole["parameters_sha256"] == stopped["parameters_sha256"]


REPORT = """
from playwright.sync_api import sync_playwright

with sync_playwright() as play:
    browser = play.chromium.launch(
        executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    )
    page = browser.new_page(viewport={"width": 390, "height": 800})
    problems = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("requestfailed", lambda request: problems.append(request.url))
    page.goto(f"file://{__import__('os').getcwd()}/runs/digits/report.html")
    assert "digits" in page.title(), page.title()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert not problems, problems
    browser.close()
"""

NOTEBOOK = """
import nbformat
from nbclient import NotebookClient

cells = [
    "import edgetrain, numpy as np",
    "x = np.random.default_rng(0).random((64, 1, 8, 8), dtype=np.float32); y = np.arange(64) % 10",
    "run = edgetrain.fit('digits', (x, y), train_epochs=1, out='runs/notebook')",
    "run",
    "edgetrain.plan('digits', budget='1MB')",
]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
shown = notebook.cells[3].outputs[0]["data"]
assert "text/html" in shown and len(shown["text/plain"]) < 300, shown
assert notebook.cells[2].outputs, "no progress"
"""

ESTIMATOR = """
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from edgetrain.sklearn import EdgeClassifier

x, y = load_iris(return_X_y=True)
estimator = EdgeClassifier(hidden_layers=(16,), epochs=20, batch_size=16, random_state=0)
pipeline = make_pipeline(StandardScaler(), estimator)
score = cross_val_score(pipeline, x, y, cv=3).mean()
assert score > 0.9, score
"""


def look_at_the_report(hour: Hour) -> None:
    hour.python(REPORT)


def in_a_notebook(hour: Hour) -> None:
    hour.python(NOTEBOOK)


def in_a_pipeline(hour: Hour) -> None:
    hour.python(ESTIMATOR)


def leave_nothing(hour: Hour) -> None:
    """The commands of docs/uninstalling.md, but for pip's own: what is left is the user's."""
    hour.type("edgetrain cache clean --all")
    hour.type('rm -rf "${XDG_CONFIG_HOME:-$HOME/.config}/edgetrain"')
    hour.type(f"{shlex.quote(sys.executable)} -m pip uninstall --quiet --yes edgetrain")
    left = [p for root in (hour.home, hour.temporary) for p in root.rglob("*") if "edgetrain" in p.name]
    assert not left, left
    packages = Path(next(path for path in sys.path if path.endswith("site-packages")))
    assert not list(packages.glob("edgetrain*")), list(packages.glob("edgetrain*"))


def pasteable(said: str, word: str) -> str:
    """The first text in backticks of the hint that holds the word."""
    hint = said[said.rindex("hint:") :]
    found = [text for text in re.findall(r"`([^`]+)`", hint) if word in text] or [
        text.strip(",.;") for text in hint.split() if text.startswith(word)
    ]
    assert found, said
    return found[0]


STEPS: tuple[Callable[[Hour], None], ...] = (
    look_round,
    train_what_comes_along,
    own_photos,
    own_table,
    own_pytorch_models,
    too_small_a_budget,
    stop_and_go_on,
    look_at_the_report,
    in_a_notebook,
    in_a_pipeline,
    leave_nothing,
)


def main() -> None:
    wanted = sys.argv[1:] or [step.__name__ for step in STEPS]
    with tempfile.TemporaryDirectory(prefix="first-hour-") as folder:
        hour = Hour(Path(folder))
        for step in STEPS:
            if step.__name__ not in wanted:
                continue
            started = time.monotonic()
            step(hour)
            print(f"{step.__name__.replace('_', ' ')}: as expected, {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
