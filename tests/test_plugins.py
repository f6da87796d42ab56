"""A plugin is somebody else's code: whatever it does at import, it is named and set aside, and the rest works."""

import json
import logging
import subprocess
import sys

import pytest

from td3robot.cli import doctor
from td3robot.errors import ConfigError
from td3robot.registry import ARMS, ModuleRegistry, Registry
from td3robot.robots.physical import Check

# What a plugin of the package `house` may do at its import, and what the sentence quotes.
FAULTS = {
    "missing": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    "raises": ("1 / 0", "ZeroDivisionError: division by zero"),
    "own_error": ("class Own(Exception): pass\nraise Own('a\\nb')", "Own: a b"),
    "exits": ("import sys\nsys.exit(3)", "SystemExit: 3"),
    "syntax": ("def", "SyntaxError: "),
    "twice": ("THINGS.register('half', 1)\nTHINGS.register('own', 2)", "ValueError: two things are called 'own'"),
}
HOUSE = {
    "house/__init__.py": "from td3robot.registry import {kind}\nTHINGS = {kind}('thing', 'house')\n",
    "house/own.py": "from house import THINGS\nTHINGS.register('own', 'house')\n",
}


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that makes a distribution with a plugin importable."""
    monkeypatch.syspath_prepend(tmp_path)
    modules = set(sys.modules)

    def install(name, code, group="house", module=None):
        info = tmp_path / f"{name}_pkg-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-pkg\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {module or name + '_plugin'}\n")
        (tmp_path / f"{name}_plugin.py").write_text(code)
        return tmp_path

    yield install
    for name in set(sys.modules) - modules:
        if name.startswith("house") or name.endswith("_plugin"):
            del sys.modules[name]


def house(tmp_path, kind):
    """Make a package with a registry of its own, and return the registry."""
    for name, code in HOUSE.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(code.format(kind=kind.__name__))
    import house

    return house.THINGS


@pytest.mark.parametrize("fault", FAULTS)
def test_a_plugin_that_cannot_be_imported_is_named_and_the_rest_works(install, tmp_path, caplog, fault):
    code, quoted = FAULTS[fault]
    install(fault, f"from house import THINGS\n{code}\n")
    install("good", "from house import THINGS\nTHINGS.register('good', 'plugin')\n")
    things = house(tmp_path, Registry)
    with caplog.at_level(logging.WARNING):
        assert dict(things) == {"own": "house", "good": "plugin"}
        assert list(things) == ["good", "own"]
    (message,) = caplog.messages  # once
    assert message.startswith(
        f"the plugin {fault!r} ({fault}_plugin) of the package '{fault}-pkg' is set aside: {quoted}"
    )
    assert message.endswith(f"repair it, or remove it: pip uninstall {fault}-pkg")
    with pytest.raises(ConfigError, match=f"unknown thing {fault!r}.*the plugin {fault!r}"):
        things.find(fault)


def test_what_a_plugin_prints_stays_off_standard_output(install, tmp_path, capsys):
    install("chatty", "print('Hello from chatty')\nfrom house import THINGS\nTHINGS.register('chatty', 1)\n")
    assert "chatty" in house(tmp_path, Registry)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "Hello from chatty\n")


@pytest.mark.parametrize("fault", ["missing", "exits", "nothing", "malformed"])
def test_an_agent_that_cannot_be_imported_is_refused_only_where_it_is_used(install, tmp_path, caplog, fault):
    code, quoted = FAULTS.get(fault, ("", "it registers no thing" if fault == "nothing" else "AttributeError"))
    install(fault, code, module="not a module" if fault == "malformed" else None)
    things = house(tmp_path, ModuleRegistry)
    assert things["own"] == "house"
    assert (caplog.messages, f"{fault}_plugin" in sys.modules) == ([], False)  # a lookup imports what it names
    assert fault in things
    with pytest.raises(ConfigError, match=f"the plugin {fault!r} .* of the package '{fault}-pkg' .*{quoted}"):
        things[fault]
    assert list(things) == ["own"]
    assert len(caplog.messages) == 1


def test_an_agent_cannot_take_the_name_of_another(install, tmp_path, caplog):
    install("own", "from house import THINGS\nTHINGS.register('own', 'plugin')\n")
    things = house(tmp_path, ModuleRegistry)
    assert dict(things) == {"own": "house"}
    assert "two things are called 'own'" in caplog.messages[0]


def test_doctor_names_plugins_that_work_and_those_that_do_not(install, monkeypatch):
    install("missing", FAULTS["missing"][0], group="td3robot.robots.arms")
    fresh = Registry("arm", ARMS.package)
    monkeypatch.setattr("td3robot.registry.REGISTRIES", (fresh,))
    check = Check()
    doctor._plugins(check)
    (finding,) = [finding for finding in check.findings if finding.verdict == "attention"]
    assert "of the package 'missing-pkg' is set aside" in finding.advice
    assert check.go


def test_robot_commands_work_beside_a_broken_plugin(install, tmp_path):
    place = install("missing", FAULTS["missing"][0], group="td3robot.robots.arms")
    program = f"import sys; sys.path.insert(0, {str(place)!r}); from td3robot.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "inspect", "ur5e_reach", "--json"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert done.stderr.count("is set aside") == 1
    assert "Traceback" not in done.stderr
