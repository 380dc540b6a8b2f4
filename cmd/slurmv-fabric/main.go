// Command slurmv-fabric is what PrologSlurmctld and EpilogSlurmctld run for jobs with tags on
// the fabric: `slurmv-fabric reserve` and `slurmv-fabric release`.
//
// It does what slurmv fabric reserve and release do. It is a program of its own because
// slurmctld waits for it: without HTTP and TLS it starts in half the time. Where the site has a
// manager that is asked by HTTP, it becomes slurmv-ledger.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/controller"
	"github.com/slurm-v/slurm-v/internal/program"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--help" {
		fmt.Println(usage)
		return
	}
	sweeps := len(os.Args) > 1 && os.Args[1] == "sweep"
	if os.Getenv(fabric.WishVariable) == "" && !sweeps {
		return
	}
	signal.Ignore(syscall.SIGPIPE) // so that Slurm's commands start without a shell
	if err := run(os.Args[1:]); err != nil {
		warn(err.Error())
		os.Exit(1)
	}
}

const usage = "usage: slurmv-fabric reserve|release|sweep [--config FILE]; see slurmv fabric reserve --help"

var warn = controller.Syslog(func(sentence string) { fmt.Fprintln(os.Stderr, "slurmv-fabric:", sentence) })

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet("slurmv-fabric", flag.ContinueOnError)
	path := flags.String("config", config.Path, "read the configuration from `file`")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	cfg, err := config.Load(*path)
	script := controller.Script{Config: cfg, Warn: warn}
	if err == nil && !controller.AsksByHTTP(cfg.Fabric) {
		return serve(ctx, script, args[0], *path)
	}
	if err == nil {
		err = becomeLedger(args[0], *path)
	}
	if args[0] == "reserve" {
		return script.Refuse(ctx, err)
	}
	return err
}

// memory bounds what the program uses before it collects garbage, in bytes. It lives for
// milliseconds, a tenth of which a collection would take.
const memory = 256 << 20

func serve(ctx context.Context, script controller.Script, what, path string) error {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memory)
	switch what {
	case "reserve":
		return script.Prolog(ctx, nil) // without a fabric manager no job has multicast addresses
	case "release":
		self, err := os.Executable()
		if err != nil {
			return err
		}
		return script.Epilog(ctx, []string{self, "sweep", "--config", path})
	case "sweep":
		return script.Sweep(ctx)
	}
	return fmt.Errorf("%q is none of reserve, release and sweep", what)
}

// becomeLedger replaces this program by slurmv-ledger, which lies beside it.
func becomeLedger(what, path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ledger, err := program.Find(filepath.Dir(self), "slurmv-ledger")
	if err != nil {
		return err
	}
	line := []string{ledger, "fabric", what, "--config", path}
	if what == "sweep" {
		line = append(line, "--until-quiet")
	}
	return fmt.Errorf("run %s: %w", ledger, syscall.Exec(ledger, line, os.Environ()))
}
