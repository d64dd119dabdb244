"""The receiver of the page on sending webhooks counts each change once, and refuses what it cannot verify."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests import ROOT
from tests.infra.webhooks.signed import secret
from twofold.features.outputs.tests.followed_webhook import FollowedWebhook
from twofold.features.outputs.tests.webhook_receiver import Receiver
from twofold.infra.delta.lake import Lake
from twofold.infra.process.ports import free_port

PAGE = (ROOT / "docs/how-to/send-webhooks.md").read_text("utf-8")

pytestmark = pytest.mark.platform


def test_the_receiver_of_the_page_counts_each_change_once(lake: Lake, tmp_path: Path) -> None:
    [shown] = re.findall(r'```python\n(""".*?"""  # receiver\.py\n.*?)```', PAGE, re.DOTALL)
    (tmp_path / "receiver.py").write_text(shown)
    hook = FollowedWebhook(lake, Receiver(port=free_port()))
    command = [sys.executable, "receiver.py", str(hook.receiver.port), secret(), "seen.sqlite"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        hook.follow()
        hook.table.put(("a", 1, None))
        hook.table.put(("a", 2, None))
        hook.follow()
        while hook.queue.waiting()[0]:
            hook.wait(1)
        hook.resume(0)
        hook.follow()
        hook.send()
        assert hook.queue.waiting() == (0, "")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"http://127.0.0.1:{hook.receiver.port}", b"{}", 10)
    finally:
        process.kill()
        lines, _ = process.communicate()
    assert lines.splitlines() == ["insert {'k': 'a'} 1", "update {'k': 'a'} 2"]
