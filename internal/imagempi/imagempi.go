// Package imagempi knows the MPI libraries of images by their programs and files.
package imagempi

import _ "embed" // mpi.sh

// Shell begins scripts for VMs. It has the functions mpis and pmi_libraries.
//
//go:embed mpi.sh
var Shell string
