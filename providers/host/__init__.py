"""The Worker protocol's host, the same for every wall: tickets and slots, evidence and tiers, frames to the API.

server.py   the host: frames in, the protocol's rules, frames out
table.py    tickets, slots and ends; pure
wall.py     findings -> tier, facts, faults; the evidence timer
wire.py     frames over the socketpair
calls.py    one run's calls to a broker, which end with the run
broker.py   the connections to brokers
process.py  what a provider process does to itself first
"""
