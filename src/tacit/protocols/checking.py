"""placeholder"""

from typing import Any

DRAWS = 100_000


def check_declared(protocol: Any) -> bool:
    return False
