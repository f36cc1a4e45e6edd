"""The configuration of a steered pair of partitions, as texts."""

from __future__ import annotations

from collections.abc import Sequence


def job_submit_lua(pairs: Sequence[tuple[str, str]]) -> str:
    """A job_submit.lua that keeps users out of the partitions into which only the steering program moves jobs."""
    table = ", ".join(f'["{go}"] = "{queue}"' for queue, go in pairs)
    return f"""\
-- Written by `pilothouse slurm-setup`: users submit into the queue, only operators move jobs on.
local queue_of = {{ {table} }}

local function refused(partition, uid)
   if uid == 0 or partition == nil then return nil end
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
