"""The embedded provider: real Kubernetes components on this machine, without root and without a container engine."""
