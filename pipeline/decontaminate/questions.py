"""The texts of benchmarks that nothing may be learnt from, from the rows of their files."""

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.data.rows import read_rows, renamed
from pipeline.decontaminate.ngrams import BenchmarkIndex
from pipeline.protocol.errors import InputError

PREFIX = "benchmark."
QUESTIONS = ("question", "problem", "prompt", "text", "input")  # as data sets of the hub call them
ANSWERS = ("answer", "solution", "solution_plain", "canonical_solution", "code")


def build_index(inputs: dict[str, list[str]], config: DecontaminateSection) -> BenchmarkIndex:
    """Index questions, answers and solutions of all benchmarks among the inputs, by the names of columns that
    the section's `fields` give. Raises InputError.
    """
    index = BenchmarkIndex(config.ngram, config.shortest, config.fuzzy != "off")
    for name in sorted(key for key in inputs if key.startswith(PREFIX)):
        rows, benchmark = 0, name.removeprefix(PREFIX)
        for source in inputs[name]:
            for number, (place, row) in enumerate(read_rows(source)):
                rows += 1
                row = renamed(place, row, config.fields.get(benchmark, {}))
                if not any(row.get(key) for key in QUESTIONS):
                    raise InputError(f"{place}: a benchmark row needs `question` or `problem`")
                for key in (*QUESTIONS, *ANSWERS):
                    if row.get(key):
                        item = str(row.get("id", number))
                        index.add(benchmark, item, str(row[key]), key in QUESTIONS)
        if not rows:
            sources = ", ".join(map(str, inputs[name]))
            raise InputError(f"{sources}: no rows; {name} would keep nothing out of the corpus")
    index.build()
    return index
