-- Adds the CPUs, memory and VFs of a job's VMs to its request, in slurmctld, where
-- no user can go around it. Needs JobSubmitPlugins=lua in slurm.conf and
-- resources = "job_submit" in slurmv.toml.
--
-- It is a complete job_submit.lua. A site with one of its own loads this file there
-- with dofile(path) and begins its slurm_job_submit with
--
--     if slurmv_job_submit(job_desc) ~= slurm.SUCCESS then
--         return slurm.ERROR
--     end
--
-- The plugin has checked the VM options and left their sum in the job's environment
-- as SLURMV_REQUEST. A user who forges it gets less than his VMs need, and the nodes
-- refuse to start them.

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

-- The need of a node, nil in a job without VMs.
local function need_of(job_desc)
	for _, variable in pairs(job_desc.spank_job_env or {}) do
		local flat = string.match(variable, "^SLURMV_REQUEST=(.*)$")
		if flat then
			return parse_need(flat)
		end
	end
end

-- "Not given" is a number of its own for each width.
local function given(number)
	if number and number > 0 and number ~= slurm.NO_VAL16 and number ~= slurm.NO_VAL then
		return number
	end
end

-- How many tasks each node will have, at least.
local function tasks_of(job_desc)
	local per_node, tasks, nodes = given(job_desc.ntasks_per_node), given(job_desc.num_tasks), given(job_desc.max_nodes)
	return per_node or tasks and nodes and math.max(1, math.floor(tasks / nodes)) or 1
end

local function has_of(job_desc)
	return {
		tasks = tasks_of(job_desc),
		cpus_per_task = given(job_desc.cpus_per_task),
		ntasks_per_node = given(job_desc.ntasks_per_node),
		mincpus = given(job_desc.pn_min_cpus),
		mem = job_desc.min_mem_per_node,
		mem_per_cpu = job_desc.min_mem_per_cpu,
		gres = job_desc.gres,
	}
end

local function refuse(sentence)
	slurm.log_user("%s", "slurm-v: " .. sentence)
	return slurm.ERROR
end

local function set(job_desc, has, fitting)
	job_desc.pn_min_cpus = fitting.mincpus
	if not has.mem_per_cpu then
		job_desc.min_mem_per_node = fitting.mem
	end
	if fitting.gres ~= "" then
		job_desc.gres = fitting.gres
	end
	return slurm.SUCCESS
end

function slurmv_job_submit(job_desc)
	local need = need_of(job_desc)
	if not need then
		return slurm.SUCCESS
	end
	if (job_desc.het_job_offset or slurm.NO_VAL) ~= slurm.NO_VAL then
		return refuse("a heterogeneous job cannot have VMs; submit one job")
	end
	local has = has_of(job_desc)
	local fitting, why = fit(need, has)
	if not fitting then
		return refuse(why)
	end
	return set(job_desc, has, fitting)
end

if not slurm_job_submit then
	function slurm_job_submit(job_desc)
		return slurmv_job_submit(job_desc)
	end

	function slurm_job_modify()
		return slurm.SUCCESS
	end
end

return slurm.SUCCESS
