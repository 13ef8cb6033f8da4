"""Deliberate breaks of Kubernetes' components, and what the suite makes of them: a suite that proves it can fail.

A mutant (:mod:`~pvaffinity.mutants.catalogue`) is data: a file, a text to find, a text to put there. It is built
(:mod:`~pvaffinity.mutants.building`), the suite runs on it (:mod:`~pvaffinity.mutants.running`), what the suite found
is judged (:mod:`~pvaffinity.mutants.judging`), and all of it becomes a table (:mod:`~pvaffinity.mutants.table`).
"""
