"""The state of the servers that run a remote model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.runtime.runtime import Runtime

if TYPE_CHECKING:
    from agent.engine.remote.endpoint import ReplicaState
    from agent.engine.remote.engine import RemoteEngine


def _remote_engine(runtime: Runtime) -> RemoteEngine | None:
    current = runtime.loaded or runtime.asleep
    if runtime.provider.loader.is_local or runtime.script is not None or current is None:
        return None
    # Only a remote model's program imports the HTTP client.
    from agent.engine.remote.engine import RemoteEngine

    engine = current.engine
    return engine if isinstance(engine, RemoteEngine) else None  # another may be chosen


def replica_states(runtime: Runtime) -> list[ReplicaState]:
    """Return the state of the servers that run the model; empty: it runs here."""
    engine = _remote_engine(runtime)
    return engine.replicas.states() if engine is not None else []


async def health_problem(runtime: Runtime) -> str | None:
    """Why the loaded model cannot answer now, in a sentence; None: it can, as far as is known.

    A remote model's server is asked, at most once a second.
    """
    if (engine := _remote_engine(runtime)) is None:
        return None
    problem = await engine.cached_health()
    # Its address is not disclosed to all clients.
    return None if problem is None else f"The {runtime.engine_name} that runs the model {problem}."
