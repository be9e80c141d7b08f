package awm

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of an FTP server: vsftpd's defaults for an idle session and a stalled
// transfer.
const (
	ftpIdleLimit = int64(300 * time.Second)
	ftpDataLimit = int64(120 * time.Second)
	// ftpAcceptLimit is how long a client may take to open a data connection.
	ftpAcceptLimit = int64(60 * time.Second)
)

// ftpServer serves control connections.
type ftpServer struct {
	serverBase
	token string // the password; empty lets anyone in
	data  *ftpServerData
}

func newFTPServer(base serverBase) *ftpServer {
	r := &ftpServer{serverBase: base}
	if base.w.token != 0 {
		r.token = formatToken(base.w.token)
	}
	r.data = &ftpServerData{serverBase: base, ftp: r}
	return r
}

func (r *ftpServer) opened(c *conn) {
	c.ctl = &ftpControl{}
	r.w.loop.setDeadline(c, ftpIdleLimit, errTooSilent)
	r.answer(c, "220 xlane awm")
}

func (r *ftpServer) answer(c *conn, format string, args ...any) {
	if err := c.ctl.say(c, format, args...); err != nil {
		r.ended(c, err)
	}
}

func (r *ftpServer) feed(c *conn, b []byte) {
	r.w.loop.setDeadline(c, ftpIdleLimit, errTooSilent)
	if err := c.ctl.lines(c, b, r.command); err != nil {
		r.ended(c, err)
	}
}

func (r *ftpServer) ended(c *conn, err error) {
	if c.fd < 0 {
		return
	}
	if err == errTooSilent && c.ctl.data != nil {
		r.w.loop.setDeadline(c, ftpIdleLimit, errTooSilent) // a long transfer is not silence
		return
	}
	r.closeData(c)
	r.closePassive(c)
	r.serverBase.ended(c, err)
}

// closeData ends a transfer without an answer.
func (r *ftpServer) closeData(c *conn) {
	if d := c.ctl.data; d != nil {
		c.ctl.data = nil
		r.w.finish(d)
	}
}

func (r *ftpServer) closePassive(c *conn) {
	if p := c.ctl.passive; p != nil {
		c.ctl.passive = nil
		r.w.finish(p)
	}
}

func (r *ftpServer) command(c *conn, line []byte) {
	word, rest, _ := strings.Cut(string(line), " ")
	word = strings.ToUpper(word)
	f := c.ctl
	switch word {
	case "QUIT":
		r.answer(c, "221 bye")
		if c.fd >= 0 {
			r.ended(c, nil)
		}
	case "USER":
		f.user, f.allowed = rest, false
		r.answer(c, "331 password, please")
	case "PASS":
		f.allowed = r.token == "" || f.user == ftpUser && rest == r.token
		if f.allowed {
			r.answer(c, "230 logged in")
		} else {
			r.w.refused++
			r.answer(c, "530 not of this session")
		}
	case "NOOP":
		r.answer(c, "200 done")
	case "SYST":
		r.answer(c, "215 UNIX Type: L8")
	default:
		if !f.allowed {
			r.answer(c, "530 log in first")
			return
		}
		r.transferCommand(c, word, rest)
	}
}

func (r *ftpServer) transferCommand(c *conn, word, rest string) {
	switch word {
	case "TYPE":
		if strings.EqualFold(rest, "I") || strings.EqualFold(rest, "L 8") {
			r.answer(c, "200 type is image")
		} else {
			r.answer(c, "504 files here are images: TYPE I")
		}
	case "PWD":
		r.answer(c, `257 "/"`)
	case "CWD":
		r.answer(c, "250 every directory is /")
	case "SIZE":
		if file, err := parseFTPFile(rest); err != nil {
			r.answer(c, "550 %v", err)
		} else {
			r.answer(c, "213 %d", file.size)
		}
	case "PASV", "EPSV":
		if err := r.listen(c, word); err != nil {
			r.answer(c, "425 %v", err)
		}
	case "STOR", "RETR":
		r.transfer(c, word, rest)
	default:
		r.answer(c, "502 %.16q is not in this subset", word)
	}
}

// listen opens the port that the client's next data connection goes to.
func (r *ftpServer) listen(c *conn, word string) error {
	if c.ctl.data != nil {
		return fmt.Errorf("a transfer is running")
	}
	r.closePassive(c)
	name, err := unix.Getsockname(c.fd)
	if err != nil {
		return fmt.Errorf("read the local address: %w", err)
	}
	local := addrPort(name).Addr()
	if word == "PASV" && !local.Is4() {
		return fmt.Errorf("use EPSV on IPv6")
	}
	if !r.w.limit.take() {
		return fmt.Errorf("the server has as many connections as it may")
	}
	fd, port, err := listen(local, r.w.ports, r.w.set)
	if err != nil {
		r.w.limit.give()
		return err
	}
	role := acceptor{serverBase: r.serverBase}
	p := r.w.loop.newConn(nil)
	role.accepted = func(data int) { r.accept(c, p, data) }
	p.role = passive{acceptor: role, ftp: r, ctl: c}
	r.w.live++
	if err := r.w.loop.watch(p, fd); err != nil {
		r.w.finish(p)
		return err
	}
	r.w.loop.setDeadline(p, ftpAcceptLimit, errTooSilent)
	c.ctl.passive = p
	if word == "EPSV" {
		r.answer(c, "229 Entering Extended Passive Mode (|||%d|)", port)
		return nil
	}
	a := local.As4()
	r.answer(c, "227 Entering Passive Mode (%d,%d,%d,%d,%d,%d)", a[0], a[1], a[2], a[3], port>>8, port&255)
	return nil
}

