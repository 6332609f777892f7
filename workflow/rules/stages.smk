# One rule for each program of `pipeline/stages.py`, and one for each stage: `snakemake ... sft`.
# A program finishes by giving its result its place in the run's store; the mark tells Snakemake that it did.

# The report's files are outputs for the sake of `snakemake --report`. `update`: a job that fails leaves the old ones.
FILES = {
    "report": {
        name: report(update(f"{RESULTS}/report/{file}"), caption=f"../report/{caption}.rst", category="Report")
        for name, file, caption in (("page", "index.html", "report"), ("summary", "summary.json", "summary"))
    },
}
# The table that says what became of each page stands beside the corpus that it is about: one file, or a folder of parts.
_names = ["pages.parquet", "pages"]
_table, _other = reversed(_names) if "decontaminate/pages-0000" in GRAPH.nodes else _names
LINK = ["ln", "-sfn", f"../decontaminate/pages/data/{_table}", f"{RESULTS}/corpus/{_table}"]
NO_OTHER = ["rm", "-f", f"{RESULTS}/corpus/{_other}"]
AFTER = {"decontaminate_pages": f"&& {shlex.join(LINK)} && {shlex.join(NO_OTHER)}"}

for _stage in STAGES:

    for _program in _stage.programs:

        rule:
            name: _program.rule
            input:
                needs(_program.instances),
            output:
                mark=str(mark(GRAPH.config.run, _program.instances)),
                **FILES.get(_program.rule, {}),
            log:
                f"{RESULTS}/logs/{_program.instances}.log",
            conda:
                "../../environment.yml"
            # A cluster job knows only its own rule, so an order of rules would not keep this from the tokenizer.
            wildcard_constraints:
                mixture="(?!tokenizer$)[^/]+",
            threads: threads_of(_stage, _program.instances)
            resources:
                gpu=0,
                mpi="",  # to the Slurm plugin it means: the job calls srun itself
                launcher="",
                downloads=downloads_of(_stage, _program.instances),
            params:
                module=_program.module,
                arguments=arguments(_stage, _program.instances),
                after=AFTER.get(_program.rule, ""),
            # `launcher` is a command of several words, from a profile; `arguments` and `after` are quoted already.
            shell:
                "{{ {resources.launcher} python -m pipeline.start {params.module:q} {params.arguments}; }} 2>&1 | tee {log:q}"
                " && touch {output.mark:q} {params.after}"

    if _stage.name not in ("miniweb", "report"):

        rule:
            name: _stage.name
            input:
                marks(_stage.name),
