"""A simulated container runtime: the kubelet's Container Runtime Interface (CRI), with state machines for containers.

``python -m pvaffinity.local.cri STATE_DIR NODE=SOCKET ...`` serves any number of nodes from one process. Real kubelets
talk to it; everything but the containers themselves is theirs: volumes, mounts, probes, restarts, status and events.

What is simulated, and how truthfully:

Containers
    run a small command language (:mod:`.language`, :mod:`.shell`) instead of a program. Their states, times, exit codes
    and logs follow from it. Commands that it does not know run until they are stopped, as a server would.
Mounts
    are echoed, never looked at: the simulator is outside the node's mount namespace.
Network
    pods get addresses of 10.244.<node>.0/24, given out in turn. With ``--listen`` declared TCP ports answer there
    (:mod:`.listeners`), which needs a network namespace in which these addresses are local.
Images
    are pulled at once and hold nothing (:mod:`.images`); names with ``no-such-image`` in them cannot be pulled.
Statistics
    are small constants (:mod:`.stats`).
exec, attach, port-forward
    answer ``UNIMPLEMENTED`` when a user streams them; exec probes and hooks (ExecSync) run the command language.

Containers outlive their kubelet, since they live here; all state is in the memory of this process and ends with it.
"""
