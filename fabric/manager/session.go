package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// jobsPath is the path of the fabric manager's REST interface that Slurm's plugin
// switch/hpe_slingshot uses (src/plugins/switch/hpe_slingshot/collectives.c).
const jobsPath = "/fabric/collectives/jobs"

// Session returns the name of a job's session: CLUSTER-JOB, as Slurm's plugin calls it. The
// later runs of a requeued job are called CLUSTER-JOB.RESTART, so that a late release of one
// run does not end the session of the next.
func Session(cluster string, job journal.ID) string {
	if job.Restart == 0 {
		return fmt.Sprintf("%s-%d", cluster, job.Job)
	}
	return cluster + "-" + job.String()
}

// parseSession returns the job of a session. A session of another cluster has none, nor has
// one that other programs have named.
func parseSession(cluster, session string) (job journal.ID, ok bool) {
	text, found := strings.CutPrefix(session, cluster+"-")
	if !found {
		return journal.ID{}, false
	}
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	job, err := journal.ParseID(text)
	return job, err == nil && Session(cluster, job) == session
}

func sessionPath(session string) string { return jobsPath + "/" + url.PathEscape(session) }

// Reserve makes the session with this name, or finds it if it exists. After an error the
// session may exist: [Stale] finds it when the job has ended. The job can run without.
func (c *Client) Reserve(ctx context.Context, session string) (*fabric.Collectives, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	token, err := c.token(ctx, session)
	if err != nil {
		return nil, fmt.Errorf("reserve %d multicast addresses for %s: %w", c.options.Addrs, session, err)
	}
	return &fabric.Collectives{
		Session: session, Token: token, URL: c.options.URL, Addrs: c.options.Addrs, MinNodes: c.options.MinNodes,
	}, nil
}

// token returns the session's token. It asks first, as Slurm's plugin does: what a fabric
// manager does if a session is made twice is not documented.
func (c *Client) token(ctx context.Context, session string) (string, error) {
	var made struct {
		Token string `json:"sessionToken"`
	}
	err := c.do(ctx, http.MethodGet, sessionPath(session), nil, &made)
	if gone(err) {
		err = c.do(ctx, http.MethodPost, jobsPath, map[string]any{"jobID": session, "mcastLimit": c.options.Addrs}, &made)
	}
	if err == nil && made.Token == "" {
		err = fmt.Errorf("the answer of %s has no sessionToken", c.options.URL)
	}
	return made.Token, err
}

// Release removes a session and its multicast trees. A session that is gone is no error.
func (c *Client) Release(ctx context.Context, session string) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	if err := c.do(ctx, http.MethodDelete, sessionPath(session), nil, nil); err != nil && !gone(err) {
		return fmt.Errorf("release the multicast addresses of %s: %w", session, err)
	}
	return nil
}

// Steps returns the names of the job's steps that have multicast addresses in a session; none if
// the session is gone. Slurm's plugin knows them by the field jobSteps of the session.
func (c *Client) Steps(ctx context.Context, session string) (steps []string, err error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	var found struct {
		Steps map[string]json.RawMessage `json:"jobSteps"`
	}
	if err := c.do(ctx, http.MethodGet, sessionPath(session), nil, &found); err != nil && !gone(err) {
		return nil, fmt.Errorf("ask which steps have multicast addresses of %s: %w", session, err)
	}
	return slices.Sorted(maps.Keys(found.Steps)), nil
}

// ReleaseStep removes the multicast trees of a step that has ended without doing so. The others of
// the session stay. A session that is gone is no error.
func (c *Client) ReleaseStep(ctx context.Context, session, step string) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	none := map[string]any{"jobSteps": map[string]any{step: nil}}
	if err := c.do(ctx, http.MethodPatch, sessionPath(session), none, nil); err != nil && !gone(err) {
		return fmt.Errorf("release the multicast addresses of step %s in %s: %w", step, session, err)
	}
	return nil
}

// List returns the names of all sessions, of other clusters and programs, too.
func (c *Client) List(ctx context.Context) ([]string, error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	var list struct {
		Links *[]string `json:"documentLinks"`
	}
	err := c.do(ctx, http.MethodGet, jobsPath+"/", nil, &list)
	if err == nil && list.Links == nil {
		err = fmt.Errorf("the answer of %s has no documentLinks", c.options.URL)
	}
	if err != nil {
		return nil, fmt.Errorf("list the sessions of the fabric manager: %w", err)
	}
	return names(*list.Links)
}

// names returns the last elements of links such as /fabric/collectives/jobs/deep-4217.
func names(links []string) (sessions []string, err error) {
	for _, link := range links {
		session, err := url.PathUnescape(link[strings.LastIndex(link, "/")+1:])
		if err != nil || session == "" {
			return nil, fmt.Errorf("list the sessions of the fabric manager: %.100q is no link to a session", link)
		}
		sessions = append(sessions, session)
	}
	return sessions, nil
}
