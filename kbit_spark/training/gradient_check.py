"""Whether gradients are finite, asked and answered on their device."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from kbit_spark.training.gradients import by_dtype


class GradientCheck:
    """Limits gradients, and notes on the device whether all are finite.

    Args:
        parameters: those of the model.
        clip_norm: the norm to which all gradients together are limited; None: no limit.
        device: where they are.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], clip_norm: float | None, device: torch.device) -> None:
        self._parameters = list(parameters)
        self._by_dtype = by_dtype(self._parameters)
        self._clip_norm = clip_norm
        self._one = torch.ones((), device=device)
        self.infinite = torch.zeros((), device=device)
        """Shape (): not 0 once gradients were not finite."""

    def look(self, *, scaled: bool) -> None:
        """Limit the gradients, and note whether all are finite; a scaler of `scaled` ones has noted it before.

        One kernel looks at all of them: the one with which a GradScaler looks, here without a scale.
        """
        norm = None
        if self._clip_norm is not None:
            norm = nn.utils.clip_grad_norm_(self._parameters, self._clip_norm)
        if scaled:
            return
        for same in self._gradients() if norm is None else [[norm.float()]]:
            torch._amp_foreach_non_finite_check_and_unscale_(same, self.infinite, self._one)

    def _gradients(self) -> list[list[torch.Tensor]]:
        """Return the gradients, or what is finite where they are, as real numbers; those of one dtype together."""
        found = [[_real(p.grad) for p in same if p.grad is not None] for same in self._by_dtype]
        return [_checkable(same) for same in found if same]


def _checkable(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the gradients, their norms where the look at them has no kernel for their dtype (bfloat16 on a GPU)."""
    if gradients[0].dtype in (torch.float16, torch.float32, torch.float64):
        return gradients
    return [torch.stack(torch._foreach_norm(gradients)).float()]


def _real(gradient: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(gradient) if gradient.is_complex() else gradient
