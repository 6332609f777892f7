"""What the documents promise: README's form, names of files and targets that exist, the order of rooms."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from given.cases import cases

from pipeline.__main__ import MODULES
from pipeline.core.stages import NAMES
from pipeline.report.scores import MARKS

TABLES = cases("readme")
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = ("bench", "configs", "docs", "packages", "pipeline", "requirements", "tests", "workflow")
FILE = re.compile(rf"(?<![\w/.<-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w")
LINK = re.compile(r"\]\(([^)#:]+)(?:#([\w-]+))?\)")
TARGET = re.compile(r"\bmake ([a-z][a-z-]*)(?=[`\s,)]|$)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and list items of a page, without code blocks and tables."""
    for block in re.split(r"\n\s*\n|\n(?=- )", CODE.sub("", text)):
        if not block.lstrip().startswith("|"):
            yield block.strip()


def test_readme_is_short() -> None:
    text = README.read_text()
    assert len(text.encode()) <= 6 * 1024
    assert [line for line in text.splitlines() if len(line) >= 140] == []
    assert [part for part in paragraphs(text) if len(part) >= 400] == []


def test_readme_says_what_it_is_and_shows_it() -> None:
    title, first, picture, *_ = README.read_text().split("\n\n")
    assert title.startswith("# ") and len(re.findall(r"\.(?=\s|$)", first)) == 2 and picture.startswith("![")


def test_readme_has_one_table_and_a_command_writes_it() -> None:
    before, _, rest = README.read_text().partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    assert end and "\n|" not in before + after


def test_the_tour_names_what_its_files_define() -> None:
    rows = re.findall(r"^\| \d+ \| `(.+?)` \| (.+?) \|", (ROOT / "docs/tour.md").read_text(), re.MULTILINE)
    assert len(rows) == 10
    for name, parts in rows:
        tree = ast.parse((ROOT / name).read_text())
        nodes = list(ast.walk(tree))
        defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        defined |= {
            node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        wanted = {part.rpartition(".")[2] for part in re.findall(r"`(.+?)`", parts)}
        assert wanted and wanted <= defined, f"docs/tour.md names {wanted - defined} of {name}"


@pytest.mark.parametrize("command", TABLES["commands"])
def test_readme_names_the_commands_of_its_readers(command: str) -> None:
    assert command in README.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    example = set(re.findall(r"^`(.+?)`, new\b", text, re.MULTILINE))  # files that a recipe asks to write
    for name in {name for name in FILE.findall(text) if "NAME" not in name} - example:
        found = (ROOT / name).exists() or (ROOT / f"{name}.py").exists() or list(ROOT.glob(f"{name}*"))
        assert found, f"{page.name} names {name}"
    for name, _ in LINK.findall(text):
        assert (page.parent / name).exists(), f"{page.name} links to {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_section_that_a_page_links_to_exists(page: Path) -> None:
    for name, section in LINK.findall(page.read_text()):
        if section:
            titles = re.findall(r"^#+ (.*)$", (page.parent / name).read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
            assert section in anchors, f"{page.name} links to {name}#{section}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    known = set(re.findall(r"^([\w -]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {name for names in known for name in names.split()}
    code = re.findall(r"`[^`\n]+`", page.read_text()) + CODE.findall(page.read_text())
    assert {name for part in code for name in TARGET.findall(part)} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    code = "\n".join(re.findall(r"`([^`\n]+)`", text) + CODE.findall(text))
    assert set(re.findall(r"^(?:\$ )?dsm ([a-z]+)", code, re.MULTILINE)) <= {"run", *MODULES}
    for name in set(re.findall(r"python -m (pipeline[\w.]*)", code)):
        path = ROOT / name.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), f"{page.name}: {name}"


# The order of rooms, as docs/architecture.md has it: a room imports only rooms on lines above its own.
ORDER = re.search(r"```rooms\n(.*?)```", (ROOT / "docs/architecture.md").read_text(), re.DOTALL)[1]
LEVELS = [line.partition("#")[0].split() for line in ORDER.splitlines()]
LISTED = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}
LEVEL = dict.fromkeys(NAMES, LISTED["report"]) | LISTED


def room_of(module: str) -> str:
    """The room of a module, e.g. `rl` for pipeline.rl.train."""
    parts = module.split(".")
    return parts[0] if parts[0] == "workflow" or len(parts) == 1 else parts[1]


def modules() -> dict[str, Path]:
    """The project's modules by name."""
    paths = [path for folder in ("pipeline", "workflow") for path in (ROOT / folder).rglob("*.py")]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


def imports(path: Path, known: dict[str, Path], type_checking: bool = True) -> set[str]:
    """Modules of the project that a module imports, anywhere in its text."""
    skipped: set[ast.AST] = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not type_checking:
            skipped.update(node.body)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node not in skipped:
            here = ".".join(path.relative_to(ROOT).parent.parts)  # of `from . import`, which parts use
            module = ".".join(filter(None, [here, node.module])) if node.level else str(node.module)
            names = {f"{module}.{alias.name}" for alias in node.names}
            found |= (names & set(known)) or {module}
    return found & set(known)


def test_every_room_has_its_place() -> None:
    rooms = {room_of(name) for name in modules() if name != "pipeline"}
    assert set(LISTED) <= rooms <= set(LEVEL)


@pytest.mark.slow
def test_no_room_imports_a_room_that_is_not_below_it() -> None:
    known = modules()
    upward = [
        f"{name} imports {target}"
        for name, path in known.items()
        for target in imports(path, known)
        if room_of(target) != room_of(name) and LEVEL[room_of(target)] >= LEVEL[room_of(name)]
    ]
    assert upward == []


@pytest.mark.slow
def test_nothing_imports_the_generated_web() -> None:
    known = modules()
    web = "pipeline.examples.miniweb"
    outside = [path for name, path in known.items() if not name.startswith(web)]
    assert not any(target.startswith(web) for path in outside for target in imports(path, known))


@pytest.mark.slow
def test_no_import_circle() -> None:
    """Imports for type checkers alone are left out: they do not run."""
    known = modules()
    graph = {name: imports(path, known, type_checking=False) - {name} for name, path in known.items()}
    while free := [name for name, targets in graph.items() if not targets & graph.keys()]:
        for name in free:
            del graph[name]
    assert graph == {}


def test_no_test_file_imports_another() -> None:
    folders = (ROOT / "tests", ROOT / "bench")
    texts = {path.name: path.read_text() for folder in folders for path in folder.rglob("*.py")}
    pattern = re.compile(r"^\s*(?:from|import) (?:tests\.)?test_\w+", re.MULTILINE)
    assert [name for name, text in texts.items() if pattern.search(text)] == []


def test_no_module_of_the_benchmarks_has_the_name_of_one_of_the_tests() -> None:
    folders = (ROOT / "bench", ROOT / "tests")  # searched in this order
    one, other = ({path.name for path in folder.glob("*.py")} for folder in folders)
    assert one & other == set()
