"""The embedded platform: NATS, Postgres, every service and the agents, started as one.

It lays out a home folder, starts the two servers from their wheels, and supervises our own
processes. It decides nothing about jobs, and nothing but it may know that the servers came from
wheels.
"""
