"""Which results of a run are made, and why others are not: `dsm status CONFIG...`.

Give it the overlays and `--config` values that you give to Snakemake. It prints one line for each instance
with a reason of its own, followed by what has to be made again after it.
"""

import argparse
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline.config.root import ConfigError
from pipeline.core.errors import InputError
from pipeline.core.identity import Digests, damage, read_manifest
from pipeline.core.manifest import write_json
from pipeline.core.progress import duration
from pipeline.core.stage import DEFINITIONS
from pipeline.core.store import STORE, Entry, put_in_place
from workflow.graph import read_graph, read_values
from workflow.keys import Keys
from workflow.links import move_links
from workflow.lists import faulty_lists
from workflow.overridden import overridden_keys
from workflow.reasons import Reasons, edited
from workflow.timing import recorded

KEY = re.compile("[0-9a-f]{16}")
NAMED = 6  # instances that follow are named up to this many, then counted by stage
MAY_LINK = " (may be linked where bytes come out equal)"


def _list(names: list[str]) -> str:
    if len(names) <= NAMED:
        return ", ".join(names)
    counts = Counter(name.partition("/")[0] for name in names)
    return ", ".join(f"{count} of {stage}" if count > 1 else stage for stage, count in counts.items())


def summary(reasons: Reasons) -> list[str]:
    """Print what the command prints: instances of a stage with the same reason share a line."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, own in reasons.causes.items():
        groups.setdefault((name.partition("/")[0], *own), []).append(name)
    lines = []
    for (_, *own), names in groups.items():
        then = [follower for name in names for follower in reasons.followers[name]]
        linked = [name for name in names if reasons.keys.may_link(name)]
        parts = [", ".join(own)]
        if then:
            parts.append(f"then {_list(then)}{MAY_LINK if any(map(reasons.before, then)) else ''}")
        times = [recorded(name, [reasons.keys.run]) for name in [*names, *then] if name not in linked]
        if linked:
            parts.append(f"{_list(linked)}: linked, made before from the same content")
        if times and None not in times:
            parts.append(f"about {duration(sum(filter(None, times)))}")
        lines.append(f"{_list(names)}: {'; '.join(parts)}")
    lines = lines or [f"{reasons.keys.run}: all {len(reasons.graph.nodes)} results are current"]
    return [*lines, *other_code(reasons.keys)]


def other_code(keys: Keys) -> list[str]:
    """Tell which trained models were made with other code or packages: those are not made again unasked."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name in keys.graph.nodes:
        if others := edited(keys, name):
            found.setdefault(tuple(others), []).append(name)
    lines = []
    for others, names in found.items():
        more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
        lines.append(
            f"{_list(names)}: made by other code: {', '.join(others[:NAMED])}{more}; to make again:"
            f" dsm run ... --forcerun {' '.join(names)}; to accept: dsm status ... --accept-code"
        )
    return lines


def accept_code(keys: Keys) -> list[str]:
    """Record today's code as that of the models that other code made. Returns their names."""
    found = [name for name in keys.graph.nodes if edited(keys, name)]
    for name in found:
        entry = keys.entry(name)
        made = Entry(entry.run, name, read_manifest(entry.manifest).get("made_as", entry.key))
        write_json(made.folder / DEFINITIONS, keys.code.record(keys.graph.nodes[name].module))
    return found


def adopt(keys: Keys, source: Path) -> list[str]:
    """Take over results from another results folder whose manifests say that they are made from what this
    configuration asks for, and whose files have the bytes that these list. Returns their names.
    """
    nodes = keys.graph.nodes  # in an order in which inputs come first
    ready = (name for name in nodes if not keys.made(name) and all(map(keys.made, keys.graph.before(name))))
    return [name for name in ready if _adopt(keys, name, source)]


