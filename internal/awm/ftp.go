package awm

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The FTP here is the part of RFC 959 (and EPSV of RFC 2428) that an image
// transfer in passive mode needs. A file's name says what is in it:
// awm-SEED-SIZE is SIZE bytes of the pattern stream that SEED starts, so that
// any FTP client can get one, and put it back to have it checked.

// ftpLineMax bounds a command or an answer, with its CR LF (RFC 959 has no
// limit; ours are below 100).
const ftpLineMax = 512

// ftpUser is who logs in to a session's FTP server; the password is the
// session's token. An open server (--ftp-listen) takes anyone.
const ftpUser = "awm"

// ftpControl is the state of an FTP control connection, at either end.
type ftpControl struct {
	line    [ftpLineMax]byte
	lineLen int
	data    *conn
	cmd     []byte // the last command or answer sent, kept for its memory

	// The server's.
	user    string
	allowed bool
	passive *conn
	verb    string // STOR or RETR, from its acceptance to its answer
	file    ftpFile

	// The client's.
	state    ftpState
	serial   uint64
	dataDone bool
	finished bool // 226 came
}

// ftpData is the state of an FTP data connection, at either end.
type ftpData struct {
	ctl  *conn
	file ftpFile
	send bool
	open bool // the control connection has agreed to the transfer
}

// ftpFile is what a file's name says.
type ftpFile struct {
	seed uint64
	size int64
}

func (f ftpFile) cursor() cursor { return newCursor(f.seed, towardsServer) }

func parseFTPFile(name string) (ftpFile, error) {
	base := name[strings.LastIndexByte(name, '/')+1:]
	parts := strings.Split(base, "-")
	if len(parts) == 3 && parts[0] == "awm" {
		seed, err := strconv.ParseUint(parts[1], 10, 64)
		size, ok := parseSize(parts[2])
		if err == nil && ok && size <= SizeMax {
			return ftpFile{seed: seed, size: size}, nil
		}
	}
	return ftpFile{}, fmt.Errorf("%q is not a file: names are awm-SEED-SIZE, such as awm-7-20M", base)
}

// lines calls each with every whole line of what was received so far. A line
// that does not fit is an error.
func (f *ftpControl) lines(c *conn, b []byte, each func(c *conn, line []byte)) error {
	for len(b) > 0 && c.fd >= 0 {
		n := copy(f.line[f.lineLen:], b)
		if n == 0 {
			return fmt.Errorf("read a line: it is longer than %d bytes", ftpLineMax)
		}
		f.lineLen += n
		b = b[n:]
		for c.fd >= 0 {
			end := bytes.IndexByte(f.line[:f.lineLen], '\n')
			if end < 0 {
				break
			}
			line := bytes.TrimRight(f.line[:end], "\r\n")
			each(c, line)
			f.lineLen = copy(f.line[:], f.line[end+1:f.lineLen])
		}
	}
	return nil
}

// say sends one line. It always fits an empty socket buffer; a peer that lets
// it fill does not read its answers, and is an error.
func (f *ftpControl) say(c *conn, format string, args ...any) error {
	f.cmd = fmt.Appendf(f.cmd[:0], format, args...)
	f.cmd = append(f.cmd, '\r', '\n')
	n, e := sysSend(c.fd, f.cmd)
	if e != 0 {
		return fmt.Errorf("write a line: %w", e)
	}
	if n < len(f.cmd) {
		return fmt.Errorf("write a line: the peer does not read (%w)", unix.EAGAIN)
	}
	return nil
}
