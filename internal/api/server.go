package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"xlane/internal/model"
)

// Limits bound what clients can cost the daemon. The defaults are for a socket
// that people and a monitor ask a few times a second.
type Limits struct {
	// Clients may be connected at once; a further one is disconnected.
	Clients int
	// Calls may be worked on at once; a further one is answered "busy".
	Calls int
	// RequestBytes bounds a request's line and headers (net/http allows itself
	// 4 KiB beyond it); no call has a body.
	RequestBytes int
	// RequestTime is for sending the request, CallTime for the Source, and
	// AnswerTime for reading the answer.
	RequestTime, CallTime, AnswerTime time.Duration
}

// DefaultLimits are used where a Config sets none.
func DefaultLimits() Limits {
	return Limits{
		Clients: 64, Calls: 8, RequestBytes: 8 << 10,
		RequestTime: 2 * time.Second, CallTime: 5 * time.Second, AnswerTime: 10 * time.Second,
	}
}

// Config is what a server needs.
type Config struct {
	// Source answers the calls.
	Source Source
	// Build is the version that the version call tells.
	Build string
	// Limits; the zero value means DefaultLimits.
	Limits Limits
	// ErrorLog takes what net/http has to say; nil discards it.
	ErrorLog *log.Logger
}

// Serve answers clients until ctx ends, then closes l and returns nil. Every
// goroutine that it started has ended its call when it returns. Another error
// means that the socket failed.
func Serve(ctx context.Context, l *Listener, cfg Config) error {
	if cfg.Limits == (Limits{}) {
		cfg.Limits = DefaultLimits()
	}
	if cfg.ErrorLog == nil {
		cfg.ErrorLog = log.New(io.Discard, "", 0)
	}
	h := &handler{cfg: cfg, calls: make(chan struct{}, cfg.Limits.Calls)}
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: cfg.Limits.RequestTime,
		ReadTimeout:       cfg.Limits.RequestTime,
		// net/http counts this from the end of the request's headers.
		WriteTimeout:   cfg.Limits.CallTime + cfg.Limits.AnswerTime,
		MaxHeaderBytes: cfg.Limits.RequestBytes,
		ErrorLog:       cfg.ErrorLog,
		BaseContext:    func(net.Listener) context.Context { return ctx },
	}
	// One request a connection: an idle client then holds no place.
	server.SetKeepAlivesEnabled(false)

	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		server.Close()
	})
	err := server.Serve(&bounded{UnixListener: l.socket, places: make(chan struct{}, cfg.Limits.Clients)})
	if stop() {
		server.Close() // the socket failed by itself
	} else {
		<-closed
		err = nil
	}
	h.drain()
	if err != nil {
		err = fmt.Errorf("serve %q: %w", l.path, err)
	}
	return errors.Join(err, l.Close())
}

// bounded is a listener that disconnects whoever comes when all places are
// taken: waiting in line would let a few clients that never ask block the rest.
type bounded struct {
	*net.UnixListener
	places chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.UnixListener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.places <- struct{}{}:
			return &placed{Conn: conn, places: b.places}, nil
		default:
			conn.Close()
		}
	}
}

// placed gives its place back when it is closed, once.
type placed struct {
	net.Conn
	places chan struct{}
	once   sync.Once
}

func (p *placed) Close() error {
	err := p.Conn.Close()
	p.once.Do(func() { <-p.places })
	return err
}

type handler struct {
	cfg   Config
	calls chan struct{}

	mu       sync.Mutex
	draining bool
	running  sync.WaitGroup
}

// drain waits for the calls under way and lets no further one begin.
func (h *handler) drain() {
	h.mu.Lock()
	h.draining = true
	h.mu.Unlock()
	h.running.Wait()
}

func (h *handler) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return false
	}
	h.running.Add(1)
	return true
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.begin() {
		return
	}
	defer h.running.Done()
	result, failure := h.call(r)
	h.answer(w, result, failure)
}

// call finds and makes the call that a request names.
func (h *handler) call(r *http.Request) (any, *Error) {
	version, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if version != "v"+strconv.Itoa(Version) {
		return nil, errorf(CodeBadVersion, "version %q is not spoken here; this daemon speaks v%d", version, Version)
	}
	if r.Method != http.MethodGet {
		return nil, errorf(CodeBadRequest, "method %q is not used; use GET", r.Method)
	}
	if r.ContentLength != 0 {
		return nil, errorf(CodeBadRequest, "call %q takes no body; give arguments in the path", name)
	}
	q, failure := parseQuery(r.URL.RawQuery)
	if failure != nil {
		return nil, failure
	}
	if name != "snapshot" && q != (Query{}) {
		return nil, errorf(CodeBadRequest, "call %q takes no arguments", name)
	}
	switch name {
	case "snapshot":
		s, failure := h.snapshot(r.Context(), q)
		if failure == nil {
			s, failure = q.cut(s)
		}
		return s.Canonical(), failure
	case "health":
		s, failure := h.snapshot(r.Context(), Query{})
		return healthOf(s), failure
	case "version":
		return VersionInfo{API: Version, Build: h.cfg.Build, PID: os.Getpid()}, nil
	}
	return nil, errorf(CodeUnknownCall, "call %q is not known; use snapshot, health or version", name)
}

func (h *handler) snapshot(ctx context.Context, q Query) (model.Snapshot, *Error) {
	select {
	case h.calls <- struct{}{}:
		defer func() { <-h.calls }()
	default:
		return model.Snapshot{}, errorf(CodeBusy, "the daemon is answering %d calls already", cap(h.calls))
	}
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Limits.CallTime)
	defer cancel()
	s, err := h.cfg.Source.Snapshot(ctx, q)
	var failure *Error
	switch {
	case err == nil:
		return s, nil
	case errors.As(err, &failure):
		return s, failure
	case errors.Is(err, context.DeadlineExceeded):
		return s, errorf(CodeTimeout, "the daemon had no answer within %v", h.cfg.Limits.CallTime)
	}
	return s, errorf(CodeFailed, "%v", err)
}

// reply is an answer as it travels: one of Result and Error is set.
type reply struct {
	Version int    `json:"version"`
	Result  any    `json:"result,omitempty"`
	Error   *Error `json:"error,omitempty"`
}

func (h *handler) answer(w http.ResponseWriter, result any, failure *Error) {
	out := reply{Version: Version, Error: failure}
	if failure == nil {
		out.Result = result
	}
	body, err := json.Marshal(out)
	if err != nil {
		failure = errorf(CodeFailed, "write answer: %v", err)
		// An Error is two strings: this cannot fail.
		body, _ = json.Marshal(reply{Version: Version, Error: failure})
	}
	status := http.StatusOK
	if failure != nil {
		status = statusOf(failure.Code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	// A client that has gone cannot be told so; net/http ends the connection.
	_, _ = w.Write(append(body, '\n'))
}

// statusOf is the nearest HTTP status, for tools that look at nothing else.
func statusOf(code Code) int {
	switch code {
	case CodeBadRequest:
		return http.StatusBadRequest
	case CodeBadVersion, CodeUnknownCall, CodeNoInterface:
		return http.StatusNotFound
	case CodeBusy:
		return http.StatusServiceUnavailable
	case CodeTimeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}
