package workload

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// A Rank is this process among the ranks of its step. It speaks PMI-1 with Slurm, as MPI
// libraries do.
type Rank struct {
	Number, Ranks int

	server  io.Writer
	answers *bufio.Reader
	space   string // name of the step's key-value space
}

// JoinRanks introduces this process to the PMI server that srun --mpi=pmi2 gives it.
func JoinRanks(env func(string) string) (*Rank, error) {
	var numbers [3]int
	for i, name := range []string{"PMI_FD", "PMI_RANK", "PMI_SIZE"} {
		n, err := strconv.Atoi(env(name))
		if err != nil {
			return nil, fmt.Errorf("%s=%q: this program is a task of srun --mpi=pmi2", name, env(name))
		}
		numbers[i] = n
	}
	return join(os.NewFile(uintptr(numbers[0]), "PMI"), numbers[1], numbers[2])
}

func join(server io.ReadWriter, number, ranks int) (*Rank, error) {
	r := &Rank{Number: number, Ranks: ranks, server: server, answers: bufio.NewReader(server)}
	if _, err := r.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init"); err != nil {
		return nil, err
	}
	space, err := r.ask("cmd=get_my_kvsname", "my_kvsname")
	r.space = space["kvsname"]
	return r, err
}

// ask sends a request and returns the fields of its answer.
func (r *Rank) ask(request, answer string) (map[string]string, error) {
	if _, err := io.WriteString(r.server, request+"\n"); err != nil {
		return nil, fmt.Errorf("PMI: %s: %w", request, err)
	}
	line, err := r.answers.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("PMI: %s: %w", request, err)
	}
	fields := map[string]string{}
	for _, field := range strings.Fields(line) {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	if fields["cmd"] != answer || fields["rc"] != "" && fields["rc"] != "0" {
		return nil, fmt.Errorf("PMI: %s: the answer is %q", request, strings.TrimSpace(line))
	}
	return fields, nil
}

// Put publishes a value without spaces. The other ranks can get it after a [Rank.Barrier].
func (r *Rank) Put(key, value string) error {
	_, err := r.ask("cmd=put kvsname="+r.space+" key="+key+" value="+value, "put_result")
	return err
}

// Get returns a published value.
func (r *Rank) Get(key string) (string, error) {
	answer, err := r.ask("cmd=get kvsname="+r.space+" key="+key, "get_result")
	return answer["value"], err
}

// Barrier waits until all ranks have called it.
func (r *Rank) Barrier() error {
	_, err := r.ask("cmd=barrier_in", "barrier_out")
	return err
}

// Leave ends the exchange. A rank that ends without it counts as failed.
func (r *Rank) Leave() error {
	_, err := r.ask("cmd=finalize", "finalize_ack")
	return err
}
