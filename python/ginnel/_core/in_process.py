"""What a service and an agent in this process share: they run until they are stopped."""

from __future__ import annotations

from .resource import Spelling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class InProcess(Spelling):
    """What runs in this process, until `stop` or the end of a `with` block."""

    def stop(self, grace: float = 10.0) -> None:
        """Stop."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __reduce__(self) -> str | tuple[object, ...]:
        name = type(self).__name__
        problem = f"{name} cannot be pickled or copied: it runs in this process"
        raise TypeError(f"{problem}; pass on the addresses where it is reached")
