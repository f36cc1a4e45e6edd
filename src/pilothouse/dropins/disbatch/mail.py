"""Mail about finished tasks (`--mailTo`, `--mailFreq`). If one cannot be sent, that is logged and no other is tried."""

from __future__ import annotations

import logging
import smtplib
from email.message import EmailMessage

from pilothouse.dropins.disbatch.status_file import StatusKind, StatusLine

log = logging.getLogger("disBatch.mail")


class Mailer:
    """Takes status lines; sends the last `every` of them to `address` by the local mail server."""

    def __init__(self, address: str, every: int, run_name: str) -> None:
        self._address = address
        self._every = max(1, every)
        self._run_name = run_name
        self._lines: list[str] = []
        self._finished = 0
        self._failed = 0

    def note(self, lines: list[StatusLine]) -> None:
        if not self._address:
            return
        for line in lines:
            if line.kind in (StatusKind.BARRIER, StatusKind.CHECK):
                continue
            self._lines.append(str(line))
            self._finished += 1
            self._failed += line.return_code != 0
            if self._finished % self._every == 0:
                self._send()

    def _send(self) -> None:
        message = EmailMessage()
        failed = f" ({self._failed} failed)" if self._failed else ""
        message["Subject"] = f"{self._run_name}: {self._finished} tasks done{failed}"
        message["From"] = message["To"] = self._address
        message.set_content("\n".join(self._lines) + "\n")
        self._lines.clear()
        try:
            with smtplib.SMTP("localhost", timeout=10) as server:
                server.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            log.warning("mail to %s cannot be sent (%s); no more is tried", self._address, error)
            self._address = ""
