"""Beam search the slow and obvious way: whole sequences, looked at anew in every step."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.contracts.request import EngineRequest
from octavo.executor.scripted import Candidates


def solo_beams(request: EngineRequest, candidates: Candidates) -> list[tuple[list[int], float]]:
    """(generated tokens, score) of the best sequences, best first."""
    spec = request.beam
    assert spec is not None
    prompt = request.prompt_token_ids
    ending = {*request.eos_token_ids, *request.stop_token_ids}
    width, penalty = spec.beam_width, spec.length_penalty
    num_looked_at = width * max(2, 1 + len(ending))
    alive: list[tuple[Sequence[int], float]] = [([], 0.0)]
    ended: list[tuple[list[int], float]] = []
    for length in range(1, request.max_tokens + 1):
        longer = [
            ([*tokens, token_id], total + logprob)
            for tokens, total in alive
            for token_id, logprob in candidates([*prompt, *tokens], num_looked_at)
        ]
        longer = sorted(longer, key=lambda one: one[1], reverse=True)[:num_looked_at]
        is_last = length == request.max_tokens
        for tokens, total in longer[:width]:
            if is_last or tokens[-1] in ending:
                ended.append((tokens, total / length**penalty))
        ended = sorted(ended, key=lambda one: one[1], reverse=True)[:width]
        alive = [one for one in longer if one[0][-1] not in ending][:width]
        if is_last or not alive:
            break
        if len(ended) == width:
            if spec.early_stopping is True:
                break
            is_hopeful = spec.early_stopping == "never" and penalty > 0
            reachable = request.max_tokens if is_hopeful else length
            if alive[0][1] / reachable**penalty <= ended[-1][1]:
                break
    return ended[: spec.num_returned]
