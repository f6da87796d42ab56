"""What the documentation site makes from the code: command pages, configuration reference, pages from other folders."""

import re
from collections.abc import Iterable, Iterator, Mapping
from os.path import relpath
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# A link in Markdown, after its text.
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and those that stand beside what they describe."""
    for target, text in generated().items():
        files.append(File.generated(config, target, content=text))
    for source, target in beside().items():
        if source.suffix == ".md":
            text = moved(source.read_text(encoding="utf-8"), source, target)
            files.append(File.generated(config, target, content=text))
        else:
            files.append(File.generated(config, target, abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files outside docs/ at their pages."""
    source = Path(config.docs_dir) / page.file.src_uri
    return moved(markdown, source, page.file.src_uri) if source.is_file() and source.suffix == ".md" else markdown


def beside() -> dict[Path, str]:
    """Return the pages outside docs/, and their pictures, with where they go on the site."""
    found = {
        ROOT / "README.md": "index.md",
        ROOT / "checkpoints/README.md": "policies/index.md",
        ROOT / "benchmarks/README.md": "benchmarks.md",
    }
    for card in sorted(ROOT.glob("checkpoints/*/README.md")):
        found[card] = f"policies/{card.parent.name}.md"
        found[card.with_name("learning_curve.png")] = f"policies/{card.parent.name}/learning_curve.png"
    return found


def moved(markdown: str, source: Path, target: str) -> str:
    """Rewrite the relative links of a page that goes to another place; what is not on the site keeps its text only."""
    places = {path.resolve(): where for path, where in beside().items()}

    def place(match: re.Match[str]) -> str:
        file = (source.parent / match[1]).resolve()
        where = places.get(file)
        if where is None and file.is_relative_to(ROOT / "docs"):
            where = file.relative_to(ROOT / "docs").as_posix()
        if where is None:
            return "]{.file}"
        return f"]({relpath(where, PurePosixPath(target).parent)}{match[2] or ''})"

    return re.sub(r"\[([^\]]*)\]\{\.file\}", r"\1", LINK.sub(place, markdown))


def generated() -> dict[str, str]:
    """Return the pages that are made from the code."""
    return {
        "reference/commands.md": commands_page(),
        "reference/configuration.md": configuration_page(),
        "reference/cells.md": cells_page(),
    }


def commands_page() -> str:
    """Describe every command from the command line's own declarations."""
    from typer.main import get_command

    from td3robot.cli import app
    from td3robot.cli.options import argument_word

    lines = ["# Commands\n", "Every command has `--help`. This page is made from the commands themselves.\n"]
    for name, command in commands(get_command(app), "td3robot"):
        lines += [f"## {name}\n", f"{command.help}\n", f"```text\n{usage(name, command)}\n```\n"]
        if command.epilog:
            lines.append(f"```sh\n{command.epilog.removeprefix('Example: ')}\n```\n")
        rows = [
            (code(" / ".join(option.opts) if option.param_type_name == "option" else argument_word(option)),
             option.help or "", shown(option))
            for option in command.params
            if option.name != "help" and not getattr(option, "hidden", False)
        ]  # fmt: skip
        lines.append(table(("option", "what it does", "default"), rows))
    return "\n".join(lines)


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every command below a group with its full name."""
    for key, child in getattr(command, "commands", {}).items():
        if hasattr(child, "commands"):
            yield from commands(child, f"{name} {key}")
        else:
            yield f"{name} {key}", child


def usage(name: str, command: Any) -> str:
    """Write a command's usage line."""
    from td3robot.cli.options import argument_word

    arguments = [option for option in command.params if option.param_type_name == "argument"]
    words = map(argument_word, arguments)
    required = [
        f"{option.opts[0]} {option.name.upper()}"
        for option in command.params
        if option.param_type_name == "option" and option.required
    ]
    return " ".join([name, *words, *required, "[OPTIONS]"])


def shown(option: Any) -> str:
    """Write an option's default."""
    if option.required:
        return "required"
    value = option.default
    if value in (None, False, "") or callable(value):
        return ""
    text = str(value)
    return code(str(Path(text).relative_to(ROOT)) if text.startswith(str(ROOT)) else text)


