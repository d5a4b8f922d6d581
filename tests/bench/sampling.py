"""How figures are taken: operations take turns, so that noise hits all of them, and each sample has wall and CPU time."""

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

Operation = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class Series:
    """Samples of one thing, in one unit."""

    values: list[float] = field(default_factory=list)

    @property
    def least(self) -> float:
        return min(self.values)

    @property
    def p50(self) -> float:
        return statistics.median(self.values)

    @property
    def p95(self) -> float:
        return sorted(self.values)[min(len(self.values) - 1, round(len(self.values) * 0.95))]

    @property
    def most(self) -> float:
        return max(self.values)


@dataclass(slots=True)
class Timed:
    """Samples of one operation, milliseconds. `cpu` is this process's own."""

    wall: Series = field(default_factory=Series)
    cpu: Series = field(default_factory=Series)

    async def sample(self, operation: Operation) -> None:
        """Do it once and keep what it took."""
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        await operation()
        self.wall.values.append((time.perf_counter_ns() - wall) / 1e6)
        self.cpu.values.append((time.process_time_ns() - cpu) / 1e6)


async def interleaved(
    operations: Mapping[str, Operation], *, rounds: int, each: int = 10
) -> dict[str, Timed]:
    """`rounds` times, `each` samples of every operation in turn. The first tenth of the rounds only warms up."""
    timed = {name: Timed() for name in operations}
    for number in range(-max(1, rounds // 10), rounds):
        for name, operation in operations.items():
            kept = timed[name] if number >= 0 else Timed()
            for _ in range(each):
                await kept.sample(operation)
    return timed
