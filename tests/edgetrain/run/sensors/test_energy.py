"""Sensors in a made-up `/sys`: the files are what the kernel documents, the numbers ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from edgetrain.run.sensors.energy import EnergyMeter, find_sensor

RAPL = "powercap/intel-rapl:0"
INA = "hwmon/hwmon3"


def write(root: Path, files: Mapping[str, object]) -> Path:
    for name, value in files.items():
        path = root / "sys" / "class" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n", encoding="utf-8")
    return root


def zone(folder: str, name: str, energy_uj: int, range_uj: int = 10**9) -> dict[str, object]:
    return {f"{folder}/name": name, f"{folder}/energy_uj": energy_uj, f"{folder}/max_energy_range_uj": range_uj}


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_without_a_sensor_nothing_is_measured(tmp_path: Path) -> None:
    assert find_sensor(tmp_path) is None
    with EnergyMeter(None) as meter:
        pass
    assert meter.joules is None


def test_a_counter_is_read_before_and_after(tmp_path: Path) -> None:
    sensor = find_sensor(write(tmp_path, zone(RAPL, "package-0", 1_000_000)))
    assert sensor is not None
    assert sensor.name == "powercap package-0"
    with EnergyMeter(sensor) as meter:
        write(tmp_path, zone(RAPL, "package-0", 3_500_000))
    assert meter.joules == pytest.approx(2.5)


def test_a_counter_that_wraps_goes_on_counting(tmp_path: Path) -> None:
    sensor = find_sensor(write(tmp_path, zone(RAPL, "package-0", 9_000_000, 10_000_000)))
    with EnergyMeter(sensor) as meter:
        write(tmp_path, zone(RAPL, "package-0", 500_000, 10_000_000))
        meter.take_sample()
        write(tmp_path, zone(RAPL, "package-0", 700_000, 10_000_000))
    assert meter.joules == pytest.approx(1.7)


def test_memory_counts_beside_the_processor_and_its_cores_do_not_count_twice(tmp_path: Path) -> None:
    files = zone(RAPL, "package-0", 0)
    files |= zone("powercap/intel-rapl:0:0", "core", 0) | zone("powercap/intel-rapl:0:1", "dram", 0)
    sensor = find_sensor(write(tmp_path, files))
    with EnergyMeter(sensor) as meter:
        for folder, used_uj in ((RAPL, 5_000_000), (f"{RAPL}:0", 3_000_000), (f"{RAPL}:1", 1_000_000)):
            write(tmp_path, {f"{folder}/energy_uj": used_uj})
    assert meter.joules == pytest.approx(6.0)


def test_a_counter_of_the_whole_platform_replaces_its_parts(tmp_path: Path) -> None:
    files = zone(RAPL, "package-0", 0) | zone("powercap/intel-rapl:1", "psys", 0)
    sensor = find_sensor(write(tmp_path, files))
    assert sensor is not None
    assert sensor.name == "powercap psys"


def test_volts_times_amperes_are_added_up_over_time(tmp_path: Path) -> None:
    files = {
        f"{INA}/name": "ina3221",
        f"{INA}/in1_label": "VDD_IN",
        f"{INA}/in1_input": 5000,
        f"{INA}/curr1_input": 1200,
        f"{INA}/in2_label": "VDD_CPU_GPU_CV",
        f"{INA}/in2_input": 5000,
        f"{INA}/curr2_input": 400,
    }
    sensor = find_sensor(write(tmp_path, files))
    assert sensor is not None
    assert sensor.name == "INA3221 VDD_IN"  # the other rail is behind it
    sensor.begin(0.0)
    assert sensor.sample(2.0) == pytest.approx(12.0)
    write(tmp_path, {f"{INA}/curr1_input": 2400})
    assert sensor.sample(3.0) == pytest.approx(9.0)  # from 6 W to 12 W


def test_a_board_without_a_rail_for_all_adds_up_its_rails(tmp_path: Path) -> None:
    rails: dict[str, object] = {f"{INA}/name": "ina3221"}
    for number, name in ((1, "CPU"), (2, "GPU")):
        rails |= {f"{INA}/in{number}_label": name, f"{INA}/in{number}_input": 1000, f"{INA}/curr{number}_input": 500}
    sensor = find_sensor(write(tmp_path, rails))
    assert sensor is not None
    sensor.begin(0.0)
    assert sensor.sample(1.0) == pytest.approx(1.0)


@pytest.mark.parametrize(("driver", "is_found"), [("ina226", True), ("power_meter", True), ("amdgpu", False)])
def test_a_power_chip_counts_only_where_it_sees_the_board(tmp_path: Path, driver: str, is_found: bool) -> None:
    sensor = find_sensor(write(tmp_path, {f"{INA}/name": driver, f"{INA}/power1_input": 3_000_000}))
    assert (sensor is not None) == is_found
    if sensor is not None:
        sensor.begin(10.0)
        assert sensor.sample(12.0) == pytest.approx(6.0)


@pytest.mark.parametrize(("status", "is_found"), [("Discharging", True), ("Charging", False), ("Full", False)])
def test_a_battery_tells_only_while_it_discharges(tmp_path: Path, status: str, is_found: bool) -> None:
    folder = "power_supply/BAT0"
    files = {f"{folder}/status": status, f"{folder}/voltage_now": 4_000_000, f"{folder}/current_now": -500_000}
    sensor = find_sensor(write(tmp_path, files))
    assert (sensor is not None) == is_found
    if sensor is not None:
        sensor.begin(0.0)
        assert sensor.sample(1.0) == pytest.approx(2.0)


def test_a_counter_that_may_not_be_read_is_passed_over(tmp_path: Path) -> None:
    files = zone(RAPL, "package-0", 0) | {f"{INA}/name": "ina226", f"{INA}/power1_input": 1_000_000}
    write(tmp_path, files)
    (tmp_path / "sys" / "class" / RAPL / "energy_uj").write_text("", encoding="utf-8")  # unreadable, also for root
    sensor = find_sensor(tmp_path)
    assert sensor is not None
    assert sensor.name == "hwmon ina226"


def test_a_sensor_that_stops_answering_gives_no_number_rather_than_a_part(tmp_path: Path) -> None:
    sensor = find_sensor(write(tmp_path, zone(RAPL, "package-0", 0)))
    with EnergyMeter(sensor) as meter:
        write(tmp_path, zone(RAPL, "package-0", 1_000_000))
        meter.take_sample()
        (tmp_path / "sys" / "class" / RAPL / "energy_uj").unlink()
    assert meter.joules is None


def test_power_is_measured_between_the_meters_own_moments(tmp_path: Path) -> None:
    sensor = find_sensor(write(tmp_path, {f"{INA}/name": "ina226", f"{INA}/power1_input": 2_000_000}))
    clock = Clock()
    with EnergyMeter(sensor, clock=clock) as meter:
        clock.now_s += 5.0
    assert meter.joules == pytest.approx(10.0)
