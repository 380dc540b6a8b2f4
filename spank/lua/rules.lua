-- The rules of job_submit.lua and cli_filter.lua: how much Slurm must give to each node of
-- the job, beside what the user has asked for. If the user gave a value that is too small,
-- the rules do not change it but refuse the job.
--
-- slurmctld holds its locks while the rules run, and users write the texts. So the length
-- of each text is bounded before it is searched, every search is linear, and every number
-- has at most 12 digits, because string.format refuses infinity.
--
-- need  {cpus, mem in MiB, vf, vfbw in Mb/s}
-- has   {cpus_per_task, ntasks_per_node, mincpus, mem, mem_per_cpu in MiB, gres}, where
--       nil is not given, and tasks, the least number of tasks of each node
--
-- Each rule returns the value to set, or nil and a sentence; fit returns all values.

-- --mincpus sets the CPUs of a node and does not change the number of tasks. Slurm 22.05
-- rounds it down to whole tasks, and to the tasks of --ntasks-per-node if each task has
-- several CPUs.
local function fit_cpus(need, has)
	local per_task = has.cpus_per_task or 1
	local cpus = per_task * (has.ntasks_per_node or 0)
	if per_task > 1 and cpus > 0 and cpus < need.cpus then
		return nil, string.format("the VMs need %d CPUs on each node and --ntasks-per-node with --cpus-per-task "
			.. "gives %d; leave --cpus-per-task out, the VMs get their CPUs from --vcpu-per-vm", need.cpus, cpus)
	end
	return math.max(math.ceil(need.cpus / per_task) * per_task, has.mincpus or 0)
end

-- --mem=0 asks for all memory of the node.
local function fit_memory(need, has, mincpus)
	local cpus = math.max(mincpus, has.tasks * (has.cpus_per_task or 1))
	local mem = has.mem_per_cpu and has.mem_per_cpu * cpus or has.mem
	if not mem then
		return need.mem
	end
	if (mem > 0 or has.mem_per_cpu) and mem < need.mem then
		return nil, string.format("the VMs need %d MiB of memory on each node and %s gives %d; "
			.. "leave it out or raise it", need.mem, has.mem_per_cpu and "--mem-per-cpu" or "--mem", mem)
	end
	return mem
end

-- The count of a GRES in a text like "gres:gpu:tesla:2,gres:vf:1", or nil. Slurm reads k,
-- m, g, t and p after a number as powers of 1024, so a vfbw of 80g is not 80 Gb/s. The
-- rules therefore write numbers without a letter.
local function count_gres(gres, name)
	local powers = { [""] = 0, k = 1, m = 2, g = 3, t = 4, p = 5 }
	local count
	for item in string.gmatch(gres, "[^,]+") do
		item = string.gsub(item, "^gres[:/]", "")
		if string.match(item, "^[^:=]+") == name then
			local number, letter = string.match(item, "[:=](%d+)([kmgtpKMGTP]?)$")
			number = number and math.min(tonumber(number), 10 ^ 12)
			count = (count or 0) + (number and number * 1024 ^ powers[string.lower(letter)] or 1)
		end
	end
	return count
end

local longest_gres = 1000 -- bytes

-- Returns what is to be added to the text gres for the needed count of the GRES name, "" if
-- that is there already.
local function missing_gres(gres, name, need)
	if need == 0 then
		return ""
	end
	if #gres > longest_gres then
		return nil, string.format("--gres is %d bytes long; with VFs at most %d are allowed", #gres, longest_gres)
	end
	local count = count_gres(gres, name)
	if count and count < need then
		return nil, string.format("the VMs need %d of the GRES %s on each node and --gres gives %d; "
			.. "leave %s out of it or raise it", need, name, count, name)
	end
	return count and "" or string.format(",%s:%d", name, need)
end

-- The text as users write it. Slurm puts "gres:" or, from 23.11, "gres/" before each item
-- when it reads a text, and would put it before one that is there already.
local function bare_gres(gres)
	return (string.gsub("," .. gres, ",gres[:/]", ","))
end

-- Returns the text with the VFs, "" if it stays as it is. A site that has vf and vfbw in
-- GresTypes sets slurmv_gres = true before it loads this file; Slurm refuses a GRES that it
-- does not know.
local function fit_vfs(need, has)
	if not slurmv_gres then
		return ""
	end
	local gres, vfbw = has.gres or "", nil
	local vf, why = missing_gres(gres, "vf", need.vf)
	if vf then
		vfbw, why = missing_gres(gres, "vfbw", need.vfbw)
	end
	if not vfbw then
		return nil, why
	end
	local more = vf .. vfbw
	if more ~= "" and gres ~= "" then
		more = bare_gres(gres) .. more
	end
	return string.sub(more, 2)
end

local function fit(need, has)
	local mincpus, mem, gres, why
	mincpus, why = fit_cpus(need, has)
	if mincpus then
		mem, why = fit_memory(need, has, mincpus)
	end
	if mem then
		gres, why = fit_vfs(need, has)
	end
	return gres and { mincpus = mincpus, mem = mem, gres = gres }, why
end

local longest_need = 200 -- bytes
local kinds = { cpus = true, mem = true, vf = true, vfbw = true }

-- Adds one item to need, or returns what is wrong with the item.
local function read_item(need, item)
	local kind, count = string.match(item, "^([a-z]+):([0-9]+)$")
	if not kind then
		return string.format('"%s" is not a name and a number', item)
	end
	if not kinds[kind] or need[kind] then
		return string.format('"%s" is unknown, or there twice', kind)
	end
	if #count > 12 then
		return string.format("%s has %d digits; at most 12 are allowed", kind, #count)
	end
	need[kind] = tonumber(count)
end

-- Reads "cpus:4,mem:2560,vf:4,vfbw:80000", or returns nil and what is wrong with it. Texts
-- from the plugin are always right.
local function parse_need(flat)
	if #flat > longest_need then
		return nil, string.format("it is %d bytes long; at most %d are allowed", #flat, longest_need)
	end
	if string.find(flat, "[^a-z0-9:,]") then
		return nil, "it has something else than small letters, digits, colons and commas"
	end
	local need = {}
	for item in string.gmatch(flat .. ",", "([^,]*),") do
		local wrong = read_item(need, item)
		if wrong then
			return nil, wrong
		end
	end
	if (need.cpus or 0) == 0 or (need.mem or 0) == 0 then
		return nil, "it does not name both cpus and mem"
	end
	need.vf, need.vfbw = need.vf or 0, need.vfbw or 0
	return need
end

-- A Lua error in the rules must not let the job pass. Slurm 22.05 accepts a job whose
-- script fails, and the rest of the site's own script would be skipped.
local function guard(refuse, rules, argument)
	local done, result = pcall(rules, argument)
	if done then
		return result
	end
	slurm.log_error("%s", "slurm-v: the rules for VM jobs failed: " .. tostring(result))
	return refuse("the rules for VM jobs failed on this one; tell the administrators of the site")
end

-- The end of the rules.
