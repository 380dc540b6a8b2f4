package openstack

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"github.com/slurm-v/slurm-v/internal/secret"
)

// Settings say which cloud a site uses, and as whom.
type Settings struct {
	CloudsFile string // clouds.yaml, which only root may read
	Cloud      string // its name there
	Label      string // of the Slurm cluster; clusters that share a project have different ones

	wire func(http.RoundTripper) http.RoundTripper // of tests, around the network; nil is none
}

// microversion of nova's API, the first that pins a server to a host by a field.
const microversion = "2.74"

// A Cloud is a connection to a site's OpenStack. Its methods may be called from several
// goroutines. They try again while the cloud does not answer, until their context ends.
type Cloud struct {
	label    string
	catalog  catalog
	nova     nova
	neutron  neutron
	glance   glance
	onceMore sync.Map // of wanted, by name: servers for which nova was asked once
}

// A service is one of the cloud's.
type service struct {
	api     *gophercloud.ServiceClient
	project string // uuid, of the credentials
}

// post makes something for which gophercloud's own types lack a field.
func (s service) post(ctx context.Context, what string, body, answer any) error {
	response, err := s.api.Post(ctx, s.api.ServiceURL(what), body, answer, &gophercloud.RequestOpts{OkCodes: []int{http.StatusCreated, http.StatusAccepted}})
	if response != nil {
		_ = response.Body.Close()
	}
	return err
}

type (
	nova      struct{ service }
	neutron   struct{ service }
	glance    struct{ service }
	placement struct{ service }
)

// Open logs in. A token that expires later is renewed.
func Open(ctx context.Context, s Settings) (*Cloud, error) {
	auth, endpoints, tls, err := s.read()
	if err != nil {
		return nil, err
	}
	auth.AllowReauth = true
	var provider *gophercloud.ProviderClient
	err = try(ctx, func() (err error) {
		provider, err = config.NewProviderClient(ctx, auth, config.WithHTTPClient(s.httpClient(tls)))
		return err
	})
	if err != nil {
		return nil, explain("log in at "+auth.IdentityEndpoint, err)
	}
	return newCloud(s.Label, provider, endpoints)
}

var errNoSecret = errors.New("they have neither application_credential_secret nor password, and servers need names that nobody guesses, " +
	"which are made of those; write one into this file: secure.yaml is not read, and tokens are refused")

// read reads the credentials, and refuses a file that others may read, and credentials without a secret.
func (s Settings) read() (auth gophercloud.AuthOptions, endpoints gophercloud.EndpointOpts, tls *tls.Config, err error) {
	text, err := secret.ReadFile(s.CloudsFile)
	if err == nil {
		auth, endpoints, tls, err = clouds.Parse(clouds.WithCloudsYAML(strings.NewReader(text)), clouds.WithCloudName(s.Cloud))
	}
	if err == nil && secretOf(auth) == "" {
		err = errNoSecret
	}
	if err != nil {
		err = fmt.Errorf("credentials of OpenStack (backend.clouds_file), cloud %q: %w", s.Cloud, err)
	}
	return auth, endpoints, tls, err
}

// answerPatience bounds how long the cloud may take to begin its answer to one request, and how long the answer may stand
// still then.
const answerPatience = time.Minute

func (s Settings) httpClient(tls *tls.Config) http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, transport.ResponseHeaderTimeout = tls, answerPatience
	if s.wire != nil {
		return http.Client{Transport: patient{s.wire(transport)}}
	}
	return http.Client{Transport: patient{transport}}
}

func newCloud(label string, provider *gophercloud.ProviderClient, endpoints gophercloud.EndpointOpts) (*Cloud, error) {
	project, err := projectOf(provider)
	if err != nil {
		return nil, err
	}
	c := &Cloud{label: label, catalog: catalog{provider, endpoints, project}}
	for _, of := range []struct {
		name string
		to   *service
		api  newAPI
	}{
		{"nova", &c.nova.service, openstack.NewComputeV2},
		{"neutron", &c.neutron.service, openstack.NewNetworkV2},
		{"glance", &c.glance.service, openstack.NewImageV2},
	} {
		if *of.to, err = c.catalog.find(of.name, of.api); err != nil {
			return nil, err
		}
	}
	c.nova.api.Microversion = microversion
	return c, nil
}

// A catalog is keystone's list of the services that a project has.
type catalog struct {
	provider  *gophercloud.ProviderClient
	endpoints gophercloud.EndpointOpts
	project   string
}

type newAPI func(*gophercloud.ProviderClient, gophercloud.EndpointOpts) (*gophercloud.ServiceClient, error)

func (c catalog) find(name string, api newAPI) (service, error) {
	client, err := api(c.provider, c.endpoints)
	return service{client, c.project}, explain("find "+name+" in keystone's catalogue", err)
}

// projectOf is the project that the credentials are for.
func projectOf(provider *gophercloud.ProviderClient) (string, error) {
	login, ok := provider.GetAuthResult().(interface {
		ExtractProject() (*tokens.Project, error)
	})
	if !ok {
		return "", errors.New("keystone does not say which project the credentials are for: use its version 3")
	}
	project, err := login.ExtractProject()
	if err != nil || project == nil {
		return "", errors.Join(errors.New("the credentials of OpenStack are for no project"), err)
	}
	return project.ID, nil
}

// Names makes names of servers that nobody can guess who does not know the site's
// credentials. A node recognises the job's VMs among those on it by their names, and other
// projects of the cloud can call their servers as they like.
type Names struct{ key []byte }

// OpenNames reads the credentials, and does not log in.
func OpenNames(s Settings) (Names, error) {
	auth, _, _, err := s.read()
	return Names{[]byte(s.Label + "\n" + secretOf(auth))}, err
}

// secretOf is what only holders of the credentials know.
func secretOf(auth gophercloud.AuthOptions) string {
	return auth.ApplicationCredentialSecret + auth.Password
}

// HasPassword reports whether the credentials can be read, and are a user's password.
func HasPassword(s Settings) bool {
	auth, _, _, err := s.read()
	return err == nil && auth.ApplicationCredentialSecret == ""
}

// Server is the name of a VM, which the plan calls domain, such as slurmv-4217.0-vm3.
func (n Names) Server(domain string) string {
	sum := hmac.New(sha256.New, n.key)
	sum.Write([]byte(domain))
	return domain + "-" + hex.EncodeToString(sum.Sum(nil)[:8])
}
