"""EditGRPO's edits as an agent loop of verl 0.9."""

from __future__ import annotations

from functools import cache, partial
from inspect import signature
from typing import Any

from verl.experimental.agent_loop import AgentLoopOutput, SingleTurnAgentLoop
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, register

from rrgclinical import build_extractor
from rrgclinical.common.arguments import whole_number
from rrgclinical.common.resolve import nearest
from rrgtrain.algorithms import edit_reports
from rrgtrain.errors import UserError
from rrgtrain.integrations.from_trainers import read_settings, reference_of
from rrgtrain.schema import EditSettings

LOOP = "rrgkern_edits"
# Options that verl hands to every loop, beside those that its base names.
_OF_VERL = ("name", "tools")


_extractor = cache(build_extractor)


@register(LOOP)
class EditAgentLoop(SingleTurnAgentLoop):
    """Samples one report; the last of a group are edited towards the reference.

    An edited report is trained on as if it had been sampled: verl computes its old log-probs by the
    actor. It has none of the sampler, so `rollout.calculate_log_probs` must be false.
    """

    def __init__(
        self, *arguments: Any, edited: int = 1, edit: dict[str, Any] | None = None, **options: Any
    ) -> None:
        """edited: reports of each group that are edited. edit: fields of EditSettings.

        Raises UserError for a number, a field or an option that makes no sense.
        """
        super().__init__(*arguments, **options)
        takes = {*signature(AgentLoopBase.__init__).parameters, "edited", "edit", *_OF_VERL}
        if unknown := sorted(options.keys() - takes):
            raise UserError(
                f"{LOOP}: unknown option {unknown[0]!r}; "
                f"{nearest(unknown[0], ['edited', 'edit'])}it takes edited and edit"
            )
        rollout = self.rollout_config
        size = whole_number(rollout.n, "rollout.n", 1)
        edited = whole_number(edited, f"{LOOP}: edited", 0)
        if not 0 < edited < size:
            raise UserError(f"{LOOP}: edited={edited} of rollout.n={size}; leave one as it is")
        if rollout.val_kwargs.n > size - edited:
            raise UserError(
                f"{LOOP}: rollout.val_kwargs.n={rollout.val_kwargs.n} would edit reports of the "
                f"validation; use at most {size - edited}"
            )
        if rollout.calculate_log_probs:
            raise UserError(f"{LOOP}: edits have no log-probs of the sampler; say "
                            "rollout.calculate_log_probs=false")  # fmt: skip
        self.size, self.first_edited = size, size - edited
        self.edit = read_settings(EditSettings, edit, f"{LOOP}: edit")
        if self.edit.level != "sentence":
            raise UserError(f"{LOOP}: edit.level={self.edit.level}; it edits by the sentence alone")
        if self.edit.keep != "all":
            raise UserError(f"{LOOP}: edit.keep={self.edit.keep}; verl keeps every edit")

    async def run(
        self, sampling_params: dict[str, Any], priority: int = 0, **sample: Any
    ) -> AgentLoopOutput:
        """Return the report that was sampled, or its edit."""
        if "session_id" not in sample:
            raise UserError(f"{LOOP} wants the member's number: say trainer.use_v1=true")
        member = whole_number(sample["session_id"], f"{LOOP}: session_id", 0)
        if member >= self.size:
            raise UserError(f"{LOOP}: session_id={member} of rollout.n={self.size}; wanted less")
        output = await super().run(sampling_params, priority, **sample)
        steps = ""
        if member >= self.first_edited:
            call = partial(self._edited, output.response_ids, reference_of(sample), member)
            ids, steps = await self.loop.run_in_executor(None, call)
            output.response_ids, output.response_mask = ids, [1] * len(ids)
        # every sample has the field, as its columns are one table
        output.extra_fields["rrgkern_edit"] = steps
        return output

    def _edited(self, ids: list[int], reference: str, seed: int) -> tuple[list[int], str]:
        """Return the ids of the edited report and the letters of its rules.

        One that is as it was, or too long, keeps its ids.
        """
        report = self.tokenizer.decode(ids, skip_special_tokens=True)
        extractor = _extractor(self.edit.extractor or "rules")
        (edit,) = edit_reports([report], [reference], [seed], extractor, self.edit)
        ending = ids[-1:] if ids[-1:] == [self.tokenizer.eos_token_id] else []
        new = self.tokenizer.encode(edit.text, add_special_tokens=False) + ending
        if not edit.steps or len(new) > self.response_length:
            return ids, ""
        return new, "".join(letter for letter, _, _ in edit.steps)
