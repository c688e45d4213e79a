"""The settings of a turn: how it generates, which tools it has, and who answers its questions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from agent import events as ev
from agent.conversation.attachments import format_attachment
from agent.conversation.messages import Developer, Message, User
from agent.conversation.project_instructions import ProjectInstructions
from agent.engine.protocol import Finished, LoopLimits, Sampling
from agent.formats.protocol import Format, FunctionTool, PromptHeader
from agent.formats.recipients import PYTHON_TOOL, TOOL_ALIASES, Recipients
from agent.turn.reasoning_summary import SummaryStyle
from agent.util.ids import new_id
from tools.mcp.client_requests import OnElicitation
from tools.mcp.login import OnLogin
from tools.types import Approver, Mode, Tool

_SERVERS_PREFACE = """\
# Instructions of MCP servers

Servers say here how to use their tools; it counts for calls of those tools only. The user's \
messages take precedence over it."""
EMPTY_TOOL = Tool(
    "", "", "", {"type": "object", "properties": {}}, "nothing", server_instructions="nothing"
)
"""A prompt that has it already has the framing of tools, too."""


@dataclass(frozen=True, slots=True)
class Interface:
    """Options of a turn by the interface that started it."""

    name: str
    prefetches: bool = True
    """The prompt of the conversation's next turn is prefilled once this one has ended."""
    waits_for_servers: bool = False
    """Optional MCP servers are waited for until they have started or failed."""
    reports_context: bool = False
    """``agent.context`` tells what fills the context."""