def _adopt(keys: Keys, name: str, source: Path) -> bool:
    entry, content = keys.entry(name), keys.fingerprint(name)
    for place in (source / name, *sorted((source / STORE / name).glob("*"))):
        manifest = place / "manifest.json"
        manifest = manifest if manifest.is_file() else place.resolve().parent / "manifest.json"  # a flat link
        found = _read(manifest)
        if found.get("fingerprint") != content:
            continue
        if problem := _differs(manifest.with_name("data"), manifest):
            raise InputError(f"{problem}; {place} cannot be adopted")
        partial = entry.folder.with_name(f".{entry.key}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(manifest.parent, partial)
        # A linked result's bytes come with it, and so does what is told of its code.
        code = source / STORE / name / found.pop("made_as", "") / DEFINITIONS
        if code.is_file():
            shutil.copyfile(code, partial / DEFINITIONS)
        upstream = {before: keys.key(before) for before in keys.graph.before(name)}
        write_json(partial / "manifest.json", found | {"key": entry.key, "upstream": upstream})
        put_in_place(partial, entry.folder)
        entry.make_current()
        return True
    return False


def _read(manifest: Path) -> dict[str, Any]:
    """Read a manifest to change it; empty for one that is missing or cannot be read: it is no result."""
    try:
        return dict(read_manifest(manifest))
    except (InputError, OSError):
        return {}


def _differs(data: Path, manifest: Path) -> str | None:
    problem = damage(data, manifest, Digests())
    for name, (_, digest) in {} if problem else read_manifest(manifest)["files"].items():
        if Digests().file(data / name) != digest:
            return f"{data / name}: its bytes are not those that {manifest} lists"
    return problem


def verify(keys: Keys) -> list[str]:
    """Read all files of all results; the manifests of damaged ones are removed, so that they are made again,
    but of a pinned one, which is never made. Returns what is wrong with each.
    """
    found = []
    for name in keys.graph.nodes:
        entry = keys.entry(name)
        if entry.made and (problem := _differs(entry.data, entry.manifest)):
            if not keys.pinned(name):
                entry.manifest.unlink()
            found.append(f"{name}: {problem}")
    return found


def clean(keys: Keys) -> tuple[int, int, int]:
    """Drop the results in the store that the configuration does not name; returns their number and bytes, and
    the number of those that stay although it does not name them.

    What a named result is linked to stays, and of an instance that is not made all that was made before: its
    job may find its content there, as after a workflow that was killed (`Entry.step_aside`).
    """
    named = {keys.entry(name).folder for name in keys.graph.nodes}
    made = [keys.entry(name) for name in keys.graph.nodes if keys.made(name)]
    named |= {
        entry.folder.with_name(read_manifest(entry.manifest).get("made_as", entry.key)) for entry in made
    }
    needed = {keys.entry(name).folder.parent for name in keys.graph.nodes if not keys.made(name)}
    dropped, size, kept = 0, 0, 0
    for folder in sorted(path for path in (keys.run / STORE).rglob("*") if KEY.fullmatch(path.name)):
        if folder in named or not folder.is_dir():
            continue
        if folder.parent in needed:
            kept += 1
            continue
        size += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        dropped += 1
        shutil.rmtree(folder)
    for link in (path for path in keys.run.rglob("*") if path.is_symlink() and not path.exists()):
        link.unlink()
    return dropped, size, kept


def _parser() -> argparse.ArgumentParser:
    usage = "%(prog)s CONFIG... [options]"
    parser = argparse.ArgumentParser(prog="dsm status", usage=usage, description=__doc__.split("\n")[0])
    parser.add_argument("--configfile", nargs="+", required=True, help="the same as CONFIG...")
    parser.add_argument("--config", nargs="*", default=[], metavar="KEY=VALUE", help="as for snakemake")
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--adopt", type=Path, metavar="RESULTS", help="take over finished results from another results/<run>"
    )
    action.add_argument(
        "--clean-store", action="store_true", help="drop stored results that the configuration does not name"
    )
    action.add_argument(
        "--verify", action="store_true", help="read all files of all results; damaged ones are made again"
    )
    action.add_argument(
        "--accept-code", action="store_true", help="take today's code for that of models other code made"
    )
    return parser


def main(argv: list[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    try:
        graph = read_graph(arguments.configfile, arguments.config)
        for line in overridden_keys(arguments.configfile, read_values(arguments.config)):
            print(f"warning: {line}", file=sys.stderr)
        if arguments.adopt:
            if not arguments.adopt.is_dir():
                raise InputError(f"--adopt {arguments.adopt}: no such folder")
            keys = Keys(graph)
            taken = adopt(keys, arguments.adopt)
            if all(map(keys.made, graph.nodes)):
                move_links(keys)
            print(f"adopted {len(taken)} results from {arguments.adopt}: {', '.join(taken) or 'none'}")
        elif arguments.clean_store:
            dropped, size, kept = clean(Keys(graph))
            print(f"dropped {dropped} results, {size / 1e6:,.1f} MB")
            if kept:
                print(f"kept {kept} earlier results of what is not made yet: it may be linked to them")
        elif arguments.verify:
            print("\n".join(verify(Keys(graph))) or "all files are as their manifests list them")
        elif arguments.accept_code:
            names = accept_code(Keys(graph))
            print(f"accepted today's code for {', '.join(names) or 'no model: other code made none'}")
        reasons = Reasons(keys := Keys(graph))
        print("\n".join(summary(reasons)))
        if faults := list(faulty_lists(graph, [name for name in graph.nodes if not keys.settled(name)])):
            raise ConfigError("\nerror: ".join(faults))
    except (InputError, ConfigError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
