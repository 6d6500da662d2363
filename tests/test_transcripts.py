"""``fit`` on transcripts of real sessions, where the environment says that there are some.

``ULLAGE_REAL_TRANSCRIPTS`` names a folder that holds ``taubench_gpt-4o-airline.json``: an array of
sessions, the messages of each under ``traj``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from chat_strategies import Dumped
from promises import check_fit

import ullage
from ullage.errors import DoesNotFit

FOLDER = os.environ.get("ULLAGE_REAL_TRANSCRIPTS")
pytestmark = pytest.mark.skipif(not FOLDER, reason="ULLAGE_REAL_TRANSCRIPTS names no folder")


@pytest.fixture(scope="module")
def sessions() -> list[list[dict[str, Any]]]:
    text = (Path(FOLDER or "") / "taubench_gpt-4o-airline.json").read_text(encoding="utf-8")
    return [session["traj"] for session in json.loads(text)]


@pytest.mark.parametrize("window", [3_000, 4_096, 6_000, 128_000])
def test_every_session_keeps_the_promises(sessions: list[list[dict[str, Any]]], window: int) -> None:
    refused = cut = 0
    for chat in sessions:
        before = json.dumps(chat)
        settings: dict[str, Any] = {"window_tokens": window, "output_reserve": 512, "safety_margin": 100}
        try:
            result = ullage.fit(chat, **settings)
        except DoesNotFit as error:
            refused += 1
            assert error.needed > window  # noqa: PT017
            continue
        check_fit(chat, result, **settings)
        cut += len(result.messages) < len(chat)
        dumped = ullage.fit([Dumped(message) for message in chat], **settings)
        assert dumped.report.to_json() == result.report.to_json()
        assert json.dumps(chat) == before
    assert refused < len(sessions)
    assert (cut > 0) == (window < 128_000)
