package controller

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/journal"
)

// A PoolRow is a pool as `slurmv fabric pool` shows it.
type PoolRow struct {
	Pool        string            `json:"pool"`
	Kind        fabric.Kind       `json:"kind"`
	Size        int               `json:"size"`
	Free        int               `json:"free"`
	Reserved    int               `json:"reserved"`
	Releasing   int               `json:"releasing"`
	Cooling     int               `json:"cooling"`
	Quarantined int               `json:"quarantined"`
	Last        fabric.Tag        `json:"last"`  // the last one given; 0 at first
	Taken       []ledger.TagState `json:"taken"` // those that are not free
}

// PoolRows counts the tags of pools by their states. Tags outside of a pool, which it had
// before it was configured anew, count by their states while jobs have them, and not in its size.
func PoolRows(states []ledger.PoolState) (rows []PoolRow) {
	for _, s := range states {
		row := PoolRow{Pool: s.Pool.Name, Kind: s.Pool.Kind, Size: s.Pool.Size(), Last: s.Last, Taken: s.Taken}
		row.Free = fabric.Pool{Tags: s.Free}.Size()
		for _, t := range s.Taken {
			*row.count(t.State)++
		}
		rows = append(rows, row)
	}
	return rows
}

func (r *PoolRow) count(s ledger.State) *int {
	switch s {
	case ledger.Releasing:
		return &r.Releasing
	case ledger.Cooling:
		return &r.Cooling
	case ledger.Quarantined:
		return &r.Quarantined
	}
	return &r.Reserved
}

// WritePools prints a line for each pool, and then one for each thing that keeps tags from
// coming back: a node, a manager, or a quarantine.
func WritePools(out io.Writer, rows []PoolRow) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POOL\tKIND\tTAGS\tFREE\tRESERVED\tRELEASING\tCOOLING\tQUARANTINED")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\n", r.Pool, r.Kind, r.Size, r.Free, r.Reserved, r.Releasing, r.Cooling, r.Quarantined)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, sentence := range hindrances(rows) {
		if _, err := fmt.Fprintln(out, sentence); err != nil {
			return err
		}
	}
	return nil
}

// hindrances says who has not confirmed, by node, and which tags are in quarantine and why.
func hindrances(rows []PoolRow) (sentences []string) {
	waits := map[string][]string{} // "job 17.0's VNI 1027", by who has not confirmed
	withheld := 0
	for _, r := range rows {
		for _, t := range r.Taken {
			if slices.Contains(t.Jobs, ledger.Unknown) {
				withheld++
				continue
			}
			name := nameOf(t, r.Kind)
			if t.State == ledger.Quarantined {
				sentences = append(sentences, fmt.Sprintf("%s is in quarantine: %s; when nothing uses it any more: slurmv fabric release --force %s", name, t.Why, ids(t.Jobs, " ")))
			}
			if t.State != ledger.Releasing {
				continue
			}
			for _, who := range silentAbout(t) {
				waits[who] = append(waits[who], name)
			}
		}
	}
	if withheld > 0 {
		sentences = append(sentences, withheldText(withheld))
	}
	for _, who := range sortedKeys(waits) {
		sentences = append(sentences, fmt.Sprintf("%s has not confirmed the release of %s", who, strings.Join(waits[who], ", ")))
	}
	return sentences
}

// withheldText says what to do about tags of [ledger.Unknown].
func withheldText(n int) string {
	what := fmt.Sprintf("%d tags are in quarantine, because an old copy of the ledger does not know whose they were", n)
	if n == 1 {
		what = "1 tag is in quarantine, because an old copy of the ledger does not know whose it was"
	}
	return what + "; start or reboot nodes that are down, run slurmv clean on all nodes, and then: slurmv fabric release --force unknown"
}

func silentAbout(t ledger.TagState) (who []string) {
	for _, node := range t.Nodes {
		who = append(who, "node "+node)
	}
	if t.Manager {
		who = append(who, "the subnet manager")
	}
	return who
}

func sortedKeys(m map[string][]string) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return keys
}

// nameOf is a tag with its owner: "job 17.0's VNI 1027".
func nameOf(t ledger.TagState, kind fabric.Kind) string {
	tag := kind.Word() + " " + t.Tag.Text(kind)
	switch len(t.Jobs) {
	case 0:
		return tag
	case 1:
		return "job " + t.Jobs[0].String() + "'s " + tag
	}
	return tag + " of the jobs " + ids(t.Jobs, " and ")
}

func ids(jobs []journal.ID, between string) string {
	var texts []string
	for _, id := range jobs {
		texts = append(texts, id.String())
	}
	return strings.Join(texts, between)
}

// WriteEntries prints what the ledger knows of jobs.
func WriteEntries(out io.Writer, entries []ledger.Entry, now time.Time) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "JOB\tUSER\tSTATE\tSINCE\tTAGS\tWAITS FOR")
	for _, e := range entries {
		if e.Reservation.Job == ledger.Unknown {
			continue // no user's, and `slurmv fabric pool` counts its tags
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\n", e.Reservation.Job, e.Reservation.UID, e.State, since(e, now), tagsText(e.Reservation), waitsFor(e))
	}
	return t.Flush()
}

func since(e ledger.Entry, now time.Time) string {
	begin := e.Began
	if !e.Ended.IsZero() {
		begin = e.Ended
	}
	return now.Sub(begin).Round(time.Second).String()
}

// tagsText is such as "vlan 2000, vni 1024 1025", with the reasons for what there is not.
func tagsText(r fabric.Reservation) string {
	var texts []string
	for _, g := range r.Grants {
		if len(g.Tags) == 0 {
			texts = append(texts, fmt.Sprintf("no %s (%s)", g.Kind, g.Why))
			continue
		}
		text := string(g.Kind)
		for _, tag := range g.Tags {
			text += " " + tag.Text(g.Kind)
		}
		texts = append(texts, text)
	}
	if r.Collectives != nil {
		texts = append(texts, fmt.Sprintf("%d multicast addresses", r.Collectives.Addrs))
	}
	return strings.Join(texts, ", ")
}

func waitsFor(e ledger.Entry) string {
	if e.Ended.IsZero() {
		return "-"
	}
	who := slices.Clone(e.Nodes)
	if e.Manager {
		who = append(who, "subnet manager")
	}
	if e.Reservation.Collectives != nil {
		who = append(who, "fabric manager")
	}
	if e.Why != "" {
		who = append(who, e.Why)
	}
	return strings.Join(who, ", ")
}
