"""Requests of other APIs as requests of the Responses API."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Generic

from agent.server.http.errors import ApiError, client_param, client_params, renamed_params
from agent.server.input.parsing import RequestT, validate, without_unknown_values
from agent.server.input.schemas import CreateResponse


class Translation(ABC, Generic[RequestT]):
    """A request of another API, and the one of the Responses API that means the same."""

    def __init__(self, kind: type[RequestT], value: dict[str, Any], *, lenient: bool) -> None:
        """``lenient``: name what this server does not have instead of refusing it. Raises ApiError."""
        self.lenient = lenient
        self.ignored: list[str] = []
        """Paths of what is passed over, in the body as it was sent."""
        if lenient:
            value, self.ignored = without_unknown_values(kind, value)
        self._dropped = (*self.ignored,)
        with client_params(self._dropped):
            self.sent = validate(kind, value)
            fields = self.fields()
            with self.params():
                if lenient:
                    fields, more = without_unknown_values(CreateResponse, fields)
                    self.ignored += map(self.sent_name, more)
                self.request = validate(CreateResponse, fields)
        origin = self.request.origin
        origin.ignored, origin.sent_name = tuple(self.ignored), self.sent_name
        origin.ends_at_cut_call = self.request.stream is True

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """The fields of the request in the Responses API. Raises ApiError."""

    @abstractmethod
    def sent_name(self, param: str) -> str:
        """The name that a parameter of the Responses API has in this request."""

    def params(self) -> AbstractContextManager[None]:
        """Name the parameters of an ApiError as they are called here."""
        return renamed_params(self.sent_name)

    def pass_over(self, param: str, error: ApiError) -> None:
        """Note that something is passed over; where the server is not lenient, raise the error."""
        if not self.lenient:
            raise error
        self.ignored.append(client_param(param, self._dropped))
