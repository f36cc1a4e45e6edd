"""The configuration of a steered pair of partitions: what to add, what is missing, how to undo.

In: what `scontrol show` says (link.Facts), and who asks. Out: texts for slurm.conf and job_submit.lua, and findings.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pilothouse.formats import slurm_fields as fields
from pilothouse.worlds.slurm.book import Pair
from pilothouse.worlds.slurm.link import Facts

MOST_DELAY_S = 1
LEAST_DEPTH = 1000
LEAST_JOB_AGE_S = 30
SCHEDULER_PARAMETERS = "batch_sched_delay=0,default_queue_depth=10000"
_MAY_DIFFER = {"PartitionName", "State", "Hidden", "Default", "PriorityTier", "PriorityJobFactor", "AllocNodes", "TRES"}
"""Fields of a partition that need not be the same in both."""
_OPERATORS = ("operator", "administrator")


class Finding(msgspec.Struct, frozen=True):
    """`level`: ok, note (it works, but not well) or wrong (it does not work)."""

    level: str
    text: str
    do: str = ""


class Asker(msgspec.Struct, frozen=True):
    """Who would steer."""

    name: str
    uid: int
    admin_level: str = ""
    """As `sacctmgr show user` says; empty: not known."""


def conf_lines(pair: Pair, nodes: str = "ALL", whole_nodes: bool = True) -> str:
    shares = " OverSubscribe=EXCLUSIVE" if whole_nodes else ""
    return f"""\
