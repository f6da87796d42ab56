"""What pyproject.toml cannot say: configurations and released policies go into the package, and the README is portable.

In the repository both folders stand at the top. The wheel carries them as ``td3robot/configs`` and
``td3robot/checkpoints``, where ``td3robot.catalog`` finds them.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
PLAY = ("*.safetensors", "*.json", "config.yaml", "README.md")


def released() -> list[str]:
    """Return the names of the released policies: those that .gitignore lets in beside the runs of this clone."""
    allowed = (ROOT / ".gitignore").read_text(encoding="utf-8")
    return re.findall(r"^!/checkpoints/(\w+)/$", allowed, re.MULTILINE)


def carried() -> list[str]:
    """Return the files that go into the package, relative to the root."""
    files = [path for ending in ("yaml", "json") for path in (ROOT / "configs").rglob(f"*.{ending}")]
    files += [path for name in released() for kind in PLAY for path in (ROOT / "checkpoints" / name).glob(kind)]
    return sorted(path.relative_to(ROOT).as_posix() for path in files)


class BuildWithData(build_py):
    """Copies the carried files beside the modules."""

    def run(self) -> None:
        """Build."""
        super().run()
        if not self.editable_mode:
            for file in carried():
                target = Path(self.build_lib) / "td3robot" / file
                self.mkpath(str(target.parent))
                self.copy_file(file, str(target))

    def get_source_files(self) -> list[str]:
        """Name what a source distribution needs."""
        return [*super().get_source_files(), *carried()]


def portable(text: str, repository: str | None) -> str:
    """Make a README readable outside its repository.

    Args:
        text: Markdown with links relative to the repository's root.
        repository: Its address. Links become absolute with it; without one, pictures are left out and links become
            their text.
    """

    def markdown(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        if re.match(r"https?://|#", target):
            return match[0]
        if repository is None:
            return "" if picture else label
        return f"{picture}[{label}]({repository}/{'raw' if picture else 'blob'}/main/{target})"

    def html(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if re.match(r"https?://", target):
            return match[0]
        return "" if repository is None else f"{before}{repository}/raw/main/{target}{after}"

    text = re.sub(r"(!?)\[([^\[\]]*)\]\(([^()\s]+)\)", markdown, text)
    return re.sub(r'(<img\b[^>]*\bsrc=")([^"]+)("[^>]*>)', html, text)


def main() -> None:
    """Build."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    setup(
        cmdclass={"build_py": BuildWithData},
        long_description=portable(readme, project.get("urls", {}).get("Source")),
        long_description_content_type="text/markdown",
    )


if __name__ == "__main__":
    main()
