"""The OpenAPI document, made from the code: ``python -m ebbtide.api.schema`` prints it."""

import sys

import msgspec

from ebbtide.api.http import application


def openapi() -> bytes:
    """Give the document as indented JSON, the same for the same code."""
    document = application(None).openapi_schema.to_schema()
    return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=2) + b"\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(openapi())