// passive is the role of a listening data port: an acceptor that ends with its
// control connection's state.
type passive struct {
	acceptor
	ftp *ftpServer
	ctl *conn
}

func (r passive) ended(*conn, error) { r.ftp.closePassive(r.ctl) }

// accept takes the data connection in, from the host of the control
// connection only, and closes the port.
func (r *ftpServer) accept(c, p *conn, fd int) {
	if !sameHost(c.fd, fd) {
		r.w.refused++
		sysClose(fd)
		r.w.limit.give()
		return
	}
	d := r.w.loop.newConn(r.data)
	r.w.live++
	if err := r.w.loop.watch(d, fd); err != nil {
		r.w.finish(d)
		return
	}
	r.w.tally.Connects++
	r.w.loop.setDeadline(d, ftpDataLimit, errTooSilent)
	d.data = &ftpData{ctl: c}
	c.ctl.data = d
	r.closePassive(c)
	r.begin(c)
}

func sameHost(a, b int) bool {
	x, err1 := unix.Getpeername(a)
	y, err2 := unix.Getpeername(b)
	return err1 == nil && err2 == nil && addrPort(x).Addr() == addrPort(y).Addr() && addrPort(x) != (netip.AddrPort{})
}

func (r *ftpServer) transfer(c *conn, word, name string) {
	f := c.ctl
	file, err := parseFTPFile(name)
	switch {
	case err != nil && word == "STOR":
		r.answer(c, "553 %v", err)
		return
	case err != nil:
		r.answer(c, "550 %v", err)
		return
	case f.verb != "":
		r.answer(c, "425 a transfer is running")
		return
	case f.passive == nil && f.data == nil:
		r.answer(c, "425 say PASV or EPSV first")
		return
	}
	f.verb, f.file = word, file
	r.answer(c, "150 %s bytes", strconv.FormatInt(file.size, 10))
	if c.fd >= 0 {
		r.begin(c)
	}
}

// begin starts the transfer when both its command and its connection are here.
func (r *ftpServer) begin(c *conn) {
	f := c.ctl
	d := f.data
	if d == nil || f.verb == "" || d.data.open {
		return
	}
	d.data.file, d.data.send, d.data.open = f.file, f.verb == "RETR", true
	d.tx, d.rx = f.file.cursor(), f.file.cursor()
	if d.data.send {
		d.txLeft = f.file.size
	}
	r.w.loop.mark(d)
}

// done answers for a transfer that is over.
func (r *ftpServer) done(c *conn, format string, args ...any) {
	r.closeData(c)
	c.ctl.verb = ""
	r.w.loop.setDeadline(c, ftpIdleLimit, errTooSilent)
	r.answer(c, format, args...)
}

// ftpServerData serves data connections.
type ftpServerData struct {
	serverBase
	ftp *ftpServer
}

func (r *ftpServerData) ready(c *conn) bool {
	if !c.data.open {
		return false // what comes early stays in the socket
	}
	r.w.loop.setDeadline(c, ftpDataLimit, errTooSilent)
	return r.w.pump(c)
}

func (r *ftpServerData) feed(c *conn, b []byte) {
	if c.data.send {
		r.w.payloadError(c, c.rxPos, "the client sent data while it gets a file")
		return
	}
	if left := c.data.file.size - c.rxPos; int64(len(b)) > left {
		r.w.payloadError(c, c.rxPos, fmt.Sprintf("%d bytes came where %d of the file are left", len(b), left))
		return
	}
	r.w.take(c, b)
}

func (r *ftpServerData) sent(c *conn) {
	r.w.tally.Transactions++
	r.ftp.done(c.data.ctl, "226 sent %d bytes", c.txPos)
}

func (r *ftpServerData) ended(c *conn, err error) {
	ctl := c.data.ctl
	switch {
	case err == errPayload:
		r.ftp.done(ctl, "550 the content is wrong: %s", r.w.lastDetail())
	case err != nil:
		if !r.w.ending {
			r.w.connError(err)
		}
		r.ftp.done(ctl, "426 %v", err)
	case c.data.send:
		r.ftp.done(ctl, "426 the client stopped after %d bytes", c.txPos)
	case c.rxPos < c.data.file.size && r.w.ending:
		r.ftp.done(ctl, "426 the client stopped after %d bytes", c.rxPos)
	case c.rxPos < c.data.file.size:
		r.w.payloadError(c, c.rxPos, fmt.Sprintf("the connection closed after %d of a file's %d bytes", c.rxPos, c.data.file.size))
	default:
		r.w.tally.Transactions++
		r.ftp.done(ctl, "226 got %d bytes", c.rxPos)
	}
}
