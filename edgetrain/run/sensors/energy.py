"""Joules as a sensor of this machine counts them, where it has one that can be read."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

log = logging.getLogger(__name__)

_SAMPLES_PER_S = 10.0
_MICRO, _MILLI = 1e-6, 1e-3
_WHOLE_BOARD_RAILS = ("VDD_IN", "POM_5V_IN", "5V_IN")  # of the Jetsons: all other rails are behind it
_POWER_CHIPS = ("ina219", "ina226", "ina238", "ina2xx", "power_meter")  # hwmon drivers that watch a whole board


class Sensor(Protocol):
    """Something that knows energy or power."""

    @property
    def name(self) -> str: ...

    def begin(self, now_s: float) -> None:
        """Counts from here on."""
        ...

    def sample(self, now_s: float) -> float:
        """Joules since the last sample, or since `begin`. Raises `OSError` or `ValueError` where it cannot be read."""
        ...


@dataclass(slots=True)
class Counter:
    """Files that count microjoules up to a range and then begin again, as powercap's do."""

    name: str
    zones: Mapping[Path, int]  # file -> range in microjoules; 0 where it never wraps
    _last: dict[Path, int] = field(default_factory=dict)

    def begin(self, now_s: float) -> None:
        self._last = {path: _integer(path) for path in self.zones}

    def sample(self, now_s: float) -> float:
        grown = 0
        for path, wraps_at in self.zones.items():
            value = _integer(path)
            difference = value - self._last[path]
            grown += difference if difference >= 0 else difference + wraps_at
            self._last[path] = value
        return grown * _MICRO


@dataclass(slots=True)
class PowerMeter:
    """Files that tell watts, which are added up over time."""

    name: str
    watts: Callable[[], float]
    _last: tuple[float, float] = (0.0, 0.0)  # when, and watts

    def begin(self, now_s: float) -> None:
        self._last = (now_s, self.watts())

    def sample(self, now_s: float) -> float:
        then_s, before_w = self._last
        self._last = (now_s, self.watts())
        return (before_w + self._last[1]) / 2 * (now_s - then_s)


def find_sensor(root: Path = Path("/")) -> Sensor | None:
    """The sensor that sees most of this machine, below `root`; None where there is none that may be read."""
    for find in (_powercap, _ina3221, _hwmon, _battery):
        with contextlib.suppress(OSError, ValueError):
            sensor = find(root / "sys" / "class")
            if sensor is not None:
                sensor.begin(0.0)  # reading may be forbidden, as powercap is for all but root
                return sensor
    return None


def _powercap(classes: Path) -> Sensor | None:
    """The platform's counter where there is one; else processors, and their memory, which is beside them.

    `core` and `uncore` are parts of a processor's own counter.
    """
    zones = {path: _text(path / "name") for path in sorted((classes / "powercap").glob("intel-rapl:*"))}
    whole = [path for path, name in zones.items() if name == "psys"]
    parts = [path for path, name in zones.items() if name.startswith("package") or name == "dram"]
    chosen = whole or parts
    if not chosen:
        return None
    ranges = {path / "energy_uj": _integer(path / "max_energy_range_uj") for path in chosen}
    return Counter(f"powercap {', '.join(dict.fromkeys(zones[path] for path in chosen))}", ranges)


def _ina3221(classes: Path) -> Sensor | None:
    rails: dict[str, tuple[Path, Path]] = {}
    for chip in _chips(classes, ("ina3221",)):
        for label in sorted(chip.glob("in[1-3]_label")):
            number = label.name[2]
            voltage, current = chip / f"in{number}_input", chip / f"curr{number}_input"
            if voltage.exists() and current.exists():
                rails[_text(label)] = (voltage, current)
    whole = [name for name in _WHOLE_BOARD_RAILS if name in rails]
    chosen = whole[:1] or list(rails)
    if not chosen:
        return None
    return _product_meter(f"INA3221 {', '.join(chosen)}", [rails[name] for name in chosen], _MILLI * _MILLI)


def _hwmon(classes: Path) -> Sensor | None:
    for chip in _chips(classes, _POWER_CHIPS):
        for file in (chip / "power1_input", chip / "power1_average"):
            if file.exists():
                return PowerMeter(f"hwmon {_text(chip / 'name')}", partial(_microwatts, file))
    return None


def _battery(classes: Path) -> Sensor | None:
    """What leaves the battery is what the machine uses, but only while nothing charges it."""
    for supply in sorted((classes / "power_supply").glob("*")):
        voltage, current = supply / "voltage_now", supply / "current_now"
        if voltage.exists() and current.exists() and _text(supply / "status") == "Discharging":
            return _product_meter(f"battery {supply.name}", [(voltage, current)], _MICRO * _MICRO)
    return None


def _product_meter(name: str, pairs: Sequence[tuple[Path, Path]], unit_w: float) -> PowerMeter:
    return PowerMeter(name, lambda: sum(abs(_integer(a) * _integer(b)) for a, b in pairs) * unit_w)


def _chips(classes: Path, drivers: Sequence[str]) -> Iterator[Path]:
    for chip in sorted((classes / "hwmon").glob("hwmon*")):
        if (chip / "name").exists() and _text(chip / "name") in drivers:
            yield chip


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip()


def _integer(path: Path) -> int:
    return int(_text(path))


def _microwatts(path: Path) -> float:
    return _integer(path) * _MICRO


class EnergyMeter:
    """Adds up a sensor's joules inside a `with` block, on a thread of its own: counters wrap, power has to be watched.

    `joules` is None without a sensor, and where it failed on the way: part of the energy would pass for all of it.
    """

    def __init__(self, sensor: Sensor | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.sensor = sensor
        self.joules: float | None = None
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="edgetrain-energy", daemon=True)

    def __enter__(self) -> Self:
        if self.sensor is not None:
            try:
                self.sensor.begin(self._clock())
            except (OSError, ValueError) as error:
                log.warning("%s cannot be read: %s", self.sensor.name, error)
                return self
            self.joules = 0.0
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.ident is not None:
            self._stop.set()
            self._thread.join()
            self.take_sample()

    def take_sample(self) -> None:
        """Adds what was used since the last one."""
        if self.sensor is None or self.joules is None:
            return
        try:
            self.joules += self.sensor.sample(self._clock())
        except (OSError, ValueError) as error:
            log.warning("%s stopped answering: %s", self.sensor.name, error)
            self.joules = None

    def _watch(self) -> None:
        while not self._stop.wait(1 / _SAMPLES_PER_S):
            self.take_sample()
