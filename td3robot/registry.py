"""Registries: find things by name, each in its own module of a package, unknown to everything else."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from td3robot.errors import ConfigError, choose

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A mapping that fills itself: the first lookup imports all modules of a package, which register their contents.

    Another distribution adds to it with an entry point in the group of the package's name, for example
    ``[project.entry-points."td3robot.robots.arms"]``, that names a module to import.

    Args:
        kind: What is registered, for messages: ``arm``.
        package: The package whose modules are imported.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self._things: dict[str, T] = {}
        self._withheld: dict[str, str] = {}
        self._complete = False

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
            raise ConfigError(self._unknown(name))
        return self[name]

    def known(self, name: str) -> str:
        """Return a name if it is registered; a validator for configurations.

        Raises:
            ValueError: It is not; the sentence has the nearest name and all names.
        """
        if name not in self:
            raise ValueError(self._unknown(name))
        return name

    def _unknown(self, name: str) -> str:
        return self._withheld.get(name) or choose(self.kind, name, self)

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
            for entry in entry_points(group=self.package):
                entry.load()
        return self._things


class ModuleRegistry(Registry[T]):
    """A registry whose names are those of its modules: a lookup imports only the module that it names.

    So a module may import what is slow to load. In another distribution, it is the entry point that has the name.
    """

    def __getitem__(self, name: Any) -> T:
        if name not in self._things:
            if name not in self._modules():
                raise KeyError(name)
            self._import(self._modules()[name])
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._things or name in self._modules())

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._things.keys() | self._modules().keys()))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _modules(self) -> dict[str, str]:
        package = find_spec(self.package)
        path = package.submodule_search_locations if package is not None else None
        modules = {module.name: f"{self.package}.{module.name}" for module in pkgutil.iter_modules(path)}
        return modules | {entry.name: entry.module for entry in entry_points(group=self.package)}


ARMS: Registry[Any] = Registry("arm", "td3robot.robots.arms")
GRIPPERS: Registry[Any] = Registry("gripper", "td3robot.robots.grippers")
CELLS: Registry[Any] = Registry("backend", "td3robot.robots.cells")
TRACKERS: Registry[Any] = Registry("kind", "td3robot.robots.trackers")
TASKS: Registry[Any] = Registry("name", "td3robot.tasks")
AGENTS: Registry[Any] = ModuleRegistry("kind", "td3robot.learning.agents")
