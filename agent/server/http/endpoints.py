"""Declares at the functions that answer requests what these are, for their routes and /openapi.json."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.routing import Route

AnswerT = TypeVar("AnswerT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method and a path, and the models of what is sent."""

    method: str
    path: str
    answer: type[BaseModel] | None
    stream: type[BaseModel] | None
    """The model of the events, where the answer may be a stream."""
    body: type[BaseModel] | None


ENDPOINTS: dict[tuple[str, str], Endpoint] = {}
"""All that are declared, by method and path as /openapi.json writes it."""


def endpoint(
    method: str,
    path: str,
    answer: type[BaseModel] | None = None,
    *,
    stream: type[BaseModel] | None = None,
    body: type[BaseModel] | None = None,
) -> Callable[[AnswerT], AnswerT]:
    declared = Endpoint(method, path, answer, stream, body)
    ENDPOINTS[method, document_path(path)] = declared

    def declare(function: AnswerT) -> AnswerT:
        vars(function)["declared"] = declared
        return function

    return declare


def document_path(path: str) -> str:
    """A route's path without the types of its parameters."""
    return re.sub(r":\w+}", "}", path)


def route_of(function: Any) -> Route:
    return Route(function.declared.path, function, methods=[function.declared.method])


def routes_of(handlers: object) -> list[Route]:
    declared = [n for n, member in vars(type(handlers)).items() if hasattr(member, "declared")]
    return [route_of(getattr(handlers, name)) for name in declared]
