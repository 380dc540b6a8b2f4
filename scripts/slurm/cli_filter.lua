-- Adds the CPUs, memory and VFs of a job's VMs to its request, in sbatch and salloc:
-- for a site that does not want job_submit.lua. Needs CliFilterPlugins=lua
-- in slurm.conf, resources = "cli_filter" in slurmv.toml, and the program slurmv on
-- the users' PATH.
--
-- It is a complete cli_filter.lua. A site with one of its own loads this file there
-- with dofile(path) and begins its slurm_cli_pre_submit with
--
--     if slurmv_cli_pre_submit(options) ~= slurm.SUCCESS then
--         return slurm.ERROR
--     end
--
-- It runs with the user's rights before the plugin has seen the options, so it
-- promises nothing: the nodes check the VMs against what Slurm gave to the job.

-- The rules, the same in job_submit.lua and cli_filter.lua: what Slurm must give
-- to each node of the job, beside what the user has asked for. A value that the
-- user gave himself and that is too small is not changed but refused.
--
-- need  {cpus, mem in MiB, vf, vfbw in Mb/s}
-- has   {cpus_per_task, ntasks_per_node, mincpus, mem, mem_per_cpu in MiB, gres}, where
--       nil is not given, and tasks, which each node has at least
--
-- Each rule returns what to set, or nil and a sentence; fit returns all of it.

-- --mincpus gives a node its CPUs and leaves the number of tasks alone. Slurm 22.05
-- rounds it down to whole tasks, and to the tasks of --ntasks-per-node if each has
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

-- --mem=0 is all memory of the node.
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

-- The number of a GRES in a text like "gres:gpu:tesla:2,gres:vf:1", or nil. Slurm
-- reads k, m, g, t and p behind a number as powers of 1024, so a vfbw of 80g is not
-- 80 Gb/s, and what is set here has no letter.
local function count_gres(gres, name)
	local powers = { [""] = 0, k = 1, m = 2, g = 3, t = 4, p = 5 }
	local count
	for item in string.gmatch(gres or "", "[^,]+") do
		item = string.gsub(item, "^gres[:/]", "")
		if string.match(item, "^[^:=]+") == name then
			local number, letter = string.match(item, "[:=](%d+)([kmgtpKMGTP]?)$")
			count = (count or 0) + (number and tonumber(number) * 1024 ^ powers[string.lower(letter)] or 1)
		end
	end
	return count
end

-- Adds need of the GRES name to the text gres.
local function fit_gres(gres, name, need)
	local count = count_gres(gres, name)
	if need == 0 or (count and count >= need) then
		return gres
	end
	if count then
		return nil, string.format("the VMs need %d of the GRES %s on each node and --gres gives %d; "
			.. "leave %s out of it or raise it", need, name, count, name)
	end
	return (gres ~= "" and gres .. "," or "") .. string.format("gres:%s:%d", name, need)
end

-- A site whose GresTypes has vf and vfbw sets slurmv_gres = true before it loads this
-- file; Slurm refuses a GRES that it does not know.
local function fit_vfs(need, has)
	local gres, why = has.gres or "", nil
	if slurmv_gres then
		gres, why = fit_gres(gres, "vf", need.vf)
	end
	if slurmv_gres and gres then
		gres, why = fit_gres(gres, "vfbw", need.vfbw)
	end
	return gres, why
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

-- Reads "cpus:4,mem:2560,vf:4,vfbw:80000".
local function parse_need(flat)
	local need = { vf = 0, vfbw = 0 }
	for what, count in string.gmatch(flat, "(%l+):(%d+)") do
		need[what] = tonumber(count)
	end
	return need.cpus and need.mem and need
end

-- The end of the rules.

local function refuse(sentence)
	slurm.log_error("%s", "slurm-v: " .. sentence)
	return slurm.ERROR
end

-- The options that make up the need. Their values have no other characters than
-- these, so nothing else is shown to a shell, and that in single quotes.
local counted = { "vm-per-node", "vcpu-per-vm", "memory-per-vm", "sriov", "ivshmem" }
local plain = '^[%w.:=+,_%[%]{}" -]+$'

-- The command that prints the need, or nil and a sentence.
local function command_for(vm_options)
	local command = "slurmv resources"
	for _, name in ipairs(counted) do
		local value = vm_options[name]
		if value and not string.match(value, plain) then
			return nil, "--" .. name .. ": has a character that no value has"
		end
		if value then
			command = command .. " --" .. name .. "='" .. value .. "'"
		end
	end
	return command
end

-- The need of a node, or nil and a sentence.
local function need_of(vm_options)
	local command, why = command_for(vm_options)
	if not command then
		return nil, why
	end
	local pipe = io.popen(command)
	local flat = pipe and pipe:read("*l") or ""
	if pipe then
		pipe:close()
	end
	return parse_need(flat), "the CPUs and memory of the VMs are unknown, since this command fails: " .. command
end

-- Slurm shows an option that was not given as nil, as -1, -2 or 0, by its kind.
local function given(text)
	local number = tonumber(text)
	return number and number > 0 and number or nil
end

-- "700", "2G" or "2560M" in MiB; nil stays nil, and is also what --mem=0 looks like.
local function mebibytes(text)
	local number, unit = string.match(text or "", "^(%d+)([KMGT]?)$")
	local factor = { K = 1 / 1024, [""] = 1, M = 1, G = 1024, T = 1024 * 1024 }
	return number and math.floor(tonumber(number) * factor[unit])
end

-- How many tasks each node will have, at least. nodes is "2" or "1-4", where a
-- second number of 0 is any number.
local function tasks_of(options)
	local per_node, tasks = given(options["ntasks-per-node"]), given(options["ntasks"])
	local nodes = given(string.match(options["nodes"] or "", "(%d+)$"))
	return per_node or tasks and nodes and math.max(1, math.floor(tasks / nodes)) or 1
end

local function has_of(options)
	return {
		tasks = tasks_of(options),
		cpus_per_task = given(options["cpus-per-task"]),
		ntasks_per_node = given(options["ntasks-per-node"]),
		mincpus = given(options["mincpus"]),
		mem = mebibytes(options["mem"]),
		mem_per_cpu = mebibytes(options["mem-per-cpu"]),
		gres = options["gres"],
	}
end

local function set(options, has, fitting)
	options["mincpus"] = string.format("%d", fitting.mincpus)
	if not has.mem_per_cpu then
		options["mem"] = string.format("%dM", fitting.mem)
	end
	if fitting.gres ~= "" then
		options["gres"] = fitting.gres
	end
	return slurm.SUCCESS
end

-- srun inherits the options in a job, which has its resources already.
function slurmv_cli_pre_submit(options)
	local vm_options = (options["spank"] or {})["slurmv"]
	if options["type"] == "srun" or not vm_options or not vm_options["vm-per-node"] then
		return slurm.SUCCESS
	end
	local need, why = need_of(vm_options)
	if not need then
		return refuse(why)
	end
	local has, fitting = has_of(options)
	fitting, why = fit(need, has)
	if not fitting then
		return refuse(why)
	end
	return set(options, has, fitting)
end

if not slurm_cli_pre_submit then
	function slurm_cli_pre_submit(options)
		return slurmv_cli_pre_submit(options)
	end

	function slurm_cli_setup_defaults()
		return slurm.SUCCESS
	end

	function slurm_cli_post_submit()
		return slurm.SUCCESS
	end
end

return slurm.SUCCESS
