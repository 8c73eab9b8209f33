"""exp in float32, as plain arithmetic, so that a loop over it compiles to vector instructions."""

from functools import partial
from typing import Any

import numpy as np

from attnkit.machine import compiled

F = np.float32
LOWEST = F(-87)  # e to this is the least that float32 holds; below, a weight is 0
# ln 2 as a short number, whose multiples are exact, and the rest; exp on ± ln 2 / 2 (Moshier's Cephes, expf.c).
PER_LN_2, LN_2, LN_2_REST = F(1.44269504088896341), F(0.693359375), F(-2.12194440e-4)
P0, P1, P2 = F(1.9875691500e-4), F(1.3981999507e-3), F(8.3334519073e-3)
P3, P4, P5 = F(4.1665795894e-2), F(1.6666665459e-1), F(5.0000001201e-1)


@partial(compiled, inline=True, as_written=True)
def exp_below(log: Any) -> Any:
    """exp(log) of a float32 of at most 0; 0 of what is not above `LOWEST`, and no number of what is none."""
    least = LOWEST if log < LOWEST else log
    n = np.floor(least * PER_LN_2 + F(0.5))
    rest = least - n * LN_2 - n * LN_2_REST
    part = ((((P0 * rest + P1) * rest + P2) * rest + P3) * rest + P4) * rest + P5
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return F(0) if log <= LOWEST else (part * rest * rest + rest + F(1)) * power
