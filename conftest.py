"""Lists the project's pytest plugins; each one's options and fixtures are described where they are defined."""

pytest_plugins = [
    "fixtures.options",
    "fixtures.clusters",
    "fixtures.storage",
    "fixtures.pool",
    "fixtures.identities",
    "fixtures.evidence",
    "fixtures.collected",
    "fixtures.reporting",
]
