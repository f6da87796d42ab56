"""YAML as people mean it: each key once, and no numbers in disguise."""

from collections.abc import Hashable
from typing import Any

import yaml


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses duplicate keys, and keeps ``1:30`` (YAML 1.1: 90) a text."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping; keys merged from an anchor may be given again."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} is given twice", key_node.start_mark
                    )
                seen.add(key)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def _plain_number(loader: Any, node: Any) -> Any:
    text = loader.construct_scalar(node)
    if ":" in text:
        return text
    kind = node.tag.rpartition(":")[2]
    make = loader.construct_yaml_int if kind == "int" else loader.construct_yaml_float
    return make(node)


for _kind in ("int", "float"):
    _StrictLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _plain_number)


def read_yaml(text: str) -> Any:
    """Return the plain values of a YAML text; no code runs.

    Raises:
        yaml.YAMLError: It is not YAML, a key is given twice, or a value does not have the kind that it looks like.
    """
    try:
        return yaml.load(text, _StrictLoader)  # a subclass of the safe loader
    except (ValueError, RecursionError, TypeError) as error:
        raise yaml.YAMLError(f"a value cannot be read ({' '.join(str(error).split())[:200]})") from None
