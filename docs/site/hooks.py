"""Let mkdocs build the site from documents that are also read in the repository.

The README, the changelog and other documents outside `docs/` become pages of the site. Links between
documents lead to pages. Links to source files lead to the repository if `repo_url` is set, and are plain
text otherwise.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]

# Documents outside `docs/`, and the pages that they become.
PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "examples/README.md": "project/examples.md",
    "examples/nyu-depth/README.md": "project/examples-nyu-depth.md",
    "examples/wikitext-sparse/README.md": "project/examples-wikitext-sparse.md",
    "examples/modelnet-voxel/README.md": "project/examples-modelnet-voxel.md",
    "integrations/README.md": "project/integrations.md",
    "integrations/grafana/README.md": "project/integrations-grafana.md",
    "integrations/slurm/README.md": "project/integrations-slurm.md",
    "integrations/kubernetes/README.md": "project/integrations-kubernetes.md",
    "benches/README.md": "project/benches.md",
    "benches/load/README.md": "project/benches-load.md",
}
SOURCES = {page: source for source, page in PAGES.items()}

# `[text](target)` and `![text](target)`, where the text may hold one level of brackets.
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^( *(?:```|~~~))", re.MULTILINE)

log = logging.getLogger("mkdocs.hooks.brimful")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the documents outside `docs/`."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page, except in blocks of code."""
    here = page.file.src_uri
    source = SOURCES.get(here, f"docs/{here}")

    def link(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if not (ROOT / wanted).exists():
            log.warning("%s links to %s, which does not exist", source, target)
            return match[0]
        found = PAGES.get(wanted) or (wanted.removeprefix("docs/") if wanted.startswith("docs/") else None)
        if found is not None and files.get_file_from_path(found) is not None:
            relative = posixpath.relpath(found, posixpath.dirname(here) or ".")
            return f"{mark}[{text}]({relative}{'#' + anchor if anchor else ''})"
        if not config.repo_url:
            return text
        kind = "tree" if (ROOT / wanted).is_dir() else "blob"
        return f"[{text}]({config.repo_url.rstrip('/')}/{kind}/main/{wanted})"

    # Text, fence, code, fence, text and so on.
    parts = FENCE.split(markdown)
    return "".join(LINK.sub(link, part) if at % 4 == 0 else part for at, part in enumerate(parts))
