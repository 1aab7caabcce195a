"""Examines running servers from outside: what is wrong, how it is known, and what mends it.

`look` and `measure` ask a server and gather `Evidence`; `judge` turns that into findings, by the
table of `checks`, without asking anything.
"""
