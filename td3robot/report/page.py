"""A page as one HTML file that needs no network, written whole or not at all."""

import base64
import hashlib
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from td3robot.atomic import Replacement
from td3robot.errors import Td3RobotError
from td3robot.report.blocks import Page

# How a page tells that it is one, so that nothing else is ever overwritten.
MARK = "td3robot report"
GENERATOR = f'<meta name="generator" content="{MARK}">'


class ReportError(Td3RobotError):
    """A report that cannot be made or written."""


def render(page: Page) -> str:
    """Return the page as HTML: styles, script and plots inside, everything else refused by its own policy."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = files("td3robot.report") / "templates"
    scripts = [_plotly()] if _has_plots(page.sections) else []
    scripts.append(templates.joinpath("page.js").read_text(encoding="utf-8"))
    environment = Environment(
        loader=PackageLoader("td3robot.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment.get_template("page.html").render(
        page=page,
        style=templates.joinpath("page.css").read_text(encoding="utf-8"),
        scripts=scripts,
        digests=[_digest(script) for script in scripts],
        mark=MARK,
        made_with=f"td3robot {version('td3robot')}",
    )


def write_page(page: Page, out: Path, force: bool = False) -> None:
    """Write a page under a temporary name, and rename it.

    Raises:
        ReportError: There is something else of that name, or it cannot be written; nothing was changed.
    """
    require_writable(out, force)
    write_atomically(out, render(page).encode("utf-8"))


def write_atomically(out: Path, content: bytes) -> None:
    """Write a file under a temporary name, and rename it.

    Raises:
        ReportError: It cannot be written; what was there before still is.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with Replacement(out) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise ReportError(f"{out} cannot be written ({error.strerror}); choose another place with --out") from None


def require_writable(out: Path, force: bool) -> None:
    """Refuse to overwrite what is no report.

    Raises:
        ReportError: Naming the file.
    """
    if out.is_dir():
        raise ReportError(f"{out} is a folder; give the name of a file, for example {out / 'report.html'}")
    if force or not out.exists():
        return
    with out.open("rb") as file:
        if GENERATOR.encode() not in file.read(4096):
            raise ReportError(f"{out} exists and is no report of td3robot; choose another --out, or give --force")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script.replace("</script", "<\\/script")


def _digest(script: str) -> str:
    """Return what a page's policy lets run: this script and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode('utf-8')).digest()).decode('ascii')}'"


def _has_plots(blocks: Any) -> bool:
    return any(
        getattr(block, "kind", "") in ("plot", "plots") or _has_plots(getattr(block, "blocks", ())) for block in blocks
    )