def configuration_page() -> str:
    """Describe a run's YAML file from the models that read it."""
    from td3robot.config import RunConfig
    from td3robot.config.run import RobotEnvironmentConfig, TrainingConfig
    from td3robot.registry import AGENTS, TASKS

    levels = RobotEnvironmentConfig.model_fields["disturbance"].annotation
    sections: list[tuple[str, Any]] = [("The run", RunConfig), ("environment", RobotEnvironmentConfig)]
    sections += [
        (f"environment.{name}", RobotEnvironmentConfig.model_fields[name].annotation)
        for name in ("robot", "action", "guard")
    ]
    for name, task in TASKS.items():
        sections.append((f"environment.task, where its name is {name}", task.Config))
        sections.append((f"environment.task.rewards of {name}", task.Config.model_fields["rewards"].annotation))
    sections += [("environment.task.object", TASKS["grasp"].Config.model_fields["object"].annotation)]
    sections += [("environment.disturbance", levels)]
    sections += [*((f"agent, where its kind is {kind}", AGENTS[kind]) for kind in AGENTS), ("training", TrainingConfig)]
    from td3robot.config.run import GymnasiumEnvironmentConfig

    sections.append(("environment, where its kind is gymnasium", GymnasiumEnvironmentConfig))
    intro = (
        "One YAML file is one complete run. An unknown key is refused with the nearest right one; what you leave out "
        "has the default below; `--set section.key=value` changes one value. Regions (goals, patch, workspace) default "
        "to those of the [arm](../hardware.md). This page is made from the models that read the file.\n\n"
        "The first line of each file in `configs/` names its JSON schema, so an editor with a YAML language server (VS "
        "Code: the extension YAML by Red Hat) completes keys, explains them and marks mistakes. For your own files: "
        "`td3robot schema run > run.schema.json`, and `# yaml-language-server: $schema=run.schema.json` as the first "
        "line.\n"
    )
    return "\n".join(["# Configuration\n", intro, *(section(*item) for item in sections)])


def cells_page() -> str:
    """Describe a cell's YAML file from the models that read it."""
    from td3robot.robots.cells import CELLS, CellConfig
    from td3robot.robots.cells.franka import FrankaConfig
    from td3robot.robots.cells.ur import GripperConfig, UrConfig
    from td3robot.robots.objects import TaughtPose
    from td3robot.robots.trackers import TRACKERS

    sections: list[tuple[str, Any]] = [
        ("Every cell", CellConfig),
        ("ur", UrConfig),
        ("gripper, of a UR", GripperConfig),
    ]
    sections += [
        ("franka", FrankaConfig),
        *((f"tracker, kind {name}", TRACKERS[name]) for name in TRACKERS),
        ("taught.NAME", TaughtPose),
    ]
    intro = (
        "A cell's file describes one robot in one place: how to reach it and what it carries. Copy one of "
        f"`configs/robots/`. Drivers: {', '.join(code(name) for name in CELLS)}. The section `robot` is that of a "
        "[run](configuration.md#environmentrobot). This page is made from the models that read the file.\n"
    )
    return "\n".join(["# A cell's file\n", intro, *(section(*item) for item in sections)])


def section(title: str, model: Any) -> str:
    """Describe one section of a configuration as a table of its keys."""
    about, meanings = documented(model)
    schemas = model.model_json_schema()
    properties, definitions = schemas.get("properties", {}), schemas.get("$defs", {})
    rows = []
    for name, field in model.model_fields.items():
        schema = properties.get(name, {})
        default = "required" if field.is_required() else default_of(field)
        values = choices(name) or values_of(schema, definitions)
        rows.append((code(name), values, default, field.description or meanings.get(name, "")))
    head = ("key", "values", "default", "meaning")
    columns = 4 if any(row[3] for row in rows) else 3
    return f"## {title}\n\n{about}\n\n" + table(head[:columns], (row[:columns] for row in rows))


def choices(key: str) -> str:
    """Name what is registered, for the keys that take such a name."""
    from td3robot.registry import ARMS, GRIPPERS

    known = {"arm": ARMS, "gripper": GRIPPERS}.get(key)
    return ", ".join(code(name) for name in known) if known else ""


