"""The api's settings."""

import msgspec


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``EBB_API_HOST``, ``EBB_API_PORT`` (0: a free one), ``EBB_API_BOOTSTRAP_TOKENS`` (a folder).

    The folder holds ``<name>.token`` files whose tokens are made known to the log once.
    ``EBB_API_CALLOUT_SEED`` is the file with the seed that answers to NATS are signed with; without
    it NATS is not answered. ``EBB_API_CALLOUT_SYSTEM_URL`` is NATS's address with credentials of
    its system account, to end connections of revoked tokens; without it they last until they break.
    """

    host: str = "127.0.0.1"
    port: int = 8321
    bootstrap_tokens: str = ""
    callout_seed: str = ""
    callout_system_url: str = ""

    def __repr__(self) -> str:
        return f"Settings(host={self.host!r}, port={self.port})"
