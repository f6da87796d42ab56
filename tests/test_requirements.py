"""What is required, what is missing, and what a platform cannot have: each is said as it is."""

import platform
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from td3robot import requirements
from td3robot.cli import doctor
from td3robot.errors import MissingExtraError
from td3robot.robots.physical import Check

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MARKED = [f"{PROJECT['optional-dependencies']['ur'][0]} and extra == 'ur'", "mcap>=1.2; extra == 'mcap'", "numpy>=2"]


@pytest.fixture
def elsewhere(monkeypatch):
    """Be Python 3.13 on an ARM, without ur_rtde."""
    here = default_environment() | {"python_version": "3.13", "platform_machine": "aarch64"}
    monkeypatch.setattr("packaging.markers.default_environment", lambda: here)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(requirements, "requires", lambda name: MARKED)
    monkeypatch.setattr(requirements, "has", lambda name: name != "ur-rtde")


@pytest.mark.parametrize(
    ("python", "machine", "wanted"), [("3.12", "x86_64", 1), ("3.13", "x86_64", 0), ("3.11", "aarch64", 0)]
)
def test_pip_tries_ur_rtde_only_where_it_has_wheels(python, machine, wanted):
    (needed,) = map(Requirement, PROJECT["optional-dependencies"]["ur"])
    place = {"sys_platform": "linux", "platform_machine": machine, "python_version": python}
    assert needed.marker.evaluate(place) == bool(wanted)


def test_an_extra_that_a_platform_cannot_have_is_not_advised_there(elsewhere):
    sentence = str(MissingExtraError("ur", "driving a UR arm"))
    assert sentence.startswith("driving a UR arm needs ur-rtde, which td3robot[ur] installs only where sys_platform ==")
    assert 'python_version < "3.13"; this is Python 3.' in sentence
    assert "on Linux aarch64" in sentence
    assert sentence.endswith("or build it from source: pip install 'ur-rtde==1.6.5'")
    assert str(MissingExtraError("mcap", "x")) == (
        "x needs the extra 'mcap', which is not installed; run: pip install 'td3robot[mcap]'"
    )


def test_doctor_does_not_call_an_extra_installed_that_installs_nothing(elsewhere, monkeypatch):
    monkeypatch.setattr(doctor, "extras", lambda: ["ur"])
    check = Check()
    doctor._extras(check)
    (finding,) = check.findings
    assert (finding.verdict, finding.found) == ("optional", "not for this platform")
    assert "td3robot[ur] installs only where" in finding.advice


def test_an_extra_built_from_source_is_installed(elsewhere, monkeypatch):
    monkeypatch.setattr(requirements, "installed", lambda needed: True)
    assert requirements.impossible("ur") is None
