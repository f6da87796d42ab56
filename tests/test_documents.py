"""The documents are right: commands parse and run, files and links exist, examples work, the site builds."""

import dataclasses
import importlib.util
import pkgutil
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from td3robot import catalog
from td3robot.cli import app
from td3robot.robots.arms.model import ArmModel

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in (
        "README.md",
        "docs/**/*.md",
        "checkpoints/README.md",
        "checkpoints/*_*/README.md",
        "benchmarks/*.md",
    )
    for path in ROOT.glob(pattern)
    if path.parent.name not in {path.name for path in ROOT.glob("checkpoints/*-*")}  # runs of one's own
)
# Pages that docs/hooks.py makes from the code; `mkdocs build --strict` finds out whether they exist.
GENERATED = {"docs/reference/commands.md", "docs/reference/configuration.md", "docs/reference/cells.md"}
ARM, LATER = "needs an arm", "after the steps above"
OURS = ("configs/", "checkpoints/", "benchmarks/", "launch/", "tests/", "docs/")
# What a command's options make, so that later commands may name it.
MAKES = ("--out", "--video", "--onnx", "--legacy")

FENCE = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(td3robot [^`]+)`")
LINK = re.compile(r"\]\((?!https?://)([^)\s]+)\)")

needs_site = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="the documentation site needs the extra docs"
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    title: str
    text: str


@dataclass(frozen=True)
class Command:
    """One command line of a page."""

    page: Path
    title: str
    words: tuple[str, ...]

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}: {' '.join(self.words)}"


def blocks(page, *languages):
    text = page.read_text(encoding="utf-8")
    return [Block(page, *match) for match in FENCE.findall(text) if match[0] in languages]


def commands(page):
    for block in blocks(page, "sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            words = tuple(shlex.split(line, comments=True))
            if words:
                yield Command(page, block.title, words)


ALL = [command for page in PAGES for command in commands(page)]
TD3ROBOT = [command for command in ALL if command.words[0] == "td3robot"]


def leaf(words):
    """Find the command that words name, and the words that are left for it."""
    command, rest = get_command(app), list(words[1:])
    while hasattr(command, "commands"):
        assert rest, f"{' '.join(words)} names no command"
        assert rest[0] in command.commands, f"td3robot has no command {rest[0]!r}: {' '.join(words)}"
        command = command.commands[rest.pop(0)]
    return command, rest


def prose(page):
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", TD3ROBOT, ids=str)
def test_commands_parse(command):
    leaf_command, words = leaf(command.words)
    leaf_command.make_context(command.words[1], words)  # raises at an option that does not exist


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_text_exist_with_their_options(page):
    for text in INLINE.findall(prose(page)):
        words = text.replace("\\|", " ").split()
        command, rest = leaf(words)
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        unknown = [word for word in rest if word.startswith("--") and word.split("=")[0] not in known]
        assert unknown == [], f"`{text}`"


@pytest.mark.parametrize("command", TD3ROBOT, ids=str)
def test_what_needs_an_arm_is_marked(command):
    names_a_cell = "--robot" in command.words and command.title != LATER  # training for a cell needs no arm
    assert command.words[1] == "copy" or names_a_cell == (command.title == ARM), (
        f'a block with --robot CELL has title="{ARM}", and no other'
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_named_in_commands_exist(page):
    made = {block.title for block in blocks(page, "yaml", "python", "toml")}
    for command in commands(page):
        words = command.words
        made |= {after for word, after in pairwise(words) if word in MAKES}
        made |= {words[-1]} if words[0] == "cp" or words[:2] == ("td3robot", "copy") else set()
        if command.title in (ARM, LATER):
            continue
        for word in words[1:]:
            if word.startswith(OURS) or word.endswith((".yaml", ".py", ".sh")):
                path = word.partition("=")[2] or word
                assert path in made or (ROOT / path).exists(), f"{command}: there is no {path}"


def test_titles_of_command_blocks_are_known():
    titles = {block.title for page in PAGES for block in blocks(page, "sh")}
    assert titles <= {"", ARM, LATER}


def test_extras_named_in_commands_exist():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for command in ALL:
        if command.words[0] == "pip":
            named = re.findall(r"\[([\w,]+)\]", " ".join(command.words))
            assert {extra for group in named for extra in group.split(",")} <= set(extras), str(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in LINK.findall(prose(page)):
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        if path.relative_to(ROOT).as_posix() in GENERATED:
            continue
        assert path.exists(), f"{link} leads nowhere"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{link}: {path.name} has no such heading"


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


PYTHON = [block for page in PAGES for block in blocks(page, "python")]


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: str(block.page.relative_to(ROOT)))
def test_python_examples_compile(block):
    compile(block.text, str(block.page), "exec")


@pytest.mark.parametrize(
    "block", [b for b in PYTHON if b.title == "runnable"], ids=lambda block: str(block.page.relative_to(ROOT))
)
def test_python_examples_run(block, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(compile(block.text, str(block.page), "exec"), {"__name__": "example"})  # noqa: S102  # our own page
    assert capsys.readouterr().out


# Options that make a documented command short; the last one given counts.
BRIEF = (
    "--set training.random_steps=16 --set training.evaluate_every=40 --set training.log_every=40 "
    "--set training.evaluation_episodes=1 --set training.overlap=false"
)
SHORTER = {
    "train": f"--steps 80 {BRIEF} --set agent.batch_size=8",
    "sweep": f"--seeds 1 --set training.steps=80 {BRIEF}",
    "eval": "--episodes 1",
    "rehearse": "--episodes 1 --speed 1",
}
# What other tests run: rehearsals in real time, below; servers and viewers, which run until somebody stops them.
APART = {"rehearse", "standin", "view", "demo"}
QUICK = {"inspect", "export"}


def runs(command):
    """Run a documented command in the present folder, made short; what is not installed skips the test."""
    name = command.words[1]
    short = "--more 16" if "--resume" in command.words else SHORTER.get(name, "")
    if "--search" in command.words:
        short += " --search 2"
    words = [sys.executable, "-P", "-m", "td3robot", *command.words[1:], *short.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "needs the extra" in done.stderr or "run launch/franka_sim.sh" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def is_released(word):
    """Whether a word of a command is a released policy: its name, or its folder in the clone."""
    return catalog.policy(ROOT / word).exists() or word in catalog.policies()


def scripts():
    """Yield pages with the commands to run one after the other: all of them, and those that are quick."""
    for page in PAGES:
        mine = [c for c in TD3ROBOT if c.page == page and c.title not in (ARM, LATER) and c.words[1] not in APART]
        quick = [c for c in mine if c.words[1] in QUICK and is_released(c.words[2])]
        name = str(page.relative_to(ROOT))
        if len(mine) > len(quick):
            yield pytest.param(page, mine, id=name, marks=pytest.mark.slow)
        if quick:
            yield pytest.param(page, quick, id=f"{name}, quick")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder like the clone's, where commands may write."""
    (tmp_path / "checkpoints").mkdir()
    for name in ("configs", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    for card in ROOT.glob("checkpoints/*/README.md"):
        (tmp_path / "checkpoints" / card.parent.name).symlink_to(card.parent)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("page", "script"), list(scripts()))
def test_commands_of_a_page_run_one_after_the_other(page, script, folder):
    for command in script:
        runs(command)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [c for c in TD3ROBOT if c.words[1] == "rehearse" and is_released(c.words[2])], ids=str
)
def test_rehearsals_run(command, folder):
    for block in blocks(command.page, "yaml"):
        (folder / block.title).write_text(block.text, encoding="utf-8")
    runs(command)


@pytest.mark.parametrize("command", [command for command in TD3ROBOT if command.title == ARM], ids=str)
def test_commands_that_no_test_runs(command):
    pytest.skip(ARM)


@pytest.mark.thorough
def test_the_task_of_add_task_works(tmp_path):
    page = ROOT / "docs/add_task.md"
    task, script = blocks(page, "python")
    (run,) = blocks(page, "yaml")
    assert yaml.safe_load(run.text)["environment"]["task"]["name"] == "hover"
    (tmp_path / "hover.py").write_text(f"{task.text}\n{script.text}", encoding="utf-8")
    (tmp_path / run.title).write_text(run.text, encoding="utf-8")
    program = (
        "import sys; sys.path.insert(0, '.')\n"
        "import hover\n"
        "from pathlib import Path\n"
        "from td3robot.build import make_robot_env\n"
        "from td3robot.config import load_config\n"
        "from td3robot.tasks.scripted import script_of\n"
        f"config = load_config(Path({run.title!r})).environment\n"
        "environment = make_robot_env(config)\n"
        "script = script_of(config, environment.task.layout, environment.robot.spec)\n"
        "observation, truncated = environment.reset(seed=0)[0], False\n"
        "while not truncated:\n"
        "    observation, _, _, truncated, info = environment.step(script.act(observation))\n"
        "print(sorted(info['reward_terms']), info['success'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "['precision', 'progress', 'smoothness'] True", done.stderr


@pytest.mark.slow
def test_the_notebook_runs():
    nbclient = pytest.importorskip("nbclient", reason="running the notebook needs the extra docs")
    nbformat = pytest.importorskip("nbformat", reason="running the notebook needs the extra docs")
    pytest.importorskip("ipykernel", reason="running the notebook needs the extra docs")
    path = ROOT / "docs/notebooks/first_policy.ipynb"
    notebook = nbformat.read(path, 4)
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute()  # raises where a cell does
    pictures = [out for cell in notebook.cells for out in cell.get("outputs", ()) if "image/png" in out.get("data", {})]
    assert pictures


# Idioms that a reader stumbles over, and what is said instead.
AVOIDED = {
    r"\bgo(es)? on with\b": "resume, continue",
    r"\bprice\b": "penalty",
    r"\b[Tt]rain\w* from nothing\b": "from scratch",
    r"\bthe most\b \(limit": "at most",
    r"\bnormaliser\b": "normalizer",
    r"\bplayed? (the|a|its|back|under|undisturbed)": "evaluate, deploy",
    r"\b(is|are|was|were|not) told\b": "commanded, informed",
    r"\b[Ww]hole (run|episode|command|training|configuration)": "complete",
    r"\b(file|page|document|manual|check|td3robot) says\b": "displays, specifies, reports",
    r"\bdoes so\b": "the verb itself",
}
# Where a reader enters, and so where the warning stands.
ENTRANCES = {"README.md", "docs/safety.md", "docs/start/engineer.md", "docs/deploy.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_words_are_those_of_the_field(page):
    text = prose(page)
    found = [f"{match[0]!r}: say {instead}" for idiom, instead in AVOIDED.items() for match in re.finditer(idiom, text)]
    assert found == []


def test_what_the_reference_describes_exists():
    for page in ROOT.glob("docs/api/*.md"):
        for name in re.findall(r"^::: (\S+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert pkgutil.resolve_name(name) is not None, f"{page.name}: there is no {name}"


def test_the_warning_about_hardware_stands_once_where_a_reader_enters():
    times = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8").count("hardware has been") for page in PAGES}
    assert {page: count for page, count in times.items() if count} == dict.fromkeys(ENTRANCES, 1)


@needs_site
def test_the_site_builds_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "site/reference/commands/index.html").read_text(encoding="utf-8")
    for name in get_command(app).commands:
        assert f"td3robot {name}" in reference


@needs_site
def test_hardware_tables_are_those_of_the_code(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    hooks = importlib.import_module("hooks")
    page = (ROOT / "docs/hardware.md").read_text(encoding="utf-8")
    for table in (hooks.arms_table(), hooks.grippers_table()):
        assert table in page, f"docs/hardware.md differs from the code; its table is now:\n{table}"


def test_lengths_of_files_are_what_the_pages_say():
    said = [
        (page.name, file, int(lines))
        for page in PAGES
        for file, lines in re.findall(r"`(td3robot/[\w/]+\.py)`, (\d+) lines", page.read_text(encoding="utf-8"))
    ]
    assert said
    wrong = [
        f"{page}: {file} has {have} lines, not {lines}"
        for page, file, lines in said
        if (have := len((ROOT / file).read_text(encoding="utf-8").splitlines())) != lines
    ]
    assert wrong == []


def test_the_fields_of_an_arm_are_those_that_add_arm_lists():
    text = (ROOT / "docs" / "add_arm.md").read_text(encoding="utf-8").split("## 2.")[0]
    listed = set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE))
    assert listed >= {"chain", "make_spec", "home", "servo"}
    assert listed <= {field.name for field in dataclasses.fields(ArmModel)}
