-- Health of a GuestCluster or a HostMaintenance for Argo CD, from the conditions that the operator writes (kstatus).
local function condition(conditions, type)
  for _, candidate in ipairs(conditions) do
    if candidate.type == type then
      return candidate
    end
  end
  return nil
end

local function message(one)
  if one == nil then
    return ""
  end
  return one.message or one.reason or ""
end

local status = obj.status
if status == nil or status.conditions == nil then
  return { status = "Progressing", message = "the operator has not seen this " .. obj.kind .. " yet" }
end

local paused = condition(status.conditions, "Paused")
if paused ~= nil and paused.status == "True" then
  return { status = "Suspended", message = message(paused) }
end
if status.phase == "Paused" then
  return { status = "Suspended", message = message(condition(status.conditions, "Ready")) }
end

-- What the status says of an older specification is no news of this one.
if status.observedGeneration ~= nil and status.observedGeneration < obj.metadata.generation then
  return { status = "Progressing", message = "the operator has not seen this specification yet" }
end

local stalled = condition(status.conditions, "Stalled")
if stalled ~= nil and stalled.status == "True" then
  return { status = "Degraded", message = message(stalled) }
end

local ready = condition(status.conditions, "Ready")
if ready ~= nil and ready.status == "True" then
  return { status = "Healthy", message = message(ready) }
end

-- What once was whole and is not now is degraded; what is being made is under way.
local reconciling = condition(status.conditions, "Reconciling")
if ready ~= nil and ready.status == "False" and (reconciling == nil or reconciling.status ~= "True") then
  return { status = "Degraded", message = message(ready) }
end
return { status = "Progressing", message = message(reconciling) ~= "" and message(reconciling) or message(ready) }
