package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"

	"xlane/internal/model"
)

// ErrNoDaemon marks that nobody serves the socket.
var ErrNoDaemon = errors.New("no daemon answers")

// answerMax bounds an answer in bytes: two interfaces with full flow tables
// (65,536 connections of some 250 bytes) fit four times over.
const answerMax = 128 << 20

// Client asks the daemon at one socket. It holds no connection between calls.
type Client struct{ socket string }

// NewClient returns a client of the daemon at the socket.
func NewClient(socket string) *Client { return &Client{socket: socket} }

// Snapshot returns the part of the daemon's state that q asks for.
func (c *Client) Snapshot(ctx context.Context, q Query) (model.Snapshot, error) {
	var s model.Snapshot
	return s, c.call(ctx, "snapshot", q.values(), &s)
}

// Version returns who answers.
func (c *Client) Version(ctx context.Context) (VersionInfo, error) {
	var v VersionInfo
	return v, c.call(ctx, "version", nil, &v)
}

// Health returns how the daemon's interfaces are.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	return h, c.call(ctx, "health", nil, &h)
}

// call makes one call. An error is an *Error if the daemon sent it, and wraps
// ErrNoDaemon if there is none.
func (c *Client) call(ctx context.Context, name string, args url.Values, result any) error {
	status, body, err := c.ask(ctx, fmt.Sprintf("/v%d/%s", Version, name), args)
	if err != nil {
		return c.unanswered(ctx, err)
	}
	var in struct {
		Version int             `json:"version"`
		Result  json.RawMessage `json:"result"`
		Error   *Error          `json:"error"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return fmt.Errorf("read answer at %q (status %q): %w", c.socket, status, err)
	}
	if in.Error != nil {
		return in.Error
	}
	if in.Version != Version {
		return errorf(CodeBadVersion, "the daemon at %q answers in version %d; this program speaks %d", c.socket, in.Version, Version)
	}
	if err := json.Unmarshal(in.Result, result); err != nil {
		return fmt.Errorf("read answer at %q: %w", c.socket, err)
	}
	return nil
}

// ask sends one request on a connection of its own and returns the answer's
// status and body. It does without http.Transport, whose pool of connections
// would be of no use here and whose errors hide whether the daemon hung up.
func (c *Client) ask(ctx context.Context, path string, args url.Values) (string, []byte, error) {
	// The host is never looked up.
	address := url.URL{Scheme: "http", Host: "xlane", Path: path, RawQuery: args.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return "", nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return "", nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	// A daemon that refuses may answer and hang up before it has read all: what
	// it said counts more than that the rest could not be written.
	writeErr := request.Write(conn)
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		if writeErr != nil {
			err = writeErr
		}
		return "", nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerMax+1))
	if err == nil && len(body) > answerMax {
		err = fmt.Errorf("the answer is longer than %d MiB", answerMax>>20)
	}
	return response.Status, body, err
}

// unanswered words why no answer came, in one sentence.
func (c *Client) unanswered(ctx context.Context, err error) error {
	var step *net.OpError
	connecting := errors.As(err, &step) && step.Op == "dial"
	if connecting {
		err = step.Err // without "dial unix" and the path, which the sentence has
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("ask daemon at %q: %w", c.socket, ctx.Err())
	case connecting && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)):
		return fmt.Errorf(`%w at %q ("xlane run DEV" starts one): %w`, ErrNoDaemon, c.socket, err)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("ask daemon at %q: it hung up (it may have too many clients, or be stopping): %w", c.socket, err)
	}
	return fmt.Errorf("ask daemon at %q: %w", c.socket, err)
}
