"""A fake model that answers from a script, for tutorials and tests of agents."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from interlock.kernel.errors import InterlockError


class ScriptedModel:
    """Answers with what the script has for a prompt, and tells what that would have cost.

    A script is a list, whose answers come one after another, or says by a part of the prompt what the answer is. With
    `calls`, each call adds its prompt to that file: what is in it was paid for.
    """

    def __init__(
        self, script: Mapping[str, Any] | Iterable[Any], *, tokens: int = 100, usd: float = 0.01,
        calls: Path | str | None = None,
    ) -> None:  # fmt: skip
        self.by_prompt = dict(script) if isinstance(script, Mapping) else None
        self.left = [] if isinstance(script, Mapping) else list(script)
        self.tokens, self.usd, self.prompts = tokens, usd, list[str]()
        self.calls = None if calls is None else Path(calls)

    async def __call__(self, prompt: str) -> dict[str, Any]:
        """Answers as an SDK does: `{"answer": …, "usage": {"tokens": …, "usd": …}}`.

        Raises:
            InterlockError: the script has no answer to this.
        """
        answer = self.find_answer(prompt)
        self.prompts.append(prompt)
        if self.calls is not None:
            with self.calls.open("a", encoding="utf-8") as paid:
                print(prompt.partition("\n")[0], file=paid)
        return {"answer": answer, "usage": {"tokens": self.tokens, "usd": self.usd}}

    def find_answer(self, prompt: str) -> Any:
        """What the script says.

        Raises:
            InterlockError: the script has none.
        """
        if self.by_prompt is None:
            if not self.left:
                raise InterlockError(f"the script has no answer any more; it was asked {prompt[:80]!r}")
            return self.left.pop(0)
        for part, answer in self.by_prompt.items():
            if part in prompt:
                return answer
        raise InterlockError(f"the script has no answer to {prompt[:80]!r}; it has some to {', '.join(self.by_prompt)}")


def usage_of(response: Mapping[str, Any]) -> Mapping[str, float]:
    """What a call has used, as `ctx.step(…, usage=usage_of)` wants it."""
    used: Mapping[str, float] = response["usage"]
    return used
