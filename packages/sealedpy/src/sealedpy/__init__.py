"""Run Python that a model wrote without effects outside; imports nothing else of the project.

`pool` is the entry: `Sandbox` runs programs in `worker` processes, one per core. `jail` confines them with
the system calls in `kernel`.
"""
