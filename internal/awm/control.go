package awm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// The control connection carries one JSON object a line. The client leads:
//
//	hello   → ports, or refused with a reason
//	begin   → began     the window begins on both sides
//	end     → window    the server's figures of the window
//	close   → totals    when the data connections are gone
//	ping                every pingEvery, unanswered: the client is alive
//
// protocolVersion changes with anything that an older side would misread,
// hellos and frames included.
const (
	protocolVersion = 1

	pingEvery = 2 * time.Second
	// controlIdle is how long a server keeps a session whose client is silent.
	controlIdle = 15 * time.Second
	// helloTimeout is how long either side waits for the other's first line.
	helloTimeout = 5 * time.Second
	// answerLimit is how long a client waits for any other answer.
	answerLimit = 20 * time.Second
	// requestMax and answerMax bound a line: 32 classes' specs, and 32
	// classes' samples.
	requestMax = 64 << 10
	answerMax  = 32 << 20
	// samplesMax is the most intervals that a run may have.
	samplesMax = 10000
)

// request is a line of the client's.
type request struct {
	Op         string   `json:"op"`
	Version    int      `json:"version,omitempty"`
	Classes    []string `json:"classes,omitempty"`
	Threads    int      `json:"threads,omitempty"`
	Check      bool     `json:"check,omitempty"`
	IntervalUs int64    `json:"interval_us,omitempty"`
}

// answer is a line of the server's.
type answer struct {
	Op      string     `json:"op"`
	Version int        `json:"version,omitempty"`
	Error   string     `json:"error,omitempty"`
	Token   string     `json:"token,omitempty"`
	Ports   [][]uint16 `json:"ports,omitempty"` // by class, then by thread
	Classes []side     `json:"classes,omitempty"`
	Host    HostReport `json:"host"`
}

func formatToken(t uint64) string { return fmt.Sprintf("%016x", t) }

func parseToken(s string) (uint64, error) {
	t, err := strconv.ParseUint(s, 16, 64)
	if err != nil || t == 0 {
		return 0, fmt.Errorf("read the session's token: %q is not one", s)
	}
	return t, nil
}

// lineConn reads and writes bounded lines of JSON.
type lineConn struct {
	net.Conn
	in  *bufio.Reader
	max int
}

func newLineConn(c net.Conn, most int) *lineConn {
	return &lineConn{Conn: c, in: bufio.NewReaderSize(c, 4096), max: most}
}

var errLineLong = errors.New("the line is too long")

// read reads one line into v, for as long as limit.
func (l *lineConn) read(v any, limit time.Duration) error {
	if err := l.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		if len(line)+len(part) > l.max {
			return errLineLong
		}
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) && len(line) > 0 {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("read a message: %w", err)
	}
	return nil
}

// write sends v as one line.
func (l *lineConn) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	if err := l.SetWriteDeadline(time.Now().Add(answerLimit)); err != nil {
		return err
	}
	_, err = l.Write(append(b, '\n'))
	return err
}
