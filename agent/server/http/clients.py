"""Clients and what is theirs: an object belongs to the API key that it was made with, and does not
exist for any other key. Without keys all clients are one."""

import hashlib
import hmac
from array import array
from collections import OrderedDict
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from starlette.types import ASGIApp, Receive, Scope, Send

from agent.engine.protocol import Finished

CLIENT_SCOPE_KEY = "agent.client"
"""Where the scope of a request from inside this program has the client that it is made for."""
BLOCK_TOKENS, MAX_PROMPT_BLOCKS = 16, 65_536
"""Tokens of a block, and how many blocks are remembered of a client's prompts."""


class OwnPrompts:
    """Prefixes of prompts that one client's requests have read and written, as digests."""

    def __init__(self) -> None:
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def limit(self, end: Finished, prompt: Sequence[int], written: Sequence[int]) -> Finished:
        """A generation's end with the cached tokens that the client itself has put there, in blocks;
        the generation counts from now on."""
        ids = array("i", [*prompt, *written]).tobytes()
        digest, size, known, is_known = b"", 4 * BLOCK_TOKENS, 0, True
        for start in range(0, len(ids) - size + 1, size):
            digest = hashlib.blake2b(digest + ids[start : start + size], digest_size=16).digest()
            is_known = is_known and digest in self._digests
            known += BLOCK_TOKENS * is_known
            self._digests[digest] = None
            self._digests.move_to_end(digest)
        while len(self._digests) > MAX_PROMPT_BLOCKS:
            self._digests.popitem(last=False)
        return replace(end, cached_tokens=min(end.cached_tokens, known))


@dataclass(frozen=True, slots=True)
class Client:
    """All users of one key; the default, without keys, is everyone."""

    name: str = ""
    """The mark of its objects: a digest of the key."""
    has_unowned: bool = True
    """Whether objects are its own that were made without a key, or by this machine's user."""
    prompts: OwnPrompts | None = field(default=None, compare=False)

    def owns(self, owner: str) -> bool:
        return owner == self.name or (not owner and self.has_unowned)


EVERYBODY = Client()
_current: ContextVar[Client] = ContextVar("client", default=EVERYBODY)


def current_client() -> Client:
    return _current.get()


class Clients:
    """The clients of a server, one for each key."""

    def __init__(self, keys: Collection[str] = ()) -> None:
        """Objects without an owner belong to the first key."""
        self._clients: dict[bytes, Client] = {}
        for key in filter(None, keys):
            name = hashlib.sha256(b"agent-client:" + key.encode()).hexdigest()[:32]
            self._clients[key.encode()] = Client(name, not self._clients, OwnPrompts())

    def with_key(self, sent: bytes) -> Client | None:
        """The client that has a key; without keys everyone is the same one."""
        found = None if self._clients else EVERYBODY
        for key, client in self._clients.items():
            # Constant time: how long it takes does not depend on how much of a key is right.
            if hmac.compare_digest(sent, key):
                found = client
        return found

    def named(self, name: str) -> Client:
        """The client with this mark, also where its key is no longer valid."""
        known = (client for client in self._clients.values() if client.owns(name))
        return next(known, Client(name, not name))


def act_for(client: Client) -> None:
    """Make the client the current one, for what the running task does from now on."""
    _current.set(client)


def as_client(app: ASGIApp, client: Client) -> ASGIApp:
    """An application for requests that this program makes itself for a client: they need no key."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, CLIENT_SCOPE_KEY: client}, receive, send)

    return answer
