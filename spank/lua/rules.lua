-- The rules of job_submit.lua and cli_filter.lua: how much Slurm must give to each node of
-- the job, and which licences to the job, beside what the user has asked for. If the user gave a value that is too small,
-- the rules do not change it but refuse the job.
--
-- slurmctld holds its locks while the rules run, and users write the texts. So the length
-- of each text is bounded before it is searched, every search is linear, and every number
-- has at most 12 digits, because string.format refuses infinity.
--
-- need  {cpus, mem in MiB, vf, vfbw in Mb/s} of each node, where cpus is nil for a job
--       without VMs, and {lic_vlan, lic_pkey, lic_vni}, the job's tags on the fabric
-- has   {cpus_per_task, ntasks_per_node, mincpus, mem, mem_per_cpu in MiB, gres, licenses},
--       where nil is not given, and tasks, the least number of tasks of each node
--
-- Each rule returns the value to set, or nil and a sentence; fit returns all values.

-- --mincpus is the least number of CPUs of a node, in whole tasks. Slurm 22.05 gives a node that many. From 24.11 it only
-- chooses nodes by it: if it knows the tasks of a node, by --ntasks or --ntasks-per-node, the job gets their CPUs and
-- no more (_get_task_count in src/plugins/select/cons_tres/dist_tasks.c).
local function fit_cpus(need, has)
	local per_task = has.cpus_per_task or 1
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

-- The count of a licence in a text like "matlab:2,slurmv_vni", or nil.
local function count_license(licenses, name)
	local count
	for item in string.gmatch(licenses, "[^,;]+") do
		if string.match(item, "^ *([^:=@ ]+)") == name then
			local number = string.match(item, "[:=](%d+) *$")
			count = (count or 0) + (number and math.min(tonumber(number), 10 ^ 12) or 1)
		end
	end
	return count
end

-- Returns what is to be added to the text licenses for the needed count of a licence, ""
-- if that is there already.
local function missing_license(licenses, name, need)
	if need == 0 then
		return ""
	end
	local count = count_license(licenses, name)
	if count and count < need then
		return nil, string.format("the job needs %d of the licence %s and --licenses gives %d; "
			.. "leave %s out of it or raise it", need, name, count, name)
	end
	return count and "" or string.format(",%s:%d", name, need)
end

local tags = { "vlan", "pkey", "vni" }
local longest_licenses = 1000 -- bytes

-- Why licences cannot be added to the text, or nil. Slurm takes a list of alternatives,
-- such as "a|b", only by itself.
local function unfit_licenses(licenses)
	if #licenses > longest_licenses then
		return string.format("--licenses is %d bytes long; with tags on the fabric at most %d are allowed", #licenses, longest_licenses)
	end
	if string.find(licenses, "|", 1, true) then
		return "--licenses has alternatives (|), and the licences of the job's tags on the fabric cannot be added to them; "
			.. "write one of them, or --vm-fabric=off"
	end
end

-- Returns the text with the licences of the job's tags, "" if it stays as it is.
local function fit_licenses(need, has)
	local licenses, more = has.licenses or "", ""
	if need.lic_vlan + need.lic_pkey + need.lic_vni == 0 then
		return ""
	end
	local why = unfit_licenses(licenses)
	for _, tag in ipairs(why and {} or tags) do
		local missing
		missing, why = missing_license(licenses, "slurmv_" .. tag, need["lic_" .. tag])
		if not missing then
			break
		end
		more = more .. missing
	end
	if why then
		return nil, why
	end
	return more == "" and "" or licenses == "" and string.sub(more, 2) or licenses .. more
end

local function fit_vms(need, has)
	local mincpus, gres = fit_cpus(need, has), nil
	local mem, why = fit_memory(need, has, mincpus)
	if mem then
		gres, why = fit_vfs(need, has)
	end
	return gres and { mincpus = mincpus, mem = mem, gres = gres }, why
end

local function fit(need, has)
	local fitting, why = {}, nil
	if need.cpus then
		fitting, why = fit_vms(need, has)
	end
	if not fitting then
		return nil, why
	end
	fitting.licenses, why = fit_licenses(need, has)
	return fitting.licenses and fitting, why
end

local longest_need = 200 -- bytes
local kinds = { cpus = true, mem = true, vf = true, vfbw = true, lic_vlan = true, lic_pkey = true, lic_vni = true }

-- Adds one item to need, or returns what is wrong with the item.
local function read_item(need, item)
	local kind, count = string.match(item, "^([a-z_]+):([0-9]+)$")
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

-- Reads "cpus:4,mem:2560,vf:4,vfbw:80000,lic_vni:1", or returns nil and what is wrong with it. Texts
-- from the plugin are always right.
local function parse_need(flat)
	if #flat > longest_need then
		return nil, string.format("it is %d bytes long; at most %d are allowed", #flat, longest_need)
	end
	if string.find(flat, "[^a-z0-9_:,]") then
		return nil, "it has something else than small letters, digits, underscores, colons and commas"
	end
	local need = {}
	for item in string.gmatch(flat .. ",", "([^,]*),") do
		local wrong = read_item(need, item)
		if wrong then
			return nil, wrong
		end
	end
	local vms = need.cpus or need.mem or need.vf or need.vfbw
	if vms and ((need.cpus or 0) == 0 or (need.mem or 0) == 0) then
		return nil, "it does not name both cpus and mem"
	end
	for kind in pairs(kinds) do
		if kind ~= "cpus" and kind ~= "mem" then
			need[kind] = need[kind] or 0
		end
	end
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
