// Package opensm keeps the partitions of jobs in the configuration of OpenSM, the InfiniBand
// subnet manager, and confirms by the ports' own P_Key tables what OpenSM has made of them.
//
// A job's partition has a P_Key, and the ports of the job's VFs as full members. The site's
// partitions.conf gets one block, between two marked lines, with the partitions of all jobs.
// The package reads and writes that block, and leaves the site's own text as it is. [Apply]
// changes the file and tells OpenSM to read it again. [Ports] asks the ports.
//
// The format is described in opensm(8), PARTITION CONFIGURATION; what is said here of
// OpenSM's habits was read in osm_prtn_config.c, osm_prtn.c and osm_pkey_mgr.c of OpenSM
// 3.3.23, and tried. One of them makes this package strict: if OpenSM cannot read a single
// line, it ignores the whole file and makes all ports full members of one partition.
package opensm
