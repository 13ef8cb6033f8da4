"""Lists the project's pytest plugins; each one's options and fixtures are described where they are defined."""

pytest_plugins = [
    "fixtures.exitcodes",
    "fixtures.interrupts",
    "fixtures.existing",
    "fixtures.options",
    "fixtures.clusters",
    "fixtures.evidence",
    "fixtures.storage",
    "fixtures.changes",
    "fixtures.components",
    "fixtures.pool",
    "fixtures.heartbeat",
    "fixtures.identities",
    "fixtures.collected",
    "fixtures.tries",
    "fixtures.reporting",
]
