"""The second labelled set of `make bench-study`: pages of documentation, none on a host of the first set.

`tests/data/second_set.jsonl` has a row a Debian package: version, digest, the address at which its project
publishes the folder `root`, and its labelled pages by label (as `report.truth` has them) and language. A
label was given to each page after a look at its title and at passages of its text. Licences differ, so the
pages are not here: they are fetched from the archive of Debian 12, 370 MB.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from table import ROOT

from pipeline.data.rows import read_rows
from pipeline.miniweb.warc import Response, write_warc

LABELS = ROOT / "tests/data/second_set.jsonl"
# Two English manuals of one project are the seed, as narrow as that of the first set.
SEED = tuple(f"https://doc.sagemath.org/html/en/{name}/" for name in ("thematic_tutorials", "constructions"))
BACKGROUND = tuple(
    f"https://{host}/"
    for host in (
        "cran.r-project.org/doc",
        "docs.aiohttp.org",
        "dplyr.tidyverse.org",
        "git-scm.com",
        "httpd.apache.org",
        "manuals.example",  # of the distribution
        "stringr.tidyverse.org",
        "www.postgresql.org",
    )
)
REVIEWED, MATH, OTHER = 3, 0.8, 0.1  # pages of a reviewed prefix, and the shares that decide
TIME = "2025-06-01T00:00:00Z"
Row = dict[str, Any]


def fetched(row: Row, folder: Path) -> Path:
    """The package's file, from the Debian archive where it is not in `folder` yet. Exits unless it is the
    one that was labelled.
    """
    version = row["version"].replace(":", "%3a")
    path = folder / f"{row['package']}_{version}_{row['architecture']}.deb"
    if not path.exists():
        package = f"{row['package']}:{row['architecture']}={row['version']}"
        if subprocess.run(["apt-get", "download", "--quiet", package], cwd=folder).returncode:
            sys.exit(f"error: {package}: cannot be had from Debian 12's archive; put its file into {folder}")
    if hashlib.sha256(path.read_bytes()).hexdigest() != row["sha256"]:
        sys.exit(f"error: {path}: not the package that was labelled; delete it and start again")
    return path


def pages_of(row: Row, package: Path) -> Iterator[tuple[Row, bytes]]:
    """The labelled pages of a package: their rows as in `labels.jsonl`, and their bytes. Exits if one is
    missing.
    """
    labels = {
        row["root"] + path: (label, language)
        for label, languages in row["pages"].items()
        for language, paths in languages.items()
        for path in paths
    }
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as unpacked,
        tarfile.open(fileobj=unpacked.stdout, mode="r|") as archive,
    ):
        for member in archive:
            name = member.name.removeprefix("./")
            if name in labels:
                label, language = labels.pop(name)
                url = row["address"] + quote(name.removeprefix(row["root"]))
                found = {"url": url, "label": label, "language": language}
                yield found, archive.extractfile(member).read()
    if labels:
        sys.exit(f"error: {package}: lacks {', '.join(labels)}")


def reviewed(rows: list[Row], labels: list[Row]) -> list[str]:
    """Lines of `annotations.tsv`: packages, not of the lists, whose `REVIEWED` or more pages nearly agree."""
    lines = ["prefix\tverdict\tannotator\tdate\tevidence"]
    for address in sorted({row["address"] for row in rows}):
        found = [row["label"] == "math" for row in labels if row["url"].startswith(address)]
        share = sum(found) / max(len(found), 1)
        listed = address.startswith(BACKGROUND) or SEED[0].startswith(address)
        if len(found) >= REVIEWED and not listed and not OTHER < share < MATH:
            verdict = "math" if share >= MATH else "not_math"
            evidence = f"{sum(found)} of {len(found)} pages"
            prefix = address.removeprefix("https://")
            lines.append(f"{prefix}\t{verdict}\tfrom labels\t{TIME[:10]}\t{evidence}")
    return lines


def write_set(folder: Path) -> None:
    """Write WARC file, labels and lists to `folder`, as `make real WEB=folder` reads them."""
    packages = folder / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    rows = [row for _, row in read_rows(str(LABELS))]
    labels, responses = [], []
    for row in rows:
        for label, payload in pages_of(row, fetched(row, packages)):
            labels.append(label)
            header = (("Content-Type", "text/html"),)
            responses.append(Response(label["url"], 200, header, payload, TIME, "192.0.2.1"))
    write_warc(folder / "pages-00.warc.gz", responses, TIME, neighbours=False)
    sure = [row for row in labels if row["label"] != "unsure"]
    seed = [row["url"] for row in sure if row["url"].startswith(SEED) and row["label"] == "math"]
    background = [row["url"] for row in sure if row["url"].startswith(BACKGROUND) and row["label"] != "math"]
    for name, lines in (
        ("seed_urls.txt", seed),
        ("background_urls.txt", background),
        ("annotations.tsv", reviewed(rows, sure)),
        ("labels.jsonl", [json.dumps(row) for row in labels]),
    ):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="where WARC file, labels, lists and packages are written")
    write_set(parser.parse_args().folder)


if __name__ == "__main__":
    main()
