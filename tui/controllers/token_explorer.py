"""Computes alternatives and probabilities of a turn's tokens, and continues from an alternative."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING

from agent.errors import AgentError, UserError
from tui.guarded import run_latest

if TYPE_CHECKING:
    from agent.engine.protocol import Sampling
    from agent.runtime.runtime import LoadedModel
    from agent.turn.token_choices import TokenChoices
    from tui.app_context import AppContext
    from tui.controllers.chat import ChatController
    from tui.state.turn_view import TurnView
    from tui.util.format import StyledRun
    from tui.widgets.token_view import TokenPosition
    from tui.written_turn import WrittenTurn

    WrittenToken = tuple[TurnView, WrittenTurn, int, int]
    """A token that the model wrote: its turn, the number of its generation, its index in that."""

log = logging.getLogger(__name__)


class TokenExplorer:
    """Computes probabilities, colours texts by them, and takes other tokens."""

    def __init__(self, app: AppContext, chat: ChatController) -> None:
        self._app, self._chat = app, chat

    async def choices(self, position: TokenPosition) -> TokenChoices:
        """Return the alternatives of a token with their probabilities. Raises AgentError."""
        from agent.turn.logprobs import sampled_logprob
        from agent.turn.token_choices import describe_choices, token_choices

        self._require_model()
        written = await self._find_written(position)
        if written is None:
            return await self._choices_in_log(position)
        _, turn, number, index = written
        generation = turn.generations[number]
        sampling, constraint = await turn.settings(number)
        if index < len(generation.logprobs) and (recorded := generation.logprobs[index]):
            logprob = sampled_logprob(generation.ids[index], recorded)
            return await describe_choices(logprob, generation.ids[:index], constraint)
        prompt = turn.prompt(generation)
        ids, start = [*prompt, *generation.ids], len(prompt)
        return await token_choices(
            self._app.session.runtime, ids, start + index, sampling, constraint, start=start
        )

    async def _choices_in_log(self, position: TokenPosition) -> TokenChoices:
        """The same of a token of the prompt, of a turn that runs, or of another program's."""
        from agent.engine.protocol import Sampling
        from agent.turn.token_choices import TokenChoices, token_choices

        session, tokens, start = self._app.session, position.log, position.number
        if position.generation is not None:
            start = tokens.generations[position.generation].start
        sampling = self._sampling_of(position)
        choices = await token_choices(
            session.runtime, tokens.ids, position.number, sampling or Sampling(), start=start
        )
        if sampling is not None:
            return choices
        others = tuple(replace(other, probability=None) for other in choices.alternatives)
        return TokenChoices(replace(choices.chosen, probability=None), others)

    def _sampling_of(self, position: TokenPosition) -> Sampling | None:
        """The sampling of a token's turn, or of the next one; None: it is not known."""
        from agent.turn.loop import Turn

        if isinstance(position.turn, Turn):
            return position.turn.options.sampling
        session = self._app.session
        return session.options.sampling if position.conversation is session.conversation else None

    async def take(self, position: TokenPosition, token: int) -> None:
        """Go on from another token in a branch. Raises UserError."""
        self._require_idle()
        if (written := await self._find_written(position)) is None:
            raise UserError("Only what the model wrote in your own conversation can change.")
        self._require_idle()
        view, turn, generation, index = written
        begun = turn.continue_with_token(generation, index, token)
        if self._app.live.token_view is not None:
            # Its prompt may be longer than that in which the token was: it has the turn's reasoning.
            self._app.live.token_view.await_turn(begun.ids)
        await self._chat.continue_from(view, begun)

    async def _find_written(self, position: TokenPosition) -> WrittenToken | None:
        """Find a token in its turn; None: no model wrote it in this conversation. Raises UserError."""
        from tui.written_turn import open_turn

        if position.generation is None:
            return await self._find_in_prompt(position)
        turn, view = position.turn, self._app.own_turn.view
        if turn is None or turn is not self._app.own_turn.latest or view is None or view.running:
            return None
        if view not in self._app.transcript.own_turns:
            return None
        written = await open_turn(self._app.session, view.response_id, turn.log.events)
        # A branch continues an earlier turn's generations, and messages of its first one. The last
        # generation of a turn that was stopped may have written nothing.
        counts = [tokens.count for tokens in position.log.generations if tokens.count]
        tokens = position.log.generations[position.generation]
        number = len(written.generations) - len(counts) + position.generation
        if number < position.generation:
            return None
        kept = len(written.generations[number].ids) - tokens.count
        return view, written, number, kept + position.number - tokens.start

    async def _find_in_prompt(self, position: TokenPosition) -> WrittenToken | None:
        """Find a token of the open conversation's prompt in the turn that wrote it, where that can be
        counted: the log may have reasoning that the prompt has no longer."""
        from tui.written_turn import open_turn

        conversation = self._app.session.conversation
        if position.conversation is not conversation:
            return None
        at, number = len(conversation.header_ids), position.number
        if position.log.generations:
            opening = len(self._app.session.next_prompt.require_format().open_assistant())
            if number >= position.log.generations[0].start - opening:
                return None
        for entry in conversation.prompt_entries():
            end = at + len(entry.ids)
            if position.log.ids[at:end] != list(entry.ids):
                return None
            if number < end:
                break
            at = end
        else:
            return None
        left = number - at
        index = next((n for n, each in enumerate(conversation.entries) if each is entry), None)
        if index is None or left < 0:
            return None
        views = self._app.transcript.own_turns
        earlier = [view for view in views if view.start is not None and view.start <= index]
        if not earlier:
            return None
        view = earlier[-1]  # one that failed before it began has the start of the next one
        try:
            turn = await open_turn(self._app.session, view.response_id)
        except UserError:
            return None
        found = turn.locate(index - (view.start or 0), left)
        return None if found is None else (view, turn, *found)

    def _require_idle(self) -> None:
        if not self._chat.idle:
            raise UserError("A turn is running: stop it or wait, then take another token.")

    def _require_model(self) -> LoadedModel:
        if (loaded := self._app.session.runtime.loaded) is None:
            raise UserError("The model is not loaded.")
        return loaded

    async def toggle_view(self) -> None:
        app, live = self._app, self._app.live
        if live.token_view is None:
            from tui.widgets.token_view import TokenView

            live.token_view = TokenView(self.choices)
            await app.body.mount(live.token_view)
        live.token_view.toggle()
        live.update_token_view()

    async def toggle_colours(self, view: TurnView) -> None:
        """Colour the texts of a turn by probability, or no longer. Raises UserError."""
        from tui.written_turn import open_turn

        app = self._app
        if view.running:
            raise UserError("A turn is running: stop it or wait, then colour its text.")
        group = f"colours of {view.response_id}"
        if view.probability_note:
            app.workers.cancel_group(app, group)
            await self._show_colours(view, {}, "", [])
            return
        self._require_model()
        latest = self._app.own_turn.latest if view is self._app.own_turn.view else None
        turn = await open_turn(app.session, view.response_id, latest.log.events if latest else ())
        view.probability_note = "computing probabilities …"
        app.transcript.follow(view)
        run_latest(app, group, self._colour, view, turn)

    async def _colour(self, view: TurnView, turn: WrittenTurn) -> None:
        """Compute a turn's probabilities and colour its texts by them; say why where that fails."""
        try:
            await self._compute_colours(view, turn)
            return
        except AgentError as error:
            sentence = str(error)
        except Exception:  # of an engine, or a format: the app continues
            log.exception("the probabilities of %s failed", view.response_id)
            sentence = "The probabilities cannot be computed; the log has the details."
        view.probability_note = ""
        self._app.transcript.follow(view)
        self._app.notify(sentence, severity="warning", markup=False)

    async def _compute_colours(self, view: TurnView, turn: WrittenTurn) -> None:
        """Colour a turn's texts, unless conversation or model changed meanwhile. Raises AgentError."""
        from agent.turn.token_choices import token_logprobs
        from tui.state.token_colours import colour_texts

        session = self._app.session
        conversation, loaded = session.conversation, session.runtime.loaded
        if loaded is None:
            view.probability_note = ""
            return
        chances: list[list[float]] = []
        for generation in turn.generations:
            if any(rows := generation.logprobs):
                # Given text, and tokens without reported probabilities, do not count as surprising.
                chances.append([1.0 if row is None else exp(row.logprob) for row in rows])
                continue
            prompt = turn.prompt(generation)
            ids = [*prompt, *generation.ids]
            logprobs = await token_logprobs(session.runtime, ids, len(prompt), len(ids))
            chances.append(list(map(exp, logprobs)))
            is_same = session.conversation is conversation and session.runtime.loaded is loaded
            if not is_same or view not in self._app.transcript.own_turns:
                view.probability_note = ""
                self._app.transcript.follow(view)
                return
        pieces = [
            (loaded.format.token_bytes(token), chance)
            for generation, values in zip(turn.generations, chances, strict=True)
            for token, chance in zip(generation.ids, values, strict=True)
        ]
        runs, note = colour_texts(turn.stored.response.output, pieces)
        await self._show_colours(view, runs, note or "no text", chances)

    async def _show_colours(
        self,
        view: TurnView,
        runs: Mapping[str, Sequence[StyledRun]],
        note: str,
        chances: Sequence[Sequence[float]],
    ) -> None:
        """Show a turn's texts coloured, by item id. ``chances``: of its tokens, by generation."""
        app = self._app
        view.probability_note = note
        for item in view.items:
            item.coloured = runs.get(item.id)
        await app.transcript.show_colours(view)
        if app.live.token_view is not None and view is self._app.own_turn.view:
            app.live.token_view.colour(self._app.own_turn.latest, chances)
            app.live.update_token_view()
