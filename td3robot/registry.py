"""Registries: find things by name, each in its own module of a package, unknown to everything else."""

import importlib
import logging
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from td3robot.errors import ConfigError, choose

T = TypeVar("T")

log = logging.getLogger(__name__)
# At most this much of a plugin's own error is quoted.
QUOTE_LENGTH = 300


class Registry(Mapping[str, T], Generic[T]):
    """A mapping that fills itself: the first lookup imports all modules of a package, which register their contents.

    Another distribution adds to it with an entry point in the group of the package's name, for example
    ``[project.entry-points."td3robot.robots.arms"]``, that names a module to import. Such a plugin is somebody else's
    code: if it cannot be imported, it is logged and set aside, and everything else works.

    Args:
        kind: What is registered, for messages: ``arm``.
        package: The package whose modules are imported.

    Attributes:
        set_aside: The plugins that could not be imported, each with a sentence that says why.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self._things: dict[str, T] = {}
        self._withheld: dict[str, str] = {}
        self._complete = False
        self.set_aside: dict[EntryPoint, str] = {}

    def register(self, name: str, thing: T) -> T:
        """Add a thing, and return it.

        Raises:
            ValueError: Another thing has that name.
        """
        if self._things.setdefault(name, thing) is not thing:
            raise ValueError(f"two {self.kind}s are called {name!r}")
        return thing

    def withhold(self, name: str, sentence: str) -> None:
        """Register the reason why something that people ask for is not available."""
        self._withheld[name] = sentence

    def find(self, name: str) -> T:
        """Return the thing with that name.

        Raises:
            ConfigError: There is none; the sentence has the nearest name and all names.
        """
        if name not in self:
            raise ConfigError(self.unknown(name))
        return self[name]

    def known(self, name: str) -> str:
        """Return a name if it is registered; a validator for configurations.

        Raises:
            ValueError: It is not; the sentence has the nearest name and all names.
        """
        if name not in self:
            raise ValueError(self.unknown(name))
        return name

    def unknown(self, name: str, *others: str) -> str:
        """Return the error sentence for a name that is not registered.

        Args:
            name: The name.
            others: Names that could be chosen in place of a registered one.
        """
        return self._withheld.get(name) or "; ".join(
            [choose(self.kind, name, [*others, *self]), *self.set_aside.values()]
        )

    def __getitem__(self, name: Any) -> T:
        if not isinstance(name, str):  # a file may hold a list where a name belongs
            raise KeyError(name)
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._all()))

    def __len__(self) -> int:
        return len(self._all())

    def _import(self, module: str) -> None:
        try:
            importlib.import_module(module)
        except (SyntaxError, ImportError, NameError, TypeError, ValueError, KeyError, AttributeError) as error:
            self._complete = False
            raise ConfigError(f"the {self.kind} in {module} cannot be read: {type(error).__name__}: {error}") from error

    def _all(self) -> dict[str, T]:
        if not self._complete:
            self._complete = True  # a module that looks itself up while it is imported must not start again
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules(package.__path__, f"{self.package}."):
                self._import(module.name)
            for entry in self.plugins:
                self._load(entry)
        return self._things

    @cached_property
    def plugins(self) -> tuple[EntryPoint, ...]:
        """The entry points of other distributions, those that are set aside among them."""
        return tuple(entry_points(group=self.package))

    def _load(self, entry: EntryPoint) -> None:
        """Import a plugin, with what it prints on standard error, or set it aside with all that it registered here."""
        before = dict(self._things)
        try:
            with redirect_stdout(sys.stderr):
                entry.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # somebody else's code may raise anything
            self._things = before
            self._set_aside(entry, f"{type(error).__name__}: {error}")

    def _set_aside(self, entry: EntryPoint, why: str) -> None:
        package = "unknown" if entry.dist is None else entry.dist.name
        self.set_aside[entry] = (
            f"the plugin {entry.name!r} ({entry.value}) of the package {package!r} is set aside: "
            f"{' '.join(why.split())[:QUOTE_LENGTH]}; repair it, or remove it: pip uninstall {package}"
        )
        log.warning(self.set_aside[entry])


class ModuleRegistry(Registry[T]):
    """A registry whose names are those of its modules: a lookup imports only the module that it names.

    So a module may import what is slow to load. In another distribution, it is the entry point that has the name.
    """

    def __getitem__(self, name: Any) -> T:
        if name not in self:
            raise KeyError(name)
        if not self._imported(name):
            raise ConfigError(self.set_aside[self._named[name]])
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in {*self._things, *self._modules, *self._named}

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of everything that can be imported, and import it."""
        return (name for name in sorted({*self._things, *self._modules, *self._named}) if self._imported(name))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _imported(self, name: str) -> bool:
        """Import the module of that name; return False if it is a plugin that is set aside."""
        if name in self._things:
            return True
        if name in self._modules:
            self._import(self._modules[name])
            return True
        entry = self._named[name]
        if entry not in self.set_aside:
            self._load(entry)
        if entry not in self.set_aside and name not in self._things:
            self._set_aside(entry, f"it registers no {self.kind} {name!r}")
        return entry not in self.set_aside

    @cached_property
    def _modules(self) -> dict[str, str]:
        package = find_spec(self.package)
        path = package.submodule_search_locations if package is not None else None
        return {module.name: f"{self.package}.{module.name}" for module in pkgutil.iter_modules(path)}

    @cached_property
    def _named(self) -> dict[str, EntryPoint]:
        """The plugins by name; those whose name another one has are set aside."""
        named: dict[str, EntryPoint] = {}
        for entry in self.plugins:
            if entry.name in self._modules or named.setdefault(entry.name, entry) is not entry:
                self._set_aside(entry, f"two {self.kind}s are called {entry.name!r}")
        return named


ARMS: Registry[Any] = Registry("arm", "td3robot.robots.arms")
GRIPPERS: Registry[Any] = Registry("gripper", "td3robot.robots.grippers")
CELLS: Registry[Any] = Registry("backend", "td3robot.robots.cells")
TRACKERS: Registry[Any] = Registry("kind", "td3robot.robots.trackers")
TASKS: Registry[Any] = Registry("name", "td3robot.tasks")
# By the names of their tasks: makers of td3robot.tasks.scripted.Script.
SCRIPTS: Registry[Any] = Registry("hand-written policy", "td3robot.tasks")
AGENTS: Registry[Any] = ModuleRegistry("kind", "td3robot.learning.agents")
REGISTRIES = (ARMS, GRIPPERS, CELLS, TRACKERS, TASKS, AGENTS)
