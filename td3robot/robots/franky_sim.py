"""The MuJoCo Menagerie's model of the FR3 with its hand, from the wheel ``franky-sim``.

The wheel is a simulator in its own right. Only its model files are read: none of its Python is imported, and nothing is
downloaded.
"""

from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from td3robot.errors import MissingExtraError, RobotError

PACKAGE, VERSION = "franky_sim", "1.0.4"
Element = ElementTree.Element


def model_tree() -> Element:
    """Read ``fr3.xml``, with absolute paths to its meshes.

    Raises:
        MissingExtraError: The wheel is not installed.
        RobotError: The wheel is installed, but has no such file.
    """
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError("franka", "the model of the FR3 and its hand")
    assets = Path(found.submodule_search_locations[0]) / "assets"
    path = assets / "fr3.xml"
    if not path.is_file():
        raise RobotError(f"the package franky-sim has no model {path}; install franky-sim=={VERSION} again")
    tree = ElementTree.parse(path).getroot()
    one(tree, "compiler").set("meshdir", str(assets / "meshes"))  # the file says "assets", but they are not there
    for tag in ("keyframe", "contact"):
        tree.remove(one(tree, tag))
    return tree


def one(tree: Element, tag: str, name: str | None = None) -> Element:
    """Return the element with a tag, and with a name if given.

    Raises:
        RobotError: There is none: the file is not the one that this code was written for.
    """
    for element in tree.iter(tag):
        if name is None or element.get("name") == name:
            return element
    wanted = tag if name is None else f"{tag} {name!r}"
    raise RobotError(f"the model of the FR3 has no {wanted}; install franky-sim=={VERSION}")


def remove(tree: Element, tag: str, name: str) -> None:
    """Remove an element, wherever it is in the tree."""
    element = one(tree, tag, name)
    next(parent for parent in tree.iter() if element in list(parent)).remove(element)


def as_xml(tree: Element) -> str:
    """Return the tree as XML, without the meshes that it does not use."""
    used = {geom.get("mesh") for geom in tree.iter("geom")}
    assets = one(tree, "asset")
    for mesh in [mesh for mesh in assets.iter("mesh") if mesh.get("name") not in used]:
        assets.remove(mesh)
    return ElementTree.tostring(tree, encoding="unicode")
