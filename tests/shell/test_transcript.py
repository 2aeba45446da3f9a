"""What `ask` prints of a stranger's words."""

import uuid

from django.utils import timezone

from bureau.transcript import Transcript
from tasks.queries import EventRow

EVIL = "a\x1b]52;c;aGk=\x07b\x9b2Jc\rd\u202ee"
CLEAN = "a]52;c;aGk=b2Jc\nde"


def show(*events):
    transcript = Transcript(quiet=False)
    for number, (kind, payload) in enumerate(events, 1):
        transcript.show(EventRow(number, kind, payload, timezone.now()))
    transcript.end(uuid.uuid4())


def test_a_terminal_is_not_obeyed(capsys):
    artifact = {"artifactId": "1", "name": EVIL, "parts": [{"text": EVIL}]}
    file = {"filename": EVIL, "url": "https://far.example/\x1b[2J", "mediaType": EVIL}
    show(("artifact", artifact), ("artifact", artifact), ("artifact", artifact | {"artifactId": "2", "parts": [file]}))
    show(*[("status", {"state": state, "message": {"parts": [{"text": EVIL}]}}) for state in ("working", "failed")])
    show(("status", {"state": "input-required", "message": {"parts": [{"text": EVIL}]}}))
    out, err = capsys.readouterr()
    assert not set(out + err) & set("\x1b\x07\x9b\r\u202e")
    assert (out.count(CLEAN), err.count(CLEAN)) == (5, 3)