# slurm.conf: users submit into {pair.queue}, where Slurm starts nothing; jobs start in {pair.go}.
PartitionName={pair.queue} Nodes={nodes} State=DOWN{shares}
PartitionName={pair.go} Nodes={nodes} State=UP{shares}
# Add these words to the lines that you have: a second line of the same name would replace the first.
#   SchedulerParameters=...,{SCHEDULER_PARAMETERS}
#   JobSubmitPlugins=...,lua
"""


def check(pair: Pair, facts: Facts, asker: Asker) -> list[Finding]:
    """What is right and what is not, the worst last."""
    found: list[Finding] = []
    found += _check_partitions(pair, facts)
    found += _check_scheduler(facts.config)
    found.append(_check_rights(facts.config, asker))
    return sorted(found, key=lambda finding: ("ok", "note", "wrong").index(finding.level))


def _check_partitions(pair: Pair, facts: Facts) -> list[Finding]:
    queue, go = facts.partitions.get(pair.queue), facts.partitions.get(pair.go)
    missing = [name for name, there in ((pair.queue, queue), (pair.go, go)) if there is None]
    if queue is None or go is None:
        text = f"there is no partition {' and no partition '.join(missing)}"
        return [Finding("wrong", text, "add the lines that `pilothouse slurm-setup` prints, then `scontrol reconfigure`")]
    found = [Finding("ok", f"partitions {pair.queue} and {pair.go} are there")]
    if queue.get("State") == "DOWN":
        found.append(Finding("ok", f"{pair.queue} is DOWN: Slurm starts nothing there"))
    else:
        line = f"scontrol update partitionname={pair.queue} state=DOWN"
        found.append(Finding("wrong", f"{pair.queue} is {queue.get('State')}: Slurm starts its jobs itself", line))
    if go.get("State") != "UP":
        line = f"scontrol update partitionname={pair.go} state=UP"
        found.append(Finding("wrong", f"{pair.go} is {go.get('State')}: no job can start", line))
    for name, partition in ((pair.queue, queue), (pair.go, go)):
        if partition.get("RootOnly", "NO") != "NO":
            found.append(Finding("wrong", f"{name} has RootOnly=YES: jobs of users never start there", "RootOnly=NO"))
    different = sorted(key for key in queue if key not in _MAY_DIFFER and queue[key] != go.get(key))
    for key in different:
        text = f"{key} differs: {pair.queue} has {queue[key]}, {pair.go} has {go.get(key)}"
        level = "wrong" if key in ("Nodes", "TotalNodes", "OverSubscribe") else "note"
        found.append(Finding(level, f"{text}; a job that one allows may wait for ever in the other", f"make {key} equal"))
    if not different:
        found.append(Finding("ok", "both have the same nodes and limits"))
    hidden = [name for name, partition in ((pair.queue, queue), (pair.go, go)) if partition.get("Hidden") == "YES"]
    for name in hidden:
        found.append(Finding("note", f"{name} is hidden: plain squeue does not show users their jobs there", "Hidden=NO"))
    return found


def _check_scheduler(config: dict[str, str]) -> list[Finding]:
    found = []
    words = dict(word.partition("=")[::2] for word in config.get("SchedulerParameters", "").split(","))
    delay = fields.count(words.get("batch_sched_delay", "3"))
    if delay is None or delay > MOST_DELAY_S:
        do = "add batch_sched_delay=0 to SchedulerParameters"
        found.append(Finding("note", "orders wait up to 3 s for Slurm's scheduling pass", do))
    else:
        found.append(Finding("ok", "Slurm looks at orders once a second (batch_sched_delay)"))
    depth = fields.count(words.get("default_queue_depth", "100"))
    if depth is None or depth < LEAST_DEPTH:
        do = "add default_queue_depth=10000 to SchedulerParameters"
        found.append(Finding("note", "with long queues Slurm may not look at an order", do))
    if "lua" not in config.get("JobSubmitPlugins", ""):
        text = "users may submit straight into the partition of starts, and so overtake others"
        found.append(Finding("note", text, "JobSubmitPlugins=lua, with the job_submit.lua that `pilothouse slurm-setup` prints"))
    age = fields.count(config.get("MinJobAge", "300").split(" ")[0])
    if age is not None and age < LEAST_JOB_AGE_S:
        found.append(Finding("note", f"ended jobs are forgotten after {age} s: how they ended may not be seen", "MinJobAge=300"))
    return found


def _check_rights(config: dict[str, str], asker: Asker) -> Finding:
    owner = config.get("SlurmUser", "").partition("(")[0]
    if asker.uid == 0 or asker.name == owner:
        return Finding("ok", f"{asker.name} may move the jobs of others (root or SlurmUser)")
    if asker.admin_level.lower() in _OPERATORS:
        return Finding("ok", f"{asker.name} may move the jobs of others ({asker.admin_level})")
    grant = f"sacctmgr modify user {asker.name} set adminlevel=Operator"
    return Finding("wrong", f"{asker.name} may not move the jobs of others: that needs an Operator", grant)


def job_submit_lua(pairs: Sequence[tuple[str, str]], uids: Sequence[int] = ()) -> str:
    """A job_submit.lua that keeps users out of the partitions into which only the steering program moves jobs. `uids`: who
    may, besides root."""
    table = ", ".join(f'["{go}"] = "{queue}"' for queue, go in pairs)
    allowed = ", ".join(f"[{uid}] = true" for uid in sorted({0, *uids}))
    return f"""\
-- Written by `pilothouse slurm-setup`: users submit into the queue, only the steering program moves jobs on.
local queue_of = {{ {table} }}
local allowed = {{ {allowed} }}

local function refused(partition, uid)
   if allowed[uid] or partition == nil then return nil end
   for name in string.gmatch(partition, "[^,]+") do
      if queue_of[name] ~= nil then return name end
   end
   return nil
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   local name = refused(job_desc.partition, submit_uid)
   if name ~= nil then
      slurm.log_user("partition " .. name .. " is not for submission: use partition " .. queue_of[name])
      return slurm.ERROR
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   local name = refused(job_desc.partition, modify_uid)
   if name ~= nil then
      slurm.log_user("only the steering program moves jobs into partition " .. name)
      return slurm.ERROR
   end
   return slurm.SUCCESS
end

return slurm.SUCCESS
"""
