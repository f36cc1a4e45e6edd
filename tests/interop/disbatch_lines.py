"""Run by disBatch's own Python: reads task files (JSON list of base64) on stdin, prints what disBatch makes of each."""

import base64
import io
import json
import logging
import sys

from disbatch.disBatch import TaskGenerator

logging.disable(logging.CRITICAL)
answers = []
for text in json.load(sys.stdin):
    lines = []
    try:
        for task in TaskGenerator(io.BytesIO(base64.b64decode(text))):
            if task.taskCmd == b"#ENDLIST":
                continue
            kind = task.kind if task.kind != "P" else "P" + task.taskKey.split()[2]
            key = base64.b64encode(task.bKey or b"").decode()
            command = base64.b64encode(task.taskCmd).decode()
            lines.append([task.taskId, task.taskStreamIndex, task.taskRepIndex, kind, command, key])
        answers.append(lines)
    except KeyError as error:  # PERENGINE start, in small letters, is more than disBatch can read
        answers.append(f"KeyError {error}")
json.dump(answers, sys.stdout)
