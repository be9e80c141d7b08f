package awm

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// ftpState is which answer a client's control connection waits for.
type ftpState uint8

const (
	ftpGreeting ftpState = iota
	ftpUserSent
	ftpPassSent
	ftpTypeSent
	ftpPassiveSent
	ftpTransferSent
	ftpTransferring
	ftpQuitSent
)

// ftpClient drives control connections: a transaction is one file, from PASV
// to both the 226 and the end of the data connection.
type ftpClient struct {
	clientBase
	files *ftpClientData
}

func (r *ftpClient) connected(c *conn) {
	if c.ctl == nil {
		c.ctl = &ftpControl{}
	}
	*c.ctl = ftpControl{cmd: c.ctl.cmd, serial: c.ctl.serial}
}

func (r *ftpClient) say(c *conn, next ftpState, format string, args ...any) {
	c.ctl.state = next
	if err := c.ctl.say(c, format, args...); err != nil {
		r.ended(c, err)
	}
}

func (r *ftpClient) feed(c *conn, b []byte) {
	if err := c.ctl.lines(c, b, r.answer); err != nil {
		r.ended(c, err)
	}
}

func (r *ftpClient) ended(c *conn, err error) {
	if d := c.ctl; d != nil && d.data != nil {
		r.files.close(d.data)
	}
	r.clientBase.ended(c, err)
}

// answer takes one line of the server's.
func (r *ftpClient) answer(c *conn, line []byte) {
	if len(line) > 3 && line[3] == '-' {
		return // more of the same answer follows
	}
	code, err := strconv.Atoi(string(line[:min(len(line), 3)]))
	if err != nil {
		r.ended(c, fmt.Errorf("read an answer: %.80q has no code", line))
		return
	}
	f := c.ctl
	if c.draining {
		return
	}
	switch {
	case f.state == ftpGreeting && code == 220:
		r.say(c, ftpUserSent, "USER %s", ftpUser)
	case f.state == ftpUserSent && code == 331:
		r.say(c, ftpPassSent, "PASS %s", formatToken(r.w.token))
	case f.state == ftpPassSent && code == 230:
		r.say(c, ftpTypeSent, "TYPE I")
	case f.state == ftpTypeSent && code == 200:
		c.start = r.w.loop.clock()
		r.transfer(c)
	case f.state == ftpPassiveSent && (code == 227 || code == 229):
		r.dialData(c, line)
	case f.state == ftpTransferSent && code == 150:
		f.state = ftpTransferring
		r.files.begin(f.data)
	case f.state == ftpTransferring && code == 226:
		f.finished = true
		r.finish(c)
	default:
		r.ended(c, fmt.Errorf("the server answered %.80q", line))
	}
}

func (r *ftpClient) transfer(c *conn) {
	c.ctl.dataDone, c.ctl.finished = false, false
	if r.w.to.v6 {
		r.say(c, ftpPassiveSent, "EPSV")
		return
	}
	r.say(c, ftpPassiveSent, "PASV")
}

// dialData opens the data connection and names the file.
func (r *ftpClient) dialData(c *conn, line []byte) {
	port, err := passivePort(line)
	if err != nil {
		r.ended(c, err)
		return
	}
	f := c.ctl
	f.serial++
	file := ftpFile{seed: r.w.token>>16 ^ uint64(c.id)<<32 ^ f.serial, size: max(r.w.spec.In, r.w.spec.Out)}
	d := r.w.loop.newConn(r.files)
	d.id = c.id
	d.data = &ftpData{ctl: c, file: file, send: r.w.spec.In > 0}
	fd, err := newSockaddr(netip.AddrPortFrom(r.w.peer, port)).connect(r.w.set)
	if err == nil {
		err = r.w.loop.watch(d, fd)
	}
	if err != nil {
		r.w.loop.release(d)
		r.ended(c, fmt.Errorf("open a data connection: %w", err))
		return
	}
	d.connecting = true
	r.w.loop.setDeadline(d, connectLimit, errNoAnswer)
	d.tx, d.rx = file.cursor(), file.cursor()
	f.data = d
	verb := "RETR"
	if d.data.send {
		verb = "STOR"
	}
	r.say(c, ftpTransferSent, "%s awm-%d-%d", verb, file.seed, file.size)
}

