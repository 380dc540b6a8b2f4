// Package managertest plays a Slingshot fabric manager for tests: the part of its REST interface with which package manager
// makes sessions and removes them.
package managertest

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// A Manager plays a fabric manager. It does not listen before StartTLS.
type Manager struct {
	*httptest.Server

	mutex    sync.Mutex
	Token    string                      // that requests must have, as in the header
	Sessions map[string]int              // their mcastLimit; each has the token "token-NAME"
	Steps    map[string]map[string][]int // multicast addresses by session and step
	Requests []string                    // "GET /path"
	Trouble  http.HandlerFunc            // instead of an answer, if not nil
}

// New returns a fabric manager without sessions that wants the bearer token "secret".
func New() *Manager {
	m := &Manager{Token: "Bearer secret", Sessions: map[string]int{}, Steps: map[string]map[string][]int{}}
	m.Server = httptest.NewUnstartedServer(m)
	m.Config.ErrorLog = log.New(io.Discard, "", 0)
	return m
}

// Authority returns the certificate of who has certified the fabric manager, PEM.
func (m *Manager) Authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw})
}

// Change looks at what the manager has, or changes it. A handler may still be at work although its answer has come.
func (m *Manager) Change(change func()) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	change()
}

// ServeHTTP answers a request.
func (m *Manager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.Requests = append(m.Requests, r.Method+" "+r.URL.Path)
	name := strings.TrimPrefix(r.URL.Path, "/fabric/collectives/jobs/")
	switch _, known := m.Sessions[name]; {
	case m.Trouble != nil:
		m.Trouble(w, r)
	case r.Header.Get("Authorization") != m.Token:
		answer(w, http.StatusUnauthorized, map[string]any{"detail": "who are you?"})
	case name == "":
		answer(w, http.StatusOK, map[string]any{"documentLinks": m.links()})
	case r.Method == http.MethodPost && r.URL.Path == "/fabric/collectives/jobs":
		m.make(w, r)
	case !known:
		answer(w, http.StatusNotFound, map[string]any{"detail": "no such job"})
	case r.Method == http.MethodGet:
		answer(w, http.StatusOK, map[string]any{"sessionToken": "token-" + name, "jobSteps": m.Steps[name]})
	case r.Method == http.MethodPatch:
		m.patch(w, r, name)
	case r.Method == http.MethodDelete:
		delete(m.Sessions, name)
		w.WriteHeader(http.StatusNoContent)
	default:
		answer(w, http.StatusMethodNotAllowed, nil)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (m *Manager) links() []string {
	links := []string{}
	for name := range m.Sessions {
		links = append(links, "/fabric/collectives/jobs/"+name)
	}
	return links
}

func (m *Manager) make(w http.ResponseWriter, r *http.Request) {
	var body struct {
		JobID      string
		McastLimit int
	}
	err := json.NewDecoder(r.Body).Decode(&body)
	if _, known := m.Sessions[body.JobID]; err != nil || known {
		answer(w, http.StatusBadRequest, map[string]any{"detail": "the job exists"})
		return
	}
	m.Sessions[body.JobID] = body.McastLimit
	answer(w, http.StatusCreated, map[string]any{"sessionToken": "token-" + body.JobID})
}

// patch removes the steps whose value is null, and knows nothing else.
func (m *Manager) patch(w http.ResponseWriter, r *http.Request, session string) {
	var body struct{ JobSteps map[string]any }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.JobSteps) == 0 {
		answer(w, http.StatusBadRequest, map[string]any{"detail": "no steps"})
		return
	}
	for step, value := range body.JobSteps {
		if value == nil {
			delete(m.Steps[session], step)
		}
	}
	answer(w, http.StatusOK, map[string]any{"jobSteps": m.Steps[session]})
}
