"""Jobs of the workflow: an instance each, but of the thousands of instances of a light program several in a
row share one. Snakemake takes a millisecond or two and some 40 KB for each job, whatever it does.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from workflow.instances import Instance

MOST = 1000  # jobs of a light program: for each iteration, or for all dumps together
LIGHT = ("crawl.sign", "crawl.filter", "corpus.score", "decontaminate.clean")  # minutes each
OF_DUMP = re.compile("-[0-9a-f]{8}$")  # of the program's name, where dumps are deduplicated by themselves


def bundled(nodes: Iterable[Instance]) -> dict[str, list[Instance]]:
    """The instances that each job makes, by the job's name: the instance's, or `...-<first>..<last>`."""
    jobs: dict[str, list[Instance]] = {}
    many: defaultdict[str, list[Instance]] = defaultdict(list)
    for node in nodes:
        if node.module.removeprefix("pipeline.") in LIGHT:
            many[node.name.rpartition("-")[0]].append(node)
        else:
            jobs[node.name] = [node]
    dumps = Counter(OF_DUMP.sub("-", name) for name in many)
    for name, of_program in many.items():
        size = -(-len(of_program) * dumps[OF_DUMP.sub("-", name)] // MOST)
        for start in range(0, len(of_program), size):
            some = of_program[start : start + size]
            last = f"..{some[-1].name.rpartition('-')[2]}" if len(some) > 1 else ""
            jobs[some[0].name + last] = some
    return jobs
