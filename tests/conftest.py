"""Both engines under every test that asks for one."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from support import PY, C, Engine

# No test asserts a time, so none has a deadline.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.register_profile("suite", unhurried, max_examples=200)
settings.register_profile("thorough", unhurried, max_examples=10_000)  # pytest --hypothesis-profile=thorough
settings.load_profile("suite")


@pytest.fixture(params=[C, PY], ids=lambda engine: engine.name, scope="session")
def engine(request: pytest.FixtureRequest) -> Engine:
    """The compiled engine, then the reference."""
    chosen: Engine = request.param
    return chosen