def default_of(field: Any) -> str:
    """Write a field's default; that of a section is the section."""
    value = field.get_default(call_default_factory=True)
    if hasattr(value, "model_fields"):
        return "as below"
    if value is None:
        return "none"
    return code(repr(list(value)) if isinstance(value, tuple) else str(value))


def values_of(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Say in words what a JSON schema allows."""
    if "const" in schema or "enum" in schema:
        return " or ".join(code(str(value)) for value in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        kinds = [values_of(item, definitions) for item in schema["anyOf"] if item.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in schema or "oneOf" in schema or schema.get("type") == "object":
        return "a section"
    if schema.get("type") == "array":
        items = schema.get("prefixItems")
        if items:
            return f"{len(items)} of {values_of(items[0], definitions)}"
        return f"list of {values_of(schema.get('items', {}), definitions)}"
    words = {"number": "number", "integer": "integer", "boolean": "true, false", "string": "text"}
    kind = words.get(str(schema.get("type")), "a section")
    return kind + bounds(schema)


def bounds(schema: Mapping[str, Any]) -> str:
    """Say which bounds a number has."""
    low = next(
        (f"{sign} {schema[key]:.12g}" for key, sign in (("minimum", "≥"), ("exclusiveMinimum", ">")) if key in schema),
        "",
    )
    high = next(
        (f"{sign} {schema[key]:.12g}" for key, sign in (("maximum", "≤"), ("exclusiveMaximum", "<")) if key in schema),
        "",
    )
    both = ", ".join(part for part in (low, high) if part)
    return f" {both}" if both else ""


def documented(model: Any) -> tuple[str, dict[str, str]]:
    """Split a model's docstring into what it is and what each attribute means; base classes are asked too."""
    meanings: dict[str, str] = {}
    about = ""
    for kind in reversed(model.__mro__):
        text = kind.__dict__.get("__doc__")
        if not text or not hasattr(kind, "model_fields"):
            continue
        about, _, attributes = text.partition("Attributes:")
        entry: list[str] = []
        for line in attributes.splitlines():
            match = re.match(r"^ {8}(\w[\w, ]*): (.*)$", line)
            if match:
                entry = [name.strip() for name in match[1].split(",")]
                meanings |= dict.fromkeys(entry, match[2])
            elif line.strip():
                meanings |= {name: f"{meanings[name]} {line.strip()}" for name in entry}
    return " ".join(about.split()).replace(":class:", ""), {k: v.replace("``", "`") for k, v in meanings.items()}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Write a table, escaping what would end a cell and what HTML would take for a tag."""
    head = list(head)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [
        f"| {' | '.join(cell.replace('|', chr(92) + '|').replace('<', '&lt;') for cell in row)} |" for row in rows
    ]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """Set text as code."""
    return f"`{text}`"


def arms_table() -> str:
    """Make the table of arms in docs/hardware.md."""
    from td3robot.registry import ARMS

    rows = []
    for name, arm in ARMS.items():
        goals = arm.regions["goals"]
        box = ", ".join(f"{low:g}…{high:g}" for low, high in zip(goals.low, goals.high, strict=True))
        speeds = sorted({f"{value:.2f}" for value in arm.velocity})
        rows.append((code(name), str(len(arm.joint_names)), f"{arm.payload_kg:g} kg", ", ".join(speeds), box))
    return table(
        ("name", "joints", "payload, gripper included", "joint speed limits [rad/s]", "goals x, y, z [m]"), rows
    )


def grippers_table() -> str:
    """Make the table of grippers in docs/hardware.md."""
    from td3robot.registry import GRIPPERS

    rows = []
    for name, gripper in GRIPPERS.items():
        jaw = gripper.jaw
        rows.append(
            (
                code(name), f"{gripper.mass_kg:g} kg", f"{1e3 * jaw.stroke_m:g} mm",
                f"{1e3 * jaw.min_width_m:g} to {1e3 * jaw.widest_m:g} mm", f"{jaw.payload_kg:g} kg",
                f"{1e3 * gripper.tcp_offset_m:.1f} mm", gripper.driver_unit,
            )
        )  # fmt: skip
    head = (
        "name",
        "mass",
        "stroke",
        "object width",
        "object mass, at most",
        "flange to tool centre point",
        "driver unit",
    )
    return table(head, rows)
