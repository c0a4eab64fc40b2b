"""README.md and docs/ as a site: python3 docs/site.py SOURCES SITE (`./dev docs` runs it).

Pages lie in SOURCES as the site has them. A link from a page to a file or folder of the repository leads to a page that shows it, so
that the site needs no repository beside it. A link that leads nowhere, or to no heading, ends the build.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".c": "c", ".lua": "lua", ".py": "python", ".txt": "cmake", ".sh": "sh", ".json": "json"}
# Pages that lie outside of docs/, and what they are called in the site.
OUTSIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "reporting.md"}
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")

CONFIG = """
site_name: triage
site_description: Per-sample error records and scripted recovery for LibTorch
docs_dir: {sources}
site_dir: {site}
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.indexes, navigation.top, navigation.tracking, search.highlight, search.suggest, toc.follow, content.code.copy]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      primary: blue grey
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      primary: blue grey
plugins: [search]
extra_css: [site.css]
markdown_extensions:
  - toc: {{permalink: true, slugify: !!python/object/apply:pymdownx.slugs.slugify {{kwds: {{case: lower}}}}}}
  - tables
  - attr_list
  - pymdownx.highlight
  - pymdownx.superfences
validation:
  nav: {{omitted_files: warn, not_found: warn, absolute_links: warn}}
  links: {{not_found: warn, anchors: warn, absolute_links: warn, unrecognized_links: warn}}
not_in_nav: |
  /source/
nav:
{nav}
"""

class Site:
    def __init__(self, sources: Path) -> None:
        self.sources = sources
        self.shown: set[Path] = set()  # files and folders of the repository, relative to it

    def write(self) -> None:
        shutil.rmtree(self.sources, ignore_errors=True)
        shutil.copytree(ROOT / "docs", self.sources, ignore=shutil.ignore_patterns("*.py", "requirements.txt", "*.md"))
        for page in sorted((ROOT / "docs").glob("*.md")):
            self.page(page, Path(page.name))
        for name, page in OUTSIDE.items():
            self.page(ROOT / name, Path(page))
        done: set[Path] = set()
        while self.shown - done:
            for path in sorted(self.shown - done):
                self.show(path)
                done.add(path)

    def page(self, source: Path, target: Path) -> None:
        (self.sources / target).parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text()
        code = [m.span() for m in re.finditer(r"^```.*?^```|`[^`\n]+`", text, re.M | re.S)]

        def moved(m: re.Match[str]) -> str:
            if any(begin < m.start() < end for begin, end in code):
                return m[0]
            return m[1] + self.link(m[2], source, target) + m[3]

        (self.sources / target).write_text(LINK.sub(moved, text))

    def link(self, link: str, source: Path, target: Path) -> str:
        """A link of a file of the repository as the page of the site has it."""
        if re.match(r"[a-z]+:|#", link):
            return link
        path, _, anchor = link.partition("#")
        file = (source.parent / path).resolve()
        if not file.exists():
            sys.exit(f"{source.relative_to(ROOT)}: the link {link} leads nowhere")
        place = self.place(file.relative_to(ROOT))
        return os.path.relpath(place, target.parent) + (f"#{anchor}" if anchor else "")

    def place(self, path: Path) -> Path:
        if str(path) in OUTSIDE:
            return Path(OUTSIDE[str(path)])
        if path.parts[:1] == ("docs",):
            return Path(*path.parts[1:])
        self.shown.add(path)
        if path.suffix == ".md":
            return Path("source") / path
        return Path("source") / (path / "index.md" if (ROOT / path).is_dir() else f"{path}.md")

    def show(self, path: Path) -> None:
        """A page for a file or folder of the repository."""
        file, target = ROOT / path, self.sources / self.place(path)
        if path.suffix == ".md":
            return self.page(file, self.place(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            entries = [each for each in sorted(file.iterdir()) if not each.name.startswith(".") and each.name not in ("build", "__pycache__")]
            lines = [f"- [{each.name}]({os.path.relpath(self.place(each.relative_to(ROOT)), self.place(path).parent)})" for each in entries]
            target.write_text(f"# {path}\n\n" + "\n".join(lines) + "\n")
        else:
            text = file.read_bytes().decode(errors="replace")
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
            target.write_text(f"# {path}\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text}\n{fence}\n")
        return None

    def nav(self) -> str:
        """The pages under the headings of README.md's list, then what the list lacks."""
        lines, seen = ["  - Overview: index.md"], set()
        heading = None
        for line in (ROOT / "README.md").read_text().splitlines():
            if line.startswith("#"):
                heading = None
            if group := re.match(r"\*\*(.+)\*\*$", line):
                heading = group[1]
                lines.append(f"  - {heading}:")
            if entry := re.match(r"\| \[([^\]]+)\]\(docs/([\w-]+\.md)\) \|", line):
                lines.append(f"{'      ' if heading else '  '}- {entry[1]}: {entry[2]}")
                seen.add(entry[2])
        rest = sorted(page.name for page in (ROOT / "docs").glob("*.md") if page.name not in seen)
        lines.append("  - Project:")
        lines += [f"      - {name}" for name in [*rest, "contributing.md", "reporting.md", "changelog.md"]]
        return "\n".join(lines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("sources", type=Path)
    arguments.add_argument("site", type=Path)
    arguments.add_argument("--serve", action="store_true", help="serve it on this machine instead")
    options = arguments.parse_args()
    site = Site(options.sources.resolve())
    site.write()
    config = site.sources.parent / "mkdocs.yml"
    config.write_text(CONFIG.format(sources=site.sources, site=options.site.resolve(), nav=site.nav()))
    command = ["serve"] if options.serve else ["build", "--strict", "--quiet"]
    sys.exit(subprocess.call([sys.executable, "-m", "mkdocs", *command, "--config-file", str(config)]))


if __name__ == "__main__":
    main()
