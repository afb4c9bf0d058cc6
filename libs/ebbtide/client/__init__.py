"""How outsiders ask: the Python SDK over HTTP.

It imports the contracts and the standard library, and nothing that takes long: programs that submit
thousands of jobs and commands that run for milliseconds use the same code.
"""

from ebbtide.client.client import Client
from ebbtide.client.errors import Refused
from ebbtide.client.story import LogPiece, StoryEvent

__all__ = ["Client", "LogPiece", "Refused", "StoryEvent"]