RUN = Interface("run", prefetches=False, waits_for_servers=True, reports_context=True)
APP = Interface("app", reports_context=True)
HTTP = Interface("http")
MCP = Interface("mcp", waits_for_servers=True)
ACP = Interface("acp", reports_context=True)
SAMPLING = Interface("sampling", prefetches=False)


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The JSON Schema that the answer has to fit."""

    schema: Mapping[str, Any]
    strict: bool = False
    """Refuse a schema that cannot be enforced in full."""
    binding: bool = False
    """The turn fails where the answer does not fit; else an ``agent.repair`` says so."""


def response_format_section(schema: object, name: str = "output", description: str = "") -> str:
    """The section on the form of the answer, in the words of the Harmony guide
    (https://cookbook.openai.com/articles/openai-harmony#structured-output)."""
    comment = f"// {description}\n" if description else ""
    text = json.dumps(schema, ensure_ascii=False)
    return f"# Response Formats\n\n## {name}\n\n{comment}{text}"


def declare_tool(tool: Tool) -> FunctionTool:
    return FunctionTool(tool.model_name, tool.description, tool.model_parameters)


def server_instructions_section(tools: Collection[Tool], preface: str = _SERVERS_PREFACE) -> str:
    """The part of the developer message with what these tools' servers say; empty without any."""
    texts = {tool.server: tool.server_instructions for tool in tools if tool.server_instructions}
    blocks = "".join(format_attachment(name, text, "server") for name, text in texts.items())
    return f"{preface}{blocks}" if blocks else ""


@dataclass(frozen=True, slots=True)
class HostedTools:
    """OpenAI's hosted tools that a request asks for; this program's own servers stand in for them."""

    code_interpreter: bool = False
    web_search: bool = False
    include_sources: bool = False
    """List the URLs that a search returned in its web_search_call item."""
    approval_required: frozenset[tuple[str, str]] = frozenset()
    """(server, tool) whose calls end the response with an mcp_approval_request."""


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """A call that an earlier response left to the client's approval, and that may run now."""

    request_id: str
    """Id of the mcp_approval_request item."""
    server: str
    name: str
    arguments: str


PLAN_TEXT = """\
The user wants a plan. Only tools that read run now; other calls are refused. Look at what you need, \
then answer with the plan: numbered steps that say which files and commands they take. The user \
accepts it before anything is changed."""


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """Everything that a turn is asked to do; a field that is None leaves the model's default."""

    instructions: str | None = None
    project: ProjectInstructions = field(default_factory=ProjectInstructions)
    """The AGENTS.md files of the folder that the turn works in."""
    effort: Literal["low", "medium", "high"] = "medium"
    reasoning_summary: SummaryStyle | None = None
    """The style of summaries of reasoning items; None: none."""
    encrypted_reasoning: bool = False
    """Give reasoning items their text as a token too (`agent.conversation.reasoning_token`)."""
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    """Texts before which the answer ends, also in a preamble; reasoning and calls may have them."""
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    max_reasoning_tokens: int | None = None
    """The most tokens of reasoning of each generation, which answers then; 0: no reasoning."""
    functions: tuple[FunctionTool, ...] = ()
    """Tools that the client runs; a call of one ends the turn."""
    tools: tuple[Tool, ...] | None = None
    """The host's tools that this turn may use; None: all of them."""
    tool_search: Literal["never", "auto", "always"] = "never"
    """Declare MCP servers' tools by a search (`agent.turn.tool_search`); auto: where they are many."""
    deferred_servers: frozenset[str] = frozenset()
    """Servers whose tools are declared so whatever their number."""
    tool_choice: Literal["may", "must", "none"] = "may"
    """must: the turn begins with a call of a tool; the model may reason before it."""
    parallel_tool_calls: bool = True
    """Allow several calls in one generation, if the model's family writes them; else it ends at one."""
    further_calls: bool = False
    """Let a model that ends at each call continue after the client's (`agent.turn.further_calls`)."""
    declared_tools_only: bool = False
    answer_form: AnswerForm | None = None
    list_tools_of: tuple[str, ...] = ()
    """Servers whose tools are listed in mcp_list_tools items first (a request's mcp tools)."""
    excluded_servers: frozenset[str] = frozenset()
    """Those of them whose tools the request's filter excludes, all of them."""
    logprobs: int | None = None
    """Number of alternatives with which messages report their tokens' log probabilities; None: none."""
    token_probabilities: bool = False
    """Record with ``agent.tokens`` how likely each token was, and the likeliest others."""
    hosted_tools: HostedTools = field(default_factory=HostedTools)
    """Which calls are reported as items of OpenAI's hosted tools."""
    include_messages: bool = False
    """Report all that the model read and wrote, as ``input_messages`` and ``output_messages``."""
    approved_calls: tuple[ApprovedCall, ...] = ()
    """Calls that the client has approved; they run first."""
    loop_limits: LoopLimits | None = None
    """Stop a generation that repeats itself (`agent.turn.decoder`); None: do not stop it."""
    hedge_below: float = 0.0
    """An answer in free text after a call ends with a doubt if a token was less probable."""
    count_cached: Callable[[Finished, Sequence[int], Sequence[int]], Finished] | None = None
    """Returns the end of a generation, from its prompt and what it wrote, with the cached tokens that
    may be reported; None: all of them."""
    private: bool = False
    """Keep nothing of the conversation in the prefix cache on disk."""
    ends_at_cut_call: bool = False
    """A call for the client that the model cut off ends the turn; else the model writes it again."""
    streamed: bool = True
    """Someone reads the events as they come."""
    compact: bool = False
    """Summarise the oldest turns when the context is nearly full (`agent.conversation.compaction`)."""
    compact_threshold: int | None = None
    """Tokens of a prompt from which on that is done earlier, as an item of the response."""
    approver: Approver | None = None
    """Asks the person where the policy says so; without one such a call is refused."""
    mode: Mode = "ask"
    answerer: OnElicitation | None = None
    """Passes the questions of a tool's server to the person; without one they are declined."""
    login: OnLogin | None = None
    """Offers the person the login that a server wants; without one, calls that need it fail."""

    def prompt_messages(self, prompt: str) -> list[Message]:
        """The messages of a person's turn; in plan mode one more says what that is, where it leaves the
        cached prompt as it is."""
        return [Developer(PLAN_TEXT), User(prompt)] if self.mode == "plan" else [User(prompt)]

    def with_model_settings(self, other: TurnOptions) -> TurnOptions:
        """These options with those of ``other`` that its model's entry sets."""
        limits, hedge = other.loop_limits, other.hedge_below
        return replace(self, sampling=other.sampling, loop_limits=limits, hedge_below=hedge)

    def prompt_header(self, tools: Collection[Tool]) -> PromptHeader:
        """The system and developer messages' content; ``tools``: the host's that the turn may use."""
        # Python is not declared as a function: the model was trained on a text of its own for it.
        declared = [declare_tool(tool) for tool in tools if tool.model_name != PYTHON_TOOL]
        own = [f for f in self.functions if not f.deferred]
        servers = server_instructions_section(tools)
        instructions = "\n\n".join(filter(None, (self.instructions, self.project.section, servers)))
        return PromptHeader(
            date=time.strftime("%Y-%m-%d"),
            effort=self.effort,
            instructions=instructions or None,
            functions=(
                *(replace(f, name=f.model_name, namespace=None) for f in own),
                *(tool for tool in declared if "." not in tool.name),
            ),
            builtin_tools=tuple(tool for tool in declared if "." in tool.name),
            python=len(declared) < len(tools),
        )

    def header_tokens(self, form: Format, tools: Collection[Tool] = ()) -> int:
        return len(form.prompt_header(self.prompt_header(tools)))

    def tool_tokens(self, form: Format, tools: Sequence[Tool]) -> list[int]:
        """Prompt tokens that each tool's declaration adds where other tools are declared already."""
        base = self.header_tokens(form, [EMPTY_TOOL])
        # Without what all tools of a server share.
        alone = (replace(tool, server_instructions="") for tool in tools)
        return [self.header_tokens(form, [EMPTY_TOOL, tool]) - base for tool in alone]

    def total_tool_tokens(self, form: Format, tools: Sequence[Tool]) -> int:
        """Prompt tokens of the declarations of all these tools together, with their framing."""
        return self.header_tokens(form, tools) - self.header_tokens(form)

    def initial_response(self, model: str) -> ev.Response:
        return ev.Response(
            id=new_id("resp"),
            created_at=int(time.time()),
            model=model,
            instructions=self.instructions,
            reasoning=ev.Reasoning(effort=self.effort),
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            max_output_tokens=self.max_output_tokens,
            max_tool_calls=self.max_tool_calls,
        )


@dataclass(frozen=True, slots=True)
class DeclaredTools:
    """The tools that a turn declares to the model, by their canonical names as recipients."""

    server_tools: Mapping[str, Tool]
    """Tools that this process runs."""
    client_functions: Mapping[str, FunctionTool]
    recipients: Recipients
    """All of them, to resolve the names that the model writes."""
    client_recipients: Recipients

    @classmethod
    def resolve(cls, options: TurnOptions, host_tools: Sequence[Tool], form: Format) -> Self:
        """Name the tools of ``options`` as this format writes recipients."""
        offered = host_tools if options.tools is None else options.tools
        declared, offered = (options.functions, offered) if form.parses_calls else ((), ())
        functions = {form.canonical_name(f.model_name, function=True): f for f in declared}
        names = {form.canonical_name(tool.model_name): tool for tool in offered}
        # Where the format has no namespaces, a client's function ``python`` replaces the built-in tool.
        tools = {name: tool for name, tool in names.items() if name not in functions}
        schemas = {name: function.argument_schema for name, function in functions.items()}
        schemas |= {name: tool.model_parameters for name, tool in tools.items()}
        return cls(
            tools,
            functions,
            Recipients([*functions, *tools], TOOL_ALIASES, schemas),
            Recipients(functions, schemas=schemas),
        )
