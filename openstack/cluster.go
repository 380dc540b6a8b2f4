package openstack

import "fmt"

// Cluster tells this Slurm cluster from others that have VMs in the same networks: by its label, and by who it is in the
// cloud. It has no secret, so everybody may see what is made from it.
func (s Settings) Cluster() (string, error) {
	auth, _, _, err := s.read()
	return fmt.Sprintf("%q", []string{
		s.Label, auth.ApplicationCredentialID, auth.ApplicationCredentialName, auth.UserID, auth.Username, auth.TenantID, auth.TenantName,
	}), err
}