// passivePort reads the port of a 227 or 229 answer.
func passivePort(line []byte) (uint16, error) {
	from, to := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if from >= 0 && to > from {
		inner := line[from+1 : to]
		if bytes.HasPrefix(inner, []byte("|||")) {
			n, err := strconv.ParseUint(string(bytes.Trim(inner, "|")), 10, 16)
			if err == nil && n > 0 {
				return uint16(n), nil
			}
		} else if parts := bytes.Split(inner, []byte(",")); len(parts) == 6 {
			high, err1 := strconv.ParseUint(string(parts[4]), 10, 8)
			low, err2 := strconv.ParseUint(string(parts[5]), 10, 8)
			if err1 == nil && err2 == nil && high+low > 0 {
				return uint16(high<<8 | low), nil
			}
		}
	}
	return 0, fmt.Errorf("read a passive port: %.80q names none", line)
}

// finish ends a transaction when the answer and the data are both complete.
func (r *ftpClient) finish(c *conn) {
	f := c.ctl
	if !f.finished || !f.dataDone {
		return
	}
	now := r.w.loop.clock()
	r.w.record(c.start, now)
	c.start = now
	r.transfer(c)
}

// quit stops the transfer, if there is one, and then says QUIT.
func (r *ftpClient) quit(c *conn) {
	c.draining = true
	if d := c.ctl.data; d != nil {
		if !d.connecting {
			d.draining, d.txLeft = true, 0
			d.shutdown()
			return // its end says QUIT
		}
		r.files.close(d)
	}
	r.say(c, ftpQuitSent, "QUIT")
}

// ftpClientData drives data connections.
type ftpClientData struct{ w *clientWorker }

func (r *ftpClientData) ready(c *conn) bool {
	if c.connecting {
		if c.canRead {
			if err := pendingError(c.fd); err != nil {
				r.ended(c, fmt.Errorf("connect: %w", err))
				return false
			}
		}
		if !c.canWrite {
			return false
		}
		c.connecting, c.deadline = false, 0
		r.w.tally.Connects++
		r.begin(c)
	}
	return r.w.pump(c)
}

// begin sends the file when the connection and the server's 150 are both here.
func (r *ftpClientData) begin(c *conn) {
	if c == nil || c.connecting || c.data.ctl.ctl.state != ftpTransferring || c.draining || c.data.open {
		return
	}
	c.data.open = true
	if c.data.send {
		c.txLeft = c.data.file.size
		r.w.loop.mark(c)
	}
}

func (r *ftpClientData) feed(c *conn, b []byte) {
	if left := c.data.file.size - c.rxPos; c.data.send || int64(len(b)) > left {
		r.w.payloadError(c, c.rxPos, fmt.Sprintf("%d bytes came that are not of the file", len(b)))
		return
	}
	r.w.take(c, b)
}

func (r *ftpClientData) sent(c *conn) { c.shutdown() }

func (r *ftpClientData) timer(*conn) {}

func (r *ftpClientData) ended(c *conn, err error) {
	ctl := c.data.ctl
	moved, size := c.rxPos, c.data.file.size
	if c.data.send {
		moved = c.txPos
	}
	draining, send := c.draining, c.data.send
	r.close(c)
	switch {
	case draining && err == nil:
		ctl.role.(*ftpClient).say(ctl, ftpQuitSent, "QUIT")
	case err != nil:
		ctl.role.ended(ctl, err)
	case moved < size && !send:
		r.w.payloadError(ctl, moved, fmt.Sprintf("the data connection closed after %d of a file's %d bytes", moved, size))
	case moved < size:
		ctl.role.ended(ctl, errors.New("the server closed the data connection"))
	default:
		ctl.ctl.dataDone = true
		ctl.role.(*ftpClient).finish(ctl)
	}
}

// close lets go of a data connection.
func (r *ftpClientData) close(c *conn) {
	c.data.ctl.ctl.data = nil
	r.w.forget(c)
	r.w.loop.release(c)
}
