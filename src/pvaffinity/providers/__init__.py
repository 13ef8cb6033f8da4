"""Where clusters come from: one small protocol, one module per provider."""
