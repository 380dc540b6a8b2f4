package controller

import (
	"io"
	"log/syslog"
)

// programName is the name by which syslog knows the commands for slurmctld.
const programName = "slurmv-fabric"

// Syslog returns a function that gives a sentence to syslog, as a warning of facility daemon,
// and then to another function. Nobody else sees what these commands say: slurmctld drops what
// its scripts print (_run_script in slurmscriptd.c), and a process in the background has no
// stderr. Without syslog the sentence goes to the other function only.
func Syslog(also func(sentence string)) func(sentence string) {
	return toSyslog(also, func() (io.WriteCloser, error) { return syslog.New(syslog.LOG_DAEMON|syslog.LOG_WARNING, programName) })
}

// toSyslog connects for each sentence: there are few, and most processes have none.
func toSyslog(also func(string), connect func() (io.WriteCloser, error)) func(string) {
	return func(sentence string) {
		if log, err := connect(); err == nil {
			_, _ = io.WriteString(log, sentence)
			log.Close()
		}
		also(sentence)
	}
}
