package ufm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
)

// Validate returns UFM's version. An error says that UFM is out of reach, or does not take the
// token.
func (c *Client) Validate(ctx context.Context) (version string, err error) {
	var answer struct {
		Version string `json:"ufm_release_version"`
	}
	err = c.do(ctx, http.MethodGet, "/app/ufm_version", nil, &answer)
	if has(err, http.StatusNotFound) || err == nil && answer.Version == "" {
		return "", errors.New("what answers at UFM's address does not know UFM's version: UFM is away, or ufm in [fabric.pkey] of slurmv.toml names something else")
	}
	return answer.Version, err
}

// A Member is a port with a P_Key.
type Member struct {
	GUID fabric.GUID
	Full bool // full members talk to all, limited ones only to full ones
}

// Members returns the members of a P_Key; none if UFM does not know the P_Key.
func (c *Client) Members(ctx context.Context, pkey fabric.Tag) ([]Member, error) {
	var answer struct {
		GUIDs []struct {
			GUID       string `json:"guid"`
			Membership string `json:"membership"`
		} `json:"guids"`
	}
	err := c.doSurely(ctx, http.MethodGet, "/resources/pkeys/"+name(pkey)+"?guids_data=true", nil, &answer)
	if has(err, http.StatusNotFound) {
		return nil, nil
	}
	var members []Member
	for _, g := range answer.GUIDs {
		guid, bad := fabric.ParseGUID(g.GUID)
		if bad != nil {
			return nil, fmt.Errorf("members of P_Key %s at UFM: %w", pkey.Text(fabric.PKey), bad)
		}
		members = append(members, Member{guid, g.Membership == "full"})
	}
	return members, err
}

// name is a P_Key as UFM writes it, without the bit of full members.
func name(pkey fabric.Tag) string { return fmt.Sprintf("%#x", uint16(pkey)) }

// perRequest bounds the ports in a request; some requests have them in their URL.
const perRequest = 100

// Set makes the ports the only members of the P_Key. Others are of a job whose release was
// forced, or that the controller's ledger has lost.
func (c *Client) Set(ctx context.Context, pkey fabric.Tag, guids []fabric.GUID) error {
	members, err := c.Members(ctx, pkey)
	if err != nil {
		return err
	}
	var others []fabric.GUID
	for _, m := range members {
		if !slices.Contains(guids, m.GUID) {
			others = append(others, m.GUID)
		}
	}
	if err := c.Remove(ctx, pkey, others); err != nil {
		return err
	}
	return c.Add(ctx, pkey, guids)
}

// Add makes the ports full members of the P_Key, which UFM makes if it does not exist. Ports
// that are members stay so. For the ports of VFs the P_Key is the first, since IPoIB in a VM
// uses the first; the ports of nodes keep their own first.
func (c *Client) Add(ctx context.Context, pkey fabric.Tag, guids []fabric.GUID) error {
	ofVFs, ofNodes := slices.Clone(guids), slices.Clone(guids)
	ofVFs = slices.DeleteFunc(ofVFs, func(g fabric.GUID) bool { return !g.OfVF() })
	ofNodes = slices.DeleteFunc(ofNodes, fabric.GUID.OfVF)
	err := errors.Join(c.add(ctx, pkey, ofVFs, true), c.add(ctx, pkey, ofNodes, false))
	if err != nil {
		return fmt.Errorf("give %d ports the P_Key %s: %w", len(guids), pkey.Text(fabric.PKey), err)
	}
	return nil
}

func (c *Client) add(ctx context.Context, pkey fabric.Tag, guids []fabric.GUID, first bool) error {
	for some := range slices.Chunk(guids, perRequest) {
		body := map[string]any{"pkey": name(pkey), "index0": first, "ip_over_ib": true, "membership": "full", "guids": digits(some)}
		if err := c.do(ctx, http.MethodPost, "/resources/pkeys/", body, nil); err != nil {
			return err
		}
	}
	return nil
}

// Remove takes the P_Key from the ports. A port that has not got it, and a P_Key that UFM does
// not know, are no error.
func (c *Client) Remove(ctx context.Context, pkey fabric.Tag, guids []fabric.GUID) error {
	for some := range slices.Chunk(guids, perRequest) {
		if err := c.remove(ctx, pkey, some); err != nil {
			return fmt.Errorf("take the P_Key %s from %d ports: %w", pkey.Text(fabric.PKey), len(guids), err)
		}
	}
	return nil
}

// remove tries the request of older versions first, which newer ones have still, and then its
// successor.
func (c *Client) remove(ctx context.Context, pkey fabric.Tag, guids []fabric.GUID) error {
	body := map[string]any{"pkey": name(pkey), "guids": digits(guids)}
	err := c.doSurely(ctx, http.MethodPost, "/actions/remove_guids_from_pkey", body, nil)
	if has(err, http.StatusNotFound, http.StatusMethodNotAllowed) {
		err = c.doSurely(ctx, http.MethodDelete, "/resources/pkeys/"+name(pkey)+"/guids/"+strings.Join(digits(guids), ","), nil, nil)
	}
	if has(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// digits writes GUIDs as UFM does: 16 digits.
func digits(guids []fabric.GUID) (texts []string) {
	for _, g := range guids {
		texts = append(texts, strings.TrimPrefix(g.Hex(), "0x"))
	}
	return texts
}

// Confirm returns when UFM reports all the ports as full members.
func (c *Client) Confirm(ctx context.Context, pkey fabric.Tag, guids []fabric.GUID) error {
	return c.await(ctx, pkey, "has not got all ports of the job", func(members []Member) bool {
		for _, g := range guids {
			if !slices.Contains(members, Member{g, true}) {
				return false
			}
		}
		return true
	})
}

// ConfirmGone returns when UFM reports none of the ports as a member.
func (c *Client) ConfirmGone(ctx context.Context, pkey fabric.Tag, guids []fabric.GUID) error {
	return c.await(ctx, pkey, "still has ports of the job", func(members []Member) bool {
		return !slices.ContainsFunc(members, func(m Member) bool { return slices.Contains(guids, m.GUID) })
	})
}

// await asks again and again until ctx ends. UFM may be away for a while.
func (c *Client) await(ctx context.Context, pkey fabric.Tag, not string, good func([]Member) bool) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		members, err := c.Members(ctx, pkey)
		if err == nil && good(members) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("confirm with UFM: the P_Key %s %s: %w", pkey.Text(fabric.PKey), not, errors.Join(err, context.Cause(ctx)))
		case <-time.After(pause):
		}
	}
}
