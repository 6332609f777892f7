"""`make licences`: name, version and licence of each installed package, the unusual ones first."""

import re
from importlib.metadata import Distribution, distributions

PERMISSIVE = re.compile(
    r"\b(?:MIT|MIT-0|MIT-CMU|0?BSD|Apache|ISC|ISCL|PSF|Python Software Foundation|Unlicense|CC0|CNRI|BSL"
    r"|Permission is hereby granted, free of charge)\b"
)
RESTRICTED = re.compile(r"GPL|GNU|MPL|Mozilla|EUPL|Propriet|End User|NVIDIA|Non-?Commercial", re.IGNORECASE)


def licence(package: Distribution) -> str:
    """By its metadata: SPDX expression, else classifiers, else free text, else the first line of its file."""
    metadata = package.metadata
    if metadata.get("License-Expression"):
        return metadata["License-Expression"]
    stated = [line for line in metadata.get_all("Classifier", []) if line.startswith("License ::")]
    names = [name for line in stated if (name := line.rpartition(" :: ")[2]) != "OSI Approved"]
    files = [file for file in package.files or () if re.match(r"(LICEN[CS]E|COPYING)", file.name)]
    texts = [metadata.get("License", ""), *(file.locate().read_text(errors="replace") for file in files)]
    return ", ".join(names) or next(
        (text.split("\n")[0].strip() for text in map(str.strip, texts) if text), ""
    )


def main() -> None:
    """Print the table."""
    found: dict[str, tuple[str, str]] = {}
    for package in distributions():  # a copy inside another package comes later than the one that is imported
        found.setdefault(package.metadata["Name"], (package.version, licence(package)))
    rows = [
        (not PERMISSIVE.search(terms) or bool(RESTRICTED.search(terms)), name, version, terms or "not stated")
        for name, (version, terms) in found.items()
    ]
    rows.sort(key=lambda row: (not row[0], row[1].lower()))
    wide = max(len(name) for _, name, _, _ in rows)
    for unusual, name, version, terms in rows:
        print(f"{'! ' if unusual else '  '}{name:<{wide}} {version:<16} {terms[:80]}")
    count = sum(unusual for unusual, *_ in rows)
    print(f"{len(rows)} packages; {count} marked ! are not under a permissive licence alone, or state none.")


if __name__ == "__main__":
    main()
