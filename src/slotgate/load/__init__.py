"""Load: who asks when and for how much, what became of each request, and the report on it.

The values (`Arrival`, `Record`), the workloads, the back-off of clients and the report do no I/O
and take their chance from outside, so that the simulator and the load generator share them.
Only `traces` reads files, and only `client` and what it is made of open sockets.
"""
